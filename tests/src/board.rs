//! Shared state with bounded waits for its changes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::wait::PATIENCE;

/// State behind a lock, with a signal for each change.
///
/// Changes may come from any thread; the lock is never held across an await.
#[derive(Debug)]
pub(crate) struct SharedState<S> {
    state: Mutex<S>,
    tick: watch::Sender<u64>,
}

impl<S> SharedState<S> {
    pub(crate) fn new(state: S) -> Self {
        Self { state: Mutex::new(state), tick: watch::Sender::new(0) }
    }

    /// Changes the state and wakes the waiters.
    pub(crate) fn update<T>(&self, change: impl FnOnce(&mut S) -> T) -> T {
        let answer = change(&mut self.lock());
        self.tick.send_modify(|tick| *tick = tick.wrapping_add(1));
        answer
    }

    /// Reads the state.
    pub(crate) fn look<T>(&self, read: impl FnOnce(&S) -> T) -> T {
        read(&self.lock())
    }

    /// Waits until `seek` returns a value; panics after [`PATIENCE`], naming `what`.
    pub(crate) async fn until<T>(&self, what: &str, seek: impl FnMut(&mut S) -> Option<T>) -> T {
        self.until_within(PATIENCE, what, seek).await
    }

    /// The same, with another limit.
    pub(crate) async fn until_within<T>(
        &self,
        limit: Duration,
        what: &str,
        mut seek: impl FnMut(&mut S) -> Option<T>,
    ) -> T {
        let mut ticks = self.tick.subscribe();
        let wait = async {
            loop {
                ticks.borrow_and_update();
                if let Some(found) = seek(&mut self.lock()) {
                    return found;
                }
                ticks.changed().await.expect("the board outlives its waiters");
            }
        };
        let waited = tokio::time::timeout(limit, wait).await;
        waited.unwrap_or_else(|_| panic!("waited {limit:?} for {what}"))
    }

    /// Waits for a time of length `silence` without a change; panics after [`PATIENCE`] of changes.
    pub(crate) async fn quiet(&self, what: &str, silence: Duration) {
        let mut ticks = self.tick.subscribe();
        let wait = async { while tokio::time::timeout(silence, ticks.changed()).await.is_ok() {} };
        let waited = tokio::time::timeout(PATIENCE, wait).await;
        waited.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {what}"));
    }

    // The lock may be poisoned by a panic in a test's closure. A second panic in a `Drop` would hide the first one.
    fn lock(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
