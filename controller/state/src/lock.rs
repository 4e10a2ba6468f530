//! Locks between the processes that use a state directory.
//!
//! A lock is on a file that only its owner can open: any process that can open a file can keep its lock, and other
//! users may enter a state directory that an operator made.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

/// File of the lock of the signed logs, and of the files that the first start makes. A backup and a rebuild can hold it
/// for long.
pub(crate) const LOGS: &str = "logs.lock";
/// File of the lock of the audit files: one command at a time copies, imports or removes them.
pub(crate) const FILES: &str = "files.lock";

/// A lock that is held.
#[derive(Debug)]
pub struct StateLock {
    /// `None` in a read-only file system, where no process writes.
    _lock: Option<Flock<File>>,
}

/// Waits for the lock of the signed logs of a directory.
pub(crate) fn lock_logs(directory: &Path) -> io::Result<StateLock> {
    lock(directory, LOGS, || {})
}

/// Waits until no other command copies, imports or removes audit files. `waits` is called before it has to wait.
///
/// # Errors
/// Errors of the file system.
pub fn lock_files(state: &Path, waits: impl FnOnce()) -> io::Result<StateLock> {
    lock(state, FILES, waits)
}

fn lock(directory: &Path, name: &str, waits: impl FnOnce()) -> io::Result<StateLock> {
    let Some(file) = open(&directory.join(name))? else { return Ok(StateLock { _lock: None }) };
    let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).or_else(|(file, error)| match error {
        Errno::EWOULDBLOCK => {
            waits();
            Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)
        }
        error => Err(error),
    });
    Ok(StateLock { _lock: Some(lock?) })
}

/// Opens a lock file, and creates it if it is missing; `None` if it cannot be created because the file system is read-only.
fn open(path: &Path) -> io::Result<Option<File>> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let create = OpenOptions::new().append(true).create(true).mode(0o600).custom_flags(flags).open(path);
    match create {
        Err(error) if error.kind() == io::ErrorKind::ReadOnlyFilesystem => Ok(None),
        file => file.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_second_command_says_that_it_waits() {
        let directory = tempfile::tempdir().expect("there is room");
        let first = lock_files(directory.path(), || panic!("it is free")).expect("it is ours");
        let (says, said) = mpsc::channel();
        thread::scope(|scope| {
            let second = scope.spawn(|| {
                lock_files(directory.path(), move || says.send(()).expect("the test waits for it")).map(drop)
            });
            said.recv().expect("it waits");
            drop(first);
            second.join().expect("it does not panic").expect("it is ours");
        });
        lock_files(directory.path(), || panic!("it is free again")).expect("it is ours");
    }

    #[test]
    fn no_other_user_can_keep_a_lock() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("there is room");
        std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        // As by another user who can enter the directory.
        let theirs = Flock::lock(File::open(directory.path()).expect("it is open"), FlockArg::LockExclusive);

        let layout = crate::layout::Layout::open(directory.path()).expect("it does not wait");
        crate::store::Store::open(&layout.database()).expect("it does not wait");
        drop(lock_logs(layout.state()).expect("it does not wait"));
        drop(lock_files(layout.state(), || panic!("it is free")).expect("it is ours"));

        drop(theirs);
        for name in [LOGS, FILES, "sluice.db", "instance"] {
            let mode = std::fs::metadata(layout.state().join(name)).expect("it is there").mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
