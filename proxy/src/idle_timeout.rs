//! A timeout for silence. The timer is made only once a task has to wait, and is moved only when it fires, or would
//! fire too late.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// Time since the last activity, counted from the first wait: data that are there at once cost no look at the clock.
#[derive(Debug)]
pub struct IdleTimeout {
    limit: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    /// Creates a timeout of this length.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: None, timer: None }
    }

    /// Starts over with another limit.
    pub fn begin(&mut self, limit: Duration) {
        self.limit = limit;
        self.reset();
    }

    /// Notes an activity.
    pub fn reset(&mut self) {
        self.since = None;
    }

    /// Becomes ready once the silence has lasted too long.
    pub fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ends = *self.since.get_or_insert_with(Instant::now) + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends)));
        // A timer that fires too early is moved then.
        if timer.deadline() > ends {
            timer.as_mut().reset(ends);
        }
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline() >= ends {
                return Poll::Ready(());
            }
            timer.as_mut().reset(ends);
        }
        Poll::Pending
    }
}
