//! One open call: its record in the audit log, its share of the caps, its times.
//!
//! A call ends once. If it is dropped before it was sent, its guard and its reservation record that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_contract::Usd;
use sluice_contract::budget::BudgetRefusal;
use sluice_contract::could_be_billed;
use sluice_contract::record::{CallResult, CostSource, End, NullReason, Timing, Usage};

use crate::audit::{Ack, CallGuard, CallOutcome};
use crate::caps::{ActualUsage, Reservation};
use crate::policy::ApiFormat;
use crate::prices::{Price, RateFactors};
use crate::usage::ObservedResponse;

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
    /// Number of bytes of the response body that came.
    pub resp_bytes: u64,
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

    /// Adds time that the sidecar spent waiting for the client's body or for the audit log.
    pub fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
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
            resp_bytes: 0,
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
    pub fn end(&mut self, seen: ObservedResponse, result: CallResult, end: End, drained: Option<bool>) -> Ack {
        let Some((entry, reservation)) = self.open.take() else {
            return Ack::Known(Ok(()));
        };
        let mut ended = self.ended(seen, result, end, drained);
        if self.sent {
            let spent = self.spent(&ended, &reservation);
            reservation.settle(spent);
        } else {
            drop(reservation);
            ended.null_reason = Some(NullReason::NotSent);
        }
        tracing::debug!(result = result.as_str(), end = end.as_str(), status = ended.status, "call ended");
        entry.close(ended)
    }

    fn ended(&mut self, seen: ObservedResponse, result: CallResult, end: End, drained: Option<bool>) -> CallOutcome {
        // The call is over: the facts of the head move into its record.
        let head = self.head.take();
        let (answered, head) = (head.is_some(), head.unwrap_or_default());
        let is_success = (200..300).contains(&head.status);
        let budget = self.budget.take();
        let is_cache_hit = is_success && is_cache_hit(&head, self.format);
        let (cost, cost_source, why) = if is_cache_hit {
            (Some(Usd::from_nanos(0)), CostSource::Header, None)
        } else if self.format.is_billed() && budget.is_none() {
            cost(&head, seen.cost, is_success)
        } else {
            (None, CostSource::None, Some(NullReason::NotBilled))
        };
        let usage =
            seen.usage.filter(|_| is_success && self.format.is_billed()).map(|usage| counted(usage, self.format));
        let null_reason = why_null(why, usage.is_some(), end, answered, seen.unreadable);
        CallOutcome {
            budget,
            result,
            end,
            status: answered.then_some(head.status),
            drained,
            cache_hit: is_cache_hit.then_some(true),
            litellm_call_id: head.litellm_call_id,
            response_id: seen.response_id,
            model_served: seen.model,
            usage,
            cost,
            cost_source,
            null_reason,
            resp_bytes: self.resp_bytes,
            timing: self.clock.timing(),
        }
    }

    /// Returns the amounts for the caps: the provider's cost, else the price of its usage. If the end of the response
    /// was not seen, the usage may be that of its beginning: then the call is charged as reserved, and for the bytes
    /// that came.
    fn spent(&self, ended: &CallOutcome, reservation: &Reservation) -> ActualUsage {
        let is_answer = ended.status.is_some() && ended.result != CallResult::Unknown;
        let is_free = is_answer && !could_be_billed(ended.status);
        if is_free || ended.cache_hit == Some(true) || ended.null_reason == Some(NullReason::NotBilled) {
            return ActualUsage { tokens: Some(0), nanos: Some(0) };
        }
        let cost = ended.cost.as_ref().map(Usd::to_nanos);
        match ended.usage.as_ref().filter(|_| was_seen_whole(ended)) {
            Some(usage) => {
                let priced = || self.price.as_ref().map(|(price, terms)| price.of_usage(usage, terms));
                ActualUsage { tokens: Some(Usage::all(usage)), nanos: cost.or_else(priced) }
            }
            None => {
                let least = reservation.at_least(self.resp_bytes / BYTES_PER_TOKEN);
                ActualUsage { tokens: least.tokens, nanos: cost.or(least.nanos) }
            }
        }
    }
}

/// Lower bound of the bytes of a response for each token: a stream has far more.
const BYTES_PER_TOKEN: u64 = 4;

/// Returns true if the end of the response was seen, where its usage is complete.
fn was_seen_whole(ended: &CallOutcome) -> bool {
    ended.end == End::Complete || ended.drained == Some(true)
}

/// Whether LiteLLM's cache gave the answer. LiteLLM repeats the price of the first answer on such a hit (1.106), and bills
/// nothing.
///
/// Of `/v1/messages` only streams count: LiteLLM sends no cache key with other hits there, and copies one that a provider
/// puts into its answer (`_hidden_params`). On unary chat answers it copies that too, but sends its own as well: there a
/// provider can deny itself its pay, as it can by its token counts.
fn is_cache_hit(head: &ResponseHead, format: ApiFormat) -> bool {
    head.has_cache_key && format.is_billed() && (head.is_stream || format != ApiFormat::Messages)
}

/// Returns the provider's counts with the meaning that they have on every route: see [`Usage`].
fn counted(usage: Usage, format: ApiFormat) -> Usage {
    match format {
        ApiFormat::Messages => Usage { total: None, ..usage }.inclusive(),
        // A provider of the operator's own, on a route of `--allow`, may count in any way.
        ApiFormat::Other => usage,
        // On these routes the cached classes are parts of the input, also without a total.
        _ if usage.total.is_none() => {
            let parts = Usage { cached_input: None, cache_write: None, ..usage };
            Usage { total: parts.inclusive().total, ..usage }
        }
        _ => usage,
    }
}

