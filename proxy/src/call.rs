//! One open call: its record in the audit log, its share of the caps, its times.
//!
//! A call ends once. If it is dropped before it was sent, its guard and its reservation record that.

mod clock;
mod cost;

use std::sync::Arc;

use sluice_contract::budget::BudgetRefusal;
use sluice_contract::record::{CallResult, CostSource, End, NullReason, Usage};
use sluice_contract::{Usd, could_be_billed};

use crate::audit::{Ack, CallGuard, CallOutcome};
use crate::caps::{ActualUsage, Reservation, was_read_to_end};
use crate::policy::ApiFormat;
use crate::prices::{Price, RateFactors};
use crate::upstream::NoConnection;
use crate::usage::ObservedResponse;
use cost::{UsageRead, cost, counted, is_cache_hit, null_reason};

pub use clock::Clock;

/// Bookkeeping of one call.
#[derive(Debug)]
pub struct CallTracker {
    open: Option<(CallGuard, Reservation)>,
    price: Option<(Arc<Price>, RateFactors)>,
    /// API format of the call.
    pub format: ApiFormat,
    /// Times of the call so far.
    pub clock: Clock,
    /// Facts from the head of the response.
    pub head: Option<ResponseHead>,
    /// Budget for which LiteLLM refused the call.
    pub budget: Option<Box<BudgetRefusal>>,
    /// Reason why there was no connection to the upstream.
    pub connect_error: Option<Box<NoConnection>>,
    /// Number of bytes of the response body that came.
    pub resp_bytes: u64,
    /// Fingerprint of the request, by which a repeat of it is known after an interruption.
    pub fingerprint: u64,
    sent: bool,
}

/// Facts from the head of a response.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs, reason = "named like the headers")]
pub struct ResponseHead {
    pub status: u16,
    pub is_stream: bool,
    pub litellm_call_id: Option<String>,
    pub has_cache_key: bool,
    pub response_cost: Option<String>,
}

impl CallTracker {
    /// Starts the bookkeeping of a call whose intent was written.
    #[must_use]
    pub fn new(
        entry: CallGuard,
        reservation: Reservation,
        price: Option<(Arc<Price>, RateFactors)>,
        format: ApiFormat,
        clock: Clock,
    ) -> Self {
        Self {
            open: Some((entry, reservation)),
            price,
            format,
            clock,
            head: None,
            budget: None,
            connect_error: None,
            resp_bytes: 0,
            fingerprint: 0,
            sent: false,
        }
    }

    /// Notes that the call may cost money from now on.
    pub fn is_being_sent(&mut self) {
        self.sent = true;
    }

    /// Returns the tokens reserved for the call; 0 once it has ended.
    #[must_use]
    pub fn reserved_tokens(&self) -> u64 {
        self.open.as_ref().map_or(0, |(_, reservation)| reservation.tokens())
    }

    /// Returns true once the outcome is written, or queued.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.open.is_none()
    }

    /// Ends the call: settles the caps and writes the outcome. Only the first call of this function has an effect.
    pub fn end(&mut self, observed: ObservedResponse, result: CallResult, end: End, drained: Option<bool>) -> Ack {
        let Some((entry, reservation)) = self.open.take() else {
            return Ack::Known(Ok(()));
        };
        let mut outcome = self.outcome(observed, result, end, drained);
        if self.sent {
            let spent = self.spent(&outcome, &reservation);
            reservation.settle(spent);
        } else {
            drop(reservation);
            outcome.null_reason = Some(NullReason::NotSent);
        }
        tracing::debug!(result = result.as_str(), end = end.as_str(), status = outcome.status, "call ended");
        entry.close(outcome)
    }

    fn outcome(
        &mut self,
        observed: ObservedResponse,
        result: CallResult,
        end: End,
        drained: Option<bool>,
    ) -> CallOutcome {
        // The call is over: the facts of the head move into its record.
        let head = self.head.take();
        let status = head.as_ref().map(|head| head.status);
        let is_success = status.is_some_and(|status| (200..300).contains(&status));
        let budget = self.budget.take();
        let is_cache_hit = is_success && head.as_ref().is_some_and(|head| is_cache_hit(head, self.format));
        let (cost, cost_source, why) = if is_cache_hit {
            (Some(Usd::from_nanos(0)), CostSource::Header, None)
        } else if self.format.is_billed() && budget.is_none() {
            cost(head.as_ref(), observed.cost, is_success)
        } else {
            (None, CostSource::None, Some(NullReason::NotBilled))
        };
        let usage =
            observed.usage.filter(|_| is_success && self.format.is_billed()).map(|usage| counted(usage, self.format));
        let usage_read = match &usage {
            Some(_) => UsageRead::Known,
            None if observed.unreadable => UsageRead::Unreadable,
            None => UsageRead::Missing,
        };
        let null_reason = null_reason(why, usage_read, end);
        CallOutcome {
            budget,
            connect_error: self.connect_error.take(),
            result,
            end,
            status,
            drained,
            cache_hit: is_cache_hit.then_some(true),
            litellm_call_id: head.and_then(|head| head.litellm_call_id),
            response_id: observed.response_id,
            model_served: observed.model,
            usage,
            cost,
            cost_source,
            null_reason,
            resp_bytes: self.resp_bytes,
            timing: self.clock.timing(),
        }
    }

    /// Returns the amounts for the caps: the provider's cost, else the price of its usage. If the end of the response
    /// was not seen, what a stream says may be only its beginning: then the call is charged as reserved, or for what
    /// the stream says or the bytes that came, if that is more.
    fn spent(&self, outcome: &CallOutcome, reservation: &Reservation) -> ActualUsage {
        let is_answer = outcome.status.is_some() && outcome.result != CallResult::Unknown;
        let is_free = is_answer && !could_be_billed(outcome.status);
        if is_free || outcome.cache_hit == Some(true) || outcome.null_reason == Some(NullReason::NotBilled) {
            return ActualUsage { tokens: Some(0), nanos: Some(0) };
        }
        let cost = outcome.cost.as_ref().map(Usd::to_nanos);
        let tokens = outcome.usage.as_ref().map(Usage::all);
        let priced = || Some(self.price.as_ref()?.0.of_usage(outcome.usage.as_ref()?, &self.price.as_ref()?.1));
        let is_whole = was_read_to_end(outcome.result, outcome.end, outcome.drained);
        if is_whole && tokens.is_some() {
            return ActualUsage { tokens, nanos: cost.or_else(priced) };
        }
        let least = reservation.at_least(self.resp_bytes / BYTES_PER_TOKEN);
        let nanos = match cost {
            Some(cost) if is_whole || outcome.cost_source == CostSource::Header => Some(cost),
            // Each of them may be missing, and counts for less than any amount then.
            cost => least.nanos.max(cost).max(priced()),
        };
        ActualUsage { tokens: least.tokens.max(tokens), nanos }
    }
}

/// Lower bound of the bytes of a response for each token: a stream has far more.
const BYTES_PER_TOKEN: u64 = 4;
