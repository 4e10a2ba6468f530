//! Rights that the process gives up, because it will not need them.
//!
//! First it prevents other processes from reading its memory: no core dump, no ptrace by the same user. Then, once
//! everything that it needs is open, it gives up its user and capabilities, other files and processes (Landlock), and
//! other system calls (seccomp). The ready line states each measure as applied, partial or not supported.

mod privileges;
mod seccomp;

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::{Signal, raise};
use nix::unistd::Pid;
use sluice_contract::ready::Measure;

pub use privileges::{User, UserChoice, ignores_modes, may_become_user};
pub use seccomp::SyscallNeeds;

/// A measure failed although the kernel has it: the process must not continue without it.
#[derive(Debug, thiserror::Error)]
pub enum HardenError {
    /// A `prctl` or a limit failed.
    #[error("cannot give up core dumps and privileges")]
    Process(#[from] Errno),
    /// The process cannot become the user of `--user`.
    #[error("cannot become user {} with group {}; name ids that the user namespace maps, and start sluice-proxy as root with the capabilities SETUID and SETGID; or stay root with --user root", user.uid, user.gid)]
    User {
        /// The user that the process should become.
        user: User,
        /// The kernel's reason.
        source: Errno,
    },
    /// A capability set cannot be emptied.
    #[error("cannot give up capabilities: {0}")]
    Capabilities(String),
    /// Landlock failed.
    #[error("cannot confine the process to its files")]
    Landlock(#[from] landlock::RulesetError),
    /// A directory that existed a moment ago is gone.
    #[error("cannot confine the process to its files")]
    Path(#[from] landlock::PathFdError),
    /// seccomp failed.
    #[error("cannot confine the process to its system calls")]
    Seccomp(#[from] seccompiler::Error),
    /// The parent ended before the watch on it began.
    #[error("the parent process has already ended")]
    Orphan,
}

/// Hardens the process. To be called before any secret is read.
///
/// # Errors
/// [`HardenError::Process`]
pub fn process() -> Result<(), HardenError> {
    prctl::set_dumpable(false)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    prctl::set_no_new_privs()?;
    Ok(())
}

/// Signal for the end of the parent. A signal of its own: the kernel sends it once for each thread of an ending
/// parent, and a second SIGTERM would mean a faster stop.
pub const ORPHANED: Signal = Signal::SIGUSR1;

/// Watch on the parent: the process ends in order when its parent ends.
#[derive(Debug)]
pub struct ParentWatch(Pid);

impl ParentWatch {
    /// Begins to watch the current parent.
    ///
    /// # Errors
    /// [`HardenError::Orphan`], if the parent has ended already.
    pub fn begin() -> Result<Self, HardenError> {
        let watch = Self(nix::unistd::getppid());
        prctl::set_pdeathsig(ORPHANED)?;
        if watch.is_orphan() { Err(HardenError::Orphan) } else { Ok(watch) }
    }

    /// Asks the kernel again for its signal, since the kernel forgets the request when the user of the process
    /// changes. If the parent has ended meanwhile, this function raises the signal: the audit file exists by now, and
    /// gets its end.
    ///
    /// # Errors
    /// [`HardenError::Process`]
    pub fn renew(&self) -> Result<(), HardenError> {
        prctl::set_pdeathsig(ORPHANED)?;
        if self.is_orphan() {
            raise(ORPHANED)?;
        }
        Ok(())
    }

    /// Returns true if the parent has ended, perhaps before the request.
    fn is_orphan(&self) -> bool {
        nix::unistd::getppid() != self.0
    }
}

/// Becomes the user, if one is given, and gives up all capabilities. To be called once everything is open, and before
/// another thread exists.
///
/// # Errors
/// [`HardenError::User`], [`HardenError::Capabilities`]
pub fn privileges(user: Option<User>) -> Result<Measure, HardenError> {
    privileges::give_up(user)
}

/// Files and ports that are still needed. Files that are open already need no entry.
#[derive(Debug)]
pub struct HardeningNeeds {
    /// Directories in which files are removed.
    pub remove: Vec<PathBuf>,
    /// Files and directories that are read.
    pub read: Vec<PathBuf>,
    /// TCP ports to connect to; `None` does not restrict TCP.
    pub connect: Option<Vec<u16>>,
}

/// Gives up all other files. To be called once everything is open, and before another thread exists: threads inherit
/// it.
///
/// # Errors
/// [`HardenError::Landlock`], [`HardenError::Path`]
pub fn files(needs: &HardeningNeeds) -> Result<Measure, HardenError> {
    let abi = ABI::V6;
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        // This denies signals to other processes, and connections to their abstract sockets.
        .scope(Scope::from_all(abi))?;
    if needs.connect.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    let mut created = ruleset.create()?;
    for path in existing(&needs.remove) {
        created = created.add_rule(PathBeneath::new(PathFd::new(path)?, AccessFs::RemoveFile))?;
    }
    for path in existing(&needs.read) {
        let directory = path.is_dir();
        let allowed: BitFlags<AccessFs> =
            if directory { AccessFs::ReadFile | AccessFs::ReadDir } else { AccessFs::ReadFile.into() };
        created = created.add_rule(PathBeneath::new(PathFd::new(path)?, allowed))?;
    }
    for port in needs.connect.iter().flatten() {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(match created.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Measure::Applied,
        RulesetStatus::PartiallyEnforced => Measure::Partial,
        RulesetStatus::NotEnforced => Measure::NotSupported,
    })
}

fn existing(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path).filter(|path| path.exists())
}

/// Gives up all other system calls. To be called last, when all threads run: each of them gets the filter.
///
/// # Errors
/// [`HardenError::Seccomp`]
pub fn system_calls(calls: SyscallNeeds) -> Result<Measure, HardenError> {
    seccomp::apply(calls)
}

#[cfg(test)]
mod tests;
