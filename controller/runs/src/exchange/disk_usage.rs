//! Bytes that a live workspace takes on disk.
//!
//! The sandbox changes names while they are counted. Each directory is opened from the one above it, through no link
//! and no mount, so a rename further up hides nothing, and no file is opened at all. A directory that no longer has its
//! name is searched for; if it escapes each search, the result says so. Allocated blocks are counted, so a file with
//! holes counts with the space that it takes, and a file with several names counts once.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, fstat, statat};
use rustix::io::Errno;

use super::interrupt::CancelFlag;
use super::tree::{Tree, open_directory};
use crate::exchange::ExchangeError;

/// Bytes of a block in the answer of the kernel.
const BLOCK: u64 = 512;
/// Maximum depth of directories that are entered. Each directory on the path stays open.
const DEPTH_MAX: usize = 1000;
/// Maximum number of names that are counted.
const NAMES_MAX: u64 = 4_000_000;
/// Maximum number of bytes of the names of directories that wait to be entered.
const WAITING_MAX: usize = 64 << 20;
/// Maximum number of readings of a directory in search of renamed directories.
const SEARCHES_MAX: u32 = 8;
/// Maximum number of files with several names that are remembered. Further ones count once for each name.
const LINKED_MAX: usize = 1_000_000;

/// Result of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskUsage {
    /// Bytes on disk; at most the limit.
    Within(u64),
    /// More than the limit.
    Over,
    /// A directory was renamed each time before it could be opened. An honest program does that at most once.
    Evasive,
    /// The workspace has more names or deeper directories than are counted, or a directory that cannot be read. Its
    /// usage is not known.
    Uncountable,
}

/// Measures a workspace, up to a limit in bytes. Blocks the thread, and keeps up to 1000 directories open.
///
/// # Errors
/// [`ExchangeError::NoWorkspace`] if there is no such directory; the absence of a directory in it is never this error.
/// Others if the workspace cannot be read.
pub fn disk_usage(workspace: &Path, limit: u64) -> Result<DiskUsage, ExchangeError> {
    let tree = Tree::open(workspace, &CancelFlag::default()).map_err(absent)?;
    let root = tree.directory(b"").map_err(tree.error(b""))?;
    let mut count = DiskCount { limit, ..DiskCount::default() };
    match count.all(root) {
        Ok(()) if count.is_evasive => Ok(DiskUsage::Evasive),
        Ok(()) => Ok(DiskUsage::Within(count.bytes)),
        Err(Stop::At(usage)) => Ok(usage),
        Err(Stop::Failed(error)) => Err(tree.error(b"")(error.into())),
    }
}

/// Returns whether a directory takes more than this number of bytes, or cannot be measured. Blocks the thread.
pub(crate) fn exceeds(directory: &Path, max: u64) -> bool {
    !matches!(disk_usage(directory, max), Ok(DiskUsage::Within(_)))
}

/// Returns the error of opening a workspace; for a workspace that does not exist, it is [`ExchangeError::NoWorkspace`].
fn absent(error: ExchangeError) -> ExchangeError {
    match error {
        ExchangeError::File { path, source } if source.kind() == io::ErrorKind::NotFound => {
            ExchangeError::NoWorkspace(path)
        }
        error => error,
    }
}

/// Reason to stop before the end.
enum Stop {
    At(DiskUsage),
    Failed(Errno),
}

/// Sums of a measurement.
#[derive(Default)]
struct DiskCount {
    limit: u64,
    bytes: u64,
    names: u64,
    waiting_bytes: usize,
    /// Files with several names.
    linked: HashSet<u64>,
    /// Directories that were entered.
    entered: HashSet<u64>,
    is_evasive: bool,
}

/// A directory whose entries are counted, and the names of directories in it that are to be entered.
struct CountedDirectory {
    directory: OwnedFd,
    waiting: Vec<Vec<u8>>,
    /// True if a directory no longer had its name, and the search for renamed ones is not over.
    is_renamed: bool,
}

