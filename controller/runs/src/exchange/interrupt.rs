//! A request to stop the copying of files: the run was cancelled, or its time is up.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request to stop, which copying threads look at.
#[derive(Debug, Clone, Default)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    /// Makes every later check fail.
    pub(crate) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the request was made.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once the request was made.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.is_set() {
            return Err(io::Error::other("the run was cancelled meanwhile, or its time was up"));
        }
        Ok(())
    }
}
