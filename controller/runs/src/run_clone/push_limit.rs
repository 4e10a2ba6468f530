//! The limits of pushes: a run may push only so many times in any hour, and so many bytes in total.
//!
//! Each push starts processes of git and leaves files and an event, even if it is tiny, and a large one that is refused
//! was received and checked. So all of them count. The record of the repository has the pushes that have ended, so a
//! restart forgets none of them. Those that are being received are in memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_contract::RunId;
use sluice_git::{GitError, PushHistory, RunRepository};
use sluice_state::store::now_us;

use super::message::RequestBytes;

/// Maximum number of pushes of a run in any hour.
const PUSHES_MAX: usize = 30;
/// Microseconds of a minute.
const MINUTE_US: u64 = 60_000_000;
/// Microseconds for which a push counts.
const COUNTED_US: u64 = 60 * MINUTE_US;
/// Length of a body without a command, which git sends as a probe before a large push.
const PROBE_BYTES: u64 = 4;

/// Too many pushes within an hour. The text goes to the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "this run has pushed {PUSHES_MAX} times within an hour, which is the limit; push again in {minutes} min, or leave the commits in the clone: they are collected at the end of the run"
)]
pub(super) struct TooManyPushes {
    minutes: u64,
}

/// Reason why a push does not begin.
#[derive(Debug, thiserror::Error)]
pub(super) enum PushLimitError {
    /// Too many pushes within an hour.
    #[error(transparent)]
    TooMany(#[from] TooManyPushes),
    /// The bytes of the run are used up ([`GitError::Refused`]), or this host has a fault.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// The pushes that are being received, each run for itself, with the times at which they began.
#[derive(Debug, Default)]
pub struct PushLimit(Mutex<HashMap<RunId, Vec<i64>>>);

/// A push that is being received. Its end is recorded, also if its request is dropped.
pub(super) struct OpenPush<'a, B> {
    limit: &'a PushLimit,
    repository: &'a RunRepository,
    begun_us: i64,
    /// False after the end was recorded, or could not be.
    is_open: bool,
    /// Body of the request.
    pub(super) body: RequestBytes<B>,
}

impl PushLimit {
    /// Checks that a run may push, and counts nothing.
    pub(super) fn check(&self, repository: &RunRepository, now_us: i64) -> Result<(), PushLimitError> {
        // Copied before the record is read, so a push that ends in between is in one of them at least.
        let open = self.lock().get(repository.run()).cloned().unwrap_or_default();
        check_room(&repository.push_history()?, &open, now_us)
    }

    /// Begins a push, which counts from now on.
    pub(super) fn begin<'a, B>(
        &'a self,
        repository: &'a RunRepository,
        body: B,
        now_us: i64,
    ) -> Result<OpenPush<'a, B>, PushLimitError> {
        let others = self.open(repository.run(), now_us);
        let body = RequestBytes::new(body);
        // From here on, each return closes the push.
        let push = OpenPush { limit: self, repository, begun_us: now_us, is_open: true, body };
        check_room(&repository.push_history()?, &others, now_us)?;
        Ok(push)
    }

    /// Adds an open push, and returns those that were open before.
    fn open(&self, run: &RunId, now_us: i64) -> Vec<i64> {
        let mut runs = self.lock();
        // A push whose end could not be recorded stays open for an hour.
        runs.retain(|_, open| {
            open.retain(|begun| counts(*begun, now_us));
            !open.is_empty()
        });
        let open = runs.entry(run.clone()).or_default();
        let others = open.clone();
        open.push(now_us);
        others
    }

    /// Removes an open push.
    fn close(&self, run: &RunId, begun_us: i64) {
        let mut runs = self.lock();
        let Some(open) = runs.get_mut(run) else { return };
        if let Some(place) = open.iter().position(|begun| *begun == begun_us) {
            open.swap_remove(place);
        }
        if open.is_empty() {
            runs.remove(run);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, Vec<i64>>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<B> OpenPush<'_, B> {
    /// Records the push with the bytes that were read. A probe of git is not a push.
    ///
    /// # Errors
    /// Errors of the record. The push stays open for an hour then.
    pub(super) fn end(mut self) -> Result<(), GitError> {
        self.record()
    }

    fn record(&mut self) -> Result<(), GitError> {
        if !std::mem::take(&mut self.is_open) {
            return Ok(());
        }
        let (begun_us, taken) = (self.begun_us, self.body.taken());
        if taken > PROBE_BYTES {
            // The time of the end counts: a push that took an hour must not remove those that began during it.
            let now_us = now_us();
            self.repository.record_push(begun_us, taken, |begun| counts(begun, now_us))?;
        }
        self.limit.close(self.repository.run(), begun_us);
        Ok(())
    }
}

impl<B> Drop for OpenPush<'_, B> {
    fn drop(&mut self) {
        let _ = self.record();
    }
}

