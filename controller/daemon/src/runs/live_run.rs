//! What the task of a run knows of it, for the looks of the orchestrator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What the task of a run knows of it.
#[derive(Debug, Default)]
pub(super) struct LiveRun {
    open_calls: AtomicU64,
    /// Idle time in seconds; 0 before it is known, and where it never ends the run.
    idle_s: AtomicU64,
}

impl LiveRun {
    /// Counts a call that has begun.
    pub(super) fn begin_call(&self) {
        self.open_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that has ended.
    pub(super) fn end_call(&self) {
        // One that began before the file was read has no beginning here.
        let _ = self.open_calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    }

    /// Returns the number of calls that have not ended.
    pub(super) fn open_calls(&self) -> u64 {
        self.open_calls.load(Ordering::Relaxed)
    }

    /// Sets the idle time after which the run ends.
    pub(super) fn set_idle(&self, idle: Duration) {
        self.idle_s.store(idle.as_secs(), Ordering::Relaxed);
    }

    /// Returns the idle time after which the run ends; zero for never.
    pub(super) fn idle(&self) -> Duration {
        Duration::from_secs(self.idle_s.load(Ordering::Relaxed))
    }
}
