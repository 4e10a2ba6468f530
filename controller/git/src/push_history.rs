//! The pushes of a run so far, accepted or refused.
//!
//! Pure. The record of the repository has them, so a process that starts later knows them.

use serde::{Deserialize, Serialize};

use crate::error::GitError;
use crate::ingest_refusal::IngestRefusal;
use crate::limits::RUN_BYTES;

/// Pushes of a run that have ended, accepted or refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PushHistory {
    /// Number of bytes that were read of all pushes.
    bytes: u64,
    /// Times at which the recent pushes began, in microseconds since 1970.
    begun_us: Vec<i64>,
}

impl PushHistory {
    /// Adds a push, and forgets the times that are not recent.
    pub fn add(&mut self, begun_us: i64, bytes: u64, is_recent: impl Fn(i64) -> bool) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.begun_us.push(begun_us);
        self.begun_us.retain(|begun| is_recent(*begun));
    }

    /// Returns the number of bytes that were read of all pushes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the times at which the recent pushes began, in microseconds since 1970.
    #[must_use]
    pub fn begun_us(&self) -> &[i64] {
        &self.begun_us
    }

    /// Checks that the run may send more bytes.
    ///
    /// # Errors
    /// [`GitError::Refused`], with the text for the sandbox.
    pub fn check_room(&self) -> Result<(), GitError> {
        if self.room() == 0 { Err(IngestRefusal::Total.into()) } else { Ok(()) }
    }

    /// Returns the number of bytes that further pushes may have.
    pub(crate) fn room(&self) -> u64 {
        RUN_BYTES.saturating_sub(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_stay_and_old_times_go() {
        let mut history = PushHistory::default();
        for begun in 0..10 {
            history.add(begun, 100, |at| at > begun - 3);
        }
        assert_eq!((history.bytes(), history.begun_us()), (1000, &[7, 8, 9][..]));
    }

    #[test]
    fn a_push_may_begin_until_all_bytes_are_used() {
        for (bytes, is_open) in [(0, true), (RUN_BYTES - 1, true), (RUN_BYTES, false), (u64::MAX, false)] {
            let mut history = PushHistory::default();
            history.add(1, bytes, |_| true);
            assert_eq!(history.check_room().is_ok(), is_open, "{bytes}");
        }
    }
}
