//! What the sandbox's user may do with what is mounted for it, said before the run begins.
//!
//! Where modes are not the whole answer (an ACL, a file system that decides by other means), nothing is said.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_runs::blueprint::{MountAccess, Volume};
use sluice_runs::rundir::SANDBOX_UID;

/// File systems of which modes are the whole answer: ext2 to ext4, XFS, btrfs, tmpfs, overlay, ZFS.
const BY_MODES: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x794c_7630, 0x2fc1_2fc1];

/// What decides about rights: an owner, a group, a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Owned {
    uid: u32,
    gid: u32,
    mode: u32,
    is_directory: bool,
}

/// What is wrong with the rights of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Wrong {
    /// The sandbox can do nothing with it.
    Useless(String),
    /// Some of what it is mounted for will fail.
    Limited(String),
}

/// Returns what is wrong with the rights to a volume, if that is certain.
pub(super) fn wrong(volume: &Volume) -> Option<Wrong> {
    wrong_with(owned(&volume.source)?, volume)
}

/// None where something else than the mode may decide.
fn owned(path: &Path) -> Option<Owned> {
    use rustix::io::Errno;
    let system = u64::try_from(rustix::fs::statfs(path).ok()?.f_type).ok()? & 0xffff_ffff;
    let acl = rustix::fs::getxattr_query(path, "system.posix_acl_access");
    if !BY_MODES.contains(&system) || !matches!(acl, Err(Errno::NODATA | Errno::OPNOTSUPP)) {
        return None;
    }
    let meta = fs::metadata(path).ok()?;
    Some(Owned { uid: meta.uid(), gid: meta.gid(), mode: meta.mode() & 0o7777, is_directory: meta.is_dir() })
}

fn wrong_with(owned: Owned, volume: &Volume) -> Option<Wrong> {
    let Owned { uid, gid, mode, is_directory } = owned;
    // The kernel takes the first of these that fits, and no other.
    let shift = match (uid == SANDBOX_UID, gid == SANDBOX_UID) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    let may = |bit: u32| mode >> shift & bit != 0;
    let (reads, writes, enters) = (may(4), may(2), may(1) || !is_directory);
    let path = volume.source.display();
    let told = |what: &str, fix: &str| {
        format!(
            "the sandbox's user {SANDBOX_UID} cannot {what} {path}, which belongs to {uid}:{gid} with mode {mode:04o}; {fix}"
        )
    };
    let own = format!("chown {SANDBOX_UID}:{SANDBOX_UID} {path}");
    match volume.access {
        _ if !enters => Some(Wrong::Useless(told("enter", &format!("{own}, or chmod o+rx {path}")))),
        _ if !reads && !is_directory => Some(Wrong::Useless(told("read", &format!("{own}, or chmod o+r {path}")))),
        MountAccess::ReadWrite if !writes => {
            let what = if is_directory { "create files in" } else { "write" };
            Some(Wrong::Limited(told(what, &format!("{own}, with -R for what is in it, or leave out :rw"))))
        }
        _ if !reads => Some(Wrong::Limited(told("list", &format!("{own}, or chmod o+r {path}")))),
        MountAccess::ReadOnly | MountAccess::ReadWrite => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_follow_from_owner_group_and_mode() {
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
            let owned = Owned { uid, gid, mode, is_directory };
            let volume = Volume { source: "/srv/code".into(), target: "/data".to_owned(), access };
            let said = wrong_with(owned, &volume);
            let kind = said.as_ref().map(|wrong| match wrong {
                Wrong::Useless(_) => "useless",
                Wrong::Limited(_) => "limited",
            });
            assert_eq!(kind, expected, "{owned:?} {access:?}: {said:?}");
        }
    }

    #[test]
    fn the_message_names_owner_mode_and_fix() {
        let owned = Owned { uid: 0, gid: 5, mode: 0o755, is_directory: true };
        let volume = Volume { source: "/srv/code".into(), target: "/data".to_owned(), access: MountAccess::ReadWrite };
        let Some(Wrong::Limited(said)) = wrong_with(owned, &volume) else { panic!("it cannot be written") };
        assert_eq!(
            said,
            "the sandbox's user 1001 cannot create files in /srv/code, which belongs to 0:5 with mode 0755; \
             chown 1001:1001 /srv/code, with -R for what is in it, or leave out :rw"
        );
    }
}
