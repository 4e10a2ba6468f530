//! The time for which the clock of a run's timeout was stopped.
//!
//! A run that is paused, or that waits for an approval, does not use up its time, for at most a day in all.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sluice_state::sandboxes::STOPPED_MAX_US;

/// The clock of one run. Its owner stops it; the loop that drives the run reads it.
#[derive(Debug, Default)]
pub struct RunClock(Mutex<Stops>);

#[derive(Debug, Clone, Copy, Default)]
struct Stops {
    /// Time of the stops that are over, in microseconds.
    total_us: i64,
    /// Start of the present stop, in microseconds since 1970.
    since_us: Option<i64>,
}

impl RunClock {
    /// Returns a clock that was stopped for this time in total, and has been stopped since `since_us`.
    #[must_use]
    pub fn new(total_us: i64, since_us: Option<i64>) -> Self {
        Self(Mutex::new(Stops { total_us, since_us }))
    }

    /// Takes the stops that the database has.
    pub fn set(&self, total_us: i64, since_us: Option<i64>) {
        *self.lock() = Stops { total_us, since_us };
    }

    /// Returns the time for which the clock was stopped until now.
    #[must_use]
    pub fn stopped(&self, now_us: i64) -> Duration {
        let Stops { total_us, since_us } = *self.lock();
        let present = since_us.map_or(0, |since| now_us.saturating_sub(since).max(0));
        Duration::from_micros(total_us.saturating_add(present).clamp(0, STOPPED_MAX_US).unsigned_abs())
    }

    fn lock(&self) -> MutexGuard<'_, Stops> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_add_up_to_a_day_at_most() {
        let clock = RunClock::new(5_000_000, None);
        assert_eq!(clock.stopped(100), Duration::from_secs(5));
        clock.set(5_000_000, Some(100));
        assert_eq!(clock.stopped(2_000_100), Duration::from_secs(7));
        assert_eq!(clock.stopped(0), Duration::from_secs(5), "a clock that jumps back adds nothing");
        assert_eq!(clock.stopped(i64::MAX), Duration::from_secs(24 * 3600));
    }
}