impl DiskCount {
    fn all(&mut self, root: OwnedFd) -> Result<(), Stop> {
        let mut levels: Vec<_> = self.enter(root)?.into_iter().collect();
        while let Some(level) = levels.last_mut() {
            let found = match level.waiting.pop() {
                Some(name) => {
                    self.waiting_bytes -= name.len();
                    let found = open(&level.directory, &name)?;
                    level.is_renamed |= found.is_none();
                    found
                }
                None if level.is_renamed => {
                    let found = self.search(&level.directory)?;
                    level.is_renamed = found.is_some();
                    found
                }
                None => {
                    levels.pop();
                    continue;
                }
            };
            let Some(directory) = found else { continue };
            if levels.len() == DEPTH_MAX {
                return Err(Stop::At(DiskUsage::Uncountable));
            }
            levels.extend(self.enter(directory)?);
        }
        Ok(())
    }

    /// Counts the entries of a directory; `None` if it was entered before.
    fn enter(&mut self, directory: OwnedFd) -> Result<Option<CountedDirectory>, Stop> {
        if !self.entered.insert(fstat(&directory).map_err(Stop::Failed)?.st_ino) {
            return Ok(None);
        }
        let (mut waiting, mut is_renamed) = (Vec::new(), false);
        for found in Dir::read_from(&directory).map_err(Stop::Failed)? {
            // The directory was removed.
            let Ok(found) = found else { break };
            let name = found.file_name().to_bytes();
            if name == b"." || name == b".." {
                continue;
            }
            self.names += 1;
            let Ok(stat) = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW) else {
                is_renamed |= found.file_type() == FileType::Directory;
                continue;
            };
            let kind = FileType::from_raw_mode(stat.st_mode);
            let is_linked = kind == FileType::RegularFile && stat.st_nlink > 1;
            let is_again = is_linked && self.linked.contains(&stat.st_ino);
            if is_linked && self.linked.len() < LINKED_MAX {
                self.linked.insert(stat.st_ino);
            }
            if !is_again {
                let bytes = u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK);
                self.bytes = self.bytes.saturating_add(bytes);
            }
            if self.bytes > self.limit {
                return Err(Stop::At(DiskUsage::Over));
            }
            if kind == FileType::Directory {
                self.waiting_bytes += name.len();
                if self.waiting_bytes > WAITING_MAX {
                    return Err(Stop::At(DiskUsage::Uncountable));
                }
                waiting.push(name.to_owned());
            }
            if self.names > NAMES_MAX {
                return Err(Stop::At(DiskUsage::Uncountable));
            }
        }
        Ok(Some(CountedDirectory { directory, waiting, is_renamed }))
    }

    /// Opens a directory that was not entered, as soon as its name is read. `None` if there is none, or if each one was
    /// renamed before it could be opened.
    fn search(&mut self, directory: &OwnedFd) -> Result<Option<OwnedFd>, Stop> {
        let mut has_escaped = false;
        for _ in 0..SEARCHES_MAX {
            for found in Dir::read_from(directory).map_err(Stop::Failed)? {
                let Ok(found) = found else { break };
                // A program can add directories as fast as they are found.
                self.names += 1;
                if self.names > NAMES_MAX {
                    return Err(Stop::At(DiskUsage::Uncountable));
                }
                let name = found.file_name().to_bytes();
                if found.file_type() != FileType::Directory || name == b"." || name == b".." {
                    continue;
                }
                if self.entered.contains(&found.ino()) {
                    continue;
                }
                if let Some(found) = open(directory, name)? {
                    return Ok(Some(found));
                }
                has_escaped = true;
            }
        }
        self.is_evasive |= has_escaped;
        Ok(None)
    }
}

