//! A file or a directory of this host that is read while its owner can change it.
//!
//! The kernel resolves each path beneath the open root, without links, or not at all. Only regular files are opened for
//! reading, and nothing blocks.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

/// A directory that was opened.
#[derive(Debug)]
pub(super) struct HostTree {
    root: OwnedFd,
}

/// Type of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EntryKind {
    File,
    Directory,
    Link,
    /// A device, a FIFO or a socket.
    Special,
}

/// The source of a copy. A link to it was followed.
#[derive(Debug)]
pub(super) enum Source {
    File(File),
    Directory(HostTree),
    Other,
}

/// Opens the source of a copy.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn open(path: &Path) -> io::Result<Source> {
    // A device is not opened for reading, since this alone can have effects.
    let found = openat2(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::empty())?;
    Ok(match kind_of(&found)? {
        EntryKind::Directory => Source::Directory(HostTree { root: found }),
        EntryKind::File => match open_file(CWD, path, ResolveFlags::empty())? {
            Some(file) => Source::File(file),
            None => Source::Other,
        },
        EntryKind::Link | EntryKind::Special => Source::Other,
    })
}

impl HostTree {
    /// Returns the names in a directory, sorted; an empty path is the root.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn names(&self, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        let path = if path.is_empty() { b"." } else { path };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = openat2(&self.root, path, flags, Mode::empty(), BENEATH)?;
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let name = entry?.file_name().to_bytes().to_vec();
            if !matches!(&name[..], b"." | b"..") {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Returns the kind of an entry.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn kind(&self, path: &[u8]) -> io::Result<EntryKind> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        kind_of(&openat2(&self.root, path, flags, Mode::empty(), BENEATH)?)
    }

    /// Opens a regular file; `None` for another kind.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub(super) fn file(&self, path: &[u8]) -> io::Result<Option<File>> {
        open_file(&self.root, path, BENEATH)
    }
}

/// Reads at most `max` + 1 bytes of a file: with one byte more than `max`, the file is too large.
///
/// # Errors
/// Errors of the kernel.
pub(super) fn read(file: File, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    file.take(max + 1).read_to_end(&mut content)?;
    Ok(content)
}

/// Returns whether an error means that an entry was removed or replaced since its directory was read.
pub(super) fn is_changed(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::AGAIN))
}

fn open_file(
    directory: impl std::os::fd::AsFd,
    path: impl rustix::path::Arg,
    resolve: ResolveFlags,
) -> io::Result<Option<File>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat2(directory, path, flags, Mode::empty(), resolve)?;
    Ok((kind_of(&file)? == EntryKind::File).then(|| File::from(file)))
}

fn kind_of(descriptor: &OwnedFd) -> io::Result<EntryKind> {
    Ok(match FileType::from_raw_mode(fstat(descriptor)?.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Link,
        _ => EntryKind::Special,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_directory_that_becomes_a_link_is_not_followed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let (tree, secret) = (dir.path().join("tree"), dir.path().join("secret"));
        for path in [&tree.join("a"), &secret] {
            fs::create_dir_all(path).expect("there is room");
            fs::write(path.join("f"), "x").expect("there is room");
        }
        let Ok(Source::Directory(opened)) = open(&tree) else { panic!("it is a directory") };
        assert_eq!(opened.names(b"").expect("it is read"), [b"a".to_vec()]);
        assert_eq!(opened.kind(b"a").expect("it is there"), EntryKind::Directory);
        fs::rename(tree.join("a"), tree.join("b")).expect("it is ours");
        symlink(&secret, tree.join("a")).expect("the name is free");
        let moved = tree.with_file_name("moved");
        fs::rename(&tree, &moved).expect("it is ours");
        symlink(&secret, &tree).expect("the name is free");
        for error in [opened.names(b"a").expect_err("a link"), opened.file(b"a/f").expect_err("a link")] {
            assert!(is_changed(&error), "{error}");
        }
        assert_eq!(opened.kind(b"a").expect("it is there"), EntryKind::Link);
        assert_eq!(opened.names(b"b").expect("the root is the one that was opened"), [b"f".to_vec()]);
        assert!(is_changed(&opened.file(b"f").expect_err("it is in another directory")));
        for outside in [&b".."[..], b"/etc", b"b/../.."] {
            assert!(opened.names(outside).is_err());
        }
    }

    #[test]
    fn only_regular_files_are_read() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        rustix::fs::mkfifoat(CWD, dir.path().join("fifo"), Mode::RWXU).expect("the name is free");
        fs::write(dir.path().join("file"), "four").expect("there is room");
        let Ok(Source::Directory(tree)) = open(dir.path()) else { panic!("it is a directory") };
        assert_eq!(tree.kind(b"fifo").expect("it is there"), EntryKind::Special);
        assert!(tree.file(b"fifo").expect("it does not block").is_none());
        assert!(matches!(open(&dir.path().join("fifo")), Ok(Source::Other)));
        assert!(matches!(open(Path::new("/dev/null")), Ok(Source::Other)));
        let Ok(Source::File(file)) = open(&dir.path().join("file")) else { panic!("it is a file") };
        assert_eq!(read(file, 2).expect("it is read"), b"fou");
    }
}