/// Checks that one more push is possible.
fn check_room(history: &PushHistory, open: &[i64], now_us: i64) -> Result<(), PushLimitError> {
    history.check_room()?;
    let begun = history.begun_us().iter().chain(open).copied();
    let mut recent: Vec<i64> = begun.filter(|begun| counts(*begun, now_us)).collect();
    recent.sort_unstable();
    // There is room when the push at this index no longer counts.
    let Some(index) = recent.len().checked_sub(PUSHES_MAX) else { return Ok(()) };
    let elapsed = now_us.saturating_sub(recent[index]).max(0).unsigned_abs();
    Err(TooManyPushes { minutes: COUNTED_US.saturating_sub(elapsed) / MINUTE_US + 1 }.into())
}

/// Returns whether a push counts. One that began more than an hour later was recorded with a wrong clock.
fn counts(begun_us: i64, now_us: i64) -> bool {
    now_us.abs_diff(begun_us) < COUNTED_US
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000_000;

    fn run(id: &str) -> RunId {
        id.parse().expect("an id")
    }

    /// The history of pushes of one byte that began in these minutes.
    fn history(minutes: impl IntoIterator<Item = i64>) -> PushHistory {
        let mut history = PushHistory::default();
        minutes.into_iter().for_each(|minute| history.add(minute * MINUTE, 1, |_| true));
        history
    }

    /// Returns the minutes to wait; none if a push is possible.
    fn wait(history: &PushHistory, open: &[i64], minute: i64) -> Option<u64> {
        match check_room(history, open, minute * MINUTE) {
            Ok(()) => None,
            Err(PushLimitError::TooMany(TooManyPushes { minutes })) => Some(minutes),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_run_pushes_thirty_times_in_any_hour() {
        for count in 0..30 {
            assert_eq!(wait(&history(0..count), &[], count), None, "{count}");
        }
        for (minute, expected) in [(30, Some(31)), (59, Some(2)), (60, None), (89, None)] {
            assert_eq!(wait(&history(0..30), &[], minute), expected, "{minute}");
        }
        // After a push in minute 60, one place becomes free each minute.
        assert_eq!(wait(&history((1..30).chain([60])), &[], 60), Some(2));
        assert_eq!(wait(&history((1..30).chain([60])), &[], 61), None);
    }

    #[test]
    fn pushes_that_are_being_received_count() {
        assert_eq!(wait(&history(0..29), &[], 29), None);
        assert_eq!(wait(&history(0..29), &[29 * MINUTE], 29), Some(32));
    }

    #[test]
    fn a_wrong_clock_stops_no_push() {
        for (first, expected) in [(500, None), (20, Some(61))] {
            assert_eq!(wait(&history(first..first + 30), &[], 0), expected, "{first}");
        }
    }

    #[test]
    fn used_bytes_are_refused_before_the_hour() {
        let mut history = history(0..30);
        history.add(0, 4 << 30, |_| true);
        let text = check_room(&history, &[], 0).expect_err("all bytes are used").to_string();
        assert!(text.contains("more than 4 GiB together") && text.contains("in a new run"), "{text}");
    }

    #[test]
    fn open_pushes_are_forgotten_at_their_end() {
        let (limit, one, other) = (PushLimit::default(), run("r1"), run("r2"));
        assert_eq!(limit.open(&one, 5), [0; 0]);
        assert_eq!(limit.open(&other, 6), [0; 0], "each run has its own pushes");
        assert_eq!(limit.open(&one, 7), [5]);
        limit.close(&one, 5);
        assert_eq!(limit.open(&one, 8), [7]);
        for begun in [7, 8] {
            limit.close(&one, begun);
        }
        assert_eq!(limit.lock().len(), 1);
        // The end of the one in r2 could not be recorded.
        assert_eq!(limit.open(&one, 6 + 60 * MINUTE), [0; 0]);
        assert_eq!(limit.lock().len(), 1);
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let text = TooManyPushes { minutes: 12 }.to_string();
        assert!(text.contains("30 times") && text.contains("in 12 min") && text.contains("collected"), "{text}");
    }
}
