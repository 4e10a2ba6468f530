//! What the task of a run knows of it, for the looks of the orchestrator.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluice_runs::run_clock::RunClock;
use tokio::sync::{Notify, watch};

use super::watchdog::LiveFacts;

/// State that the rows of a run want it to have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PauseWish {
    /// True if its owner wants it to stand still.
    pub(crate) is_paused: bool,
    /// True if a call of it waits for an approval.
    pub(crate) is_held: bool,
}

/// What the task of a run knows of it.
#[derive(Debug, Default)]
pub(crate) struct LiveRun {
    open_calls: AtomicU64,
    /// Idle time of its request, once that is read.
    ttl: OnceLock<Option<Duration>>,
    /// Time for which its timeout stands still.
    clock: Arc<RunClock>,
    wish: watch::Sender<PauseWish>,
    /// A call has ended, or one waits at a cap.
    calls: Notify,
}

impl LiveRun {
    /// Returns what is known of an attempt whose clock stands as its row says.
    pub(super) fn with_clock(total_us: i64, since_us: Option<i64>) -> Self {
        Self { clock: Arc::new(RunClock::new(total_us, since_us)), ..Self::default() }
    }

    /// Returns its clock.
    pub(crate) fn clock(&self) -> &Arc<RunClock> {
        &self.clock
    }

    /// Says what its rows want.
    pub(super) fn wish(&self, wish: PauseWish) {
        self.wish.send_if_modified(|known| std::mem::replace(known, wish) != wish);
    }

    /// Returns what its rows want, from now on.
    pub(crate) fn wishes(&self) -> watch::Receiver<PauseWish> {
        self.wish.subscribe()
    }

    /// Says that its sidecar counts something new against a cap.
    pub(crate) fn notice_calls(&self) {
        self.calls.notify_one();
    }

    /// Waits until its sidecar counts something new against a cap.
    pub(crate) async fn calls_noticed(&self) {
        self.calls.notified().await;
    }

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
