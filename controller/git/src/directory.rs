//! Directories of repositories: their owner, their removal, and locks beside them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, fchown, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::error::GitError;
use crate::program::ChildUser;

/// Time between two tries to get a lock.
const RETRY: Duration = Duration::from_millis(50);

/// Maximum number of lock files that may be removed while one lock is taken.
const REMOVALS: u32 = 10;

/// Maximum number of bytes of a small file that is read.
const SMALL: u64 = 4 << 20;

/// Makes a new private directory for the user.
pub(crate) fn make_private(path: &Path, user: Option<ChildUser>) -> Result<(), GitError> {
    DirBuilder::new().mode(0o700).create(path).map_err(GitError::file("make a directory for a repository"))?;
    own(path, user)
}

/// Gives a file or directory to the user. A link in its place, which a process of that user could make, is not followed.
pub(crate) fn own(path: &Path, user: Option<ChildUser>) -> Result<(), GitError> {
    let Some(user) = user else { return Ok(()) };
    lchown(path, Some(user.uid), Some(user.gid)).map_err(GitError::file("give a repository to the user of git"))
}

/// Makes a directory of ours and its parents, if they are not there.
pub(crate) fn make_ours(path: &Path) -> Result<(), GitError> {
    DirBuilder::new()
        .mode(0o700)
        .recursive(true)
        .create(path)
        .map_err(GitError::file("make a directory for repositories"))
}

/// Removes a directory and its contents, if it exists.
pub(crate) fn remove(path: &Path) -> Result<(), GitError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(GitError::File { what: "remove a directory of a repository", source: error })
        }
        _ => Ok(()),
    }
}

/// Writes a new private file for the user.
pub(crate) fn write_private(path: &Path, bytes: &[u8], user: Option<ChildUser>) -> Result<(), GitError> {
    let failed = || GitError::file("write a file of a repository");
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed())?;
    file.write_all(bytes).map_err(failed())?;
    let Some(user) = user else { return Ok(()) };
    fchown(&file, Some(user.uid), Some(user.gid)).map_err(GitError::file("give a repository to the user of git"))
}

/// Replaces a file of ours as a whole.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), GitError> {
    let failed = || GitError::file("write the record of a repository");
    let parent = path.parent().unwrap_or(Path::new("/"));
    let mut file = tempfile::NamedTempFile::new_in(parent).map_err(failed())?;
    file.write_all(bytes).map_err(failed())?;
    file.as_file().sync_all().map_err(failed())?;
    file.persist(path)
        .map_err(|error| GitError::File { what: "write the record of a repository", source: error.error })?;
    File::open(parent).and_then(|parent| parent.sync_all()).map_err(failed())
}

/// Returns the number of bytes of the files in a directory; 0 if it is not there.
pub(crate) fn file_bytes(directory: &Path) -> Result<u64, GitError> {
    let failed = || GitError::file("list a directory of a repository");
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(failed())?,
    };
    let bytes = |entry: io::Result<fs::DirEntry>| Ok(entry?.metadata()?.len());
    entries.map(bytes).sum::<io::Result<u64>>().map_err(failed())
}

/// Reads a regular file of at most 4 MiB, through no link; `None` if it does not exist.
pub(crate) fn read_small(path: &Path) -> Result<Option<Vec<u8>>, GitError> {
    let failed = || GitError::file("read a file of a repository");
    let flags = nix::libc::O_NOFOLLOW | nix::libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed())?,
    };
    if !file.metadata().map_err(failed())?.is_file() {
        return Err(GitError::File { what: "read a file of a repository", source: io::ErrorKind::InvalidData.into() });
    }
    let mut bytes = Vec::new();
    file.take(SMALL + 1).read_to_end(&mut bytes).map_err(failed())?;
    if bytes.len() as u64 > SMALL {
        return Err(GitError::File { what: "read a file of a repository", source: io::ErrorKind::FileTooLarge.into() });
    }
    Ok(Some(bytes))
}

/// A directory that is removed with this value.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    name: String,
}

impl Scratch {
    /// Makes a directory with a name that begins with `kind`, for the user.
    pub(crate) fn new(parent: &Path, kind: &str, user: Option<ChildUser>) -> Result<Self, GitError> {
        let made = tempfile::Builder::new().prefix(&format!("{kind}-")).tempdir_in(parent);
        let path = made.map_err(GitError::file("make a directory of a repository"))?.keep();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let scratch = Self { path, name };
        own(&scratch.path, user)?;
        Ok(scratch)
    }

