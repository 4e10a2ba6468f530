//! The limits of events about changed files: a sandbox causes them, and no quota removes them.
//!
//! Pure. The time comes from the caller.

use std::time::Instant;

use sluice_runs::exchange::watch::ChangeKind;

/// Maximum number of events of one run per minute, and at once after a pause.
const PER_MINUTE: f64 = 1200.0;
const BURST: f64 = 1000.0;
/// Maximum number of bytes of events and diffs of one run per minute, and at once after a pause.
const BYTES_PER_MINUTE: f64 = (2 << 20) as f64;
/// Maximum number of bytes of all events of one attempt.
const EVENT_BYTES: u64 = 64 << 20;
/// Maximum number of bytes of all diffs of one attempt.
const DIFF_BYTES: u64 = 256 << 20;

/// Part of a change that is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stored {
    /// Event and diff.
    Whole,
    /// Only the event.
    WithoutDiff,
    /// Nothing: the change is counted.
    Nothing,
}

/// The limits of one attempt.
#[derive(Debug)]
pub(super) struct FileEventLimits {
    events: f64,
    bytes: f64,
    at: Instant,
    event_bytes: u64,
    diff_bytes: u64,
}

/// Changes without an event of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct LeftOutChanges {
    pub(super) created: u64,
    pub(super) modified: u64,
    pub(super) deleted: u64,
}

impl FileEventLimits {
    /// Returns the limits before the first event.
    pub(super) fn new(now: Instant) -> Self {
        Self { events: BURST, bytes: BYTES_PER_MINUTE, at: now, event_bytes: EVENT_BYTES, diff_bytes: DIFF_BYTES }
    }

    /// Decides what is stored for an event of this size, with a diff of this size.
    pub(super) fn take(&mut self, event: u64, diff: u64, now: Instant) -> Stored {
        let minutes = now.saturating_duration_since(self.at).as_secs_f64() / 60.0;
        self.at = now;
        self.events = (self.events + minutes * PER_MINUTE).min(BURST);
        self.bytes = (self.bytes + minutes * BYTES_PER_MINUTE).min(BYTES_PER_MINUTE);
        if self.events < 1.0 || self.bytes < as_f64(event) || self.event_bytes < event {
            return Stored::Nothing;
        }
        self.events -= 1.0;
        self.event_bytes -= event;
        let is_whole = self.bytes >= as_f64(event + diff) && self.diff_bytes >= diff;
        self.bytes -= as_f64(if is_whole { event + diff } else { event });
        if !is_whole {
            return Stored::WithoutDiff;
        }
        self.diff_bytes -= diff;
        Stored::Whole
    }
}

#[allow(clippy::cast_precision_loss, reason = "sizes of events are small")]
fn as_f64(bytes: u64) -> f64 {
    bytes as f64
}

impl LeftOutChanges {
    pub(super) fn count(&mut self, change: ChangeKind) {
        *match change {
            ChangeKind::Created => &mut self.created,
            ChangeKind::Modified => &mut self.modified,
            ChangeKind::Deleted => &mut self.deleted,
        } += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_flood_of_small_changes_is_cut() {
        let start = Instant::now();
        let mut limits = FileEventLimits::new(start);
        let stored = |limits: &mut FileEventLimits, now| {
            (0..5000).filter(|_| limits.take(500, 10, now) == Stored::Whole).count()
        };
        assert_eq!(stored(&mut limits, start), 1000);
        assert_eq!(stored(&mut limits, start + Duration::from_secs(3)), 60);
        assert_eq!(stored(&mut limits, start + Duration::from_secs(3600)), 1000);
    }

    #[test]
    fn a_large_diff_is_left_out_before_its_event() {
        let start = Instant::now();
        let mut limits = FileEventLimits::new(start);
        let mut take = |event, diff, second| limits.take(event, diff, start + Duration::from_secs(second));
        assert_eq!(take(500, 1 << 20, 0), Stored::Whole);
        assert_eq!(take(500, 1 << 20, 0), Stored::WithoutDiff);
        assert_eq!(take(500, (1 << 20) - 2000, 0), Stored::Whole);
        assert_eq!(take(2000, 0, 0), Stored::Nothing);
        assert_eq!(take(2000, 0, 60), Stored::Whole);
    }

    #[test]
    fn an_attempt_has_a_total() {
        let (mut limits, start) = (FileEventLimits::new(Instant::now()), Instant::now());
        let stored = (0..2000).map(|minute| limits.take(400, 1 << 20, start + Duration::from_secs(60 * minute)));
        assert_eq!(stored.filter(|stored| *stored == Stored::Whole).count(), 256);
        let mut limits = FileEventLimits::new(start);
        let stored = (0..2000).map(|minute| limits.take(1 << 20, 0, start + Duration::from_secs(60 * minute)));
        assert_eq!(stored.filter(|stored| *stored == Stored::Whole).count(), 64);
    }

    #[test]
    fn changes_are_counted_by_their_kind() {
        let mut left = LeftOutChanges::default();
        [ChangeKind::Created, ChangeKind::Deleted, ChangeKind::Created].into_iter().for_each(|it| left.count(it));
        assert_eq!(left, LeftOutChanges { created: 2, modified: 0, deleted: 1 });
    }
}
