//! Audit files as input of the ledger: their bytes, and the trust in them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::sync::Arc;

/// Bytes of an audit file.
#[derive(Debug, Clone)]
pub enum AuditSource {
    /// The file does not exist.
    Absent,
    /// Bytes in memory.
    Bytes(Arc<[u8]>),
    /// An open file.
    File(Arc<File>),
}

/// Trust in an audit file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustLevel {
    /// The file is unaltered and complete, from `open` to `close`, with an outcome for every call.
    Complete,
    /// The file is unaltered, and a part is missing.
    Incomplete,
    /// The file does not exist. Valid for a run whose sidecar never started, if no witness exists.
    Absent,
    /// The file was altered.
    Tampered,
    /// The ledger has other rows of the same names.
    Conflict,
}

/// State of the sidecar that writes a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// The sidecar may run, and the file may grow.
    Alive,
    /// The sidecar has ended, or was killed.
    Gone,
}

impl AuditSource {
    /// Opens the bytes at their beginning.
    pub(super) fn reader(&self) -> io::Result<Option<Box<dyn BufRead + '_>>> {
        Ok(match self {
            Self::Absent => None,
            Self::Bytes(bytes) => Some(Box::new(&bytes[..])),
            Self::File(file) => {
                let mut file: &File = file;
                file.seek(SeekFrom::Start(0))?;
                Some(Box::new(BufReader::with_capacity(1 << 16, file)))
            }
        })
    }
}

impl TrustLevel {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Absent => "absent",
            Self::Tampered => "tampered",
            Self::Conflict => "conflict",
        }
    }
}
