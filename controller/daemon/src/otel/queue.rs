//! Spans that wait for a target.
//!
//! Pure. The queue is bounded: the oldest spans are dropped, and counted.

use std::collections::VecDeque;
use std::time::Duration;

use super::otlp::Span;

/// Maximum number of waiting spans.
pub(super) const SPANS_MAX: usize = 4096;
/// Maximum number of spans in one request.
pub(super) const BATCH: usize = 128;
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Spans that wait for a target.
#[derive(Debug, Default)]
pub(super) struct SpanQueue {
    spans: VecDeque<Span>,
    failures: u32,
}

impl SpanQueue {
    /// Adds a span. Returns the number of spans that are dropped for it.
    pub(super) fn add(&mut self, span: Span) -> u64 {
        self.spans.push_back(span);
        let surplus = self.spans.len().saturating_sub(SPANS_MAX);
        self.spans.drain(..surplus);
        surplus as u64
    }

    /// Returns the spans of the next request.
    pub(super) fn next(&self) -> impl Iterator<Item = &Span> {
        self.spans.iter().take(BATCH)
    }

    /// Removes the spans of the last request. Returns their number.
    pub(super) fn done(&mut self) -> u64 {
        self.failures = 0;
        self.spans.drain(..self.spans.len().min(BATCH)).count() as u64
    }

    /// Returns the time until the next try after a failed one.
    pub(super) fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        FIRST_WAIT.saturating_mul(1 << (self.failures - 1).min(6)).min(LONGEST_WAIT)
    }

    /// Returns the number of spans that wait.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }
}
