//! The limits of the events that runs report, and the fill level of the event log.
//!
//! Pure.

use std::fmt;
use std::time::{Duration, Instant};

use sluice_state::events::EventQuota;

use crate::request_rate::RequestRate;

/// Limits of the events that runs report. The daemon's own events have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventLimits {
    /// Events that a run may report in a minute.
    pub per_minute: u32,
    /// Maximum number of events that a run may report at once, after a pause.
    pub burst: u32,
    /// Maximum number of bytes of events and diffs that a run may report per minute, and at once after a pause.
    pub bytes_per_minute: u32,
    /// Limits of the stored events of a run.
    pub quota: EventQuota,
    /// Size of the database from which the events of runs are refused.
    pub store_max: u64,
    /// Free part of the disk, in percent, below which the events of runs are refused, unless `disk_enough` is free.
    pub disk_free_min: u8,
    /// Free bytes of the disk that are always enough: more than runs report between two checks.
    pub disk_enough: u64,
}

impl EventLimits {
    /// Returns the limits with another rate. The burst grows and shrinks with it.
    #[must_use]
    pub fn with_rate(self, per_minute: u32) -> Self {
        let burst = (u64::from(per_minute) * 5 / 3).clamp(1, u64::from(u32::MAX));
        Self { per_minute, burst: u32::try_from(burst).unwrap_or(u32::MAX), ..self }
    }
}

impl Default for EventLimits {
    fn default() -> Self {
        Self {
            per_minute: 1200,
            burst: 2000,
            bytes_per_minute: 2 << 20,
            quota: EventQuota::default(),
            store_max: 20 << 30,
            disk_free_min: 10,
            disk_enough: 5 << 30,
        }
    }
}

/// The rates at which runs report events: their number, and their size.
#[derive(Debug)]
pub(crate) struct EventRates {
    events: RequestRate<String>,
    bytes: RequestRate<String>,
}

impl EventRates {
    /// Returns the rates before the first event.
    pub(crate) fn new(limits: &EventLimits) -> Self {
        let EventLimits { per_minute, burst, bytes_per_minute, .. } = *limits;
        Self {
            events: RequestRate::new(f64::from(per_minute) / 60.0, burst),
            bytes: RequestRate::new(f64::from(bytes_per_minute) / 60.0, bytes_per_minute),
        }
    }

    /// Counts an event of a run. An event that is refused for its size counts as an event.
    ///
    /// # Errors
    /// The time after which the run may report it.
    pub(crate) fn take(&mut self, run: &str, bytes: u64, now: Instant) -> Result<(), Duration> {
        self.events.take(run.to_owned(), now)?;
        self.bytes.take_amount(run.to_owned(), u32::try_from(bytes).unwrap_or(u32::MAX), now)
    }
}

/// Levels of the event log and of its disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StoreLevel {
    /// Bytes that the database uses.
    pub(crate) used: u64,
    /// Bytes of the disk that are free.
    pub(crate) disk_free: u64,
    /// Bytes of the disk.
    pub(crate) disk_total: u64,
}

/// A reason to refuse the events of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFull {
    /// The database is too large.
    Database {
        /// Size of the database.
        used: u64,
    },
    /// The disk is nearly full.
    Disk {
        /// Free part in percent.
        free_percent: u64,
    },
}

impl fmt::Display for StoreFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Database { used } => {
                write!(f, "the database has {} MiB, so events of runs are refused; shorten event_keep", used >> 20)
            }
            Self::Disk { free_percent } => {
                write!(
                    f,
                    "{free_percent} % of the disk is free, so events of runs are refused; free some of it, or lower event_disk_free"
                )
            }
        }
    }
}

/// Returns the reason to refuse the events of runs. After a refusal, they are accepted again only when the database is
/// 5 % below its limit, and one percentage point more of the disk is free. `disk_enough` free bytes are enough on a
/// disk of any size.
pub(crate) fn store_full(level: StoreLevel, limits: &EventLimits, was_full: bool) -> Option<StoreFull> {
    let (store_max, free_min) = match was_full {
        true => (limits.store_max - limits.store_max / 20, u64::from(limits.disk_free_min) + 1),
        false => (limits.store_max, u64::from(limits.disk_free_min)),
    };
    if level.used >= store_max {
        return Some(StoreFull::Database { used: level.used });
    }
    // A disk of unknown size counts as empty.
    let free_percent = level.disk_free.saturating_mul(100).checked_div(level.disk_total).unwrap_or(100);
    let is_scarce = free_percent < free_min && level.disk_free < limits.disk_enough;
    (limits.disk_free_min > 0 && is_scarce).then_some(StoreFull::Disk { free_percent })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: EventLimits = EventLimits {
        per_minute: 1200,
        burst: 2000,
        bytes_per_minute: 2 << 20,
        quota: EventQuota { bytes: 0, events: 0, diff_bytes: 0 },
        store_max: 1000,
        disk_free_min: 10,
        disk_enough: 500,
    };

    #[test]
    fn a_run_reports_a_burst_and_then_its_rate() {
        let (mut rates, start) = (EventRates::new(&LIMITS), Instant::now());
        let passed = |rates: &mut EventRates, now| (0..3000).filter(|_| rates.take("r1", 200, now).is_ok()).count();
        assert_eq!(passed(&mut rates, start), 2000);
        assert_eq!(rates.take("r2", 200, start), Ok(()), "each run has its own");
        assert_eq!(passed(&mut rates, start + Duration::from_secs(60)), 1200);
    }

    #[test]
    fn bytes_are_limited_beside_the_number() {
        let (mut rates, start) = (EventRates::new(&LIMITS), Instant::now());
        assert_eq!(rates.take("r1", 2 << 20, start), Ok(()));
        let wait = rates.take("r1", 1 << 20, start).expect_err("the minute is used up");
        assert_eq!(wait, Duration::from_secs(30));
        assert_eq!(rates.take("r1", 1 << 20, start + wait), Ok(()));
        assert!(rates.take("r1", u64::MAX, start + Duration::from_secs(9999)).is_err());
    }

    #[test]
    fn the_burst_follows_the_rate() {
        for (rate, burst) in [(1200, 2000), (60, 100), (1, 1), (u32::MAX, u32::MAX)] {
            assert_eq!(EventLimits::default().with_rate(rate).burst, burst, "{rate}");
        }
    }

    #[test]
    fn a_full_store_is_taken_again_with_some_room() {
        let level = |used, disk_free| StoreLevel { used, disk_free, disk_total: 1000 };
        for (used, free, was_full, is_full) in [
            (999, 100, false, false),
            (1000, 500, false, true),
            (999, 500, true, true),
            (949, 500, true, false),
            (0, 99, false, true),
            (0, 109, true, true),
            (0, 110, true, false),
        ] {
            assert_eq!(store_full(level(used, free), &LIMITS, was_full).is_some(), is_full, "{used} {free} {was_full}");
        }
        let large = |disk_free| StoreLevel { used: 0, disk_free, disk_total: 1_000_000 };
        assert_eq!(store_full(large(500), &LIMITS, true), None, "it has enough");
        assert!(store_full(large(499), &LIMITS, false).is_some());
        let unknown = StoreLevel { used: 0, disk_free: 0, disk_total: 0 };
        assert_eq!(store_full(unknown, &LIMITS, false), None);
        let any_disk = EventLimits { disk_free_min: 0, ..LIMITS };
        assert_eq!(store_full(level(0, 0), &any_disk, true), None);
    }
}
