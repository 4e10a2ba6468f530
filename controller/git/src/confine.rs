//! The process that confines itself and then becomes git.
//!
//! It gives up the network, all directories except its own, its user and its capabilities, in this order, and starts no
//! program if one of them cannot be given up.

use std::convert::Infallible;
use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::resource::{Resource, setrlimit};
use nix::unistd::{Gid, Uid, getegid, geteuid, setgroups, setresgid, setresuid};

use crate::confine_request::{ConfineRequest, DirectoryAccess, NOT_CONFINED, NotARequest};

/// Mount point of the process's directory, in a file system of its own.
const VIEW: &str = "/tmp/repository";

/// Directories with files and sockets of others, which a process without a network does not see at all. Landlock does not
/// restrict connections to a socket in a directory.
const HIDDEN: [&str; 8] = ["/run", "/var", "/home", "/root", "/srv", "/mnt", "/media", "/dev/shm"];

/// Maximum number of git's open files.
const OPEN_FILES: u64 = 1024;

/// Directories with programs and libraries.
const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"];

/// Files of the system that libraries, name resolution and TLS read.
const SYSTEM_FILES: [&str; 19] = [
    "/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/passwd", "/etc/group",
    "/etc/nsswitch.conf", "/etc/hosts", "/etc/host.conf", "/etc/resolv.conf", "/etc/gai.conf", "/etc/services",
    "/etc/protocols", "/etc/localtime", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/crypto-policies",
    "/etc/alternatives",
];

/// Devices that git uses.
const DEVICES: [&str; 3] = ["/dev/null", "/dev/zero", "/dev/urandom"];

/// Reason why a process could not be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The arguments are not a request as Sluice writes it.
    #[error(transparent)]
    Arguments(#[from] NotARequest),
    /// The network namespace cannot be created.
    #[error("the kernel refuses a network namespace ({0}); run sluice as root, or allow user namespaces")]
    Network(Errno),
    /// The mount namespace or a mount in it cannot be made.
    #[error("the kernel refuses a mount namespace or a mount in it ({0}); run sluice with the capability SYS_ADMIN")]
    Mount(Errno),
    /// The user cannot be changed.
    #[error("the kernel refuses to change the user ({0}); run sluice with the capabilities SETUID and SETGID")]
    User(Errno),
    /// Capabilities cannot be given up.
    #[error("capabilities cannot be given up: {0}")]
    Capabilities(#[from] caps::errors::CapsError),
    /// A limit cannot be set.
    #[error("a limit cannot be set ({0})")]
    Limit(Errno),
    /// The Landlock rules cannot be made or enforced.
    #[error("Landlock failed: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// A directory cannot be opened.
    #[error("Landlock failed: {0}")]
    Path(#[from] landlock::PathFdError),
    /// The kernel has no Landlock.
    #[error("the kernel does not enforce Landlock; use Linux 5.13 or later with lsm=landlock")]
    NoLandlock,
    /// A file or directory cannot be used.
    #[error("cannot {what}: {source}")]
    File {
        /// The action.
        what: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

/// Confines this process as the arguments of `git-child` state, and becomes git. The process has one thread, and its working
/// directory is the repository.
///
/// The function returns only if that fails; the number is the exit code for the process.
///
/// # Errors
/// [`ConfineError`]
pub fn confine(arguments: &[OsString]) -> (i32, ConfineError) {
    match confined(arguments) {
        Ok(never) => match never {},
        Err(error) => (NOT_CONFINED, error),
    }
}

fn confined(arguments: &[OsString]) -> Result<Infallible, ConfineError> {
    let request = ConfineRequest::parse(arguments)?;
    let is_root = geteuid().is_root();
    leave_network(&request, is_root)?;
    if is_root {
        leave_files(&request)?;
        caps::clear(None, caps::CapSet::Bounding)?;
    }
    change_user(&request)?;
    limit(&request)?;
    restrict_files(&request)?;
    for set in [caps::CapSet::Ambient, caps::CapSet::Permitted, caps::CapSet::Inheritable] {
        caps::clear(None, set)?;
    }
    let [program, arguments @ ..] = &request.program[..] else { return Err(NotARequest.into()) };
    let source = Command::new(program).args(arguments).exec();
    Err(ConfineError::File { what: "start git", source })
}

/// Gives up the network, unless the request has a port.
fn leave_network(request: &ConfineRequest, is_root: bool) -> Result<(), ConfineError> {
    if request.port.is_some() {
        return Ok(());
    }
    if is_root {
        return unshare(CloneFlags::CLONE_NEWNET).map_err(ConfineError::Network);
    }
    let (uid, gid) = (geteuid(), getegid());
    // The id map files in `/proc` of a process that is not dumpable belong to root.
    nix::sys::prctl::set_dumpable(true).map_err(ConfineError::Network)?;
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNET).map_err(ConfineError::Network)?;
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{uid} {uid} 1")),
        ("gid_map", format!("{gid} {gid} 1")),
    ];
    for (file, text) in maps {
        fs::write(format!("/proc/self/{file}"), text).map_err(file_error("map the user in a user namespace"))?;
    }
    Ok(())
}

/// Moves into a mount namespace in which `/tmp` has only the repository, and enters it. So git's user needs no rights
/// to the parents of the repository.
fn leave_files(request: &ConfineRequest) -> Result<(), ConfineError> {
    const NONE: Option<&str> = None;
    let passwd = accounts_with(request)?;
    unshare(CloneFlags::CLONE_NEWNS).map_err(ConfineError::Mount)?;
    // Opened after `unshare`, since a mount of another namespace cannot be bound.
    let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY).open(".");
    let directory = opened.map_err(file_error("open the repository"))?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).map_err(ConfineError::Mount)?;
    let safe = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("tmpfs"), "/tmp", Some("tmpfs"), safe, Some("size=1m,mode=0755")).map_err(ConfineError::Mount)?;
    fs::create_dir(VIEW).map_err(file_error("make a mount point"))?;
    let source = format!("/proc/self/fd/{}", directory.as_raw_fd());
    mount(Some(&source[..]), VIEW, NONE, MsFlags::MS_BIND, NONE).map_err(ConfineError::Mount)?;
    let read_only = match request.access {
        DirectoryAccess::Read => MsFlags::MS_RDONLY,
        DirectoryAccess::Write => MsFlags::empty(),
    };
    mount(NONE, VIEW, NONE, MsFlags::MS_BIND | MsFlags::MS_REMOUNT | safe | read_only, NONE)
        .map_err(ConfineError::Mount)?;
    if request.port.is_none() {
        for hidden in HIDDEN.iter().filter(|path| fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())) {
            let options = Some("size=4k,mode=0755");
            mount(Some("tmpfs"), *hidden, Some("tmpfs"), safe | MsFlags::MS_RDONLY, options)
                .map_err(ConfineError::Mount)?;
        }
    }
    if let Some(passwd) = passwd {
        fs::write("/tmp/passwd", passwd).map_err(file_error("write a list of accounts"))?;
        mount(Some("/tmp/passwd"), "/etc/passwd", NONE, MsFlags::MS_BIND, NONE).map_err(ConfineError::Mount)?;
    }
    std::env::set_current_dir(VIEW).map_err(file_error("enter the repository"))
}

