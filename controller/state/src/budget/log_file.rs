//! The budget log as a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

use super::log;
use crate::file;
use crate::layout::Layout;
use crate::store::now_us;

/// The file of the budget log.
pub(super) struct LogFile {
    directory: PathBuf,
    path: PathBuf,
}

impl LogFile {
    /// Returns the file of a state directory, which may not exist.
    pub(super) fn of(layout: &Layout) -> Self {
        Self { directory: layout.state().to_owned(), path: layout.budget_log() }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until no other process uses the log.
    pub(super) fn lock(&self) -> io::Result<Flock<File>> {
        Flock::lock(File::open(&self.directory)?, FlockArg::LockExclusive).map_err(|(_, error)| error.into())
    }

    /// Returns the content; `None` without a file.
    pub(super) fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match fs::read(&self.path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Appends a line after the last whole one, and syncs it to disk.
    pub(super) fn append(&self, line: &[u8]) -> io::Result<()> {
        let is_new = self.path.symlink_metadata().is_err();
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path)?;
        // A killed process may have left a part of its line.
        let end = log::whole_lines(&fs::read(&self.path)?).len() as u64;
        file.set_len(end)?;
        let written = file.write_all(line).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(end);
        }
        written?;
        if is_new { file::sync_directory(&self.directory) } else { Ok(()) }
    }

    /// Renames the file, and returns its new name; `None` without a file.
    pub(super) fn set_aside(&self) -> io::Result<Option<PathBuf>> {
        if self.path.symlink_metadata().is_err() {
            return Ok(None);
        }
        let to = self.path.with_extension(format!("log.{}", now_us()));
        fs::rename(&self.path, &to)?;
        file::sync_directory(&self.directory)?;
        Ok(Some(to))
    }
}
