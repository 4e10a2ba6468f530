//! Rights of a sandbox's user to mounted files, checked before a run starts.
//!
//! No fault is reported if other rules than modes apply, as with an ACL or on some file systems.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::blueprint::{MountAccess, Volume};

/// File systems with no access rules other than modes: ext2 to ext4, XFS, btrfs, tmpfs, overlay, ZFS.
const BY_MODES: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1];

/// Owner, group and mode of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileMode {
    uid: u32,
    gid: u32,
    mode: u32,
    is_directory: bool,
}

/// Missing rights to a mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MountFault {
    /// The sandbox cannot use it at all.
    Useless(String),
    /// The sandbox lacks a part of the access that its flag allows.
    Limited(String),
}

/// Returns the missing rights of a user to a mount, if they are certainly missing.
#[must_use]
pub fn fault(volume: &Volume, user: u32) -> Option<MountFault> {
    fault_of(file_mode(&volume.source)?, volume, user)
}

/// Returns the warning about a mount that the sandbox can use in part.
#[must_use]
pub fn warning(volume: &Volume, user: u32) -> Option<String> {
    match fault(volume, user)? {
        MountFault::Limited(reason) => Some(reason),
        MountFault::Useless(_) => None,
    }
}

/// Returns the warning about a writable directory with a repository of git.
#[must_use]
pub fn git_warning(volume: &Volume) -> Option<String> {
    let has_git = volume.access == MountAccess::ReadWrite && fs::symlink_metadata(volume.source.join(".git")).is_ok();
    has_git.then(|| {
        format!(
            "the sandbox can change what git executes in {0}, such as hooks and filters; use --repo {0}:rw, or start no git \
             there afterwards",
            volume.source.display()
        )
    })
}

/// Returns the mode of a file; none if something else than the mode may decide.
fn file_mode(path: &Path) -> Option<FileMode> {
    use rustix::io::Errno;
    let system = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()? & 0xffff_ffff;
    let acl = rustix::fs::getxattr_query(path, "system.posix_acl_access");
    if !BY_MODES.contains(&system) || !matches!(acl, Err(Errno::NODATA | Errno::OPNOTSUPP)) {
        return None;
    }
    let meta = fs::metadata(path).ok()?;
    Some(FileMode { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() & 0o7777, is_directory: meta.is_dir() })
}

fn fault_of(file: FileMode, volume: &Volume, user: u32) -> Option<MountFault> {
    let FileMode { uid, gid, mode, is_directory } = file;
    // The kernel uses the first class that matches, and no other.
    let shift = match (uid == user, gid == user) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    let may = |bit: u32| mode >> shift & bit != 0;
    let (reads, writes, enters) = (may(4), may(2), may(1) || !is_directory);
    let path = volume.source.display();
    let reason = |what: &str, fix: &str| {
        format!(
            "the sandbox's user {user} cannot {what} {path}, which belongs to {uid}:{gid} with mode {mode:04o}; {fix}"
        )
    };
    let chown = format!("chown {user}:{user} {path}");
    match volume.access {
        _ if !enters => Some(MountFault::Useless(reason("enter", &format!("{chown}, or chmod o+rx {path}")))),
        _ if !reads && !is_directory => {
            Some(MountFault::Useless(reason("read", &format!("{chown}, or chmod o+r {path}"))))
        }
        MountAccess::ReadWrite if !writes => {
            let what = if is_directory { "create files in" } else { "write" };
            Some(MountFault::Limited(reason(what, &format!("{chown}, with -R for what is in it, or leave out :rw"))))
        }
        _ if !reads => Some(MountFault::Limited(reason("list", &format!("{chown}, or chmod o+r {path}")))),
        MountAccess::ReadOnly | MountAccess::ReadWrite => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rundir::SANDBOX_UID;

    #[test]
    fn owner_group_and_mode_decide_on_rights() {
        let (useless, limited) = (Some("useless"), Some("limited"));
        for (uid, gid, mode, is_directory, access, expected) in [
            (0, 0, 0o755, true, MountAccess::ReadOnly, None),
            (0, 0, 0o755, true, MountAccess::ReadWrite, limited),
            (0, 0, 0o777, true, MountAccess::ReadWrite, None),
            (0, 0, 0o700, true, MountAccess::ReadOnly, useless),
            (0, 0, 0o711, true, MountAccess::ReadOnly, limited),
            (1001, 0, 0o700, true, MountAccess::ReadWrite, None),
            (1001, 0, 0o077, true, MountAccess::ReadOnly, useless),
            (0, 1001, 0o770, true, MountAccess::ReadWrite, None),
            (0, 1001, 0o707, true, MountAccess::ReadOnly, useless),
            (0, 1001, 0o750, true, MountAccess::ReadWrite, limited),
            (0, 0, 0o644, false, MountAccess::ReadOnly, None),
            (0, 0, 0o644, false, MountAccess::ReadWrite, limited),
            (0, 0, 0o600, false, MountAccess::ReadOnly, useless),
            (1001, 1001, 0o600, false, MountAccess::ReadWrite, None),
        ] {
            let file = FileMode { uid, gid, mode, is_directory };
            let volume = Volume { source: "/srv/code".into(), target: "/data".to_owned(), access };
            let said = fault_of(file, &volume, SANDBOX_UID);
            let kind = said.as_ref().map(|fault| match fault {
                MountFault::Useless(_) => "useless",
                MountFault::Limited(_) => "limited",
            });
            assert_eq!(kind, expected, "{file:?} {access:?}: {said:?}");
        }
    }

    #[test]
    fn the_message_names_owner_mode_and_fix() {
        let file = FileMode { uid: 0, gid: 5, mode: 0o755, is_directory: true };
        let volume = Volume { source: "/srv/code".into(), target: "/data".to_owned(), access: MountAccess::ReadWrite };
        let Some(MountFault::Limited(said)) = fault_of(file, &volume, SANDBOX_UID) else {
            panic!("it cannot be written")
        };
        assert_eq!(
            said,
            "the sandbox's user 1001 cannot create files in /srv/code, which belongs to 0:5 with mode 0755; \
             chown 1001:1001 /srv/code, with -R for what is in it, or leave out :rw"
        );
    }
}
