//! Names at which something has happened, until they are quiet or have waited long enough.
//!
//! Pure. The time comes from the caller.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Time without a notice after which a file is checked.
const QUIET: Duration = Duration::from_millis(300);
/// Maximum time that a file waits.
const WAIT: Duration = Duration::from_secs(2);
/// Maximum number of waiting names.
const NAMES: usize = 10_000;

/// Times of the first and the last notice of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct NameNotices {
    first: Instant,
    last: Instant,
}

impl NameNotices {
    fn due(&self) -> Instant {
        (self.last + QUIET).min(self.first + WAIT)
    }
}

/// Names that wait, by their paths.
#[derive(Debug, Default)]
pub(super) struct DirtyNames(BTreeMap<Vec<u8>, NameNotices>);

impl DirtyNames {
    /// Notes that something has happened to a name. Returns false if too many wait.
    pub(super) fn note(&mut self, path: Vec<u8>, now: Instant) -> bool {
        if let Some(notices) = self.0.get_mut(&path) {
            notices.last = now;
            return true;
        }
        let has_room = self.0.len() < NAMES;
        if has_room {
            self.0.insert(path, NameNotices { first: now, last: now });
        }
        has_room
    }

    /// Takes the names that have waited long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> BTreeMap<Vec<u8>, NameNotices> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (due, waiting) = all.partition(|(_, notices)| notices.due() <= now);
        self.0 = waiting;
        due
    }

    /// Puts a taken name back that was not checked: it is due, and its first notice stays.
    pub(super) fn put_back(&mut self, path: Vec<u8>, notices: NameNotices) {
        self.0.insert(path, notices);
    }

    /// Returns the time of the first notice of a name that waits.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.0.values().map(|notices| notices.first).min()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_name_waits_until_it_is_quiet() {
        let (mut names, start) = (DirtyNames::default(), Instant::now());
        names.note(b"a".to_vec(), start);
        names.note(b"b".to_vec(), start + ms(100));
        names.note(b"a".to_vec(), start + ms(200));
        assert!(names.take_due(start + ms(399)).is_empty());
        assert_eq!(names.take_due(start + ms(400)).into_keys().collect::<Vec<_>>(), [b"b"]);
        let due = names.take_due(start + ms(500));
        assert!(names.is_empty());
        // Bug: a name that was not checked in time counted as one that had just changed.
        due.into_iter().for_each(|(path, notices)| names.put_back(path, notices));
        assert_eq!(names.oldest(), Some(start));
        assert_eq!(names.take_due(start + ms(500)).into_keys().collect::<Vec<_>>(), [b"a"]);
    }

    #[test]
    fn a_name_that_is_never_quiet_waits_two_seconds() {
        let (mut names, start) = (DirtyNames::default(), Instant::now());
        let mut looks = Vec::new();
        for at in (0..10_000).step_by(10) {
            names.note(b"busy".to_vec(), start + ms(at));
            looks.extend(names.take_due(start + ms(at)).into_iter().map(|_| at));
        }
        assert_eq!(looks, [2000, 4010, 6020, 8030]);
    }

    #[test]
    fn only_so_many_names_wait() {
        let (mut names, start) = (DirtyNames::default(), Instant::now());
        assert!((0..NAMES).all(|n| names.note(n.to_string().into_bytes(), start)));
        assert!(!names.note(b"one more".to_vec(), start) && names.note(b"7".to_vec(), start));
        names.clear();
        assert!(names.is_empty() && names.oldest().is_none());
    }
}
