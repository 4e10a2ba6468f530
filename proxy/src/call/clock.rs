//! The times of one call.

use std::time::{Duration, Instant};

use sluice_contract::record::Timing;

/// Times of a call.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    start: Instant,
    waited: Duration,
    connect: Option<Duration>,
    sent: Option<Instant>,
    head: Option<Instant>,
    last: Option<Instant>,
    first_token: Option<Instant>,
    longest_gap: Option<Duration>,
}

impl Clock {
    /// Starts the clock when the head of the request has come.
    #[must_use]
    pub fn start() -> Self {
        let start = Instant::now();
        Self {
            start,
            waited: Duration::ZERO,
            connect: None,
            sent: None,
            head: None,
            last: None,
            first_token: None,
            longest_gap: None,
        }
    }

    /// Returns the time at which the call began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.start
    }

    /// Adds time that the sidecar spent waiting for the client's body or for the audit log. Returns the present time.
    pub fn waited(&mut self, since: Instant) -> Instant {
        let now = Instant::now();
        self.waited += now.saturating_duration_since(since);
        now
    }

    /// Notes that the request was sent.
    pub fn sent(&mut self, connect: Option<Duration>) {
        self.sent = Some(Instant::now());
        self.connect = connect;
    }

    /// Notes that the head of the response has come.
    pub fn head(&mut self) {
        self.head = Some(Instant::now());
        self.last = self.head;
    }

    /// Notes that a piece of the response has come.
    pub fn piece(&mut self, has_output: bool) {
        let now = Instant::now();
        if has_output {
            self.first_token.get_or_insert(now);
        }
        if let Some(last) = self.last.replace(now) {
            self.longest_gap = self.longest_gap.max(Some(now - last));
        }
    }

    pub(super) fn timing(&self) -> Timing {
        let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let before = self.sent.unwrap_or_else(Instant::now) - self.start;
        Timing {
            connect: self.connect.map(us),
            first_token: self.first_token.map(|at| us(at - self.start)),
            longest_gap: self.longest_gap.map(us),
            own: us(before.saturating_sub(self.waited).saturating_sub(self.connect.unwrap_or_default())),
            queue: us(self.waited),
            total: us(self.start.elapsed()),
            ttfb: self.head.zip(self.sent).map(|(head, sent)| us(head - sent)),
        }
    }
}
