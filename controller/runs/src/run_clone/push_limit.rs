//! The limit of pushes: a run may push only so many times in any hour.
//!
//! Each push starts processes of git and leaves files and an event, also if it is tiny, and a large one that is refused was
//! received and checked. So all of them count.
//!
//! Pure.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_contract::RunId;

/// Maximum number of pushes of a run in any hour.
const PUSHES_MAX: usize = 30;
/// Time for which a push counts.
const COUNTED_FOR: Duration = Duration::from_secs(60 * 60);

/// Reason why a push is refused. The text goes to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this run has pushed {PUSHES_MAX} times within an hour, which is the limit; push again in {minutes} min, or leave the commits in the clone: they are collected at the end of the run"
)]
pub(super) struct TooManyPushes {
    minutes: u64,
}

/// The pushes of runs in the last hour, each run for itself.
#[derive(Debug, Default)]
pub struct PushLimit(Mutex<HashMap<RunId, VecDeque<Instant>>>);

impl PushLimit {
    /// Checks that a run may push, and counts nothing.
    pub(super) fn check(&self, run: &RunId, now: Instant) -> Result<(), TooManyPushes> {
        self.lock().get(run).map_or(Ok(()), |pushes| room(pushes, now))
    }

    /// Counts a push.
    pub(super) fn count(&self, run: &RunId, now: Instant) -> Result<(), TooManyPushes> {
        let mut runs = self.lock();
        // Runs that have not pushed for an hour are forgotten.
        runs.retain(|_, pushes| pushes.back().is_some_and(|last| counts(*last, now)));
        let pushes = runs.entry(run.clone()).or_default();
        room(pushes, now)?;
        while pushes.front().is_some_and(|first| !counts(*first, now)) {
            pushes.pop_front();
        }
        pushes.push_back(now);
        Ok(())
    }

    /// Takes back what was counted at this time: it was not a push.
    pub(super) fn take_back(&self, run: &RunId, counted: Instant) {
        if let Some(pushes) = self.lock().get_mut(run)
            && let Some(at) = pushes.iter().rposition(|push| *push == counted)
        {
            pushes.remove(at);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, VecDeque<Instant>>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Checks that one more push is possible.
fn room(pushes: &VecDeque<Instant>, now: Instant) -> Result<(), TooManyPushes> {
    let recent: Vec<Instant> = pushes.iter().copied().filter(|push| counts(*push, now)).collect();
    // When this push no longer counts, there is room.
    let Some(index) = recent.len().checked_sub(PUSHES_MAX) else { return Ok(()) };
    let wait = COUNTED_FOR.saturating_sub(now.saturating_duration_since(recent[index]));
    Err(TooManyPushes { minutes: wait.as_secs() / 60 + 1 })
}

fn counts(push: Instant, now: Instant) -> bool {
    now.saturating_duration_since(push) < COUNTED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn run(id: &str) -> RunId {
        id.parse().expect("an id")
    }

    #[test]
    fn a_run_pushes_thirty_times_in_any_hour() {
        let (limit, start, id) = (PushLimit::default(), Instant::now(), run("r1"));
        let at = |minute: u32| start + MINUTE * minute;
        for minute in 0..30 {
            assert_eq!(limit.count(&id, at(minute)), Ok(()), "{minute}");
        }
        for minute in [30, 59] {
            let expected = Err(TooManyPushes { minutes: u64::from(60 - minute) + 1 });
            assert_eq!(limit.check(&id, at(minute)), expected, "{minute}");
            assert_eq!(limit.count(&id, at(minute)), expected, "a refusal does not count: {minute}");
        }
        assert_eq!(limit.count(&run("r2"), at(30)), Ok(()), "each run has its own limit");

        for minute in 60..65 {
            assert_eq!(limit.count(&id, at(minute)), Ok(()), "{minute}");
            assert!(limit.count(&id, at(minute)).is_err(), "one place becomes free each minute: {minute}");
        }
    }

    #[test]
    fn what_was_not_a_push_does_not_count() {
        let (limit, start, id) = (PushLimit::default(), Instant::now(), run("r1"));
        for second in 0..100 {
            let now = start + Duration::from_secs(second);
            assert_eq!(limit.count(&id, now), Ok(()), "{second}");
            limit.take_back(&id, now);
        }
        assert_eq!(limit.check(&id, start), Ok(()));
    }

    #[test]
    fn runs_without_a_recent_push_are_forgotten() {
        let (limit, start) = (PushLimit::default(), Instant::now());
        for id in ["r1", "r2"] {
            assert_eq!(limit.count(&run(id), start), Ok(()));
        }
        assert_eq!(limit.count(&run("r3"), start + COUNTED_FOR), Ok(()));
        assert_eq!(limit.lock().len(), 1);
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = TooManyPushes { minutes: 12 }.to_string();
        assert!(text.contains("30 times") && text.contains("in 12 min") && text.contains("collected"), "{text}");
    }
}
