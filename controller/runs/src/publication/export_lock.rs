//! The lock of an export: one publication, pull request or merge of a run at a time.
//!
//! Each of them reads the state of the branch, changes the forge and records the change. Two at once would both find that
//! nothing was done yet. Another process is not locked out: the forge, and the records of pushes, show it what was done.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_contract::RunId;
use tokio::sync::OwnedMutexGuard;

/// Locks of the runs that are exported, or wait for it.
static LOCKS: Mutex<BTreeMap<RunId, Arc<tokio::sync::Mutex<()>>>> = Mutex::new(BTreeMap::new());

/// Waits until no other task of this process exports the run. The lock ends with the value.
pub(super) async fn lock_export(run_id: &RunId) -> OwnedMutexGuard<()> {
    lock_of(run_id).lock_owned().await
}

fn lock_of(run_id: &RunId) -> Arc<tokio::sync::Mutex<()>> {
    // Nothing panics while it is held.
    let mut locks = LOCKS.lock().unwrap_or_else(PoisonError::into_inner);
    // The others have no holder and no waiter.
    locks.retain(|_, lock| Arc::strong_count(lock) > 1);
    Arc::clone(locks.entry(run_id.clone()).or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_export_of_a_run_at_a_time() {
        let [first, second]: [RunId; 2] = ["r_export_1", "r_export_2"].map(|id| id.parse().expect("an id"));
        let held = lock_export(&first).await;
        drop(lock_export(&second).await);
        assert!(lock_of(&first).try_lock().is_err(), "the run is exported");
        drop(held);
        assert!(lock_of(&first).try_lock().is_ok(), "the export is over");
    }
}
