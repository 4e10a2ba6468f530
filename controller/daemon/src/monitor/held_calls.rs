//! Number of calls that wait for a person, over all runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_runs::call_event::HoldChange;

/// Number of waiting calls of one run. A drop, at the end of the run, subtracts it from the total.
#[derive(Debug)]
pub(crate) struct HeldCalls {
    of_run: u64,
    of_all: Arc<AtomicU64>,
}

impl HeldCalls {
    /// Starts without a call. `of_all` is the total of all runs.
    pub(super) fn of(of_all: &Arc<AtomicU64>) -> Self {
        Self { of_run: 0, of_all: Arc::clone(of_all) }
    }

    /// Takes a change that the audit file of the run reports.
    pub(crate) fn apply(&mut self, change: HoldChange) {
        match change {
            HoldChange::Begun => {
                self.of_run += 1;
                self.of_all.fetch_add(1, Ordering::Relaxed);
            }
            HoldChange::Ended => self.end(self.of_run.min(1)),
            HoldChange::AllEnded => self.end(self.of_run),
        }
    }

    fn end(&mut self, number: u64) {
        self.of_run -= number;
        self.of_all.fetch_sub(number, Ordering::Relaxed);
    }
}

impl Drop for HeldCalls {
    fn drop(&mut self) {
        self.end(self.of_run);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_wait_until_they_or_their_run_end() {
        let all = Arc::new(AtomicU64::new(0));
        let (mut one, mut other) = (HeldCalls::of(&all), HeldCalls::of(&all));
        let waiting = |held: &mut HeldCalls, change| {
            held.apply(change);
            all.load(Ordering::Relaxed)
        };
        assert_eq!(waiting(&mut one, HoldChange::Begun), 1);
        assert_eq!(waiting(&mut one, HoldChange::Begun), 2);
        assert_eq!(waiting(&mut other, HoldChange::Begun), 3);
        assert_eq!(waiting(&mut one, HoldChange::Ended), 2);
        assert_eq!(waiting(&mut one, HoldChange::AllEnded), 1);
        assert_eq!(waiting(&mut one, HoldChange::Ended), 1, "a wait that it never counted");
        drop(other);
        assert_eq!(all.load(Ordering::Relaxed), 0);
    }
}
