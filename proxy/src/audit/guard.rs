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
    names: Option<CallNames>,
}

/// Names of a call that its outcome repeats from its intent, in one allocation.
#[derive(Debug)]
pub(super) struct CallNames {
    /// The call id, and after it the model.
    text: Box<str>,
    id_len: usize,
}

impl CallNames {
    pub(super) fn new(call_id: &str, model: Option<&str>) -> Self {
        Self { text: [call_id, model.unwrap_or_default()].concat().into(), id_len: call_id.len() }
    }

    pub(super) fn call_id(&self) -> &str {
        &self.text[..self.id_len]
    }

    /// Returns the model that the request names.
    pub(super) fn model(&self) -> Option<&str> {
        Some(&self.text[self.id_len..]).filter(|model| !model.is_empty())
    }
}

impl CallGuard {
    pub(super) fn new(journal: Arc<Journal>, call: u64, names: CallNames) -> Self {
        Self { journal, call, names: Some(names) }
    }

    /// Writes the outcome.
    pub fn close(mut self, outcome: CallOutcome) -> Ack {
        self.write(outcome)
    }

    fn write(&mut self, outcome: CallOutcome) -> Ack {
        match self.names.take() {
            Some(names) => self.journal.outcome(self.call, &names, outcome),
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
