//! Files in directories that belong to git's user. That user may have made links there, so no function here follows a
//! link.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::fchown;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat, openat2, renameat, statat, unlinkat};
use rustix::io::Errno;

use crate::program::ChildUser;

/// Opens a directory below `root`, without a link on the way.
pub(crate) fn open_directory(root: &Path, path: &str) -> io::Result<File> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
    let root = openat2(CWD, root, flags | OFlags::NOFOLLOW, Mode::empty(), ResolveFlags::NO_MAGICLINKS)?;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(File::from(openat2(root, path, flags, Mode::empty(), resolve)?))
}

/// Replaces a file as a whole in a directory below `root`, and gives it to the user. A link in its place is an error.
pub(crate) fn replace_file(
    root: &Path,
    directory: &str,
    name: &str,
    bytes: &[u8],
    user: Option<ChildUser>,
) -> io::Result<()> {
    let directory = open_directory(root, directory)?;
    check_kind(&directory, name)?;
    // git's own name for an unfinished file: `leftovers` removes it after a crash.
    let unfinished = format!("{name}.lock");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(&directory, unfinished.as_str(), flags, Mode::from_raw_mode(0o644))?);
    let replaced = fill(&file, bytes, user)
        .and_then(|()| renameat(&directory, unfinished.as_str(), &directory, name).map_err(io::Error::from));
    if replaced.is_err() {
        let _ = unlinkat(&directory, unfinished.as_str(), AtFlags::empty());
    }
    replaced
}

/// Refuses anything except a regular file or no file: git makes nothing else here.
fn check_kind(directory: &File, name: &str) -> io::Result<()> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => Ok(()),
        Ok(_) => Err(io::ErrorKind::InvalidData.into()),
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn fill(mut file: &File, bytes: &[u8], user: Option<ChildUser>) -> io::Result<()> {
    file.write_all(bytes)?;
    match user {
        Some(user) => fchown(file, Some(user.uid), Some(user.gid)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_replaced_through_no_link() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (root, outside) = (scratch.path().join("root"), scratch.path().join("outside"));
        for directory in [root.join("own"), outside.clone()] {
            fs::create_dir_all(&directory).expect("it is ours");
            fs::write(directory.join("config"), "old").expect("it is ours");
        }
        symlink(&outside, root.join("away")).expect("it is ours");
        symlink(outside.join("config"), root.join("own/link")).expect("it is ours");
        symlink(outside.join("none"), root.join("own/dangling")).expect("it is ours");
        let replace = |directory: &str, name: &str| replace_file(&root, directory, name, b"new", None);
        replace("own", "config").expect("it is a file");
        replace("own", "other").expect("it is new");
        for (directory, name) in [("away", "config"), ("own", "link"), ("own", "dangling"), ("../outside", "config")] {
            assert!(replace(directory, name).is_err(), "{directory}/{name}");
        }
        let read = |path: &Path| fs::read_to_string(path).expect("a file");
        assert_eq!([read(&root.join("own/config")), read(&root.join("own/other"))], ["new", "new"]);
        assert_eq!(read(&outside.join("config")), "old");
        let names = |directory: &Path| fs::read_dir(directory).expect("it is ours").count();
        assert_eq!((names(&root.join("own")), names(&outside)), (4, 1), "nothing unfinished is left");
    }
}
