//! Opening of the database: its connections, and the upgrade of its schema.

use std::fs::Permissions;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::stat::{Mode, SFlag, mknod};
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::error::{StoreError, is_damage};
use super::migrations::{MIGRATIONS, SCHEMA};
use crate::{file, lock};

const BUSY: Duration = Duration::from_secs(30);

/// Opens the connection that writes, and creates or upgrades the tables.
pub(super) fn open(path: &Path) -> Result<Connection, StoreError> {
    let mut connection = connect(path).map_err(|error| cannot_open(path, error))?;
    migrate(&mut connection, path)?;
    Ok(connection)
}

/// Opens a connection that reads in parallel to the one that writes.
pub(super) fn open_reader(path: &Path) -> Result<Connection, StoreError> {
    // Not SQLITE_OPEN_READ_ONLY: the last connection to close must be able to move the WAL into the database.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let open = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "query_only", "ON")?;
        Ok(connection)
    };
    open().map_err(|error| cannot_open(path, error))
}

/// Opens an existing database for queries, in parallel to its writers. Nothing is created or upgraded: an older database
/// is read from an upgraded copy in memory.
pub(super) fn open_for_queries(path: &Path) -> Result<Connection, StoreError> {
    let opened = open_reader(path).and_then(|connection| with_version(connection, path));
    let (connection, found) = opened.or_else(|error| match error {
        // In a read-only file system no process writes, so the file is complete as it is.
        StoreError::Open(..) if !wal(path).exists() => with_version(open_immutable(path)?, path),
        error => Err(error),
    })?;
    match found {
        SCHEMA => Ok(connection),
        0 => Err(StoreError::Older { path: path.to_owned(), found }),
        found if found > SCHEMA => Err(StoreError::Newer { path: path.to_owned(), found }),
        _ => upgraded_copy(&connection, path),
    }
}

fn with_version(connection: Connection, path: &Path) -> Result<(Connection, u32), StoreError> {
    let found = version(&connection).map_err(|error| cannot_open(path, error))?;
    Ok((connection, found))
}

/// Copies a database into memory, and upgrades the copy.
fn upgraded_copy(from: &Connection, path: &Path) -> Result<Connection, StoreError> {
    let failed = |error| cannot_open(path, error);
    let mut copy = Connection::open_in_memory().map_err(failed)?;
    Backup::new(from, &mut copy).and_then(|backup| backup.step(-1)).map_err(failed)?;
    migrate(&mut copy, path)?;
    Ok(copy)
}

/// Opens a database without a WAL, whose file does not change.
fn open_immutable(path: &Path) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let name = format!("file:{}?immutable=1", percent_encoded(path));
    Connection::open_with_flags(name, flags).map_err(|error| cannot_open(path, error))
}

/// Returns the path for a URI of SQLite.
fn percent_encoded(path: &Path) -> String {
    let encode = |byte: &u8| match byte {
        b'/' | b'.' | b'_' | b'-' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(*byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    path.as_os_str().as_bytes().iter().map(encode).collect()
}

fn wal(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

/// Opens a database that is not changed.
pub(super) fn open_read_only(path: &Path) -> Result<Connection, StoreError> {
    let failed = |error| cannot_open(path, error);
    // A connection to a database without a WAL would make one, and leave it.
    let connection = if wal(path).exists() {
        Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?
    } else {
        open_immutable(path)?
    };
    connection.busy_timeout(BUSY).map_err(failed)?;
    match version(&connection).map_err(failed)? {
        SCHEMA => Ok(connection),
        found if found > SCHEMA => Err(StoreError::Newer { path: path.to_owned(), found }),
        found => Err(StoreError::Older { path: path.to_owned(), found }),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    // A new file is private before SQLite opens it. It is made without a descriptor: see below. If that fails, SQLite says
    // why it has no file.
    let _ = mknod(path, SFlag::S_IFREG, Mode::S_IRUSR | Mode::S_IWUSR, 0);
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        // Makes the file, and the files that SQLite creates beside it, private to the owner. The mode is set by path,
        // not by a descriptor: see below.
        let _ = std::fs::set_permissions(path, Permissions::from_mode(0o600));
        // SQLite does not wait for this change, so first starts take turns by a lock. The lock is on another file,
        // since closing any descriptor of the database would release SQLite's own locks.
        let _first = lock::lock_logs(file::parent(path)).map_err(|_| rusqlite::Error::InvalidPath(path.to_owned()))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error| cannot_open(path, error);
    if version(connection).map_err(failed)? == SCHEMA {
        return Ok(());
    }
    // If two controllers start at once, one creates the tables.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    if found > SCHEMA {
        return Err(StoreError::Newer { path: path.to_owned(), found });
    }
    for step in &MIGRATIONS[found as usize..] {
        transaction.execute_batch(step).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", SCHEMA).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn version(connection: &Connection) -> rusqlite::Result<u32> {
    connection.pragma_query_value(None, "user_version", |row| row.get(0))
}

fn cannot_open(path: &Path, error: rusqlite::Error) -> StoreError {
    if is_damage(&error) {
        StoreError::Damaged { path: path.to_owned(), why: error.to_string() }
    } else {
        StoreError::Open(path.to_owned(), error)
    }
}
