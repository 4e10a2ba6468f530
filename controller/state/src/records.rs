//! Records of runs: one directory of files for each attempt, kept for a time after its end.
//!
//! A record has what a person needs to understand a run later. It is not a source of the ledger: rows, receipts and audit
//! files stay when a record is removed. Only the controller of a run writes into its record; others may read at any time.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sluice_contract::RunKey;

use crate::file;

mod artifacts;
mod expiry;
mod output_index;
mod output_log;
mod output_reader;
mod segments;
mod stream_reader;
mod transcript;

pub use artifacts::{ARTIFACTS, Artifact, ArtifactList, LeftOutFile};
pub use expiry::{RemovedRecords, is_due};
pub use output_log::{LoggedBytes, OutputLog};
pub use output_reader::{OutputContent, OutputPiece, OutputReader};
pub use segments::{SegmentLimits, SegmentWriter};
pub use stream_reader::{StreamPart, StreamReader};
pub use transcript::{TRANSCRIPT, TRANSCRIPT_FACTS, TranscriptFacts};

/// File with the request of a run.
pub const REQUEST: &str = "request.json";
/// File with the messages to an agent.
pub const MESSAGES: &str = "messages.json";
/// File with the result of a run.
pub const RESULT: &str = "result.json";
/// File with the outcome of the collection of a run's commits.
pub const COMMITS: &str = "commits.json";
/// File with the log of the sidecar.
pub const SIDECAR_LOG: &str = "sidecar.log";
/// File with the log of the controller, one JSON object per line.
pub const CONTROLLER_LOG: &str = "controller.log";

/// End of the name of a file that is not complete.
const UNFINISHED: &str = ".new";

/// File with times and positions of a daemon run's output.
pub const OUTPUT_INDEX: &str = "output.index";

/// A recorded output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordedStream {
    /// Stdout of the program.
    Stdout,
    /// Stderr of the program.
    Stderr,
}

impl RecordedStream {
    /// Both streams.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// Returns the first part of the names of its files.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// The records of a state directory.
#[derive(Debug, Clone)]
pub struct Records {
    root: PathBuf,
}

/// The record of one attempt of a run.
#[derive(Debug, Clone)]
pub struct RunRecord {
    directory: PathBuf,
}

impl Records {
    /// Returns the records in a directory, which may not exist.
    #[must_use]
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Returns the record of a run, which may not exist.
    #[must_use]
    pub fn of(&self, key: &RunKey) -> RunRecord {
        RunRecord { directory: self.root.join(key.to_string()) }
    }

    /// Creates the record of a run, private to this user.
    ///
    /// # Errors
    /// Errors of the file system, and `AlreadyExists`.
    pub fn create(&self, key: &RunKey) -> io::Result<RunRecord> {
        DirBuilder::new().recursive(true).mode(0o700).create(&self.root)?;
        let record = self.of(key);
        DirBuilder::new().mode(0o700).create(&record.directory)?;
        Ok(record)
    }
}

impl RunRecord {
    /// Returns the directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of a file in it.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Returns true if it exists.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.directory.is_dir()
    }

    /// Writes a file as a whole. After a crash it has all of its content, or does not exist.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        file::replace(&self.path(name), &self.path(&format!("{name}{}", UNFINISHED)), content)
    }

    /// Writes a value as JSON.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> io::Result<()> {
        self.write(name, &serde_json::to_vec_pretty(value)?)
    }

    /// Reads a JSON value; `None` if the file does not exist.
    ///
    /// # Errors
    /// Errors of the file system, and a file with other content.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> io::Result<Option<T>> {
        match fs::read(self.path(name)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns a reader of a stream, from its beginning.
    #[must_use]
    pub fn stream(&self, stream: RecordedStream) -> StreamReader {
        StreamReader::new(&self.directory, stream.as_str())
    }

    /// Returns a reader of a daemon run's output, from a position that an earlier reader has returned, or 0.
    #[must_use]
    pub fn output(&self, position: u64) -> OutputReader {
        OutputReader::new(&self.directory, position)
    }
}
