//! What the task of a run knows of it, for the looks of the orchestrator.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use sluice_state::sandboxes::{Sandbox, SandboxState};

use super::watchdog::LiveFacts;

/// What the task of a run knows of it.
#[derive(Debug, Default)]
pub(super) struct LiveRun {
    open_calls: AtomicU64,
    /// Idle time of its request, once that is read.
    ttl: OnceLock<Option<Duration>>,
    /// Times in microseconds since 1970; 0 for none.
    watched_us: AtomicI64,
    last_call_us: AtomicI64,
    done_us: AtomicI64,
    is_stopping: AtomicBool,
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

    /// Records the time at which a call ended.
    pub(super) fn note_call_end(&self, at_us: i64) {
        self.last_call_us.fetch_max(at_us, Ordering::Relaxed);
    }

    /// Takes a look at the run: since when it is watched, and since when its agent says that it is done.
    pub(super) fn look(&self, run: &Sandbox, now_us: i64) {
        let is_first = self.watched_us.load(Ordering::Relaxed) == 0;
        if is_first || run.paused_us.is_some() {
            self.watched_us.store(now_us, Ordering::Relaxed);
        }
        if run.state == SandboxState::Completing {
            let _ = self.done_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        } else {
            self.done_us.store(0, Ordering::Relaxed);
        }
    }

    /// Returns true the first time: the program is to be stopped once.
    pub(super) fn begin_stop(&self) -> bool {
        !self.is_stopping.swap(true, Ordering::Relaxed)
    }

    /// Sets the idle time of the request; none for that of the host.
    pub(super) fn set_ttl(&self, ttl: Option<Duration>) {
        // A request does not change.
        let _ = self.ttl.set(ttl);
    }

    /// Returns what is known; `None` before the request is read.
    pub(super) fn facts(&self) -> Option<LiveFacts> {
        let ttl = *self.ttl.get()?;
        let time = |time: &AtomicI64| Some(time.load(Ordering::Relaxed)).filter(|us| *us > 0);
        Some(LiveFacts {
            open_calls: self.open_calls.load(Ordering::Relaxed),
            ttl,
            watched_us: self.watched_us.load(Ordering::Relaxed),
            last_call_us: time(&self.last_call_us),
            done_us: time(&self.done_us),
        })
    }
}