    /// Returns the path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the name in the parent, as a git process there uses it.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Removes the directories of this kind that an earlier process left.
    pub(crate) fn sweep(parent: &Path, kind: &str) -> Result<(), GitError> {
        let entries = fs::read_dir(parent).map_err(GitError::file("list a directory of a repository"))?;
        let start = format!("{kind}-");
        for entry in entries.filter_map(Result::ok) {
            if entry.file_name().to_string_lossy().starts_with(&start) {
                remove(&entry.path())?;
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The lock of a mirror or of a run's repository, between processes and tasks; it is released when this value is
/// dropped.
#[derive(Debug)]
pub(crate) struct Lock(File);

/// Closing only the file is not enough: a process that is being started has copies of all files for a moment.
impl Drop for Lock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Lock {
    /// Waits for the lock, at most this long.
    pub(crate) async fn wait(path: &Path, most: Duration) -> Result<Self, GitError> {
        let taken = async {
            loop {
                if let Some(lock) = Self::take(path)? {
                    return Ok(lock);
                }
                tokio::time::sleep(RETRY).await;
            }
        };
        tokio::time::timeout(most, taken).await.unwrap_or_else(|_| {
            Err(GitError::TimedOut { command: "waiting for another one".to_owned(), seconds: most.as_secs() })
        })
    }

    /// Sets the time of the file to now.
    pub(crate) fn touch(&self) -> Result<(), GitError> {
        self.0.set_modified(SystemTime::now()).map_err(GitError::file("set the time of a lock"))
    }

    /// Takes the lock, unless another process or task holds it.
    pub(crate) fn take(path: &Path) -> Result<Option<Self>, GitError> {
        for _ in 0..REMOVALS {
            let opened = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path);
            let file = opened.map_err(GitError::file("open the lock of a repository"))?;
            let lock = match file.try_lock() {
                Ok(()) => Self(file),
                Err(fs::TryLockError::WouldBlock) => return Ok(None),
                Err(fs::TryLockError::Error(source)) => {
                    return Err(GitError::File { what: "lock a repository", source });
                }
            };
            // A holder can remove the file together with the repository. A lock of the removed file does not exclude a
            // lock of a new one.
            if lock.is_at(path).map_err(GitError::file("read the lock of a repository"))? {
                return Ok(Some(lock));
            }
        }
        Ok(None)
    }

    /// Returns whether the path still names the locked file.
    fn is_at(&self, path: &Path) -> io::Result<bool> {
        let locked = self.0.metadata()?;
        match fs::metadata(path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (locked.dev(), locked.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::*;

    #[test]
    fn the_target_of_a_link_is_not_given_away() {
        let directory = tempfile::tempdir().expect("a directory");
        let [target, link] = ["target", "link"].map(|name| directory.path().join(name));
        fs::write(&target, "").and_then(|()| std::os::unix::fs::symlink(&target, &link)).expect("it is ours");
        let owner = |path: &Path| fs::symlink_metadata(path).expect("it is there").uid();
        let ours = owner(&target);
        own(&link, Some(ChildUser { uid: ours + 4242, gid: 0 }))
            .expect("run this test as root: only root may give away");
        assert_eq!((owner(&target), owner(&link)), (ours, ours + 4242));
    }

    /// Bug: one task locked a file that its holder had just removed, and another one locked the new file.
    #[test]
    fn a_lock_with_a_removed_file_has_one_holder() {
        let directory = tempfile::tempdir().expect("a directory");
        let (path, is_held) = (directory.path().join("r1.lock"), AtomicBool::new(false));
        let removed = Lock::take(&path).expect("it is ours").expect("nobody holds it");
        fs::remove_file(&path).expect("it is ours");
        assert!(!removed.is_at(&path).expect("it is ours"));
        let take_often = || {
            for _ in 0..2000 {
                let Some(_lock) = Lock::take(&path).expect("it is ours") else { continue };
                assert!(!is_held.swap(true, Ordering::SeqCst), "two tasks hold the lock");
                is_held.store(false, Ordering::SeqCst);
                fs::remove_file(&path).expect("the holder alone removes it");
            }
        };
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(take_often);
            }
        });
    }
}
