//! The lock of a state directory's daemon: its holder drives the daemon's runs.
//!
//! One-shot runs do not take it. The kernel releases the lock of a killed process.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

/// Name of the file in the state directory.
pub const DAEMON_LOCK: &str = "daemon.lock";

/// The held lock.
#[derive(Debug)]
pub struct DaemonLock {
    _file: Flock<File>,
}

/// A lock that cannot be held.
#[derive(Debug, thiserror::Error)]
pub enum DaemonLockError {
    /// Another process holds it.
    #[error("a daemon of {} is running, or a sweep of its runs; stop it first, or name another --state-dir", .0.display())]
    Held(PathBuf),
    /// The file cannot be opened.
    #[error("cannot open {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
}

impl DaemonLock {
    /// Takes the lock of a state directory, or fails at once.
    ///
    /// # Errors
    /// [`DaemonLockError`].
    pub fn hold(state: &Path) -> Result<Self, DaemonLockError> {
        let path = state.join(DAEMON_LOCK);
        let failed = |error| DaemonLockError::Io(path.clone(), error);
        let flags = OFlag::O_NOFOLLOW.bits();
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).custom_flags(flags).open(&path);
        match Flock::lock(file.map_err(failed)?, FlockArg::LockExclusiveNonblock) {
            Ok(file) => Ok(Self { _file: file }),
            Err((_, Errno::EWOULDBLOCK)) => Err(DaemonLockError::Held(state.to_owned())),
            Err((_, error)) => Err(failed(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_holds_the_lock() {
        let directory = tempfile::tempdir().expect("there is room");
        let held = DaemonLock::hold(directory.path()).expect("it is free");
        let refused = DaemonLock::hold(directory.path()).expect_err("it is held");
        assert!(matches!(refused, DaemonLockError::Held(_)), "{refused}");
        drop(held);
        DaemonLock::hold(directory.path()).expect("it is free again");
        let missing = DaemonLock::hold(&directory.path().join("none")).expect_err("there is no directory");
        assert!(matches!(missing, DaemonLockError::Io(..)), "{missing}");
    }
}
