//! Writes into a workspace that cannot escape from it.
//!
//! The sandbox owns the directory, so any name in it can have become a link. The kernel resolves our paths beneath the
//! workspace and without links, or fails.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{Gid, Uid, fchown};

/// Creates the file DIRECTORY/NAME in the workspace, and gives both to the agent.
///
/// # Errors
/// Errors of the kernel, also when a file or a link has the name.
pub fn write(workspace: &Path, directory: &str, name: &str, content: &[u8]) -> io::Result<()> {
    let inner = make_directory(workspace, directory)?;
    let owner = owner_of(workspace)?;
    let file = beneath(&inner, name, OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL, 0o644)?;
    fchown(&file, Some(owner.0), Some(owner.1))?;
    File::from(file).write_all(content)
}

/// Creates a directory in the workspace with its parents, and gives them to the agent.
///
/// # Errors
/// Errors of the kernel, also when a file or a link has the name.
pub fn make_directory(workspace: &Path, path: &str) -> io::Result<OwnedFd> {
    const TOP: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);
    let mut directory = open(workspace, TOP, Mode::empty())?;
    let owner = owner_of(workspace)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        match mkdirat(&directory, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => {}
            Err(error) => return Err(error.into()),
        }
        directory = beneath(&directory, name, OFlag::O_RDONLY | OFlag::O_DIRECTORY, 0)?;
        fchown(&directory, Some(owner.0), Some(owner.1))?;
    }
    Ok(directory)
}

/// Returns the agent's user and group, which own the workspace.
fn owner_of(workspace: &Path) -> io::Result<(Uid, Gid)> {
    let meta = std::fs::symlink_metadata(workspace)?;
    Ok((Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid())))
}

fn beneath(directory: impl AsFd, name: &str, flags: OFlag, mode: u32) -> io::Result<OwnedFd> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(Mode::from_bits_truncate(mode))
        .resolve(ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    Ok(openat2(directory, name, how)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct TestWorkspace(std::path::PathBuf);

    impl TestWorkspace {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sluice-workspace-{name}-{}", std::process::id()));
            fs::create_dir_all(path.join("work")).expect("it is ours");
            fs::create_dir_all(path.join("outside")).expect("it is ours");
            Self(path)
        }
    }

    impl Drop for TestWorkspace {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_file_is_written() {
        let scratch = TestWorkspace::new("plain");
        write(&scratch.0.join("work"), ".sluice", "messages.json", b"[]").expect("nothing is in the way");
        assert_eq!(fs::read(scratch.0.join("work/.sluice/messages.json")).expect("it is there"), b"[]");
    }

    #[test]
    fn a_link_in_place_of_the_directory_is_refused() {
        let scratch = TestWorkspace::new("directory");
        std::os::unix::fs::symlink(scratch.0.join("outside"), scratch.0.join("work/.sluice")).expect("it is ours");
        write(&scratch.0.join("work"), ".sluice", "messages.json", b"[]").expect_err("it leads out");
        assert_eq!(fs::read_dir(scratch.0.join("outside")).expect("it is there").count(), 0);
    }

    #[test]
    fn a_link_in_place_of_the_file_is_refused() {
        let scratch = TestWorkspace::new("file");
        fs::create_dir(scratch.0.join("work/.sluice")).expect("it is ours");
        let target = scratch.0.join("outside/target");
        std::os::unix::fs::symlink(&target, scratch.0.join("work/.sluice/messages.json")).expect("it is ours");
        write(&scratch.0.join("work"), ".sluice", "messages.json", b"[]").expect_err("it leads out");
        assert!(!target.exists());
    }

    #[test]
    fn a_path_with_dots_is_refused() {
        let scratch = TestWorkspace::new("climb");
        write(&scratch.0.join("work"), "../outside", "x", b"").expect_err("it leads out");
    }
}
