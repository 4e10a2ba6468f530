//! Readiness of the daemon for its work, and the reasons against it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reasons why the daemon is not ready. Each part reports its own.
#[derive(Debug, Default)]
pub struct Readiness(Mutex<BTreeMap<&'static str, String>>);

impl Readiness {
    /// Reports a reason of a part.
    pub fn fail(&self, part: &'static str, reason: impl Into<String>) {
        self.lock().insert(part, reason.into());
    }

    /// Reports that a part can do its work.
    pub fn pass(&self, part: &'static str) {
        self.lock().remove(part);
    }

    /// Returns the reasons by part; none if the daemon is ready.
    pub fn reasons(&self) -> BTreeMap<&'static str, String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, String>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
