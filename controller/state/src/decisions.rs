//! The log of decisions: what only the operator knows of receipts and audit files, so that a rebuild of the database knows
//! it too.
//!
//! Each line is signed by the key of the state directory. The lines are not chained: a missing line releases nothing.
//! The cost of its receipt is open again, the imported file is no longer trusted, or the pruned file is reported as
//! missing. The budget log is chained, since a missing line there would raise a limit.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;

use sluice_contract::{Hash, PublicKey, RunKey, Witness};

use crate::append_log::{AppendLog, whole_lines};
use crate::keys::{KeyError, Keys};
use crate::layout::Layout;
use crate::store::is_retryable_io;

mod line;

pub use line::{Decision, PrunedRun};

/// A receipt whose cost will never be known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VoidedReceipt {
    /// Name of the receipt.
    pub receipt: String,
    /// Reason, in the operator's words.
    pub reason: String,
    /// User that made the decision.
    pub made_by: String,
    /// Time in microseconds since 1970.
    pub made_us: i64,
    /// Hash of the line.
    pub hash: Hash,
}

/// The import of an audit file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileImport {
    /// Last line of the file.
    pub last: Witness,
    /// Key that signed the file; without one, the operator trusts exactly these lines.
    pub signed_by: Option<String>,
    /// Time in microseconds since 1970.
    pub made_us: i64,
}

/// All decisions of a state directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decisions {
    /// Receipts that were voided, in the order of the decisions.
    pub voids: Vec<VoidedReceipt>,
    /// The newest import of each file that was imported.
    pub imports: BTreeMap<RunKey, FileImport>,
    /// Runs whose audit files were pruned, each with the time of pruning.
    pub pruned: BTreeMap<RunKey, (PrunedRun, i64)>,
}

/// Error of the log of decisions.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The file cannot be used.
    #[error("cannot use {0}")]
    Io(PathBuf, #[source] io::Error),
    /// A line cannot be trusted.
    #[error(
        "{path}, line {line}: {reason}; bring back the right file or STATE/keys, or move the file away: then what it \
         decided is forgotten"
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Description of the fault.
        reason: &'static str,
    },
    /// The key that signs cannot be used.
    #[error(transparent)]
    Key(#[from] KeyError),
}

impl DecisionError {
    /// Returns true if the same request may succeed later without a change by the operator.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Io(_, error) => is_retryable_io(error),
            Self::Line { .. } => false,
            Self::Key(error) => error.is_retryable(),
        }
    }
}

impl Decisions {
    /// Reads the decisions of a state directory; a directory without the log has none.
    ///
    /// # Errors
    /// [`DecisionError`] of the first line that cannot be trusted.
    pub fn read(layout: &Layout, keys: &[PublicKey]) -> Result<Self, DecisionError> {
        let log = log(layout);
        let failed = |error| DecisionError::Io(log.path().to_owned(), error);
        let Some(bytes) = log.read().map_err(failed)? else { return Ok(Self::default()) };
        let mut decisions = Self::default();
        for (number, text) in (1..).zip(whole_lines(&bytes).split_inclusive(|byte| *byte == b'\n')) {
            let taken = line::verify(text, keys).and_then(|line| decisions.take(line, Hash::of(text)));
            taken.map_err(|reason| DecisionError::Line { path: log.path().to_owned(), line: number, reason })?;
        }
        Ok(decisions)
    }

    /// Returns the last line of an unsigned file that the operator trusts.
    #[must_use]
    pub fn vouched(&self, key: &RunKey) -> Option<Witness> {
        self.imports.get(key).filter(|import| import.signed_by.is_none()).map(|import| import.last)
    }

    /// Returns the last line of a file that was pruned: the same file may come back.
    #[must_use]
    pub fn pruned_head(&self, key: &RunKey) -> Option<Witness> {
        let (pruned, _) = self.pruned.get(key)?;
        Some(Witness { seq: pruned.lines.checked_sub(1)?, head: pruned.head.as_ref()?.parse().ok()? })
    }

    /// Adds a decision.
    fn take(&mut self, line: line::DecisionLine, hash: Hash) -> Result<(), &'static str> {
        let (made_by, made_us) = (line.made_by, line.made_us);
        match line.decision {
            Decision::Void { receipt, reason } => {
                self.voids.push(VoidedReceipt { receipt, reason, made_by, made_us, hash });
            }
            Decision::Import { run, lines, head, signed_by } => {
                let head = head.parse().map_err(|_| "head is not a hash")?;
                let seq = lines.checked_sub(1).ok_or("a file without lines is not imported")?;
                let import = FileImport { last: Witness { seq, head }, signed_by, made_us };
                self.imports.insert(run.parse().map_err(|_| "run is not a run")?, import);
            }
            Decision::Prune { runs } => {
                for pruned in runs {
                    let key = pruned.run.parse().map_err(|_| "run is not a run")?;
                    self.pruned.insert(key, (pruned, made_us));
                }
            }
        }
        Ok(())
    }
}

/// Appends a decision, signed. It is on disk when this returns. Returns the hash of its line.
///
/// # Errors
/// [`DecisionError`]
pub fn record(layout: &Layout, keys: &Keys, decision: Decision) -> Result<Hash, DecisionError> {
    let log = log(layout);
    let failed = |error| DecisionError::Io(log.path().to_owned(), error);
    let _lock = log.lock().map_err(failed)?;
    let line = line::signed(decision, &keys.decision_signer()?);
    log.append(&line).map_err(failed)?;
    Ok(Hash::of(&line))
}

fn log(layout: &Layout) -> AppendLog {
    AppendLog::at(layout.state(), layout.decisions())
}

#[cfg(test)]
mod tests;
