//! The periodic loops of the daemon: their tasks, their last runs, and their errors.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_state::store::now_us;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::stop_signal::StopSignal;

/// Name and times of a loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopTimer {
    /// Name of the loop.
    pub name: &'static str,
    /// Time between two turns.
    pub period: Duration,
    /// Time from the start of the daemon to the first turn.
    pub first: Duration,
}

/// State of a loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopStatus {
    /// Name of the loop.
    pub name: String,
    /// Time between two turns; for a loop that is also woken, the maximum time.
    pub period: Duration,
    /// Turns that have ended.
    pub turns: u64,
    /// Turns that have failed.
    pub failures: u64,
    /// Begin of the turn in progress, in microseconds since 1970.
    pub running_since_us: Option<i64>,
    /// End of the last turn, in microseconds since 1970.
    pub last_end_us: Option<i64>,
    /// True if the last turn has failed.
    pub is_failing: bool,
    /// The last failure.
    pub last_fault: Option<LoopFailure>,
}

/// A failure of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoopFailure {
    /// Time in microseconds since 1970.
    pub at_us: i64,
    /// Reason, for the operator.
    pub reason: String,
}

/// Reason that a turn of a loop has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoopFault(String);

impl LoopFault {
    /// Returns a fault with this reason.
    pub(crate) fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

impl<E: std::error::Error + 'static> From<E> for LoopFault {
    fn from(error: E) -> Self {
        Self(error_chain(&error))
    }
}

/// The loops of a daemon.
#[derive(Debug, Default)]
pub struct Loops(Mutex<BTreeMap<String, LoopStatus>>);

impl Loops {
    /// Returns the state of all loops, by name.
    #[must_use]
    pub fn statuses(&self) -> Vec<LoopStatus> {
        self.lock().values().cloned().collect()
    }

    /// Adds a loop before its first turn.
    pub(crate) fn register(&self, name: &str, period: Duration) {
        let status = LoopStatus {
            name: name.to_owned(),
            period,
            turns: 0,
            failures: 0,
            running_since_us: None,
            last_end_us: None,
            is_failing: false,
            last_fault: None,
        };
        self.lock().insert(name.to_owned(), status);
    }

    /// Records the begin of a turn.
    pub(crate) fn begin(&self, name: &str, at_us: i64) {
        if let Some(status) = self.lock().get_mut(name) {
            status.running_since_us = Some(at_us);
        }
    }

    /// Records the end of a turn. Returns a line for the operator's log if this is news: another failure than before, or the
    /// first success after one.
    pub(crate) fn end(&self, name: &str, result: Result<(), LoopFault>, at_us: i64) -> Option<String> {
        let mut statuses = self.lock();
        let status = statuses.get_mut(name)?;
        status.running_since_us = None;
        status.last_end_us = Some(at_us);
        status.turns += 1;
        let was_failing = std::mem::replace(&mut status.is_failing, result.is_err());
        match result {
            Ok(()) => was_failing.then(|| format!("{name}: it works again")),
            Err(LoopFault(reason)) => {
                status.failures += 1;
                let is_known = was_failing && status.last_fault.as_ref().is_some_and(|fault| fault.reason == reason);
                let line = format!("{name}: {reason}");
                status.last_fault = Some(LoopFailure { at_us, reason });
                (!is_known).then_some(line)
            }
        }
    }

    /// Records the result of a turn of a task with its own timing. The first turn adds the loop. Returns a line for the
    /// operator's log as [`Loops::end`] does.
    pub(crate) fn record<T, E>(&self, name: &str, period: Duration, result: &Result<T, E>) -> Option<String>
    where
        E: std::error::Error + 'static,
    {
        if !self.lock().contains_key(name) {
            self.register(name, period);
        }
        let result = result.as_ref().map(drop).map_err(|error| LoopFault::new(error_chain(error)));
        self.end(name, result, now_us())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, LoopStatus>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Repeats a turn of work until the signal. The signal drops a turn in progress.
pub(crate) async fn every<F>(
    timer: LoopTimer,
    loops: Arc<Loops>,
    log: fn(&str),
    mut stop: StopSignal,
    mut turn: impl FnMut() -> F,
) where
    F: Future<Output = Result<(), LoopFault>>,
{
    loops.register(timer.name, timer.period);
    let mut ticks = interval_at(Instant::now() + timer.first, timer.period);
    // After a turn that took longer than the period, the next one begins at once.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.stopped() => return,
            _ = ticks.tick() => {}
        }
        loops.begin(timer.name, now_us());
        let result = tokio::select! {
            () = stop.stopped() => return,
            result = turn() => result,
        };
        if let Some(line) = loops.end(timer.name, result, now_us()) {
            log(&line);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::stop_signal::stop_signal;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn turns_come_after_their_period() {
        let (sender, stop) = stop_signal();
        let (loops, turns) = (Arc::new(Loops::default()), Arc::new(AtomicU64::new(0)));
        let timer = LoopTimer { name: "test", period: MINUTE, first: Duration::from_secs(5) };
        let counted = Arc::clone(&turns);
        let work = every(
            timer,
            Arc::clone(&loops),
            |_| {},
            stop,
            move || {
                let turn = counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    // The second turn takes longer than the period.
                    tokio::time::sleep(if turn == 1 { 2 * MINUTE } else { Duration::ZERO }).await;
                    Ok(())
                }
            },
        );
        let start = Instant::now();
        let task = tokio::spawn(work);
        for (time, expected) in [(4, 0), (6, 1), (64, 1), (66, 2), (184, 2), (186, 3), (244, 3), (246, 4)] {
            tokio::time::sleep_until(start + Duration::from_secs(time)).await;
            assert_eq!(turns.load(Ordering::SeqCst), expected, "{time} s");
        }
        sender.stop();
        task.await.expect("it ends");
        assert_eq!(loops.statuses()[0].turns, 4);
    }

    #[test]
    fn work_with_its_own_time_reports_a_failure_once() {
        let loops = Loops::default();
        let record = |result: Result<(), std::io::Error>| loops.record("x", MINUTE, &result);
        let full = || Err(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert!(record(full()).is_some_and(|line| line.starts_with("x: ")));
        assert_eq!((record(full()), record(full())), (None, None));
        assert_eq!((record(Ok(())), record(Ok(()))), (Some("x: it works again".to_owned()), None));
    }

    #[test]
    fn a_failure_is_reported_once() {
        let loops = Loops::default();
        loops.register("x", MINUTE);
        let end = |result: Result<(), &str>, at_us| loops.end("x", result.map_err(LoopFault::new), at_us);
        assert_eq!(end(Ok(()), 1), None);
        assert_eq!(end(Err("no disk"), 2), Some("x: no disk".to_owned()));
        assert_eq!(end(Err("no disk"), 3), None);
        assert_eq!(end(Err("no name"), 4), Some("x: no name".to_owned()));
        assert_eq!(end(Ok(()), 5), Some("x: it works again".to_owned()));
        loops.begin("x", 6);
        let status = loops.statuses().remove(0);
        assert_eq!((status.turns, status.failures, status.is_failing, status.running_since_us), (5, 3, false, Some(6)));
        assert_eq!(status.last_fault, Some(LoopFailure { at_us: 4, reason: "no name".to_owned() }));
        assert_eq!(loops.end("unknown", Ok(()), 7), None);
    }
}
