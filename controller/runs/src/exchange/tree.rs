//! A directory tree that another user can change at any time.
//!
//! Every path is resolved by the kernel beneath the root, without links and without mount points, or not at all. Only regular
//! files are opened, and no call blocks. Conditions of a read, such as the rights of a user, are checked on
//! descriptors.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat, statat};
use rustix::io::Errno;

use super::error::ExchangeError;
use super::interrupt::CancelFlag;
use super::owner::Owner;

/// Maximum length of a path that is opened.
const PATH_MAX: usize = 4000;
/// Maximum size of all paths and targets of links of a tree together.
const NAMES_MAX: u64 = 256 << 20;
/// Length after which a path in a message is cut.
const SHOWN_MAX: usize = 300;
const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

/// A directory tree.
#[derive(Debug)]
pub(super) struct Tree {
    root: OwnedFd,
    /// Path for messages.
    name: String,
    /// User on whose behalf directories are opened; `None` for the controller itself.
    reader: Option<Owner>,
    interrupt: CancelFlag,
}

/// A file, a directory or a link in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TreeEntry {
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) size: u64,
    pub(super) owner: Owner,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    /// Target of a link.
    pub(super) target: Vec<u8>,
}

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Link,
    /// A device, a FIFO or a socket.
    Special,
}

/// One directory of a tree and its entries, sorted by name.
#[derive(Debug)]
pub(super) struct Listing<'a> {
    /// Path of the directory in the tree; empty for the root.
    pub(super) path: &'a [u8],
    pub(super) directory: &'a OwnedFd,
    pub(super) entries: &'a [(Vec<u8>, TreeEntry)],
}

impl Tree {
    pub(super) fn new(root: OwnedFd, name: impl Into<String>, interrupt: &CancelFlag) -> Self {
        Self { root, name: name.into(), reader: None, interrupt: interrupt.clone() }
    }

    /// Limits the tree to directories that this user may use.
    pub(super) fn read_by(self, reader: Owner) -> Self {
        Self { reader: Some(reader), ..self }
    }

    /// Opens a directory of the host as the root of a tree.
    pub(super) fn open(path: &std::path::Path, interrupt: &CancelFlag) -> Result<Self, ExchangeError> {
        let name = path.display().to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty());
        root.map(|root| Self::new(root, name.clone(), interrupt)).map_err(|error| ExchangeError::at(name)(error.into()))
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Opens a directory of the tree.
    pub(super) fn directory(&self, path: &[u8]) -> io::Result<OwnedFd> {
        let Some(reader) = self.reader else {
            return Ok(open_directory(&self.root, if path.is_empty() { b"." } else { path })?);
        };
        let mut directory = open_directory(&self.root, b".")?;
        for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
            directory = open_directory(&directory, name)?;
            let stat = fstat(&directory)?;
            if !reader.may_read(Owner { uid: stat.st_uid, gid: stat.st_gid }, stat.st_mode, true) {
                return Err(Errno::ACCESS.into());
            }
        }
        Ok(directory)
    }

    /// Opens a regular file of the tree for reading.
    pub(super) fn file(&self, path: &[u8]) -> io::Result<File> {
        let (parent, name) = split(path);
        open_file(&self.directory(parent)?, name)
    }

    /// Returns the content of a regular file, if it has no more bytes than this.
    pub(super) fn read(&self, path: &[u8], max: u64) -> Result<Vec<u8>, ExchangeError> {
        let mut content = Vec::new();
        let read =
            self.file(path).and_then(|file| io::Read::read_to_end(&mut io::Read::take(file, max + 1), &mut content));
        read.map_err(self.error(path))?;
        if content.len() as u64 > max { Err(self.too_large(path, max)) } else { Ok(content) }
    }

    /// Visits every directory, parents first. The visitor returns the indices of the entries to enter; directories on which
    /// something is mounted are not entered.
    pub(super) fn walk(
        &self,
        max: u64,
        mut visit: impl FnMut(&Listing<'_>) -> Result<Vec<usize>, ExchangeError>,
    ) -> Result<(), ExchangeError> {
        let mut waiting = vec![Vec::new()];
        let (mut seen, mut names) = (0, 0);
        while let Some(path) = waiting.pop() {
            self.interrupt.check().map_err(self.error(&path))?;
            let directory = match self.directory(&path) {
                Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) => continue,
                directory => directory.map_err(self.error(&path))?,
            };
            let entries = self.list(&path, &directory, max - seen, max, &mut names)?;
            seen += entries.len() as u64;
            let enter = visit(&Listing { path: &path, directory: &directory, entries: &entries })?;
            for index in enter.into_iter().rev() {
                let inner = join(&path, &entries[index].0);
                if inner.len() > PATH_MAX {
                    return Err(ExchangeError::TooDeep { path: self.name.clone(), max: PATH_MAX });
                }
                waiting.push(inner);
            }
        }
        Ok(())
    }

    fn list(
        &self,
        path: &[u8],
        directory: &OwnedFd,
        left: u64,
        max: u64,
        names: &mut u64,
    ) -> Result<Vec<(Vec<u8>, TreeEntry)>, ExchangeError> {
        let mut entries = Vec::new();
        let failed = |error: Errno| ExchangeError::at(self.shown(path))(error.into());
        for found in Dir::read_from(directory).map_err(failed)? {
            let name = found.map_err(failed)?.file_name().to_bytes().to_vec();
            if name == b"." || name == b".." {
                continue;
            }
            if entries.len() as u64 >= left {
                return Err(ExchangeError::TooMany { path: self.name.clone(), max });
            }
            match entry(directory, &name) {
                Ok(entry) => {
                    *names += (path.len() + 1 + name.len() + entry.target.len()) as u64;
                    if *names > NAMES_MAX {
                        return Err(ExchangeError::NamesTooLarge { path: self.name.clone(), max: NAMES_MAX });
                    }
                    entries.push((name, entry));
                }
                // Removed since its name was read.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(self.error(&join(path, &name))(error)),
            }
        }
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(entries)
    }

    /// Returns the constructor of an error about a path in this tree.
    pub(super) fn error(&self, path: &[u8]) -> impl FnOnce(io::Error) -> ExchangeError + use<> {
        ExchangeError::at(self.shown(path))
    }

    pub(super) fn too_large(&self, path: &[u8], max: u64) -> ExchangeError {
        ExchangeError::TooLarge { path: self.shown(path), max }
    }

    pub(super) fn bad_config(&self, path: &[u8], line: usize) -> ExchangeError {
        ExchangeError::Config { path: self.shown(path), line }
    }

    fn shown(&self, path: &[u8]) -> String {
        if path.is_empty() { self.name.clone() } else { format!("{}/{}", self.name, show(path)) }
    }
}

