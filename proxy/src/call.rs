//! One open call: its place in the log, its share of the caps, its clock.
//!
//! It ends once. Dropped before it was sent, its entry and its reservation say just that.

use std::time::{Duration, Instant};

use sluice_contract::Usd;
use sluice_contract::record::{CallResult, CostSource, End, NullReason, Timing};

use crate::audit::{Ack, Ended, Entry};
use crate::caps::{Reservation, Spent};
use crate::policy::Wire;
use crate::prices::Price;
use crate::usage::Seen;

/// Bookkeeping of one call.
#[derive(Debug)]
pub struct Call {
    open: Option<(Entry, Reservation)>,
    price: Option<Price>,
    /// The shape of what goes through.
    pub wire: Wire,
    /// Its times so far.
    pub clock: Clock,
    /// What was read off the answer's head.
    pub head: Option<AnswerHead>,
    /// Bytes of the answer's body that came.
    pub resp_bytes: u64,
    sent: bool,
}

/// What the answer's head says.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "named like the headers")]
pub struct AnswerHead {
    pub status: u16,
    pub is_stream: bool,
    pub litellm_call_id: Option<String>,
    pub response_cost: Option<String>,
}

/// When what happened.
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
    /// The request's head has come.
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

    /// When the call began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.start
    }

    /// Time spent on the client's body or on the audit log, and not by us.
    pub fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    /// The request is on its way.
    pub fn sent(&mut self, connect: Option<Duration>) {
        self.sent = Some(Instant::now());
        self.connect = connect;
    }

    /// The answer's head is there.
    pub fn head(&mut self) {
        self.head = Some(Instant::now());
        self.last = self.head;
    }

    /// A piece of the answer is there.
    pub fn piece(&mut self, has_output: bool) {
        let now = Instant::now();
        if has_output {
            self.first_token.get_or_insert(now);
        }
        if let Some(last) = self.last.replace(now) {
            self.longest_gap = self.longest_gap.max(Some(now - last));
        }
    }

    fn timing(&self) -> Timing {
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

impl Call {
    /// An intent was written for it.
    #[must_use]
    pub fn new(entry: Entry, reservation: Reservation, price: Option<Price>, wire: Wire, clock: Clock) -> Self {
        Self { open: Some((entry, reservation)), price, wire, clock, head: None, resp_bytes: 0, sent: false }
    }

    /// From here on money may be spent.
    pub fn is_being_sent(&mut self) {
        self.sent = true;
    }

    /// Whether its outcome is written, or on its way to be.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.open.is_none()
    }

    /// Ends it: settles the caps, writes the outcome. Once; later calls change nothing.
    pub fn end(&mut self, seen: &Seen, result: CallResult, end: End, drained: Option<bool>) -> Ack {
        let Some((entry, reservation)) = self.open.take() else {
            return Ack::Known(Ok(()));
        };
        let mut ended = self.ended(seen, result, end, drained);
        if self.sent {
            reservation.settle(self.spent(&ended));
        } else {
            drop(reservation);
            ended.null_reason = Some(NullReason::NotSent);
        }
        tracing::debug!(result = result.as_str(), end = end.as_str(), status = ended.status, "call ended");
        entry.close(ended)
    }

    fn ended(&self, seen: &Seen, result: CallResult, end: End, drained: Option<bool>) -> Ended {
        let head = self.head.clone().unwrap_or_default();
        let is_success = (200..300).contains(&head.status);
        let mut ended = Ended {
            result,
            end,
            status: self.head.as_ref().map(|head| head.status),
            drained,
            litellm_call_id: head.litellm_call_id.clone(),
            response_id: seen.response_id.clone(),
            model_served: seen.model.clone(),
            usage: if is_success && self.wire.is_billed() { seen.usage } else { None },
            cost: None,
            cost_source: CostSource::None,
            null_reason: None,
            resp_bytes: self.resp_bytes,
            timing: self.clock.timing(),
        };
        ended.null_reason = if self.wire.is_billed() {
            let (cost, source, why) = cost(&head, seen, is_success);
            (ended.cost, ended.cost_source) = (cost, source);
            why.map(|why| match (ended.usage, end) {
                (None, End::Complete) if is_success => {
                    if seen.unreadable {
                        NullReason::Unreadable
                    } else {
                        NullReason::NoUsage
                    }
                }
                (None, _) if is_success || self.head.is_none() => NullReason::Cut,
                _ => why,
            })
            .or(ended.usage.is_none().then_some(NullReason::NoUsage))
        } else {
            Some(NullReason::NotBilled)
        };
        ended
    }

    /// For the caps: the provider's cost, else what its usage costs at our prices.
    fn spent(&self, ended: &Ended) -> Spent {
        if ended.null_reason == Some(NullReason::NotBilled) || ended.status.is_some_and(|status| status >= 400) {
            return Spent { tokens: Some(0), nanos: Some(0) };
        }
        let priced = || ended.usage.as_ref().zip(self.price).map(|(usage, price)| price.of_usage(usage));
        Spent {
            tokens: ended.usage.as_ref().map(sluice_contract::record::Usage::all),
            nanos: ended.cost.as_ref().map(Usd::to_nanos).or_else(priced),
        }
    }
}

/// What the call cost, by the one source that may be trusted with it, or why that is not known.
///
/// The header is right on unary answers with a status of 2xx alone (LiteLLM 1.81 sends a wrong one on
/// Responses streams); the last event is right on streams. A 0 may be a price or the want of one.
fn cost(head: &AnswerHead, seen: &Seen, is_success: bool) -> (Option<Usd>, CostSource, Option<NullReason>) {
    if !is_success {
        return (None, CostSource::None, Some(NullReason::UpstreamError));
    }
    let (cost, source) = if head.is_stream {
        (seen.cost.clone(), CostSource::Chunk)
    } else {
        (head.response_cost.as_deref().and_then(|text| Usd::parse(text).ok()), CostSource::Header)
    };
    match cost {
        None => (None, CostSource::None, Some(NullReason::NoCost)),
        Some(zero) if zero.is_zero() => (None, CostSource::None, Some(NullReason::ZeroCost)),
        Some(cost) => (Some(cost), source, None),
    }
}
