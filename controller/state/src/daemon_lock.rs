//! The lock of the daemon: one for each state directory. It does not stop commands and one-shot runs.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use crate::layout::Layout;

/// A held lock; dropping it, or the end of the process, releases it.
#[derive(Debug)]
pub struct DaemonLock(#[allow(dead_code, reason = "it is held")] Flock<File>);

impl DaemonLock {
    /// Takes the lock; `None` while a daemon holds it.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn take(layout: &Layout) -> io::Result<Option<Self>> {
        let file =
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(layout.daemon_lock())?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Self(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_daemon_holds_the_lock() {
        let scratch = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(&scratch.path().join("st")).expect("there is room");
        let held = DaemonLock::take(&layout).expect("there is room").expect("it is free");
        assert!(DaemonLock::take(&layout).expect("there is room").is_none());
        Layout::open(layout.state()).expect("commands go on");
        drop(held);
        assert!(DaemonLock::take(&layout).expect("there is room").is_some());
    }
}
