//! The parsed audit log: calls with their outcomes, refusals, restarts and sums.
//!
//! Pure. The log takes lines one by one, so that a reader can follow a file while it grows.

use std::collections::BTreeMap;

use crate::reader::{AuditLine, AuditLines, Fault, Record, lines};
use crate::record::{Close, Control, Epoch, Intent, Open, Outcome, Recovered};
use crate::sequence::{SequenceChecker, Totals};

/// One call: the record before it went upstream, and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCall {
    /// Intent: the call as it was going to be sent.
    pub intent: Intent<'static>,
    /// Outcome; `None` while the call is open, and for ever if its sidecar died. Such a call may have cost money.
    pub outcome: Option<Outcome<'static>>,
}

/// Content of an audit file, as far as it was read.
#[derive(Debug, Clone, Default)]
pub struct AuditLog {
    checker: SequenceChecker,
    open: Option<Box<Open<'static>>>,
    calls: Vec<LoggedCall>,
    refused: BTreeMap<String, u64>,
    recovered: Vec<Recovered<'static>>,
    epochs: Vec<Epoch<'static>>,
    controls: Vec<Control<'static>>,
}

impl AuditLog {
    /// Reads a complete file. Returns its log and its torn last line, which is empty in an undamaged file.
    ///
    /// # Errors
    /// The first [`Fault`].
    pub fn read(bytes: &[u8]) -> Result<(Self, &[u8]), Fault> {
        let mut log = Self::default();
        let mut lines = lines(bytes);
        log.take_all(&mut lines)?;
        Ok((log, lines.tail()))
    }

    /// Takes every complete line.
    ///
    /// # Errors
    /// The first [`Fault`]; the lines before it are taken.
    pub fn take_all(&mut self, lines: &mut AuditLines<'_>) -> Result<(), Fault> {
        lines.try_for_each(|line| self.take(line?))
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that breaks a rule; then the log is unchanged.
    pub fn take(&mut self, line: AuditLine<'_>) -> Result<(), Fault> {
        self.checker.take(&line)?;
        match line.record {
            Record::Open(open) => self.open = Some(open),
            Record::Intent(intent) => self.calls.push(LoggedCall { intent: *intent, outcome: None }),
            Record::Outcome(outcome) => {
                if let Some(call) = place(outcome.call).and_then(|at| self.calls.get_mut(at)) {
                    call.outcome = Some(*outcome);
                }
            }
            Record::Refused(refused) => *self.refused.entry(refused.reason.into_owned()).or_default() += 1,
            Record::Recovered(recovered) => self.recovered.push(*recovered),
            Record::Epoch(epoch) => self.epochs.push(*epoch),
            Record::Control(control) => self.controls.push(*control),
            Record::Held(_) | Record::Released(_) | Record::Close(_) | Record::Other(_) => {}
        }
        Ok(())
    }

    /// Returns the first record.
    #[must_use]
    pub fn open(&self) -> Option<&Open<'static>> {
        self.open.as_deref()
    }

    /// Returns all calls, in the order of their intents.
    #[must_use]
    pub fn calls(&self) -> &[LoggedCall] {
        &self.calls
    }

    /// Returns the call with this id.
    #[must_use]
    pub fn call(&self, call_id: &str) -> Option<&LoggedCall> {
        self.calls.get(place(self.checker.number(call_id)?)?)
    }

    /// Returns the calls without an outcome.
    pub fn open_calls(&self) -> impl Iterator<Item = &LoggedCall> {
        self.calls.iter().filter(|call| call.outcome.is_none())
    }

    /// Returns the ids of the calls without an outcome.
    pub fn open_ids(&self) -> impl Iterator<Item = &str> {
        self.checker.open_ids()
    }

    /// Returns the number of refusals for each reason.
    #[must_use]
    pub fn refused(&self) -> &BTreeMap<String, u64> {
        &self.refused
    }

    /// Returns the records of restarts that found the file torn, or calls open.
    #[must_use]
    pub fn recovered(&self) -> &[Recovered<'static>] {
        &self.recovered
    }

    /// Returns the restarts.
    #[must_use]
    pub fn epochs(&self) -> &[Epoch<'static>] {
        &self.epochs
    }

    /// Returns the changes that the operator made while the sidecar ran.
    #[must_use]
    pub fn controls(&self) -> &[Control<'static>] {
        &self.controls
    }

    /// Returns the last record, once the sidecar has ended in order.
    #[must_use]
    pub fn close(&self) -> Option<&Close<'static>> {
        self.checker.close()
    }

    /// Returns the sums over the lines that were read. Open calls are not in `unknown`.
    #[must_use]
    pub fn totals(&self) -> &Totals {
        self.checker.totals()
    }

    /// Returns the number of lines that were read.
    #[must_use]
    pub fn lines(&self) -> u64 {
        self.checker.lines()
    }
}

/// Returns the index of the call with this number.
fn place(number: u64) -> Option<usize> {
    usize::try_from(number).ok()?.checked_sub(1)
}

#[cfg(test)]
mod tests;
