//! A copy of the database while it is in use.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::{LedgerError, query};
use crate::store::Store;

impl Store {
    /// Copies all of one moment to a file that is not there yet; it is there whole, checked and on disk, or not at all.
    ///
    /// # Errors
    /// [`LedgerError::Backup`], [`LedgerError::Damaged`], and those of SQLite.
    pub async fn back_up(&self, to: &Path) -> Result<(), LedgerError> {
        let to = to.to_owned();
        self.call(move |connection| {
            let aside = Aside::beside(&to).map_err(|error| LedgerError::Backup(to.clone(), error))?;
            copy(connection, &aside.0)?;
            aside.publish(&to).map_err(|error| LedgerError::Backup(to.clone(), error))
        })
        .await
    }
}

fn copy(from: &Connection, to: &Path) -> Result<(), LedgerError> {
    let mut copy = Connection::open(to)?;
    // A writer holds up nobody who reads, so one step is enough.
    let done = Backup::new(from, &mut copy)?.step(-1)?;
    if done != StepResult::Done {
        return Err(busy().into());
    }
    // One file, with nothing beside it.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    query::integrity(&copy)
}

fn busy() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, Some("another process keeps it".to_owned()))
}

/// A private file that is removed unless it is published.
struct Aside(PathBuf);

impl Aside {
    fn beside(to: &Path) -> io::Result<Self> {
        // Said before the work is done; who comes first in the end is decided by the link.
        if to.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
        name.push(format!(".{}.part", uuid::Uuid::new_v4().simple()));
        let path = to.with_file_name(name);
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        Ok(Self(path))
    }

    fn publish(&self, to: &Path) -> io::Result<()> {
        File::open(&self.0)?.sync_all()?;
        fs::hard_link(&self.0, to)?;
        let directory = to.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(directory)?.sync_all()
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
