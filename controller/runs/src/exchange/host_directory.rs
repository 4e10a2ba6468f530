//! Directories of the host that are opened before a run, and used at its end: no path is looked up again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, ResolveFlags, flock, openat2, renameat, unlinkat};
use rustix::io::Errno;
use sluice_state::layout::RunPaths;

use super::copy::{NewEntry, is_empty, temporary};
use super::error::ExchangeError;
use super::interrupt::CancelFlag;
use super::owner::Owner;
use super::tree::Tree;

/// Interval in which a lock that another program holds is tried.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// An open directory of the host. The path is for messages.
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "named like their types")]
pub struct HostDirectory {
    pub path: PathBuf,
    pub descriptor: Arc<OwnedFd>,
}

/// A file of the host that a run writes at its end.
#[derive(Debug, Clone)]
pub struct OutputFile {
    /// Directory of the file.
    pub directory: HostDirectory,
    /// Name of the file.
    pub name: String,
}

/// The lock of a directory, until it is dropped. Other runs that apply changes to the directory wait for it.
#[derive(Debug)]
pub(super) struct DirectoryLock<'a>(&'a OwnedFd);

impl Drop for DirectoryLock<'_> {
    fn drop(&mut self) {
        let _ = flock(self.0, FlockOperation::Unlock);
    }
}

impl HostDirectory {
    /// Opens a directory. A link in its path is an error.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), descriptor: Arc::new(open(CWD, path)?) })
    }

    pub(super) fn tree(&self, interrupt: &CancelFlag) -> io::Result<Tree> {
        Ok(Tree::new(self.descriptor.try_clone()?, self.path.display().to_string(), interrupt))
    }

    pub(super) fn owner(&self) -> io::Result<Owner> {
        let stat = rustix::fs::fstat(&self.descriptor)?;
        Ok(Owner { uid: stat.st_uid, gid: stat.st_gid })
    }

    pub(super) fn error(&self, source: io::Error) -> ExchangeError {
        ExchangeError::at(self.path.display().to_string())(source)
    }

    /// Takes the lock, and waits for it no longer than this.
    #[allow(clippy::disallowed_methods, reason = "on a thread of its own, which has no timers")]
    pub(super) fn lock(&self, wait: Duration, interrupt: &CancelFlag) -> Result<DirectoryLock<'_>, ExchangeError> {
        let begun = Instant::now();
        loop {
            match flock(&self.descriptor, FlockOperation::NonBlockingLockExclusive) {
                // Some network file systems have no such locks.
                Ok(()) | Err(Errno::BADF | Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
                    return Ok(DirectoryLock(&self.descriptor));
                }
                Err(Errno::WOULDBLOCK) if begun.elapsed() >= wait => {
                    return Err(ExchangeError::Locked { path: self.path.display().to_string(), waited: wait });
                }
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(self.error(error.into())),
            }
            interrupt.check().map_err(|error| self.error(error))?;
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Waits until everything that was written to the file system of the directory is on its disk.
    pub(super) fn sync(&self) -> Result<(), ExchangeError> {
        rustix::fs::syncfs(&self.descriptor).map_err(|error| self.error(error.into()))
    }
}

impl OutputFile {
    /// Returns its path, for messages.
    pub(crate) fn path(&self) -> String {
        self.directory.path.join(&self.name).display().to_string()
    }

    /// Replaces the file by one that this run wrote. It gets the owner of the directory.
    pub(crate) fn write(&self, content: &[u8], paths: &RunPaths) -> io::Result<()> {
        let (directory, temporary) = (&self.directory.descriptor, &temporary(paths)[..]);
        let owner = self.directory.owner()?;
        let written = NewEntry { directory, name: temporary, owner, mode: 0o644 }
            .write_bytes(content)
            .and_then(|file| file.sync_all())
            .and_then(|()| Ok(renameat(directory, temporary, directory, &self.name)?));
        // A file that was there before belongs to another program.
        if written.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::AlreadyExists) {
            let _ = unlinkat(directory, temporary, AtFlags::empty());
        }
        written?;
        Ok(rustix::fs::fsync(directory)?)
    }
}

/// Creates a directory for `--out`, owned like its parent, or opens one that is empty.
///
/// # Errors
/// Errors of the kernel, and a directory that is not empty.
pub fn output_directory(path: &Path) -> io::Result<HostDirectory> {
    use std::os::unix::ffi::OsStrExt;
    let (parent, name) = (path.parent(), path.file_name());
    let (Some(parent), Some(name)) = (parent, name) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = HostDirectory::open(&std::fs::canonicalize(parent)?)?;
    let path = parent.path.join(name);
    let place = NewEntry { directory: &parent.descriptor, name: name.as_bytes(), owner: parent.owner()?, mode: 0o755 };
    match place.make_directory() {
        Ok(made) => Ok(HostDirectory { path, descriptor: Arc::new(made) }),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let found = open(&*parent.descriptor, Path::new(name))?;
            if !is_empty(&found)? {
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "it is not empty; name a new directory"));
            }
            Ok(HostDirectory { path, descriptor: Arc::new(found) })
        }
        Err(error) => Err(error),
    }
}

fn open(from: impl std::os::fd::AsFd, path: &Path) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(openat2(from, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty(), resolve)?)
}