/// Returns the cost of the call from the one source that can be trusted, or the reason why it is not known.
///
/// The header is right only on unary responses with a status of 2xx (LiteLLM 1.81 sends a wrong one on Responses
/// streams); the last event is right on streams. A 0 may be a price or a missing one.
fn cost(
    head: &ResponseHead,
    in_stream: Option<Usd>,
    is_success: bool,
) -> (Option<Usd>, CostSource, Option<NullReason>) {
    if !is_success {
        return (None, CostSource::None, Some(NullReason::UpstreamError));
    }
    let (cost, source) = if head.is_stream {
        (in_stream, CostSource::Chunk)
    } else {
        (head.response_cost.as_deref().and_then(|text| Usd::parse(text).ok()), CostSource::Header)
    };
    // A cost that the ledger cannot count is not a cost.
    match cost.filter(Usd::is_countable) {
        None => (None, CostSource::None, Some(NullReason::NoCost)),
        Some(zero) if zero.is_zero() => (None, CostSource::None, Some(NullReason::ZeroCost)),
        Some(cost) => (Some(cost), source, None),
    }
}

/// Returns the reason why something in the outcome is null, if anything is. `why` is the reason that the cost gives.
fn why_null(
    why: Option<NullReason>,
    has_usage: bool,
    end: End,
    answered: bool,
    unreadable: bool,
) -> Option<NullReason> {
    match why {
        Some(NullReason::NotBilled) => why,
        Some(NullReason::UpstreamError) if answered => why,
        _ if has_usage => why,
        Some(_) if end != End::Complete => Some(NullReason::Cut),
        Some(_) if unreadable => Some(NullReason::Unreadable),
        _ => Some(NullReason::NoUsage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_null_has_its_reason() {
        use NullReason::{Cut, NoCost, NoUsage, NotBilled, Unreadable, UpstreamError, ZeroCost};
        for (why, has_usage, end, answered, unreadable, want) in [
            (None, true, End::Complete, true, false, None),
            (None, false, End::Complete, true, false, Some(NoUsage)),
            (Some(NoCost), true, End::Complete, true, false, Some(NoCost)),
            (Some(ZeroCost), true, End::CutByClient, true, false, Some(ZeroCost)),
            (Some(NoCost), false, End::Complete, true, false, Some(NoUsage)),
            (Some(NoCost), false, End::Complete, true, true, Some(Unreadable)),
            (Some(NoCost), false, End::CutByUpstream, true, false, Some(Cut)),
            (Some(UpstreamError), false, End::Complete, true, true, Some(UpstreamError)),
            (Some(UpstreamError), false, End::CutByUpstream, false, false, Some(Cut)),
            (Some(NotBilled), false, End::Complete, true, false, Some(NotBilled)),
            (Some(NotBilled), false, End::CutByUpstream, false, false, Some(NotBilled)),
        ] {
            let got = why_null(why, has_usage, end, answered, unreadable);
            assert_eq!(got, want, "{why:?} {has_usage} {end:?} {answered} {unreadable}");
        }
    }

    #[test]
    fn the_same_tokens_are_counted_alike_on_every_route() {
        let parts = Usage { output: Some(100), cached_input: Some(400), cache_write: Some(50), ..Usage::default() };
        let all = Usage { input: Some(1450), total: Some(1550), ..parts };
        let fresh = Usage { input: Some(1000), ..parts };
        for (usage, format) in [
            (all, ApiFormat::Chat),
            (Usage { total: None, ..all }, ApiFormat::Chat),
            (all, ApiFormat::Responses),
            (fresh, ApiFormat::Messages),
            // The total in a Messages response does not tell what its input means.
            (Usage { total: Some(1100), ..fresh }, ApiFormat::Messages),
        ] {
            assert_eq!(counted(usage, format), all, "{usage:?} {format:?}");
        }
        assert_eq!(counted(fresh, ApiFormat::Other), fresh);
    }

    #[test]
    fn only_litellm_s_own_sign_makes_a_cache_hit() {
        let head = |is_stream, has_cache_key| ResponseHead { is_stream, has_cache_key, ..ResponseHead::default() };
        for (format, unary, stream) in [
            (ApiFormat::Chat, true, true),
            (ApiFormat::Completions, true, true),
            (ApiFormat::Embeddings, true, true),
            (ApiFormat::Responses, true, true),
            // A provider can plant it there.
            (ApiFormat::Messages, false, true),
            (ApiFormat::Models, false, false),
            (ApiFormat::CountTokens, false, false),
        ] {
            let found = [false, true].map(|is_stream| is_cache_hit(&head(is_stream, true), format));
            assert_eq!(found, [unary, stream], "{format:?}");
            assert!(!is_cache_hit(&head(true, false), format));
        }
    }

    #[test]
    fn a_cost_is_taken_from_the_one_source_that_can_be_trusted() {
        let head = |is_stream, cost: &str| ResponseHead {
            status: 200,
            is_stream,
            response_cost: Some(cost.to_owned()),
            ..ResponseHead::default()
        };
        let chunk = || Usd::parse("0.5").ok();
        let source = |head: &ResponseHead, chunk, is_success| cost(head, chunk, is_success).1;
        assert_eq!(source(&head(false, "0.1"), chunk(), true), CostSource::Header);
        assert_eq!(source(&head(true, "0.1"), chunk(), true), CostSource::Chunk);
        assert_eq!(cost(&head(true, "0.1"), None, true).2, Some(NullReason::NoCost));
        assert_eq!(cost(&head(false, "1e30"), None, true), (None, CostSource::None, Some(NullReason::NoCost)));
        assert_eq!(cost(&head(false, "0.0"), None, true).2, Some(NullReason::ZeroCost));
        assert_eq!(cost(&head(false, "0"), None, false).2, Some(NullReason::UpstreamError));
    }
}
