//! A timeout by silence: the timer is only made once somebody has to wait, and is moved only when it fires.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// How long nothing has been heard.
#[derive(Debug)]
pub struct Silence {
    limit: Duration,
    last: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Silence {
    /// From now on.
    #[must_use]
    pub fn new(limit: Duration) -> Self {
        Self { limit, last: Instant::now(), timer: None }
    }

    /// Another limit from now on.
    pub fn begin(&mut self, limit: Duration) {
        self.limit = limit;
        self.heard();
    }

    /// Something was heard.
    pub fn heard(&mut self) {
        self.last = Instant::now();
    }

    /// Ready once it has lasted too long.
    pub fn poll_over(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let ends = self.last + self.limit;
            let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends)));
            // A timer that fires too early is moved then.
            if timer.deadline() > ends {
                timer.as_mut().reset(ends);
            }
            match timer.as_mut().poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(()) if self.last + self.limit <= Instant::now() => return Poll::Ready(()),
                Poll::Ready(()) => timer.as_mut().reset(ends),
            }
        }
    }
}
