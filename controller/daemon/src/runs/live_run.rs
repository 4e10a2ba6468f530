//! What the task of a run knows of it, for the looks of the orchestrator.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::watchdog::LiveFacts;

/// What the task of a run knows of it.
#[derive(Debug, Default)]
pub(super) struct LiveRun {
    open_calls: AtomicU64,
    /// Idle time of its request, once that is read.
    ttl: OnceLock<Option<Duration>>,
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

    /// Sets the idle time of the request; none for that of the host.
    pub(super) fn set_ttl(&self, ttl: Option<Duration>) {
        // A request does not change.
        let _ = self.ttl.set(ttl);
    }

    /// Returns what is known; `None` before the request is read.
    pub(super) fn facts(&self) -> Option<LiveFacts> {
        let ttl = *self.ttl.get()?;
        Some(LiveFacts { open_calls: self.open_calls.load(Ordering::Relaxed), ttl })
    }
}
