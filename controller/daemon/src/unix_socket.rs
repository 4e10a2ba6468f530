//! A unix socket that is bound under a temporary name and then renamed: a client that sees it can use it.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener as StdListener, UnixStream as StdStream};
use std::path::{Path, PathBuf};

use sluice_contract::ready::SOCKET_PATH_MAX;
use tokio::net::UnixListener;

/// A listening socket; its file is removed when this value is dropped.
#[derive(Debug)]
pub struct DaemonSocket {
    /// The listener.
    pub listener: UnixListener,
    path: PathBuf,
    /// Device and inode: a file that another process put there since is not removed.
    file: (u64, u64),
}

/// Reason that a socket cannot be bound.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "their messages say it")]
pub enum SocketError {
    #[error("{path} has {len} bytes, and a socket's path has room for {SOCKET_PATH_MAX}; name a shorter --run-dir")]
    TooLong { path: PathBuf, len: usize },
    #[error("{} is not a directory of this user alone (mode 0700); chmod 700 it, or name another with --run-dir", .0.display())]
    Directory(PathBuf),
    #[error("another process answers on {}; stop it, or name another directory with --run-dir", .0.display())]
    InUse(PathBuf),
    #[error("{} exists and is not a socket; move it away, or name another directory with --run-dir", .0.display())]
    NotASocket(PathBuf),
    #[error("cannot listen on {}", .0.display())]
    System(PathBuf, #[source] io::Error),
}

/// Makes the directory of the sockets, private to this user. An existing one is not changed.
///
/// # Errors
/// [`SocketError::Directory`], [`SocketError::System`].
pub fn make_directory(path: &Path) -> Result<(), SocketError> {
    let failed = |error| SocketError::System(path.to_owned(), error);
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    let meta = fs::symlink_metadata(path).map_err(failed)?;
    let is_ours = meta.is_dir() && meta.uid() == nix::unistd::Uid::effective().as_raw() && meta.mode() & 0o077 == 0;
    if is_ours { Ok(()) } else { Err(SocketError::Directory(path.to_owned())) }
}

impl DaemonSocket {
    /// Binds and listens. The socket appears with its mode, independent of the umask. A stale socket, on which no process
    /// answers, is replaced.
    ///
    /// # Errors
    /// [`SocketError`]
    pub fn bind(path: &Path, mode: u32) -> Result<Self, SocketError> {
        check(path)?;
        let temporary = path.with_file_name(format!(".s{}", std::process::id()));
        let bound = Self::bind_as(path, &temporary, mode);
        if bound.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        bound.map_err(|error| SocketError::System(path.to_owned(), error))
    }

    fn bind_as(path: &Path, temporary: &Path, mode: u32) -> io::Result<Self> {
        match fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Bound through the directory's descriptor: the kernel's limit is for the path that clients use.
        let directory = File::open(path.parent().unwrap_or(Path::new(".")))?;
        let name = temporary.file_name().unwrap_or_default();
        let through = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
        let listener = StdListener::bind(through)?;
        listener.set_nonblocking(true)?;
        fs::set_permissions(temporary, Permissions::from_mode(mode))?;
        let meta = fs::symlink_metadata(temporary)?;
        let listener = UnixListener::from_std(listener)?;
        fs::rename(temporary, path)?;
        Ok(Self { listener, path: path.to_owned(), file: (meta.dev(), meta.ino()) })
    }
}

impl Drop for DaemonSocket {
    fn drop(&mut self) {
        let found = fs::symlink_metadata(&self.path);
        if found.is_ok_and(|found| (found.dev(), found.ino()) == self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks whether a socket can be bound there now.
fn check(path: &Path) -> Result<(), SocketError> {
    let len = path.as_os_str().len();
    if len > SOCKET_PATH_MAX {
        return Err(SocketError::TooLong { path: path.to_owned(), len });
    }
    let failed = |error| SocketError::System(path.to_owned(), error);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(failed(error)),
        Ok(meta) if !meta.file_type().is_socket() => Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) => match StdStream::connect(path) {
            // Refused: the process that bound it is gone. The file is stale, and a rename replaces it.
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound) => Ok(()),
            Ok(_) => Err(SocketError::InUse(path.to_owned())),
            Err(error) => Err(failed(error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, bind, socket};

    use super::*;

    fn scratch() -> tempfile::TempDir {
        tempfile::tempdir().expect("there is room")
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
    }

    #[tokio::test]
    async fn a_socket_has_its_mode_and_is_removed() {
        let scratch = scratch();
        let path = scratch.path().join("admin.sock");
        let socket = DaemonSocket::bind(&path, 0o600).expect("it is free");
        assert_eq!(mode(&path), 0o600);
        assert!(matches!(DaemonSocket::bind(&path, 0o600), Err(SocketError::InUse(_))));
        assert_eq!(fs::read_dir(scratch.path()).expect("it is ours").count(), 1, "no temporary name is left");
        drop(socket);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_socket_is_replaced_and_other_files_are_not() {
        let scratch = scratch();
        let path = scratch.path().join("api.sock");
        // It does not listen: a child that another test starts may keep a copy of it for a moment.
        let stale = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).expect("a socket");
        bind(stale.as_raw_fd(), &UnixAddr::new(&path).expect("a short path")).expect("it is free");
        drop(stale);
        assert!(path.exists(), "a killed process leaves it");
        let socket = DaemonSocket::bind(&path, 0o666).expect("nobody answers on it");
        // Another process creates its own socket there.
        fs::remove_file(&path).expect("it is ours");
        fs::write(&path, "").expect("it is ours");
        drop(socket);
        assert!(path.exists(), "it is not ours to remove");
        assert!(matches!(DaemonSocket::bind(&path, 0o666), Err(SocketError::NotASocket(_))));
        let long = scratch.path().join("n".repeat(108));
        assert!(matches!(DaemonSocket::bind(&long, 0o666), Err(SocketError::TooLong { .. })));
    }

    #[test]
    fn the_directory_is_private_or_refused() {
        let scratch = scratch();
        let path = scratch.path().join("run");
        make_directory(&path).expect("there is room");
        assert_eq!(mode(&path), 0o700);
        make_directory(&path).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
        assert!(matches!(make_directory(&path), Err(SocketError::Directory(_))));
        assert_eq!(mode(&path), 0o755, "it is not changed");
    }
}
