//! The records of held requests, and the counts of the relay.

use sluice_contract::record::{RelayCounts, ReleaseDecision};

use super::disk_reserve::{CLOSE_MAX, OUTCOME_MAX};
use super::{Ack, Journal, Poisoned, lines};

impl Journal {
    /// Writes that a request waits. The wait may begin once the acknowledgement has come. Each call of this function
    /// that succeeds must be followed by one call of [`Journal::released`].
    ///
    /// # Errors
    /// [`Poisoned`]
    pub fn held(&self, hold_id: &str, cap: &str, asked: Option<&str>, max_wait_s: u64) -> Result<Ack, Poisoned> {
        let mut state = self.lock();
        if self.refuses() {
            return Err(Poisoned);
        }
        let line = lines::held(self.stamp(&state), hold_id, cap, asked, max_wait_s);
        let owed = (state.open + 1) * OUTCOME_MAX + CLOSE_MAX;
        state.disk_reserve.make(line.len(), owed).map_err(|error| self.mark_full(&error))?;
        state.open += 1;
        Ok(self.append(&mut state, line))
    }

    /// Writes that a request waits no longer.
    pub fn released(&self, hold_id: &str, decision: ReleaseDecision, by: &str, waited_ms: u64) -> Ack {
        let mut state = self.lock();
        state.open -= 1;
        let line = lines::released(self.stamp(&state), hold_id, decision, by, waited_ms);
        self.append(&mut state, line)
    }

    /// Sets the counts of the relay, for `close`.
    pub fn set_relayed(&self, counts: RelayCounts) {
        self.lock().relay = Some(counts);
    }
}
