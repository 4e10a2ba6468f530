//! The clock of a deadline: it can stand still, for a day in all.
//!
//! Pure: the time is given.

use std::time::{Duration, Instant};

use sluice_contract::control::STOPPED_MAX_S;

/// Longest time in all for which the clock can stand still.
pub const STOPPED_MAX: Duration = Duration::from_secs(STOPPED_MAX_S);

/// Clock of a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadlineClock {
    started: Instant,
    /// Length of the run; `None` is unlimited.
    length: Option<Duration>,
    /// Total time of the stops that have ended.
    stopped_for: Duration,
    stopped_at: Option<Instant>,
}

impl DeadlineClock {
    /// Starts the clock of a run of this length.
    #[must_use]
    pub fn start(length: Option<Duration>, now: Instant) -> Self {
        Self { started: now, length, stopped_for: Duration::ZERO, stopped_at: None }
    }

    /// Returns the length of the run.
    #[must_use]
    pub fn length(&self) -> Option<Duration> {
        self.length
    }

    /// Returns the time at which the run ends if the clock is not stopped or restarted again.
    #[must_use]
    pub fn end(&self) -> Option<Instant> {
        let stopped = if self.stopped_at.is_some() { STOPPED_MAX } else { self.stopped_for };
        self.started.checked_add(self.length?.saturating_add(stopped))
    }

    /// Returns true if the clock stands still.
    #[must_use]
    pub fn is_stopped(&self, now: Instant) -> bool {
        self.stopped_at.is_some() && self.stopped_for(now) < STOPPED_MAX
    }

    /// Returns the time for which the clock has stood still.
    #[must_use]
    pub fn stopped_for(&self, now: Instant) -> Duration {
        let open = self.stopped_at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.stopped_for.saturating_add(open).min(STOPPED_MAX)
    }

    /// Returns the time that is left.
    #[must_use]
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let run_for = now.saturating_duration_since(self.started).saturating_sub(self.stopped_for(now));
        Some(self.length?.saturating_sub(run_for))
    }

    /// Sets the length of the run, counted from its start. Never shortens it.
    pub fn extend(&mut self, length: Duration) {
        self.length = self.length.map(|old| old.max(length));
    }

    /// Stops the clock, or lets it go on.
    pub fn set_stopped(&mut self, stopped: bool, now: Instant) {
        if stopped == self.stopped_at.is_some() {
            return;
        }
        self.stopped_for = self.stopped_for(now);
        self.stopped_at = stopped.then_some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn started() -> (DeadlineClock, Instant) {
        let start = Instant::now();
        (DeadlineClock::start(Some(10 * MINUTE), start), start)
    }

    #[test]
    fn a_stop_moves_the_end_by_its_time() {
        let (mut clock, start) = started();
        clock.set_stopped(true, start + MINUTE);
        assert_eq!(clock.left(start + 5 * MINUTE), Some(9 * MINUTE));
        assert!(clock.is_stopped(start + 5 * MINUTE));
        clock.set_stopped(false, start + 5 * MINUTE);
        clock.set_stopped(true, start + 6 * MINUTE);
        clock.set_stopped(false, start + 7 * MINUTE);
        assert_eq!(clock.end(), Some(start + 15 * MINUTE));
        assert_eq!(
            (clock.left(start + 8 * MINUTE), clock.stopped_for(start + 8 * MINUTE)),
            (Some(7 * MINUTE), 5 * MINUTE)
        );
    }

    #[test]
    fn the_clock_goes_on_after_a_day_in_all() {
        let (mut clock, start) = started();
        clock.set_stopped(true, start);
        clock.set_stopped(false, start + STOPPED_MAX / 2);
        clock.set_stopped(true, start + STOPPED_MAX / 2);
        assert_eq!(clock.end(), Some(start + STOPPED_MAX + 10 * MINUTE));
        let late = start + STOPPED_MAX + 4 * MINUTE;
        assert_eq!((clock.is_stopped(late), clock.left(late)), (false, Some(6 * MINUTE)));
        clock.set_stopped(false, late);
        assert_eq!(clock.end(), Some(start + STOPPED_MAX + 10 * MINUTE));
    }

    #[test]
    fn a_second_stop_changes_nothing() {
        let (mut clock, start) = started();
        clock.set_stopped(true, start + MINUTE);
        let once = clock;
        clock.set_stopped(true, start + 2 * MINUTE);
        assert_eq!(clock, once);
    }

    #[test]
    fn an_extension_never_shortens_the_run() {
        let (mut clock, start) = started();
        clock.extend(MINUTE);
        assert_eq!(clock.end(), Some(start + 10 * MINUTE));
        clock.extend(20 * MINUTE);
        assert_eq!(clock.end(), Some(start + 20 * MINUTE));
        let mut unlimited = DeadlineClock::start(None, start);
        unlimited.extend(MINUTE);
        assert_eq!((unlimited.end(), unlimited.left(start)), (None, None));
    }
}
