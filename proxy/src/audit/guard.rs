//! Guard of one call in the log: each intent gets exactly one outcome, however the call ends.

use std::sync::Arc;

use sluice_contract::record::{CallResult, End};

use super::{Ack, CallOutcome, Journal};

/// An intent without its outcome. Closing the guard consumes it; dropping it writes that the call was never sent.
#[derive(Debug)]
pub struct CallGuard {
    journal: Arc<Journal>,
    call: u64,
    /// Taken when the outcome is written.
    call_id: Option<Box<str>>,
}

impl CallGuard {
    pub(super) fn new(journal: Arc<Journal>, call: u64, call_id: &str) -> Self {
        Self { journal, call, call_id: Some(call_id.into()) }
    }

    /// Writes the outcome.
    pub fn close(mut self, outcome: CallOutcome) -> Ack {
        self.write(outcome)
    }

    fn write(&mut self, outcome: CallOutcome) -> Ack {
        match self.call_id.take() {
            Some(call_id) => self.journal.outcome(self.call, &call_id, outcome),
            None => Ack::Known(Ok(())),
        }
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        let (result, end) = if self.journal.is_cutting() {
            (CallResult::Deadline, End::CutByLimit)
        } else {
            (CallResult::ClientAbort, End::CutByClient)
        };
        drop(self.write(CallOutcome::not_sent(result, end)));
    }
}
