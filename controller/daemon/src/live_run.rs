//! Facts that a run's task shares with the orchestrator.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sluice_runs::run_clock::RunClock;
use sluice_state::sandboxes::{Sandbox, SandboxState};
use tokio::sync::{Notify, watch};

use crate::stored_request::StoredRequest;

/// Pause and hold of a run, as its database rows want them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PauseWish {
    /// True if its desired state is paused.
    pub(crate) is_paused: bool,
    /// True if one of its calls waits for an approval.
    pub(crate) is_held: bool,
    /// True once its program has started: only then can it be paused.
    pub(crate) has_started: bool,
}

/// Facts about a run that its database row does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveFacts {
    /// Calls that have not ended.
    pub open_calls: u64,
    /// Idle times of its request.
    pub times: RequestedTimes,
    /// Time from which heartbeats and work are expected: from then on, this daemon manages the run, and the run is not
    /// paused. This time and the next two are in microseconds since 1970.
    pub watched_us: i64,
    /// Time at which the last call ended.
    pub last_call_us: Option<i64>,
    /// Time at which the agent said that it was done.
    pub done_us: Option<i64>,
}

/// Idle times that a request names; `None` for the host's time. A request names at most one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestedTimes {
    /// `ttl_minutes`: it also ends a run with a worker that reports work.
    pub ttl: Option<Duration>,
    /// `limits.idle`.
    pub idle: Option<Duration>,
}

impl RequestedTimes {
    /// Returns the times of a request.
    #[must_use]
    pub fn of(request: &StoredRequest) -> Self {
        Self {
            ttl: request.ttl_minutes.map(|minutes| Duration::from_secs(u64::from(minutes) * 60)),
            idle: request.limits.idle_s.map(Duration::from_secs),
        }
    }
}

/// Facts about a run that its task shares with the orchestrator.
#[derive(Debug, Default)]
pub(crate) struct LiveRun {
    open_calls: AtomicU64,
    /// Idle times of its request, once that is read.
    times: OnceLock<RequestedTimes>,
    /// Bytes that its workspace may take on disk, once its request is read.
    workspace_max: OnceLock<u64>,
    /// Times in microseconds since 1970; 0 for none.
    watched_us: AtomicI64,
    last_call_us: AtomicI64,
    done_us: AtomicI64,
    is_stopping: AtomicBool,
    is_decided: AtomicBool,
    /// Clock of the timeout; it stops during pauses.
    clock: Arc<RunClock>,
    wish: watch::Sender<PauseWish>,
    /// Signals that a call has begun or ended, or that a hold has changed.
    calls: Notify,
}

impl LiveRun {
    /// Returns the facts of an attempt, with its clock set as its row says.
    pub(crate) fn with_clock(total_us: i64, since_us: Option<i64>) -> Self {
        Self { clock: Arc::new(RunClock::new(total_us, since_us)), ..Self::default() }
    }

    /// Returns its clock.
    pub(crate) fn clock(&self) -> &Arc<RunClock> {
        &self.clock
    }

    /// Sets the pause and hold that its rows want.
    pub(crate) fn wish(&self, wish: PauseWish) {
        self.wish.send_if_modified(|known| std::mem::replace(known, wish) != wish);
    }

    /// Returns a receiver of the pause and hold that its rows want, from now on.
    pub(crate) fn wishes(&self) -> watch::Receiver<PauseWish> {
        self.wish.subscribe()
    }

    /// Signals that a call has begun or ended, or that a hold has changed.
    pub(crate) fn notice_calls(&self) {
        self.calls.notify_one();
    }

    /// Waits until a call has begun or ended, or a hold has changed.
    pub(crate) async fn calls_noticed(&self) {
        self.calls.notified().await;
    }

    /// Counts a call that has begun.
    pub(crate) fn begin_call(&self) {
        self.open_calls.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a call that has ended.
    pub(crate) fn end_call(&self) {
        // An end without a known beginning must not bring the number below 0.
        let _ = self.open_calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |open| open.checked_sub(1));
    }

    /// Records the time at which a call ended.
    pub(crate) fn note_call_end(&self, at_us: i64) {
        self.last_call_us.fetch_max(at_us, Ordering::Relaxed);
    }

    /// Updates the time since when the run is watched, and the time since when its agent reports that it is done. Neither
    /// includes a pause.
    pub(crate) fn look(&self, run: &Sandbox, now_us: i64) {
        let is_first = self.watched_us.load(Ordering::Relaxed) == 0;
        if is_first || run.paused_us.is_some() {
            self.watched_us.store(now_us, Ordering::Relaxed);
        }
        let is_held = run.paused_us.is_some() || run.clocks_stopped_us.is_some();
        if run.state == SandboxState::Completing && is_held {
            self.done_us.store(now_us, Ordering::Relaxed);
        } else if run.state == SandboxState::Completing {
            let _ = self.done_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        } else {
            self.done_us.store(0, Ordering::Relaxed);
        }
    }

    /// Records that the run has its result.
    pub(crate) fn note_decision(&self) {
        self.is_decided.store(true, Ordering::Relaxed);
    }

    /// Returns true once the run has its result; the duration of its teardown does not change the result.
    pub(crate) fn is_decided(&self) -> bool {
        self.is_decided.load(Ordering::Relaxed)
    }

    /// Returns true the first time, so that the program is stopped once.
    pub(crate) fn begin_stop(&self) -> bool {
        !self.is_stopping.swap(true, Ordering::Relaxed)
    }

    /// Sets the idle times of the request, and the limit for the bytes of its workspace.
    pub(crate) fn set_limits(&self, times: RequestedTimes, workspace_max: u64) {
        // A request does not change.
        let _ = (self.times.set(times), self.workspace_max.set(workspace_max));
    }

    /// Returns the bytes that its workspace may take on disk; `None` before the request is read.
    pub(crate) fn workspace_max(&self) -> Option<u64> {
        self.workspace_max.get().copied()
    }

    /// Returns the known facts; `None` before the request is read.
    pub(crate) fn facts(&self) -> Option<LiveFacts> {
        let times = *self.times.get()?;
        let time = |time: &AtomicI64| Some(time.load(Ordering::Relaxed)).filter(|us| *us > 0);
        Some(LiveFacts {
            open_calls: self.open_calls.load(Ordering::Relaxed),
            times,
            watched_us: self.watched_us.load(Ordering::Relaxed),
            last_call_us: time(&self.last_call_us),
            done_us: time(&self.done_us),
        })
    }
}
