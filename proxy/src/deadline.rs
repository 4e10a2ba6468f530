//! The deadline of the run, on a clock that can stand still.
//!
//! The clock goes on by itself once it has stood still for [`STOPPED_MAX`] in all: a controller that stops it and is
//! never seen again must not keep a run for ever.

mod clock;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

pub use clock::{DeadlineClock, STOPPED_MAX};

/// The deadline of a run.
#[derive(Debug)]
pub struct Deadline {
    clock: Mutex<DeadlineClock>,
    changed: Notify,
}

impl Deadline {
    /// Starts the clock. Without a length, the deadline is never reached.
    #[must_use]
    pub fn start(length: Option<Duration>) -> Self {
        Self { clock: Mutex::new(DeadlineClock::start(length, Instant::now())), changed: Notify::new() }
    }

    /// Returns the clock as it is now.
    #[must_use]
    pub fn clock(&self) -> DeadlineClock {
        *self.lock()
    }

    /// Lengthens the run to this length, counted from its start; never shortens it.
    pub fn extend(&self, length: Duration) {
        self.lock().extend(length);
        self.changed.notify_one();
    }

    /// Stops the clock, or lets it go on.
    pub fn set_stopped(&self, stopped: bool) {
        self.lock().set_stopped(stopped, Instant::now());
        self.changed.notify_one();
    }

    /// Waits until the deadline is reached. Cancel-safe; one task waits at a time.
    pub async fn reached(&self) {
        loop {
            let end = self.lock().end();
            let time_is_up = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Cancel-safe: both only wait; a change that was noted stays noted.
                () = time_is_up => return,
                () = self.changed.notified() => {}
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, DeadlineClock> {
        self.clock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(500);

    #[tokio::test]
    async fn a_deadline_is_reached_after_its_length() {
        let began = Instant::now();
        let deadline = Deadline::start(Some(SHORT));
        deadline.reached().await;
        assert!(began.elapsed() >= SHORT);
    }

    #[tokio::test]
    async fn an_extension_reaches_the_task_that_waits() {
        let began = Instant::now();
        let deadline = Deadline::start(Some(SHORT));
        let (longer, ()) = tokio::join!(
            async {
                deadline.reached().await;
                began.elapsed()
            },
            async { deadline.extend(2 * SHORT) }
        );
        assert!(longer >= 2 * SHORT, "{longer:?}");
    }

    #[tokio::test]
    async fn a_stopped_clock_reaches_no_deadline() {
        let deadline = Deadline::start(Some(SHORT));
        deadline.set_stopped(true);
        assert!(tokio::time::timeout(2 * SHORT, deadline.reached()).await.is_err());
        deadline.set_stopped(false);
        deadline.reached().await;
    }
}
