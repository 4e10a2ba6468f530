//! Directories of the host that are opened before a run, and used at its end: no path is looked up again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, mkdirat, renameat};

use super::copy::{Owner, Place};
use super::error::ExchangeError;
use super::tree::Tree;

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

impl HostDirectory {
    /// Opens a directory. Its path has no links.
    ///
    /// # Errors
    /// Errors of the kernel.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let descriptor = Arc::new(rustix::fs::open(path, flags, Mode::empty())?);
        Ok(Self { path: path.to_owned(), descriptor })
    }

    pub(super) fn tree(&self) -> io::Result<Tree> {
        Ok(Tree::new(self.descriptor.try_clone()?, self.path.display().to_string()))
    }

    pub(super) fn owner(&self) -> io::Result<Owner> {
        let stat = rustix::fs::fstat(&self.descriptor)?;
        Ok(Owner { uid: stat.st_uid, gid: stat.st_gid })
    }

    pub(super) fn error(&self, source: io::Error) -> ExchangeError {
        ExchangeError::at(self.path.display().to_string())(source)
    }
}

impl OutputFile {
    /// Replaces the file. Its owner is that of the directory.
    pub(super) fn write(&self, content: &[u8]) -> io::Result<()> {
        let directory = &self.directory.descriptor;
        let temporary = format!(".{}.sluice-unfinished", self.name);
        let _ = rustix::fs::unlinkat(directory, &temporary, rustix::fs::AtFlags::empty());
        let owner = self.directory.owner()?;
        Place { directory, name: temporary.as_bytes(), owner, mode: 0o644 }.write_bytes(content)?;
        Ok(renameat(directory, &temporary, directory, &self.name)?)
    }
}

/// Creates a directory for `--out`, owned like its parent, or opens one that is empty.
///
/// # Errors
/// Errors of the kernel, and a directory that is not empty.
pub fn output_directory(path: &Path) -> io::Result<HostDirectory> {
    let (parent, name) = (path.parent(), path.file_name());
    let (Some(parent), Some(name)) = (parent, name) else { return Err(io::ErrorKind::InvalidInput.into()) };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let path = std::fs::canonicalize(parent)?.join(name);
    let parent = HostDirectory::open(path.parent().unwrap_or(Path::new("/")))?;
    let owner = parent.owner()?;
    match mkdirat(&parent.descriptor, name, Mode::from_raw_mode(0o755)) {
        Ok(()) => {
            let made = HostDirectory::open(&path)?;
            let (uid, gid) = (rustix::fs::Uid::from_raw(owner.uid), rustix::fs::Gid::from_raw(owner.gid));
            rustix::fs::fchown(&made.descriptor, Some(uid), Some(gid))?;
            Ok(made)
        }
        Err(rustix::io::Errno::EXIST) => {
            let found = HostDirectory::open(&path)?;
            if std::fs::read_dir(&path)?.next().is_some() {
                return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, "it is not empty; name a new directory"));
            }
            Ok(found)
        }
        Err(error) => Err(error.into()),
    }
}