/// Returns the accounts of the host, with an additional one for git's user if that user has none: ssh fails without
/// one.
fn accounts_with(request: &ConfineRequest) -> Result<Option<String>, ConfineError> {
    let Some((uid, gid)) = request.user.filter(|_| request.port.is_some()) else { return Ok(None) };
    let accounts = fs::read_to_string("/etc/passwd").map_err(file_error("read the accounts of the host"))?;
    let has_account = accounts.lines().any(|line| line.split(':').nth(2) == Some(&uid.to_string()));
    Ok((!has_account).then(|| format!("{}\nsluice-git:x:{uid}:{gid}::/nonexistent:/bin/false\n", accounts.trim_end())))
}

fn change_user(request: &ConfineRequest) -> Result<(), ConfineError> {
    let Some((uid, gid)) = request.user else { return Ok(()) };
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    setgroups(&[]).map_err(ConfineError::User)?;
    setresgid(gid, gid, gid).map_err(ConfineError::User)?;
    setresuid(uid, uid, uid).map_err(ConfineError::User)
}

fn limit(request: &ConfineRequest) -> Result<(), ConfineError> {
    let limits = [
        (Resource::RLIMIT_AS, request.memory),
        (Resource::RLIMIT_CPU, request.cpu),
        (Resource::RLIMIT_FSIZE, request.file),
        (Resource::RLIMIT_NOFILE, OPEN_FILES),
        (Resource::RLIMIT_CORE, 0),
    ];
    limits.into_iter().try_for_each(|(resource, value)| setrlimit(resource, value, value)).map_err(ConfineError::Limit)
}

fn restrict_files(request: &ConfineRequest) -> Result<(), ConfineError> {
    let abi = ABI::V6;
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?;
    let mut created = ruleset.create()?;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::WriteFile
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSym
        | AccessFs::Refer
        | AccessFs::Truncate;
    let own = match request.access {
        DirectoryAccess::Read => read,
        DirectoryAccess::Write => read | write,
    };
    let programs = PROGRAMS.iter().map(|path| (PathBuf::from(path), read | AccessFs::Execute));
    let system = SYSTEM_FILES.iter().map(|path| (PathBuf::from(path), read));
    let devices = DEVICES.iter().map(|path| (PathBuf::from(path), AccessFs::ReadFile | AccessFs::WriteFile));
    let rules = [(PathBuf::from("."), own)].into_iter().chain(programs).chain(system).chain(devices);
    for (path, access) in rules.filter(|(path, _)| path.exists()) {
        let allowed = if path.is_dir() { access } else { access & files_only() };
        created = created.add_rule(PathBeneath::new(PathFd::new(&path)?, allowed))?;
    }
    if let Some(port) = request.port {
        created = created.add_rule(NetPort::new(port, AccessNet::ConnectTcp))?;
    }
    match created.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Err(ConfineError::NoLandlock),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
    }
}

fn files_only() -> BitFlags<AccessFs> {
    AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Execute | AccessFs::Truncate
}

fn file_error(what: &'static str) -> impl FnOnce(io::Error) -> ConfineError {
    move |source| ConfineError::File { what, source }
}
