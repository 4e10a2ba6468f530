//! The last pass of each loop of the daemon.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_state::store::now_us;

/// The last pass of each loop. Reasons of faults are in the operator's log.
#[derive(Debug, Default)]
pub(crate) struct LoopBoard(Mutex<BTreeMap<&'static str, LoopRecord>>);

/// What is known of a loop. Times are in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct LoopRecord {
    /// End of the last pass.
    pub(crate) last_run_us: i64,
    /// Number of passes that failed.
    pub(crate) faults: u64,
    /// End of the last pass that failed.
    pub(crate) last_fault_us: Option<i64>,
    /// True if the last pass failed.
    pub(crate) is_failing: bool,
}

impl LoopBoard {
    /// Records the result of a pass.
    pub(crate) fn record<T, E>(&self, name: &'static str, result: &Result<T, E>) {
        let now = now_us();
        let mut records = self.lock();
        let record = records.entry(name).or_default();
        record.last_run_us = now;
        record.is_failing = result.is_err();
        if record.is_failing {
            record.faults += 1;
            record.last_fault_us = Some(now);
        }
    }

    /// Returns all loops that have made a pass, by name.
    pub(crate) fn records(&self) -> BTreeMap<&'static str, LoopRecord> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, LoopRecord>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stays_known_after_a_good_pass() {
        let board = LoopBoard::default();
        board.record("sweep", &Err::<(), _>("the disk is full"));
        assert!(board.records()["sweep"].is_failing);
        board.record("sweep", &Ok::<_, &str>(()));
        let record = board.records()["sweep"];
        assert_eq!((record.is_failing, record.faults, record.last_fault_us.is_some()), (false, 1, true));
    }
}
