//! Creation of a run's directories, and their deletion, whatever a sandbox has put into them.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, OpenHow, ResolveFlag, open, openat2, renameat};
use nix::sys::stat::{Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use sluice_contract::RunKey;
use sluice_state::layout::RunPaths;
use sluice_state::run_tokens::RunTokenValue;

use crate::sandbox_user::SandboxUsers;
use crate::sidecar_user::{SidecarUser, SidecarUsers};

/// User and group of the agent of a one-shot run, in its container and on our disk.
pub const SANDBOX_UID: u32 = 1001;

/// Creates the directories of a new run. The directory of its socket belongs to the user that its sidecar will become,
/// the workspace to the user of its agent: a free one of `sandbox_users`, or [`SANDBOX_UID`].
///
/// # Errors
/// Errors of the kernel, `AlreadyExists`, and a range without a free user.
pub fn create(
    paths: &RunPaths,
    key: &RunKey,
    users: &SidecarUsers,
    sandbox_users: Option<&SandboxUsers>,
) -> io::Result<()> {
    let runs = paths.root.parent().unwrap_or(Path::new("/"));
    // Until the directory has its owner, no other run may pick a user.
    let _picking = Flock::lock(File::open(runs)?, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
    let user = users.pick(key, &taken(runs, "sock")?);
    let agent = match sandbox_users {
        Some(users) => users.pick(key, &taken(runs, "work")?).map_err(io::Error::other)?,
        None => SANDBOX_UID,
    };
    let make = |path: &Path, mode| DirBuilder::new().mode(mode).create(path);
    make(&paths.root, 0o700)?;
    // The sandbox reaches the socket through this directory.
    make(&paths.sock, 0o755)?;
    make(&paths.conf, 0o700)?;
    // The sidecar works in it and connects to the socket in it; the directories above keep all other users out.
    let relay = paths.relay.parent().unwrap_or(&paths.conf);
    make(relay, 0o711)?;
    fs::set_permissions(relay, std::os::unix::fs::PermissionsExt::from_mode(0o711))?;
    make(&paths.work, 0o700)?;
    fs::set_permissions(&paths.sock, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    // The sidecar removes its socket at the end, when it no longer runs as root.
    chown(&paths.sock, Some(user.uid), Some(user.gid))?;
    chown(&paths.work, Some(agent), Some(agent))
}

/// Returns the user of a run's agent: the owner of its workspace, which no program in the sandbox can change.
///
/// # Errors
/// Errors of the kernel, such as `NotFound`.
pub fn sandbox_uid(paths: &RunPaths) -> io::Result<u32> {
    workspace_uid(&paths.work)
}

/// Returns the user of the agent of a workspace, also of a kept one.
///
/// # Errors
/// Errors of the kernel, such as `NotFound`.
pub fn workspace_uid(workspace: &Path) -> io::Result<u32> {
    Ok(fs::symlink_metadata(workspace)?.uid())
}

/// Returns the user that a run's sidecar becomes: the owner of its socket's directory. `None` means that it keeps ours, as in
/// a directory of an earlier version.
///
/// # Errors
/// Errors of the kernel, such as `NotFound`.
pub fn sidecar_user(paths: &RunPaths) -> io::Result<Option<SidecarUser>> {
    let meta = fs::metadata(&paths.sock)?;
    let user = SidecarUser { uid: meta.uid(), gid: meta.gid() };
    Ok((user.uid != nix::unistd::Uid::effective().as_raw()).then_some(user))
}

/// Writes the token by which the daemon knows the sidecar of a run. The sidecar reads it before it becomes its user.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn write_relay_token(paths: &RunPaths, token: &RunTokenValue) -> io::Result<()> {
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&paths.relay_token)?;
    file.write_all(token.expose().as_bytes())
}

/// Writes the metadata of a run's calls into a file that only we can read, and returns its path: all users of the host
/// can read command lines.
///
/// # Errors
/// Errors of the kernel.
pub(crate) fn write_metadata(paths: &RunPaths, text: &str) -> io::Result<PathBuf> {
    let path = paths.conf.join("metadata.json");
    let mut file = File::options().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
    file.write_all(text.as_bytes())?;
    Ok(path)
}

/// Returns the owners of this directory for all existing runs, including runs that are being removed.
fn taken(runs: &Path, directory: &str) -> io::Result<Vec<u32>> {
    let owner =
        |run: io::Result<fs::DirEntry>| Some(fs::symlink_metadata(run.ok()?.path().join(directory)).ok()?.uid());
    Ok(fs::read_dir(runs)?.filter_map(owner).collect())
}

/// Removes the directory and everything in it, if it exists, until the time is up.
///
/// A sandbox can nest directories deeper than any path, stack or table of descriptors reaches. So nothing here
/// recurses: entries two levels down move up, until all is flat.
///
/// # Errors
/// Errors of the kernel, or `TimedOut`; a second call continues.
pub fn remove(root: &Path, until: Option<Instant>) -> io::Result<()> {
    match open(root, DIRECTORY, Mode::empty()) {
        Ok(top) => {
            flatten(&top, until)?;
            fs::remove_dir(root)
        }
        Err(Errno::ENOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

const DIRECTORY: OFlag = OFlag::O_DIRECTORY.union(OFlag::O_RDONLY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// Empties a directory.
fn flatten(top: &OwnedFd, until: Option<Instant>) -> io::Result<()> {
    let mut moved = 0_u64;
    loop {
        in_time(until)?;
        let children = some_entries(top.as_fd())?;
        if children.is_empty() {
            return Ok(());
        }
        for child in &children {
            if is_directory(top.as_fd(), child)? {
                let inner = enter(top, child)?;
                hoist(&inner, top, &mut moved, until)?;
                unlinkat(top, child.as_c_str(), UnlinkatFlags::RemoveDir)?;
            } else {
                unlinkat(top, child.as_c_str(), UnlinkatFlags::NoRemoveDir)?;
            }
        }
    }
}

/// Opens a directory that will be emptied. A mount point is an error: its content is not ours.
fn enter(parent: &OwnedFd, name: &CStr) -> io::Result<OwnedFd> {
    let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV;
    Ok(openat2(parent, name, OpenHow::new().flags(DIRECTORY).resolve(resolve))?)
}

/// Empties a directory in `top`: its files and empty directories are removed, its other directories move up.
fn hoist(inner: &OwnedFd, top: &OwnedFd, moved: &mut u64, until: Option<Instant>) -> io::Result<()> {
    loop {
        in_time(until)?;
        let children = some_entries(inner.as_fd())?;
        if children.is_empty() {
            return Ok(());
        }
        for child in &children {
            if is_directory(inner.as_fd(), child)? {
                // Most directories are empty, and a move costs ten times as much.
                match unlinkat(inner, child.as_c_str(), UnlinkatFlags::RemoveDir) {
                    Err(Errno::ENOTEMPTY | Errno::EEXIST) => move_up(inner, child, top, moved)?,
                    removed => removed?,
                }
            } else {
                unlinkat(inner, child.as_c_str(), UnlinkatFlags::NoRemoveDir)?;
            }
        }
    }
}

/// Fails when the time is up. It is called for each directory, and for each thousand files in one.
fn in_time(until: Option<Instant>) -> io::Result<()> {
    if until.is_some_and(|until| Instant::now() >= until) { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
}

fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let target = CString::new(format!("removed.{moved}")).expect("there is no NUL in a number");
        match renameat(from, name, top, target.as_c_str()) {
            Ok(()) => return Ok(()),
            // The sandbox has used the name; other names are tried.
            Err(Errno::EEXIST | Errno::ENOTEMPTY | Errno::ENOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the first names in a directory: a sandbox can create more names than our memory can hold.
fn some_entries(directory: BorrowedFd<'_>) -> io::Result<Vec<CString>> {
    const AT_ONCE: usize = 1024;
    let mut names = Vec::new();
    for entry in Dir::openat(directory, ".", DIRECTORY, Mode::empty())?.iter() {
        let name = entry?.file_name().to_owned();
        if name.as_bytes() != b"." && name.as_bytes() != b".." {
            names.push(name);
        }
        if names.len() == AT_ONCE {
            break;
        }
    }
    Ok(names)
}

fn is_directory(directory: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
    let stat = fstatat(directory, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
    Ok(SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::openat;
    use nix::sys::stat::mkdirat;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("sluice-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("it is not there yet");
        path
    }

    #[test]
    fn directories_deeper_than_any_path_are_removed() {
        let root = scratch("deep");
        let mut inner = open(&root, DIRECTORY, Mode::empty()).expect("it was made");
        for _ in 0..5000 {
            mkdirat(&inner, "d", Mode::S_IRWXU).expect("there is room");
            inner = openat(&inner, "d", DIRECTORY, Mode::empty()).expect("it was made");
        }
        drop(inner);

        remove(&root, None).expect("all of it is ours");

        assert!(!root.exists());
    }

    #[test]
    fn directories_with_many_names_are_removed() {
        let root = scratch("wide");
        fs::create_dir(root.join("d")).expect("it is ours");
        for n in 0..2500 {
            fs::write(root.join("d").join(n.to_string()), "").expect("it is ours");
            fs::create_dir(root.join(format!("d{n}"))).expect("it is ours");
        }

        remove(&root, None).expect("all of it is ours");

        assert!(!root.exists());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let root = scratch("links");
        let outside = scratch("outside");
        fs::write(outside.join("kept"), "x").expect("it is ours");
        fs::create_dir_all(root.join("a/b")).expect("it is ours");
        for place in ["out", "a/out", "a/b/out"] {
            std::os::unix::fs::symlink(&outside, root.join(place)).expect("it is ours");
        }
        fs::write(root.join("removed.1"), "a name that is taken").expect("it is ours");

        remove(&root, None).expect("all of it is ours");
        remove(&root, None).expect("twice is once");

        assert!(!root.exists());
        assert!(outside.join("kept").exists());
        fs::remove_dir_all(outside).expect("it is ours");
    }
}
