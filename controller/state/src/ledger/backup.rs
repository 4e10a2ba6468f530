//! A copy of the database while it is in use.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::backup::{Backup, StepResult};

use super::LedgerError;
use crate::file;
use crate::store::Store;

impl Store {
    /// Copies a snapshot of the database to a new file. The copy is complete, checked and on disk, or does not exist.
    ///
    /// # Errors
    /// [`LedgerError::Backup`], [`LedgerError::Damaged`], and errors of SQLite.
    pub async fn back_up(&self, to: &Path) -> Result<(), LedgerError> {
        let to = to.to_owned();
        self.query(move |connection| {
            let copied = UnpublishedFile::beside(&to).map_err(|error| LedgerError::Backup(to.clone(), error))?;
            copy(connection, &copied.0)?;
            copied.publish(&to).map_err(|error| LedgerError::Backup(to.clone(), error))
        })
        .await
    }

    /// Checks the database file for damage.
    ///
    /// # Errors
    /// [`LedgerError::Damaged`].
    pub async fn check_integrity(&self) -> Result<(), LedgerError> {
        self.query(|connection| integrity(connection)).await
    }
}

fn copy(from: &Connection, to: &Path) -> Result<(), LedgerError> {
    let mut copy = Connection::open(to)?;
    // Writers do not block this read, so one step is enough.
    let done = Backup::new(from, &mut copy)?.step(-1)?;
    if done != StepResult::Done {
        return Err(busy().into());
    }
    // A single file, without a WAL.
    copy.pragma_update(None, "journal_mode", "DELETE")?;
    integrity(&copy)
}

fn busy() -> rusqlite::Error {
    let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    rusqlite::Error::SqliteFailure(code, Some("another process keeps it".to_owned()))
}

/// A private file that is removed unless it is published.
struct UnpublishedFile(PathBuf);

impl UnpublishedFile {
    fn beside(to: &Path) -> io::Result<Self> {
        // Reported before the work is done. Between two simultaneous calls, the link decides.
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
        file::sync_directory(file::parent(to))
    }
}

impl Drop for UnpublishedFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn integrity(connection: &Connection) -> Result<(), LedgerError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(LedgerError::Damaged(found));
    }
    let orphan = connection.prepare("PRAGMA foreign_key_check")?.exists([])?;
    if orphan { Err(LedgerError::Damaged("a row names another that is gone".to_owned())) } else { Ok(()) }
}
