//! What the process gives up, because it will not need it.
//!
//! First of all nobody may look into it: no core, no ptrace by the same user. Then, once everything is
//! open that has to be, no other files (Landlock) and no other system calls (seccomp). Each is stated in
//! the ready line as applied or not supported.

mod seccomp;

use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus,
};
use nix::errno::Errno;
use nix::sys::prctl;
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use serde::Serialize;

/// Whether a measure is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Measure {
    /// It is.
    Applied,
    /// The kernel has some of it.
    Partial,
    /// The kernel has none of it.
    NotSupported,
}

/// What the ready line says of the process.
#[derive(Debug, Clone, Copy, Serialize)]
#[allow(missing_docs, reason = "named like the measures")]
pub struct Hardening {
    pub no_core: Measure,
    pub no_new_privileges: Measure,
    pub non_dumpable: Measure,
    pub landlock: Measure,
    pub seccomp: Measure,
}

/// A measure failed although the kernel has it: the process must not go on without.
#[derive(Debug, thiserror::Error)]
pub enum HardenError {
    /// A `prctl` or a limit.
    #[error("cannot give up core dumps and privileges")]
    Process(#[from] Errno),
    /// Landlock.
    #[error("cannot confine the process to its files")]
    Landlock(#[from] landlock::RulesetError),
    /// A directory that was there a moment ago.
    #[error("cannot confine the process to its files")]
    Path(#[from] landlock::PathFdError),
    /// seccomp.
    #[error("cannot confine the process to its system calls")]
    Seccomp(#[from] seccompiler::Error),
    /// The parent was gone before the watch on it began.
    #[error("the parent process has already ended")]
    Orphan,
}

/// Before anything secret is read.
///
/// # Errors
/// [`HardenError::Process`]
pub fn process() -> Result<(), HardenError> {
    prctl::set_dumpable(false)?;
    setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
    prctl::set_no_new_privs()?;
    Ok(())
}

/// What tells that the parent has ended. A signal of its own: the kernel sends it once for each thread of a dying parent
/// that we are handed to, and a second SIGTERM would mean haste.
pub const ORPHANED: Signal = Signal::SIGUSR1;

/// Ends this process, in order, when its parent ends.
///
/// # Errors
/// [`HardenError::Orphan`] when that has happened already.
pub fn die_with_parent() -> Result<(), HardenError> {
    let parent = nix::unistd::getppid();
    prctl::set_pdeathsig(ORPHANED)?;
    // The parent may have gone between the two.
    if nix::unistd::getppid() == parent { Ok(()) } else { Err(HardenError::Orphan) }
}

/// The files and ports that are still needed.
#[derive(Debug)]
pub struct Needs {
    /// Directories in which files are made and removed.
    pub write: Vec<PathBuf>,
    /// Files and directories that are read.
    pub read: Vec<PathBuf>,
    /// TCP ports that are connected to; `None` leaves TCP alone.
    pub connect: Option<Vec<u16>>,
}

/// Once all is open, and before another thread exists. Threads inherit it.
///
/// # Errors
/// [`HardenError::Landlock`], [`HardenError::Path`]
pub fn files(needs: &Needs) -> Result<Measure, HardenError> {
    let abi = ABI::V6;
    let mut ruleset =
        Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(abi))?;
    if needs.connect.is_some() {
        ruleset = ruleset.handle_access(AccessNet::from_all(abi))?;
    }
    let mut created = ruleset.create()?;
    for path in existing(&needs.write) {
        let allowed = AccessFs::from_read(abi) & !AccessFs::Execute | write_in_place();
        created = created.add_rule(PathBeneath::new(PathFd::new(path)?, allowed))?;
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

fn write_in_place() -> BitFlags<AccessFs> {
    AccessFs::WriteFile | AccessFs::MakeReg | AccessFs::MakeSock | AccessFs::RemoveFile | AccessFs::Truncate
}

fn existing(paths: &[PathBuf]) -> impl Iterator<Item = &Path> {
    paths.iter().map(PathBuf::as_path).filter(|path| path.exists())
}

/// Last, when all threads run: each of them gets it.
///
/// # Errors
/// [`HardenError::Seccomp`]
pub fn system_calls() -> Result<Measure, HardenError> {
    seccomp::apply()
}