impl TreeEntry {
    /// Returns whether this is the same version of the same file. A sandbox cannot set the change time.
    pub(super) fn is_same_version(&self, other: &Self) -> bool {
        self == other
    }

    /// Returns whether kind, size, modification time and link target are equal in both entries; a program of the host
    /// does not forge them.
    pub(super) fn has_same_content(&self, other: &Self) -> bool {
        let facts = |entry: &Self| (entry.kind, entry.size, entry.modified, entry.target.clone());
        facts(self) == facts(other)
    }

    /// Returns the time of the last change of the file or of its attributes, in seconds and nanoseconds since 1970. A sandbox
    /// cannot set it.
    pub(super) fn changed_at(&self) -> (i64, i64) {
        self.changed
    }

    /// Returns whether the owner may execute the file.
    pub(super) fn is_executable(&self) -> bool {
        self.mode & 0o100 != 0
    }
}

/// Returns the entry of this name in a directory.
pub(super) fn entry(directory: &OwnedFd, name: &[u8]) -> io::Result<TreeEntry> {
    look(directory, name, AtFlags::SYMLINK_NOFOLLOW)
}

/// Returns the entry of this name in a directory, with an `O_PATH` descriptor, which cannot read.
pub(super) fn find(directory: &OwnedFd, name: &[u8]) -> io::Result<(OwnedFd, TreeEntry)> {
    let found = openat(directory, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    let entry = look(&found, b"", AtFlags::EMPTY_PATH)?;
    Ok((found, entry))
}

/// Returns the entry of this name as the flags say.
pub(super) fn look(directory: &OwnedFd, name: &[u8], flags: AtFlags) -> io::Result<TreeEntry> {
    let stat = statat(directory, name, flags)?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        _ => Kind::Special,
    };
    let target = if kind == Kind::Link { readlinkat(directory, name, Vec::new())?.into_bytes() } else { Vec::new() };
    Ok(TreeEntry {
        kind,
        mode: stat.st_mode & 0o7777,
        size: if kind == Kind::File { u64::try_from(stat.st_size).unwrap_or(0) } else { 0 },
        owner: Owner { uid: stat.st_uid, gid: stat.st_gid },
        inode: stat.st_ino,
        modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        changed: (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
        target,
    })
}

/// Opens a directory beneath another one.
pub(super) fn open_directory(from: &OwnedFd, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(from, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), BENEATH)
}

/// Opens a regular file for reading. Anything else is an error, and is not opened.
pub(super) fn open_file(directory: &OwnedFd, name: &[u8]) -> io::Result<File> {
    let (found, entry) = find(directory, name)?;
    read_found(&found, &entry)
}

/// Opens a regular file that was found.
pub(super) fn read_found(found: &OwnedFd, entry: &TreeEntry) -> io::Result<File> {
    if entry.kind != Kind::File {
        return Err(io::Error::other("it is not a regular file"));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    Ok(File::from(rustix::fs::open(format!("/proc/self/fd/{}", found.as_raw_fd()), flags, Mode::empty())?))
}

/// Returns the path of a name in a directory.
pub(super) fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}

/// Returns the directory and the name of a path.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Returns whether a path is one of these paths, or beneath one of them.
pub(super) fn is_beneath(roots: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    let mut path = path;
    loop {
        if roots.contains(path) {
            return true;
        }
        if path.is_empty() {
            return false;
        }
        path = split(path).0;
    }
}

/// Returns whether a path is a directory above one of these paths.
pub(super) fn is_above(paths: &BTreeSet<Vec<u8>>, path: &[u8]) -> bool {
    let beginning = [path, b"/"].concat();
    paths.range(beginning.clone()..).next().is_some_and(|next| next.starts_with(&beginning))
}

/// Returns a path as one line of text, with the end of a long one left out. Control characters and those that reorder text are written as codes.
pub(super) fn show(path: &[u8]) -> String {
    let mut shown = String::new();
    for c in String::from_utf8_lossy(path).chars() {
        if shown.len() > SHOWN_MAX {
            shown.push('…');
            break;
        }
        if c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') {
            shown.extend(c.escape_default());
        } else {
            shown.push(c);
        }
    }
    shown
}
