//! Directories of the host that the runs of an agent may read, checked before they are mounted.
//!
//! The engine takes a path, and resolves it again. So the result of the check has to stay true: only root may be able
//! to replace a part of the path. The check walks from one descriptor to the next, follows no link, and checks each
//! directory that it enters.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, Stat, fstat, openat2};
use rustix::io::Errno;

use crate::blueprint::{MountAccess, Volume};
use crate::mount_rights::{self, MountFault};

/// Reason why a directory cannot be granted.
#[derive(Debug, thiserror::Error)]
#[error("{}: {fault}", path.display())]
pub struct GrantError {
    /// The directory, or the part of its path that has the fault.
    pub path: PathBuf,
    /// The fault.
    pub fault: GrantFault,
}

/// Fault of a requested grant.
#[derive(Debug, thiserror::Error)]
pub enum GrantFault {
    /// The path does not exist.
    #[error("it does not exist")]
    Missing,
    /// A part of the path is a link.
    #[error("it is a link; name the directory that it leads to")]
    Link,
    /// Something else has this name.
    #[error("it is not a directory")]
    NotADirectory,
    /// A user other than root could put another directory there between the check and the mount.
    #[error("another user than root can replace it; move it to where only root can write")]
    Replaceable,
    /// Users of sandboxes cannot read it.
    #[error("{0}")]
    Unreadable(String),
    /// Errors of the kernel.
    #[error("it cannot be looked up: {0}")]
    Io(io::Error),
}

impl GrantFault {
    /// Returns a stable word for the fault.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Link => "link",
            Self::NotADirectory => "not_a_directory",
            Self::Replaceable => "replaceable",
            Self::Unreadable(_) => "unreadable",
            Self::Io(_) => "unavailable",
        }
    }
}

impl From<Errno> for GrantFault {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::NOENT => Self::Missing,
            Errno::LOOP => Self::Link,
            Errno::NOTDIR => Self::NotADirectory,
            other => Self::Io(other.into()),
        }
    }
}

/// Checks that a directory exists, that its path has no link, that only root can replace a part of the path, and that a user
/// of sandboxes can enter it.
///
/// # Errors
/// [`GrantError`]: the first fault.
pub fn check(grant: &Path, user: u32) -> Result<(), GrantError> {
    let at = |path: &Path| {
        let path = path.to_owned();
        move |fault: Errno| GrantError { path, fault: fault.into() }
    };
    let mut path = PathBuf::from("/");
    let mut directory = enter(CWD, &path).map_err(at(&path))?;
    let mut parent = fstat(&directory).map_err(at(&path))?;
    for part in grant.components().filter(|part| *part != Component::RootDir) {
        path.push(part);
        directory = enter(&directory, Path::new(&part)).map_err(at(&path))?;
        let child = fstat(&directory).map_err(at(&path))?;
        if is_replaceable(&parent, &child) {
            return Err(GrantError { path, fault: GrantFault::Replaceable });
        }
        parent = child;
    }
    let volume = Volume { source: grant.to_owned(), target: String::new(), access: MountAccess::ReadOnly };
    match mount_rights::fault(&volume, user) {
        Some(MountFault::Useless(reason)) => Err(GrantError { path, fault: GrantFault::Unreadable(reason) }),
        Some(MountFault::Limited(_)) | None => Ok(()),
    }
}

fn enter(from: impl AsFd, name: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat2(from, name, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS)
}

/// Returns whether a user other than root can rename or remove an entry of a directory.
fn is_replaceable(parent: &Stat, child: &Stat) -> bool {
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let is_open = parent.st_mode & WRITABLE_BY_OTHERS != 0;
    // In a sticky directory, only the owner of an entry can replace it.
    let is_kept = parent.st_mode & STICKY != 0 && child.st_uid == 0;
    parent.st_uid != 0 || (is_open && !is_kept)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    const USER: u32 = 2_000_000;

    fn word(path: &Path) -> &'static str {
        check(path, USER).map_or_else(|error| error.fault.word(), |()| "")
    }

    #[test]
    fn only_directories_that_root_keeps_are_granted() {
        let scratch = tempfile::tempdir().expect("there is room");
        let root = fs::canonicalize(scratch.path()).expect("it is there");
        let make = |name: &str, mode: u32, owner: u32| {
            let path = root.join(name);
            fs::create_dir_all(&path).expect("it is ours");
            chown(&path, Some(owner), Some(owner)).expect("this test runs as root");
            fs::set_permissions(&path, Permissions::from_mode(mode)).expect("it is ours");
            path
        };
        fs::set_permissions(&root, Permissions::from_mode(0o755)).expect("it is ours");
        let kept = make("kept", 0o755, 0);
        let of_user = make("of-user", 0o755, 1000);
        let open = make("open", 0o777, 0);
        let sticky = make("sticky", 0o1777, 0);
        let private = make("private", 0o700, 0);
        let (below_user, below_open) = (make("of-user/a", 0o755, 0), make("open/a", 0o755, 0));
        let (below_sticky, of_user_in_sticky) = (make("sticky/a", 0o755, 0), make("sticky/b", 0o755, 1000));
        symlink(&kept, root.join("link")).expect("it is ours");
        fs::create_dir(kept.join("deep")).expect("it is ours");
        fs::write(root.join("file"), "").expect("it is ours");
        for (path, expected) in [
            (kept.clone(), ""),
            (kept.join("deep"), ""),
            // The owner of its contents does not matter: only its path counts.
            (of_user, ""),
            (open, ""),
            (sticky, ""),
            (below_sticky, ""),
            (below_user, "replaceable"),
            (below_open, "replaceable"),
            (of_user_in_sticky, "replaceable"),
            (private, "unreadable"),
            (root.join("link"), "link"),
            (root.join("link/deep"), "link"),
            (root.join("file"), "not_a_directory"),
            (root.join("file/x"), "not_a_directory"),
            (root.join("nothing"), "missing"),
        ] {
            assert_eq!(word(&path), expected, "{}", path.display());
        }
    }
}
