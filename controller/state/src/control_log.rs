//! The log of the actions of people and tokens: `STATE/audit/control.jsonl`, one chained and signed line for each operation.
//!
//! A line is on disk before its operation takes effect. Several processes append, the daemon and commands: each takes the
//! lock of the file, and verifies the lines that others have added before it adds its own.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::fcntl::{Flock, FlockArg};
use sluice_contract::{Chain, PublicKey};

use crate::file;
use crate::keys::{KeyError, Keys};
use crate::layout::Layout;
use crate::store::{is_retryable_io, now_us};

mod line;

pub use line::{ControlEntry, ControlLine, ControlLogFault};

/// Maximum number of bytes of a line.
const LINE_MAX: u64 = 1 << 20;

/// The log of one state directory, for a process that appends.
#[derive(Debug)]
pub struct ControlLog {
    path: PathBuf,
    keys: Keys,
    end: Mutex<End>,
}

/// The last line that is verified.
#[derive(Debug, Clone, Copy, Default)]
struct End {
    chain: Chain,
    /// Bytes up to its end.
    bytes: u64,
}

/// Content of a log that was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ControlSummary {
    /// Number of lines, and the hash of the last one.
    pub end: Chain,
    /// True if a partial line follows, which a killed process left.
    pub has_torn_line: bool,
}

/// Reason that nothing can be logged.
#[derive(Debug, thiserror::Error)]
pub enum ControlLogError {
    /// The file cannot be used.
    #[error("cannot use {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// A line is not valid at its position.
    #[error(
        "{}: {fault}; what people did is not known from there on. Bring back the right file, or move this one away and keep \
         it: then a new log begins", path.display()
    )]
    Fault {
        /// The file.
        path: PathBuf,
        /// The first fault.
        fault: ControlLogFault,
    },
    /// The file is shorter than it was.
    #[error("{} has lost lines that were written to it; bring them back from a copy", .0.display())]
    Shortened(PathBuf),
    /// The keys cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl ControlLogError {
    /// Returns true if the same request may succeed later without a change by the operator.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io(_, error) => is_retryable_io(error),
            Self::Fault { .. } | Self::Shortened(_) => false,
            Self::Key(error) => error.is_retryable(),
        }
    }
}

