//! The unix socket, bound under another name first: a client that sees it can use it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use nix::fcntl::AtFlags;
use nix::sys::stat::fstatat;
use nix::unistd::{AccessFlags, UnlinkatFlags, access, faccessat, unlinkat};
use sluice_contract::ready::SOCKET_PATH_MAX;

use crate::harden::User;

/// A listening socket; its file is removed when this value is dropped.
#[derive(Debug)]
pub struct ListeningSocket {
    /// The listener, non-blocking.
    pub listener: UnixListener,
    /// Directory of the socket, held open: the process may have no access to it by its path later.
    directory: File,
    name: OsString,
    /// Device and inode: a file that another process put there since is not removed.
    file: (u64, u64),
}

/// Reason why the socket cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The path is longer than the kernel takes.
    #[error("the path has {0} bytes, and a unix socket's may have {SOCKET_PATH_MAX}; choose a shorter one")]
    TooLong(usize),
    /// The path has no directory.
    #[error("its directory does not exist or is not a directory; create it first")]
    NoDirectory,
    /// Another process answers on the path.
    #[error("another process answers on it; stop it, or choose another path")]
    InUse,
    /// A file of another kind has that name.
    #[error("it exists and is not a socket; it is left as it is")]
    NotASocket,
    /// The system refused.
    #[error("cannot create it; its directory must be writable")]
    System(#[source] io::Error),
}

impl BindError {
    /// Returns true if permissions are the reason.
    #[must_use]
    pub fn is_permission(&self) -> bool {
        matches!(self, Self::System(error) if error.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// Checks whether a socket could be bound there now.
///
/// # Errors
/// [`BindError`]
pub fn check(path: &Path) -> Result<(), BindError> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        return Err(BindError::TooLong(len));
    }
    if !directory(path).is_dir() {
        return Err(BindError::NoDirectory);
    }
    access(directory(path), AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| BindError::System(error.into()))?;
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(BindError::System(error)),
        Ok(meta) if !meta.file_type().is_socket() => Err(BindError::NotASocket),
        Ok(_) => match UnixStream::connect(path) {
            // Refused: the process that bound it is gone. The file is stale, and a rename replaces it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Ok(_) => Err(BindError::InUse),
            Err(error) => Err(BindError::System(error)),
        },
    }
}

impl ListeningSocket {
    /// Binds and listens. The socket appears with its mode, independent of the umask.
    ///
    /// # Errors
    /// [`BindError`]
    pub fn bind(path: &Path, mode: u32) -> Result<Self, BindError> {
        check(path)?;
        let temporary = temporary(path);
        let bound = Self::bind_as(path, &temporary, mode);
        if bound.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        bound.map_err(BindError::System)
    }

    fn bind_as(path: &Path, temporary: &Path, mode: u32) -> io::Result<Self> {
        if let Err(error) = fs::remove_file(temporary)
            && error.kind() != io::ErrorKind::NotFound
        {
            return Err(error);
        }
        // Bound through the directory's descriptor: the kernel's limit is for the path that clients use.
        let directory = File::open(directory(path))?;
        let name = temporary.file_name().unwrap_or_default();
        let listener = UnixListener::bind(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name))?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(temporary, fs::Permissions::from_mode(mode))?;
        let meta = fs::symlink_metadata(temporary)?;
        fs::rename(temporary, path)?;
        let name = path.file_name().unwrap_or_default().to_owned();
        Ok(Self { listener, directory, name, file: (meta.dev(), meta.ino()) })
    }

    /// Gives the directory to the user if it exists for this socket alone: it belongs to root, only root can write it,
    /// and it holds nothing else. The process can then remove the socket as that user. Any other directory stays as it
    /// is.
    ///
    /// # Errors
    /// The error of the system.
    pub fn give_directory(&self, user: User) -> io::Result<()> {
        let meta = self.directory.metadata()?;
        if meta.uid() != 0 || meta.mode() & 0o022 != 0 {
            return Ok(());
        }
        for entry in fs::read_dir(format!("/proc/self/fd/{}", self.directory.as_raw_fd()))? {
            if entry?.file_name() != self.name {
                return Ok(());
            }
        }
        std::os::unix::fs::fchown(&self.directory, Some(user.uid), Some(user.gid))
    }

    /// Returns true if this process may remove the socket from its directory.
    #[must_use]
    pub fn is_removable(&self) -> bool {
        faccessat(&self.directory, ".", AccessFlags::W_OK | AccessFlags::X_OK, AtFlags::empty()).is_ok()
    }
}

impl Drop for ListeningSocket {
    fn drop(&mut self) {
        let name = self.name.as_os_str();
        let found = fstatat(&self.directory, name, AtFlags::AT_SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| (found.st_dev, found.st_ino) == self.file) {
            let _ = unlinkat(&self.directory, name, UnlinkatFlags::NoRemoveDir);
        }
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns a path in the same directory, so that the rename is one step.
fn temporary(path: &Path) -> PathBuf {
    directory(path).join(format!(".s{}", std::process::id()))
}
