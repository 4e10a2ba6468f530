//! Locks of runs within this process: one task at a time changes something of a run that is outside of the database.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_contract::RunId;
use tokio::sync::OwnedMutexGuard;

/// Locks of the runs that are locked, or whose lock is waited for.
#[derive(Debug)]
pub struct RunLocks(Mutex<BTreeMap<RunId, Arc<tokio::sync::Mutex<()>>>>);

impl RunLocks {
    /// Returns an empty set of locks.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "a default is not constant, and locks are static")]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Waits until no other task has the lock of this run. The lock is released when the value is dropped.
    pub async fn lock(&self, run_id: &RunId) -> OwnedMutexGuard<()> {
        self.lock_of(run_id).lock_owned().await
    }

    fn lock_of(&self, run_id: &RunId) -> Arc<tokio::sync::Mutex<()>> {
        // Nothing panics while it is held.
        let mut locks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Locks with one reference have no holder and no waiter.
        locks.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(locks.entry(run_id.clone()).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_task_has_the_lock_of_a_run() {
        let locks = RunLocks::new();
        let [first, second]: [RunId; 2] = ["r1", "r2"].map(|id| id.parse().expect("an id"));
        let held = locks.lock(&first).await;
        drop(locks.lock(&second).await);
        assert!(locks.lock_of(&first).try_lock().is_err(), "it is held");
        drop(held);
        assert!(locks.lock_of(&first).try_lock().is_ok(), "it is free");
    }
}
