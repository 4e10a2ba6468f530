//! The results of a run that is over.

use sluice_state::ledger::ParsedAudit;
use sluice_state::receipt::RunTotals;

use crate::capture::Captured;
use crate::exchange::Collected;
use crate::timings::Timings;
use crate::verdict::OutputLoss;

/// Results of a run that is over.
#[derive(Debug)]
pub struct TeardownEnd {
    /// Calls, tokens and costs.
    pub totals: RunTotals,
    /// Captured stdout and stderr.
    pub output: (Captured, Captured),
    /// Reason why a part of the output is missing.
    pub output_loss: Option<OutputLoss>,
    /// True if the program was short of memory at the end.
    pub is_short_of_memory: bool,
    /// True if the engine may still create the container, because it did not answer the request.
    pub is_create_pending: bool,
    /// Durations.
    pub timings: Timings,
    /// The audit file for the ledger; `None` if it could not be read.
    pub audit: Option<ParsedAudit>,
    /// Files that came out of the run.
    pub collected: Collected,
    /// Remarks for people.
    pub notes: Vec<String>,
}
