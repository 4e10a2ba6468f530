//! A timeout by silence: the timer is only made once somebody has to wait, and is moved only when it fires, or would fire too late.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How long nothing has been heard, since somebody had to wait: what is there at once asks no clock.
#[derive(Debug)]
pub struct IdleTimeout {
    limit: Duration,
    since: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl IdleTimeout {
    /// So long at most.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, since: None, timer: None }
    }

    /// Another limit from now on.
    pub fn begin(&mut self, limit: Duration) {
        self.limit = limit;
        self.heard();
    }

    /// Something was heard.
    pub fn heard(&mut self) {
        self.since = None;
    }

    /// Ready once it has lasted too long.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let ends = *self.since.get_or_insert_with(Instant::now) + self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends)));
        // One that fires too early is moved then.
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
