//! Gives the files of a clone to the sandbox's user, before a container exists.

use std::io;
use std::os::unix::fs::lchown;
use std::path::Path;

/// Gives a directory and its contents to a user. Links are given, and not followed.
pub(super) fn give(directory: &Path, uid: u32) -> io::Result<()> {
    lchown(directory, Some(uid), Some(uid))?;
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            lchown(entry.path(), Some(uid), Some(uid))?;
            // The type of the entry itself: a link to a directory is not one.
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, symlink};

    use super::*;

    #[test]
    fn links_are_given_and_not_followed() {
        let (inside, outside) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("a directory"));
        std::fs::create_dir_all(inside.path().join("a/b")).expect("it is ours");
        std::fs::write(outside.path().join("kept"), "x").expect("it is ours");
        symlink(outside.path(), inside.path().join("a/out")).expect("it is ours");
        let owner = |path: &Path| std::fs::symlink_metadata(path).expect("it is there").uid();
        let (ours, theirs) = (owner(outside.path()), owner(outside.path()) + 4242);
        give(inside.path(), theirs).expect("run this test as root: only root may give files away");
        for name in ["", "a", "a/b", "a/out"] {
            assert_eq!(owner(&inside.path().join(name)), theirs, "{name}");
        }
        assert_eq!((owner(outside.path()), owner(&outside.path().join("kept"))), (ours, ours));
    }
}
