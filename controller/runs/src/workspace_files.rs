//! Files of a live sandbox for its owner: read, written and listed although the sandbox changes them meanwhile.
//!
//! Each path is resolved by the kernel from a descriptor of the workspace: beneath it, through no link and no mount. What
//! is opened must be a regular file, and opening never waits. The calls block; they belong on a thread of their own.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{FileStat, Mode, SFlag, fchmod, fstat, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, fchown};
use sluice_state::layout::RunPaths;

use crate::rundir;

mod new_file;

pub use new_file::{NewFile, WrittenContent};

/// Maximum number of names of one page.
pub const PAGE_MAX: usize = 1000;
/// Maximum number of names of a directory that is listed.
pub const NAMES_MAX: usize = 1_000_000;
/// Maximum length of a path.
const PATH_MAX: usize = 4096;

/// The files of one run, or of a directory of the host that was granted to it.
#[derive(Debug)]
pub struct WorkspaceFiles {
    root: OwnedFd,
    /// User of the agent, who owns new files. `None` for a directory of the host, which is never written; only files that every
    /// user may read are read.
    uid: Option<u32>,
}

/// An open regular file.
#[derive(Debug)]
pub struct OpenFile {
    file: File,
    /// Size in bytes when it was opened.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
}

/// A page of names of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileList {
    /// The names in the order of their bytes.
    pub entries: Vec<FileEntry>,
    /// True if there are names after the last one.
    pub has_more: bool,
}

/// A name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The name, which need not be text.
    pub name: Vec<u8>,
    /// Kind of the file.
    pub kind: FileKind,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in seconds since 1970.
    pub modified: i64,
}

/// Kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link, which is never followed.
    Link,
    /// Device, FIFO or socket, which is never opened.
    Other,
}

/// Reason why a file cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("there is no such file")]
    NotFound,
    /// The path leads through a link or out of the workspace.
    #[error("the path leads through a link, or out of the workspace; name a path without links")]
    Outside,
    /// The name is not a regular file.
    #[error("it is not a regular file")]
    NotAFile,
    /// The name is not a directory.
    #[error("it is not a directory")]
    NotADirectory,
    /// The path is not the path of a file.
    #[error("the path is empty, too long, or has a NUL")]
    BadPath,
    /// The directory has more names than are listed.
    #[error("the directory has more than {NAMES_MAX} names")]
    TooManyNames,
    /// The content is longer than allowed.
    #[error("the content is longer than {0} bytes")]
    TooLarge(u64),
    /// Something has this name already.
    #[error("something has this name already")]
    Exists,
    /// The kernel refused it.
    #[error("the file system refuses it")]
    Io(#[source] io::Error),
}

impl From<Errno> for FileError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::ENOENT => Self::NotFound,
            Errno::ELOOP | Errno::EXDEV => Self::Outside,
            Errno::ENOTDIR => Self::NotADirectory,
            // A socket; a directory that is opened for writing, or that is in place of a file's parent.
            Errno::ENXIO | Errno::EISDIR => Self::NotAFile,
            Errno::ENAMETOOLONG => Self::BadPath,
            Errno::EEXIST => Self::Exists,
            error => Self::Io(error.into()),
        }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        error.raw_os_error().map_or_else(|| Self::Io(error), |code| Errno::from_raw(code).into())
    }
}

impl WorkspaceFiles {
    /// Opens the workspace of a run.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::NotFound`] when the run is over.
    pub fn open(paths: &RunPaths) -> Result<Self, FileError> {
        Self::at(&paths.work, rundir::sandbox_uid(paths)?)
    }

