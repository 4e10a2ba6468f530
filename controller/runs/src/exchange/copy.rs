//! Copies of files, directories and links between two trees.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, OFlags, Timespec, Timestamps, Uid, chownat, fchmod, fchown, futimens, mkdirat, openat,
    symlinkat,
};
use rustix::io::Errno;

use super::tree::{Entry, open_file};

/// Owner of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    fn ids(self) -> (Option<Uid>, Option<Gid>) {
        (Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))
    }
}

/// A new file, directory or link in a directory.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) directory: &'a OwnedFd,
    pub(super) name: &'a [u8],
    pub(super) owner: Owner,
    pub(super) mode: u32,
}

impl Place<'_> {
    /// Copies a regular file of at most this size, and returns its size.
    pub(super) fn copy(&self, from: &OwnedFd, name: &[u8], max: u64) -> io::Result<u64> {
        self.write(&open_file(from, name)?, max)
    }

    /// Creates a file with this content.
    pub(super) fn write_bytes(&self, content: &[u8]) -> io::Result<()> {
        let mut file = self.create()?;
        file.write_all(content)?;
        self.set_owner(&file)
    }

    fn create(&self) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(File::from(openat(self.directory, self.name, flags, Mode::from_raw_mode(0o600))?))
    }

    /// Copies an open file of at most this size, and returns its size. The copy is as old as the original.
    pub(super) fn write(&self, from: &File, max: u64) -> io::Result<u64> {
        let mut file = self.create()?;
        let copied = io::copy(&mut from.take(max.saturating_add(1)), &mut file)?;
        if copied > max {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.set_owner(&file)?;
        let meta = rustix::fs::fstat(from)?;
        let nanos = i64::try_from(meta.st_mtime_nsec).unwrap_or(0);
        let time = Timespec { tv_sec: meta.st_mtime, tv_nsec: nanos };
        futimens(&file, &Timestamps { last_access: time, last_modification: time })?;
        Ok(copied)
    }

    /// Creates a directory; one that exists is an error.
    pub(super) fn make_directory(&self) -> io::Result<()> {
        mkdirat(self.directory, self.name, Mode::from_raw_mode(0o700))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        self.set_owner(&openat(self.directory, self.name, flags, Mode::empty())?)
    }

    /// Creates a link.
    pub(super) fn link(&self, target: &[u8]) -> io::Result<()> {
        symlinkat(target, self.directory, self.name)?;
        let (uid, gid) = self.owner.ids();
        Ok(chownat(self.directory, self.name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The owner first: a change of owner takes bits of the mode away.
    fn set_owner(&self, file: impl AsFd) -> io::Result<()> {
        let (uid, gid) = self.owner.ids();
        fchown(&file, uid, gid)?;
        Ok(fchmod(&file, Mode::from_raw_mode(self.mode))?)
    }
}

/// Returns the mode of a copy for another user: never with set-id bits, and always usable by its owner.
pub(super) fn mode_of(entry: &Entry, least: u32) -> u32 {
    (entry.mode & 0o777) | least
}

/// Returns whether a user may read an entry of the host: the user owns it, or everybody may read it.
pub(super) fn is_readable_by(entry: &Entry, owner: Owner) -> bool {
    entry.uid == owner.uid
        || owner.uid == 0
        || entry.mode & 0o004 != 0
        || (entry.gid == owner.gid && entry.mode & 0o040 != 0)
}

/// Returns whether an error says that there is no such file.
pub(super) fn is_missing(error: Errno) -> bool {
    matches!(error, Errno::NOENT | Errno::NOTDIR)
}
