//! Times of automatic lookups in the spend log.
//!
//! Pure.

use std::time::{Duration, Instant};

/// Time between two lookups.
pub const PAUSE: Duration = Duration::from_secs(60);
/// Pause after a spend log that could not be read.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_secs(5 * 60);
/// Pause after a spend log that does not exist, or that the key may not read. No pause is longer.
pub const PAUSE_MAX: Duration = Duration::from_secs(24 * 3600);

/// The result of one lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookOutcome {
    /// No call of unknown cost is old enough.
    NothingOpen,
    /// Another run or controller has the turn.
    NotOurTurn,
    /// The spend log was read, and its rows were posted.
    Done,
    /// The time was up; a part may be posted.
    TimedOut,
    /// The spend log or the ledger could not be read.
    Failed(LookFailure),
}

/// Whether a failure may pass by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LookFailure {
    /// A failure that may pass.
    Passing,
    /// A failure that lasts until LiteLLM's configuration is changed.
    Lasting,
}

/// Returns the time of the next lookup.
#[must_use]
pub fn next_look(now: Instant, last: LookOutcome) -> Instant {
    now + match last {
        LookOutcome::Failed(failure) => pause_after(failure),
        LookOutcome::NothingOpen | LookOutcome::NotOurTurn | LookOutcome::Done | LookOutcome::TimedOut => PAUSE,
    }
}

/// Returns the pause after a failure, for this and all other controllers.
#[must_use]
pub fn pause_after(failure: LookFailure) -> Duration {
    match failure {
        LookFailure::Passing => PAUSE_AFTER_FAILURE,
        LookFailure::Lasting => PAUSE_MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_postpones_the_next_look() {
        let start = Instant::now();
        for (outcome, seconds) in [
            (LookOutcome::NothingOpen, 60),
            (LookOutcome::NotOurTurn, 60),
            (LookOutcome::Done, 60),
            (LookOutcome::TimedOut, 60),
            (LookOutcome::Failed(LookFailure::Passing), 300),
            (LookOutcome::Failed(LookFailure::Lasting), 86_400),
        ] {
            assert_eq!(next_look(start, outcome), start + Duration::from_secs(seconds), "{outcome:?}");
        }
    }

    #[test]
    fn looks_follow_once_a_minute_without_failures() {
        let passing = LookOutcome::Failed(LookFailure::Passing);
        let outcomes = [LookOutcome::Done, LookOutcome::NothingOpen, passing, LookOutcome::NotOurTurn];
        let start = Instant::now();
        let mut clock = start;
        let looks = outcomes.map(|outcome| {
            clock = next_look(clock, outcome);
            (clock - start).as_secs()
        });
        assert_eq!(looks, [60, 120, 420, 480]);
    }
}
