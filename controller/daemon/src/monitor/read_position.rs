//! Position up to which the event log is read.

use std::sync::atomic::{AtomicI64, Ordering};

/// Position up to which the event log is read.
#[derive(Debug)]
pub(crate) struct ReadPosition(AtomicI64);

impl ReadPosition {
    /// Begins at a position.
    pub(crate) fn new(seq: i64) -> Self {
        Self(AtomicI64::new(seq))
    }

    /// Returns the position.
    pub(crate) fn get(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the position.
    pub(super) fn set(&self, seq: i64) {
        self.0.store(seq, Ordering::Relaxed);
    }
}
