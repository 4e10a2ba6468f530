//! Bytes that a live workspace takes on disk.
//!
//! The sandbox changes names while they are counted. Directories are opened beneath the workspace, through no link and no mount,
//! and no file is opened at all. Blocks count, so a file with holes counts as what it takes, and a file with several names
//! counts once.

use std::collections::HashSet;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, statat};

use super::interrupt::CancelFlag;
use super::tree::{Tree, join};
use crate::exchange::ExchangeError;

/// Bytes of a block in the answer of the kernel.
const BLOCK: u64 = 512;
/// Longest path of a directory that is entered.
const PATH_MAX: usize = 4000;
/// Names that are counted.
const NAMES_MAX: u64 = 4_000_000;
/// Bytes of the paths of directories that wait.
const WAITING_MAX: usize = 64 << 20;
/// Files with several names that are remembered. Further ones count once for each name.
const LINKED_MAX: usize = 1_000_000;

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskUsage {
    /// Bytes on disk, as many as the limit or fewer.
    Within(u64),
    /// More than the limit.
    Over,
    /// The workspace has more names, or longer paths, than are counted. What it takes is not known.
    Uncountable,
}

/// Measures a workspace, up to a limit in bytes. Blocks on the disk.
///
/// # Errors
/// The workspace cannot be opened.
pub fn disk_usage(workspace: &Path, limit: u64) -> Result<DiskUsage, ExchangeError> {
    let tree = Tree::open(workspace, &CancelFlag::default())?;
    let (mut bytes, mut names, mut waiting_bytes) = (0_u64, 0, 0);
    let (mut waiting, mut linked) = (vec![Vec::new()], HashSet::new());
    while let Some(path) = waiting.pop() {
        waiting_bytes -= path.len();
        // It was removed or renamed, or something is mounted there.
        let Ok(directory) = tree.directory(&path) else { continue };
        let Ok(found) = Dir::read_from(&directory) else { continue };
        for found in found {
            let Ok(found) = found else { break };
            let name = found.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            names += 1;
            let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_linked = kind == FileType::RegularFile && stat.st_nlink > 1;
            let is_again = is_linked && linked.contains(&stat.st_ino);
            if is_linked && linked.len() < LINKED_MAX {
                linked.insert(stat.st_ino);
            }
            if !is_again {
                bytes = bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK));
            }
            if bytes > limit {
                return Ok(DiskUsage::Over);
            }
            if kind == FileType::Directory {
                let inner = join(&path, name);
                waiting_bytes += inner.len();
                if inner.len() > PATH_MAX || waiting_bytes > WAITING_MAX {
                    return Ok(DiskUsage::Uncountable);
                }
                waiting.push(inner);
            }
            if names > NAMES_MAX {
                return Ok(DiskUsage::Uncountable);
            }
        }
    }
    Ok(DiskUsage::Within(bytes))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;

    use super::*;

    const KIB: u64 = 1024;

    fn written(path: &Path, kib: u64) {
        // Random bytes: some file systems store repeated ones in less.
        let bytes: Vec<u8> = (0..kib * KIB).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(path, bytes).expect("there is room");
        File::open(path).and_then(|file| file.sync_all()).expect("it is on disk");
    }

    #[test]
    fn blocks_of_all_files_count_once() {
        let scratch = tempfile::tempdir().expect("there is room");
        let (work, outside) = (scratch.path().join("work"), scratch.path().join("outside"));
        fs::create_dir_all(work.join(".git/objects")).expect("there is room");
        let usage = |limit| disk_usage(&work, limit).expect("it can be opened");
        let DiskUsage::Within(empty) = usage(u64::MAX) else { panic!("it is empty") };
        written(&outside, 512);
        symlink(&outside, work.join("link")).expect("there is room");
        symlink(scratch.path(), work.join("directory")).expect("there is room");
        File::create(work.join("sparse")).and_then(|file| file.set_len(1 << 40)).expect("there is room");
        written(&work.join(".git/objects/hidden"), 256);
        fs::hard_link(work.join(".git/objects/hidden"), work.join("again")).expect("it is one file system");

        let DiskUsage::Within(bytes) = usage(u64::MAX) else { panic!("nothing is over") };
        let more = bytes - empty;
        assert!((256 * KIB..320 * KIB).contains(&more), "{more} bytes: links, holes and other names count nothing");
        assert_eq!((usage(bytes), usage(bytes - 1)), (DiskUsage::Within(bytes), DiskUsage::Over));
    }

    #[test]
    fn a_path_too_long_to_open_is_not_overlooked() {
        let scratch = tempfile::tempdir().expect("there is room");
        let name = "d".repeat(200);
        // As a sandbox does: each step from the directory before.
        let mut directory = rustix::fs::open(scratch.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
        for _ in 0..21 {
            let at = directory.as_ref().expect("it was made");
            rustix::fs::mkdirat(at, &name, rustix::fs::Mode::RWXU).expect("there is room");
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY;
            directory = rustix::fs::openat(at, &name, flags, rustix::fs::Mode::empty());
        }
        assert_eq!(disk_usage(scratch.path(), u64::MAX).expect("it can be opened"), DiskUsage::Uncountable);
    }
}
