//! Accepts the events that runs report: within the rate of the run, and while the event log has room.
//!
//! Events of the daemon itself do not pass through here: they are stored even while events of runs are refused.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluice_state::events::{AppendedEvent, EventFault, EventQuota, NewLoggedEvent};
use sluice_state::store::{Store, StoreError};

use crate::event_limits::{EventLimits, EventRates};

/// Takes the events that runs report.
#[derive(Debug)]
pub struct EventIntake {
    quota: EventQuota,
    rates: Mutex<EventRates>,
    is_full: AtomicBool,
}

/// Reason that an event of a run is not stored.
#[derive(Debug, thiserror::Error)]
pub enum EventRefusal {
    /// The run reports too much.
    #[error("the run reports more events, or larger ones, than it may in a minute")]
    TooMany {
        /// Time after which it may report this one.
        wait: Duration,
    },
    /// The event log has no room for events of runs.
    #[error("the event log has no room for events of runs")]
    Full,
    /// The event is not valid.
    #[error(transparent)]
    Fault(#[from] EventFault),
    /// The database cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl EventIntake {
    /// Returns an intake with these limits.
    #[must_use]
    pub fn new(limits: &EventLimits) -> Self {
        Self { quota: limits.quota, rates: Mutex::new(EventRates::new(limits)), is_full: AtomicBool::new(false) }
    }

    /// Stores an event that a run reports. It is on disk when this returns.
    ///
    /// # Errors
    /// [`EventRefusal`]; then the event is not stored.
    pub async fn append(&self, store: &Store, event: NewLoggedEvent) -> Result<AppendedEvent, EventRefusal> {
        let run = event.sandbox_id.as_deref().unwrap_or_default();
        let bytes = event.bytes() + event.diff_bytes();
        // Nothing panics while it is held.
        let taken = self.rates.lock().unwrap_or_else(PoisonError::into_inner).take(run, bytes, Instant::now());
        taken.map_err(|wait| EventRefusal::TooMany { wait })?;
        if self.is_full() {
            return Err(EventRefusal::Full);
        }
        let mut appended = store.append_events(vec![event], self.quota).await?;
        Ok(appended.pop().ok_or(StoreError::Closed)??)
    }

    /// Returns whether events of runs are refused, since the event log has no room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }

    /// Refuses the events of runs, or takes them again.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }
}
