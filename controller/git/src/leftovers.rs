//! Files that a killed git leaves in a repository of ours. The caller holds the lock of the repository, so no git
//! writes in it, and all such files come from processes that have ended.
//!
//! The repository belongs to the user of git, who could have made a link in it: no step follows a link.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, unlinkat};

use crate::error::GitError;

/// Maximum depth of directories of refs; a name of a branch has at most 200 bytes.
const DEPTH: u32 = 128;

/// Removes locks of refs and files, and unfinished packs and objects.
pub(crate) fn sweep(repository: &Path) -> Result<(), GitError> {
    sweep_repository(repository).map_err(GitError::file("remove what an earlier git left in a repository"))
}

fn sweep_repository(repository: &Path) -> io::Result<()> {
    let root = openat(CWD, repository, FLAGS, Mode::empty())?;
    let is_lock = |name: &[u8]| name.ends_with(b".lock");
    let is_unfinished = |name: &[u8]| name.starts_with(b"tmp_");
    sweep_directory(&root, ".", 0, &is_lock)?;
    sweep_directory(&root, "refs", DEPTH, &is_lock)?;
    sweep_directory(&root, "objects", 1, &is_unfinished)
}

const FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

/// Removes the files with a name for which `is_left` is true, also in directories up to this depth.
fn sweep_directory(parent: &OwnedFd, name: &str, depth: u32, is_left: &dyn Fn(&[u8]) -> bool) -> io::Result<()> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let directory = match openat2(parent, name, FLAGS, Mode::empty(), resolve) {
        Err(rustix::io::Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let name = entry.file_name();
        match entry.file_type() {
            FileType::Directory if depth > 0 && !matches!(name.to_bytes(), b"." | b"..") => {
                // Git makes no names that are not text.
                if let Ok(name) = name.to_str() {
                    sweep_directory(&directory, name, depth - 1, is_left)?;
                }
            }
            FileType::RegularFile if is_left(name.to_bytes()) => unlinkat(&directory, name, AtFlags::empty())?,
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn locks_and_unfinished_packs_are_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let (repository, outside) = (directory.path().join("r.git"), directory.path().join("outside"));
        let write = |name: &str| {
            let path = repository.join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("it is ours");
            fs::write(path, "x").expect("it is ours");
        };
        let left = [
            "HEAD.lock", "config.lock", "packed-refs.lock", "shallow.lock", "refs/heads/main.lock",
            "refs/sluice/wip/r1.lock", "objects/pack/tmp_pack_x", "objects/pack/tmp_idx_x", "objects/ab/tmp_obj_x",
        ];
        let kept =
            ["HEAD", "shallow", "refs/heads/main", "objects/pack/pack-1.pack", "objects/ab/cd", "incoming-x/a.lock"];
        left.iter().chain(&kept).for_each(|name| write(name));
        fs::create_dir(&outside).expect("it is ours");
        fs::write(outside.join("b.lock"), "x").expect("it is ours");
        symlink(&outside, repository.join("refs/out")).expect("it is ours");
        sweep(&repository).expect("it is swept");
        left.iter().for_each(|name| assert!(!repository.join(name).exists(), "{name}"));
        kept.iter().for_each(|name| assert!(repository.join(name).exists(), "{name}"));
        assert!(outside.join("b.lock").exists());
    }
}