impl ControlLog {
    /// Opens the log of a state directory, and verifies its last line, which the next one follows. [`verify`] checks the lines
    /// before. The first use creates it.
    ///
    /// # Errors
    /// [`ControlLogError`]
    pub fn open(layout: &Layout, keys: &Keys) -> Result<Self, ControlLogError> {
        let log = Self { path: layout.control_log(), keys: keys.clone(), end: Mutex::default() };
        let failed = |error| ControlLogError::Io(log.path.clone(), error);
        let is_new = log.path.symlink_metadata().is_err();
        let file = log.file().map_err(failed)?;
        if is_new {
            file.sync_all().and_then(|()| file::sync_directory(file::parent(&log.path))).map_err(failed)?;
        }
        let mut locked = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| failed(error.into()))?;
        *log.end.lock().unwrap_or_else(PoisonError::into_inner) = log.last(&mut locked)?;
        drop(locked);
        Ok(log)
    }

    /// Appends a line. It is on disk when this returns. Returns its number. Blocks on the disk.
    ///
    /// # Errors
    /// [`ControlLogError`]; then the operation must not be done.
    pub fn append(&self, entry: ControlEntry) -> Result<u64, ControlLogError> {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |error| ControlLogError::Io(self.path.clone(), error);
        let file = self.file().map_err(failed)?;
        let mut file = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| failed(error.into()))?;
        self.catch_up(&mut file, &mut end)?;
        let line = line::signed(entry, now_us(), end.chain, &self.keys.control_signer()?);
        // A killed process may have left a partial line.
        file.set_len(end.bytes).map_err(failed)?;
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if written.is_err() {
            let _ = file.set_len(end.bytes);
        }
        written.map_err(failed)?;
        let seq = end.chain.seq;
        end.chain.push(&line);
        end.bytes += line.len() as u64;
        Ok(seq)
    }

    fn file(&self) -> io::Result<File> {
        OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&self.path)
    }

    /// Verifies the lines that follow the last known one.
    fn catch_up(&self, file: &mut File, end: &mut End) -> Result<(), ControlLogError> {
        let failed = |error| ControlLogError::Io(self.path.clone(), error);
        let len = file.metadata().map_err(failed)?.len();
        if len < end.bytes {
            return Err(ControlLogError::Shortened(self.path.clone()));
        }
        if len == end.bytes {
            return Ok(());
        }
        file.seek(SeekFrom::Start(end.bytes)).map_err(failed)?;
        let keys = self.keys.public()?;
        let (read, bytes, _) = read(BufReader::new(&mut *file), end.chain, &keys, &mut |_| {}).map_err(failed)?;
        *end = End { chain: read.map_err(|fault| self.fault(fault))?, bytes: end.bytes + bytes };
        Ok(())
    }

    /// Returns the end of the last whole line. Its signature covers its number and the hash of the line before.
    fn last(&self, file: &mut File) -> Result<End, ControlLogError> {
        let failed = |error| ControlLogError::Io(self.path.clone(), error);
        let len = file.metadata().map_err(failed)?.len();
        // Two lines are enough: a partial line may follow the last complete one.
        let start = len.saturating_sub(2 * LINE_MAX);
        file.seek(SeekFrom::Start(start)).map_err(failed)?;
        let mut tail = Vec::new();
        file.take(2 * LINE_MAX).read_to_end(&mut tail).map_err(failed)?;
        let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else { return Ok(End::default()) };
        let begin = tail[..end].iter().rposition(|byte| *byte == b'\n').map_or(0, |before| before + 1);
        let text = &tail[begin..=end];
        let mut chain = line::position(text).unwrap_or_default();
        line::verify(text, chain, &self.keys.public()?).map_err(|fault| self.fault(fault))?;
        chain.push(text);
        Ok(End { chain, bytes: start + end as u64 + 1 })
    }

    fn fault(&self, fault: ControlLogFault) -> ControlLogError {
        ControlLogError::Fault { path: self.path.clone(), fault }
    }
}

/// Verifies a log, and passes each line to `each`.
///
/// # Errors
/// [`ControlLogError::Io`], and [`ControlLogError::Fault`] of the first line that is not valid.
pub fn verify(
    path: &Path,
    keys: &[PublicKey],
    mut each: impl FnMut(&ControlLine),
) -> Result<ControlSummary, ControlLogError> {
    let failed = |error| ControlLogError::Io(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    let (chain, _, has_torn_line) = read(BufReader::new(file), Chain::default(), keys, &mut each).map_err(failed)?;
    let end = chain.map_err(|fault| ControlLogError::Fault { path: path.to_owned(), fault })?;
    Ok(ControlSummary { end, has_torn_line })
}

/// Reads lines to the end, and returns the chain, the bytes of complete lines, and whether more bytes follow.
fn read(
    mut from: impl BufRead,
    mut chain: Chain,
    keys: &[PublicKey],
    each: &mut dyn FnMut(&ControlLine),
) -> io::Result<(Result<Chain, ControlLogFault>, u64, bool)> {
    let (mut text, mut bytes) = (Vec::new(), 0);
    loop {
        text.clear();
        from.by_ref().take(LINE_MAX).read_until(b'\n', &mut text)?;
        if text.last() != Some(&b'\n') && (text.len() as u64) < LINE_MAX {
            return Ok((Ok(chain), bytes, !text.is_empty()));
        }
        match line::verify(&text, chain, keys) {
            Ok(line) => each(&line),
            Err(fault) => return Ok((Err(fault), bytes, false)),
        }
        chain.push(&text);
        bytes += text.len() as u64;
    }
}

#[cfg(test)]
mod tests;