    /// Opens another directory with files that the agent with this user may read.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn at(directory: &Path, uid: u32) -> Result<Self, FileError> {
        Ok(Self { root: open_root(directory)?, uid: Some(uid) })
    }

    /// Opens a directory of the host that an agent was granted. The agent's user and the client are other users there:
    /// they see only files that every user may read.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn granted(directory: &Path) -> Result<Self, FileError> {
        Ok(Self { root: open_root(directory)?, uid: None })
    }

    /// Opens a regular file.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn read(&self, path: &[u8]) -> Result<OpenFile, FileError> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_NOFOLLOW;
        let file = beneath(&self.root, &name_of(path)?, flags, Mode::empty())?;
        self.check_readable(path, &file, Mode::S_IROTH)?;
        OpenFile::of(file.into())
    }

    /// Begins a file that replaces the one at this path, or is new there.
    ///
    /// # Errors
    /// [`FileError`].
    pub fn create(&self, path: &[u8], max: u64) -> Result<NewFile, FileError> {
        let (directory, name) = split(path)?;
        let uid = self.uid.ok_or(FileError::Outside)?;
        NewFile::create(self.directory(directory)?, name_of(name)?, uid, max)
    }

    /// Makes a directory, of the agent and with the mode 0755.
    ///
    /// # Errors
    /// [`FileError`]; [`FileError::Exists`] if the path exists.
    pub fn make_directory(&self, path: &[u8]) -> Result<(), FileError> {
        let (parent, name) = split(path)?;
        let (uid, name) = (self.uid.ok_or(FileError::Outside)?, name_of(name)?);
        let parent = self.directory(parent)?;
        mkdirat(&parent, name.as_c_str(), Mode::S_IRWXU)?;
        // The sandbox may have put another directory there: that one belongs to it already.
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let made = beneath(&parent, &name, flags, Mode::empty())?;
        fchmod(&made, Mode::from_bits_truncate(0o755))?;
        Ok(fchown(&made, Some(Uid::from_raw(uid)), Some(Gid::from_raw(uid)))?)
    }

    /// Lists the names of a directory after this name, at most [`PAGE_MAX`].
    ///
    /// # Errors
    /// [`FileError`].
    pub fn list(&self, path: &[u8], after: &[u8]) -> Result<FileList, FileError> {
        let directory = self.directory(path)?;
        // Only the first names are read: a sandbox can create more names than our memory can hold.
        let mut names = BTreeMap::new();
        for (seen, entry) in Dir::from_fd(directory.try_clone()?)?.iter().enumerate() {
            if seen == NAMES_MAX {
                return Err(FileError::TooManyNames);
            }
            let name = entry?.file_name().to_owned();
            let bytes = name.to_bytes();
            if bytes == b"." || bytes == b".." || bytes <= after {
                continue;
            }
            names.insert(bytes.to_vec(), name);
            if names.len() > PAGE_MAX + 1 {
                names.pop_last();
            }
        }
        let has_more = names.len() > PAGE_MAX;
        let mut entries = Vec::new();
        for (bytes, name) in names.into_iter().take(PAGE_MAX) {
            match fstatat(&directory, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) {
                Ok(stat) => entries.push(FileEntry {
                    name: bytes,
                    kind: kind_of(&stat),
                    size: size_of(&stat),
                    modified: stat.st_mtime,
                }),
                // The sandbox has removed it meanwhile.
                Err(Errno::ENOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(FileList { entries, has_more })
    }

    fn directory(&self, path: &[u8]) -> Result<OwnedFd, FileError> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK;
        let directory = beneath(&self.root, &name_of(path)?, flags, Mode::empty())?;
        self.check_readable(path, &directory, Mode::S_IROTH | Mode::S_IXOTH)?;
        Ok(directory)
    }

    /// Checks that every user may open this file of a host directory: we run as root, and the agent does not.
    fn check_readable(&self, path: &[u8], opened: impl AsFd, needed: Mode) -> Result<(), FileError> {
        let has = |stat: &FileStat, needed: Mode| Mode::from_bits_truncate(stat.st_mode).contains(needed);
        if self.uid.is_some() {
            return Ok(());
        }
        let mut is_open = has(&fstat(opened)?, needed) && has(&fstat(&self.root)?, Mode::S_IXOTH);
        for (at, _) in path.iter().enumerate().filter(|(at, byte)| **byte == b'/' && *at > 0) {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            let directory = beneath(&self.root, &name_of(&path[..at])?, flags, Mode::empty())?;
            is_open &= has(&fstat(&directory)?, Mode::S_IXOTH);
        }
        if is_open { Ok(()) } else { Err(FileError::NotFound) }
    }
}

/// Splits a path into its directory and its last name.
fn split(path: &[u8]) -> Result<(&[u8], &[u8]), FileError> {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let (directory, name) = match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    if matches!(name, b"" | b"." | b"..") { Err(FileError::BadPath) } else { Ok((directory, name)) }
}

fn open_root(directory: &Path) -> Result<OwnedFd, FileError> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    Ok(open(directory, flags, Mode::empty())?)
}

impl OpenFile {
    /// Takes a file that was opened elsewhere.
    ///
    /// # Errors
    /// [`FileError::NotAFile`].
    pub fn of(file: File) -> Result<Self, FileError> {
        let stat = fstat(&file)?;
        if kind_of(&stat) != FileKind::File {
            return Err(FileError::NotAFile);
        }
        Ok(Self { file, size: size_of(&stat), modified: stat.st_mtime })
    }

    /// Reads bytes at an offset into the buffer, and returns their number: less than its length at the end of the file.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut len = 0;
        while len < buffer.len() {
            match self.file.read_at(&mut buffer[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(read) => len += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(len)
    }
}

fn name_of(path: &[u8]) -> Result<CString, FileError> {
    if path.is_empty() || path.len() > PATH_MAX {
        return Err(FileError::BadPath);
    }
    CString::new(path).map_err(|_| FileError::BadPath)
}

/// Opens a path beneath a directory. If names change during the lookup, the kernel gives up and the lookup is repeated.
fn beneath(directory: impl AsFd, path: &CString, flags: OFlag, mode: Mode) -> nix::Result<OwnedFd> {
    const TRIES: usize = 64;
    let resolve = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS
        | ResolveFlag::RESOLVE_NO_XDEV;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).mode(mode).resolve(resolve);
    for _ in 1..TRIES {
        match openat2(&directory, path.as_c_str(), how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            opened => return opened,
        }
    }
    openat2(&directory, path.as_c_str(), how)
}

fn kind_of(stat: &FileStat) -> FileKind {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFREG => FileKind::File,
        SFlag::S_IFDIR => FileKind::Directory,
        SFlag::S_IFLNK => FileKind::Link,
        _ => FileKind::Other,
    }
}

fn size_of(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or_default()
}

#[cfg(test)]
mod tests;
