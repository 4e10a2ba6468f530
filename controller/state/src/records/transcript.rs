//! The transcript of a run in its record: what its worker wrote about the conversation, copied from its workspace.
//!
//! The sandbox writes the content. The controller records its size, and whether its end was cut off, in a separate
//! file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use serde::{Deserialize, Serialize};

use super::{RunRecord, UNFINISHED};

/// File with the content of the transcript.
pub const TRANSCRIPT: &str = "transcript.jsonl";
/// File with the facts about the transcript.
pub const TRANSCRIPT_FACTS: &str = "transcript.json";

/// Facts of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TranscriptFacts {
    /// Number of bytes that are kept.
    pub size: u64,
    /// True if the end was cut off.
    pub truncated: bool,
}

impl RunRecord {
    /// Returns the facts about the transcript; `None` if the run has left none.
    ///
    /// # Errors
    /// Errors of the file system, and a file with other content.
    pub fn transcript(&self) -> io::Result<Option<TranscriptFacts>> {
        self.read_json(TRANSCRIPT_FACTS)
    }

    /// Opens the transcript.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open_transcript(&self) -> io::Result<File> {
        File::open(self.path(TRANSCRIPT))
    }

    /// Begins a transcript. It replaces the unfinished transcript of a killed controller.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create_transcript(&self) -> io::Result<File> {
        let path = self.path(&format!("{TRANSCRIPT}{UNFINISHED}"));
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)
    }

    /// Stores a transcript that is complete, with its facts.
    ///
    /// # Errors
    /// Errors of the file system; then no transcript is stored.
    pub fn complete_transcript(&self, file: &File, facts: TranscriptFacts) -> io::Result<()> {
        file.sync_all()?;
        fs::rename(self.path(&format!("{TRANSCRIPT}{UNFINISHED}")), self.path(TRANSCRIPT))?;
        self.write_json(TRANSCRIPT_FACTS, &facts)
    }
}
