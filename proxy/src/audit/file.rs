//! The file under the log.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use super::Sink;

/// An audit file, locked, empty when it was opened.
#[derive(Debug)]
pub struct AuditFile {
    file: File,
    /// Synced once, with the first record: a file whose name is lost is lost.
    directory: Option<File>,
    /// Where the last whole record ends.
    good: u64,
}

/// Why there is no audit file.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The system says no.
    #[error("cannot create it")]
    Create(#[source] io::Error),
    /// Another sidecar writes it.
    #[error("another process holds its lock")]
    Locked,
    /// It holds records already.
    #[error("it exists and is not empty; an audit file is never written over")]
    NotEmpty,
    /// A device, a pipe, a directory.
    #[error("it is not a regular file")]
    NotAFile,
}

impl AuditFile {
    /// Creates the file (0600) or takes an empty one, and locks it.
    ///
    /// # Errors
    /// [`OpenError`]
    pub fn create(path: &Path) -> Result<Self, OpenError> {
        if std::fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(OpenError::NotAFile);
        }
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(OpenError::Create)?;
        file.try_lock().map_err(|_| OpenError::Locked)?;
        if file.metadata().map_err(OpenError::Create)?.len() > 0 {
            return Err(OpenError::NotEmpty);
        }
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let directory = Some(File::open(parent).map_err(OpenError::Create)?);
        Ok(Self { file, directory, good: 0 })
    }
}

impl Sink for AuditFile {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        let written = loop {
            match self.file.write(line) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        if matches!(written, Ok(n) if n == line.len()) {
            self.good += line.len() as u64;
            return Ok(());
        }
        // A full disk tears a line. What stands must be whole records, so the torn one goes.
        self.file.set_len(self.good)?;
        Err(written
            .err()
            .unwrap_or_else(|| io::Error::new(io::ErrorKind::StorageFull, "only part of a record was written")))
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.file.metadata()?.nlink() == 0 {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the file was removed"));
        }
        self.file.sync_data()?;
        match self.directory.take() {
            Some(directory) => directory.sync_all(),
            None => Ok(()),
        }
    }
}
