//! Copies of files, directories and links between two trees.
//!
//! The owner of a directory can change it while root writes there. So a file changes its owner only if its descriptor
//! shows that the file is new.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Dir, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, Uid, chownat, fchmod, fchown, fstat, futimens,
    mkdirat, openat, symlinkat,
};
use sluice_state::layout::RunPaths;

use super::interrupt::CancelFlag;
use super::owner::Owner;
use super::tree::{Kind, TreeEntry, find};

/// Beginning of the names of files that are being written in a directory of the host.
pub(super) const UNFINISHED: &[u8] = b".sluice-unfinished.";
/// Number of bytes that are copied between two checks of the request to stop.
const CHUNK: u64 = 64 << 20;

/// Number of bytes that may be copied. Failed copies count.
#[derive(Debug)]
pub(super) struct Allowance {
    max: u64,
    used: u64,
    interrupt: CancelFlag,
}

/// A new file, directory or link in a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct NewEntry<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) name: &'a [u8],
    pub(super) owner: Owner,
    pub(super) mode: u32,
}

/// Modification time of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Age {
    /// As the original.
    Original,
    New,
}

impl Allowance {
    pub(super) fn new(max: u64, interrupt: &CancelFlag) -> Self {
        Self { max, used: 0, interrupt: interrupt.clone() }
    }

    pub(super) fn used(&self) -> u64 {
        self.used
    }

    fn left(&self) -> u64 {
        self.max - self.used
    }

    /// Copies the rest of a file. If the file is too large at the start, the call fails before it writes.
    fn copy(&mut self, mut from: &File, to: &mut File) -> io::Result<()> {
        if from.metadata()?.len() > self.left() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        loop {
            self.interrupt.check()?;
            // The additional byte shows that the file has grown beyond the allowance.
            let chunk = CHUNK.min(self.left() + 1);
            let copied = io::copy(&mut Read::by_ref(&mut from).take(chunk), to);
            let count = *copied.as_ref().unwrap_or(&chunk);
            let is_too_large = count > self.left();
            self.used += count.min(self.left());
            match copied? {
                0 => return Ok(()),
                _ if is_too_large => return Err(io::ErrorKind::FileTooLarge.into()),
                _ => {}
            }
        }
    }
}

impl NewEntry<'_> {
    /// Creates a file with this content.
    pub(super) fn write_bytes(&self, content: &[u8]) -> io::Result<File> {
        let mut file = self.create()?;
        file.write_all(content)?;
        self.set_owner(&file)?;
        Ok(file)
    }

    /// Copies an open file.
    pub(super) fn copy(&self, from: &File, age: Age, allowance: &mut Allowance) -> io::Result<()> {
        let mut file = self.create()?;
        allowance.copy(from, &mut file)?;
        self.set_owner(&file)?;
        let time = match age {
            Age::New => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
            Age::Original => {
                let meta = fstat(from)?;
                Timespec { tv_sec: meta.st_mtime, tv_nsec: i64::try_from(meta.st_mtime_nsec).unwrap_or(0) }
            }
        };
        Ok(futimens(&file, &Timestamps { last_access: time, last_modification: time })?)
    }

    fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(self.directory, self.name, flags, Mode::from_raw_mode(0o600))?))
    }

    /// Creates a directory, and opens it; an existing one is an error.
    pub(super) fn make_directory(&self) -> io::Result<OwnedFd> {
        mkdirat(self.directory, self.name, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = openat(self.directory, self.name, flags, Mode::empty())?;
        let stat = fstat(&made)?;
        let is_new = stat.st_uid == nix::unistd::geteuid().as_raw() && stat.st_mode & 0o777 == 0o700;
        if !is_new || !is_empty(&made)? {
            return Err(replaced());
        }
        self.set_owner(&made)?;
        Ok(made)
    }

    /// Creates a link.
    pub(super) fn link(&self, target: &[u8]) -> io::Result<()> {
        symlinkat(target, self.directory, self.name)?;
        let (made, entry) = find(self.directory, self.name)?;
        let is_ours = entry.owner.uid == nix::unistd::geteuid().as_raw();
        if entry.kind != Kind::Link || entry.target != target || !is_ours {
            return Err(replaced());
        }
        let (uid, gid) = ids(self.owner);
        Ok(chownat(&made, "", uid, gid, AtFlags::EMPTY_PATH)?)
    }

    /// Sets the owner before the mode: a change of owner clears bits of the mode.
    fn set_owner(&self, file: impl AsFd) -> io::Result<()> {
        let (uid, gid) = ids(self.owner);
        fchown(&file, uid, gid)?;
        Ok(fchmod(&file, Mode::from_raw_mode(self.mode))?)
    }
}

fn ids(owner: Owner) -> (Option<Uid>, Option<Gid>) {
    (Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))
}

fn replaced() -> io::Error {
    io::Error::other("another program has put something else in its place")
}

/// Returns whether a directory is empty.
pub(super) fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Returns the mode of a copy for another user: never with set-id bits, and always usable by its owner.
pub(super) fn mode_of(entry: &TreeEntry, least: u32) -> u32 {
    (entry.mode & 0o777) | least
}

/// Returns the name of a file that this run is writing in a directory of the host.
pub(super) fn temporary(paths: &RunPaths) -> Vec<u8> {
    [UNFINISHED, paths.root.file_name().unwrap_or_default().as_encoded_bytes()].concat()
}