/// Opens a directory; `None` if it no longer has this name, or something is mounted there.
fn open(parent: &OwnedFd, name: &[u8]) -> Result<Option<OwnedFd>, Stop> {
    match open_directory(parent, name) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN) => Ok(None),
        Err(Errno::ACCESS | Errno::PERM) => Err(Stop::At(DiskUsage::Uncountable)),
        Err(error) => Err(Stop::Failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::io::Write;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use rustix::fs::{Mode, OFlags};

    use super::*;

    const KIB: u64 = 1024;

    /// Random bytes: some file systems store repeated ones in less.
    fn noise(kib: u64) -> Vec<u8> {
        (0..kib * KIB).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    fn written(path: &Path, kib: u64) {
        fs::write(path, noise(kib)).expect("there is room");
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

    /// Makes nested directories of this name, as a sandbox does: each one relative to its parent. Returns the innermost
    /// one.
    fn deep(root: &Path, name: &str, depth: usize) -> OwnedFd {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let mut directory = rustix::fs::open(root, flags, Mode::empty()).expect("it is there");
        for _ in 0..depth {
            rustix::fs::mkdirat(&directory, name, Mode::RWXU).expect("there is room");
            directory = rustix::fs::openat(&directory, name, flags, Mode::empty()).expect("it was made");
        }
        directory
    }

    #[test]
    fn a_workspace_that_does_not_exist_is_named() {
        let scratch = tempfile::tempdir().expect("there is room");
        let (work, file) = (scratch.path().join("work"), scratch.path().join("file"));
        let measured = disk_usage(&work, u64::MAX);
        assert!(matches!(measured, Err(ExchangeError::NoWorkspace(_))), "{measured:?}");
        File::create(&file).expect("there is room");
        let measured = disk_usage(&file, u64::MAX);
        assert!(matches!(measured, Err(ExchangeError::File { .. })), "{measured:?}");
    }

    #[test]
    fn a_path_too_long_to_open_is_counted() {
        let scratch = tempfile::tempdir().expect("there is room");
        let deepest = deep(scratch.path(), &"d".repeat(200), 30);
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = rustix::fs::openat(&deepest, "large", flags, Mode::RUSR).expect("there is room");
        File::from(file).write_all(&noise(512)).expect("there is room");
        assert_eq!(disk_usage(scratch.path(), 512 * KIB).expect("it can be opened"), DiskUsage::Over);
    }

    #[test]
    fn directories_without_end_are_not_overlooked() {
        let scratch = tempfile::tempdir().expect("there is room");
        deep(scratch.path(), "d", DEPTH_MAX);
        assert_eq!(disk_usage(scratch.path(), u64::MAX).expect("it can be opened"), DiskUsage::Uncountable);
    }

    /// If a measurement failed, a run over its limit would not be ended.
    #[test]
    fn directories_that_come_and_go_fail_no_measurement() {
        let scratch = tempfile::tempdir().expect("there is room");
        let (root, is_done) = (scratch.path(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    for n in 0..20 {
                        fs::create_dir_all(root.join(format!("{n}/inner/most"))).expect("there is room");
                    }
                    for n in 0..20 {
                        fs::remove_dir_all(root.join(n.to_string())).expect("it is ours");
                    }
                }
            });
            let measured: Vec<_> = (0..300).map(|_| disk_usage(root, u64::MAX)).collect();
            is_done.store(true, Ordering::Relaxed);
            // A directory may go at each try to enter it.
            let is_measured = |one: &&_| matches!(one, Ok(DiskUsage::Within(_) | DiskUsage::Evasive));
            let (good, failed): (Vec<_>, Vec<_>) = measured.iter().partition(is_measured);
            assert!(good.iter().any(|one| matches!(one, Ok(DiskUsage::Within(_)))), "{good:?}");
            assert!(failed.is_empty(), "{failed:?}");
        });
    }

    #[test]
    fn renamed_directories_are_counted() {
        let scratch = tempfile::tempdir().expect("there is room");
        let root = scratch.path();
        fs::create_dir_all(root.join("0/b/c")).expect("there is room");
        written(&root.join("0/b/c/large"), 512);
        // While these are counted, the other one gets many names.
        for n in 0..200 {
            fs::create_dir_all(root.join(format!("beside-{n}/x"))).expect("there is room");
        }
        let limit = 400 * KIB + 200 * 8 * KIB;
        let is_done = AtomicBool::new(false);
        let missed = thread::scope(|scope| {
            scope.spawn(|| {
                let mut name = 0_u64;
                while !is_done.load(Ordering::Relaxed) {
                    let next = name + 1;
                    fs::rename(root.join(name.to_string()), root.join(next.to_string())).expect("it is there");
                    name = next;
                }
            });
            let measured = (0..100).map(|_| disk_usage(root, limit).expect("it can be opened"));
            let missed = measured.filter(|usage| matches!(usage, DiskUsage::Within(_))).count();
            is_done.store(true, Ordering::Relaxed);
            missed
        });
        assert!(missed < 100, "no measurement saw it");
    }
}
