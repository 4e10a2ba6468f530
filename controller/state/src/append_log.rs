//! A log of signed lines in the state directory: one process appends at a time, and a line is on disk before it counts.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use crate::file;
use crate::lock::{self, StateLock};
use crate::store::now_us;

/// The file of a log.
pub(crate) struct AppendLog {
    directory: PathBuf,
    path: PathBuf,
}

impl AppendLog {
    /// Returns a log in a directory; neither needs to exist.
    pub(crate) fn at(directory: &Path, path: PathBuf) -> Self {
        Self { directory: directory.to_owned(), path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes the lock of the directory's logs, after waiting until no other process or task holds it.
    pub(crate) fn lock(&self) -> io::Result<StateLock> {
        lock::lock_logs(&self.directory)
    }

    /// Like `lock`, for a task that holds the lock while it waits for something else. It blocks no thread of the
    /// runtime: the holder may be another task of this process, which needs a thread.
    pub(crate) async fn lock_in_task(&self) -> io::Result<StateLock> {
        let directory = self.directory.clone();
        let locked = spawn_blocking(move || lock::lock_logs(&directory)).await;
        locked.unwrap_or_else(|error| Err(io::Error::other(error)))
    }

    /// Returns the content; `None` without a file.
    pub(crate) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends a line after the last whole one, and syncs it to disk. Needs the lock.
    pub(crate) fn append(&self, line: &[u8]) -> io::Result<()> {
        let is_new = self.path.symlink_metadata().is_err();
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        // A killed process may have left a partial line.
        let end = whole_lines(&fs::read(&self.path)?).len() as u64;
        file.set_len(end)?;
        let written = file.write_all(line).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(end);
        }
        written?;
        if is_new { file::sync_directory(&self.directory) } else { Ok(()) }
    }

    /// Renames the file, and returns its new name; `None` without a file.
    pub(crate) fn set_aside(&self) -> io::Result<Option<PathBuf>> {
        if self.path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let to = self.path.with_extension(format!("log.{}", now_us()));
        fs::rename(&self.path, &to)?;
        file::sync_directory(&self.directory)?;
        Ok(Some(to))
    }
}

/// Returns the lines that end with a newline.
pub(crate) fn whole_lines(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1)]
}
