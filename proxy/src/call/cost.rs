//! The cost of a call, with its source, and the reason if it is not known.
//!
//! Pure.

use sluice_contract::Usd;
use sluice_contract::record::{CostSource, End, NullReason, Usage};

use super::ResponseHead;
use crate::policy::ApiFormat;

/// Returns true if the response came from LiteLLM's cache. On such a hit LiteLLM repeats the price of the first
/// response (1.106), and bills nothing.
///
/// On `/v1/messages`, only streams count: LiteLLM sends no cache key with other hits there, and copies one that a
/// provider puts into its response (`_hidden_params`). On unary chat responses LiteLLM copies that key too, but sends
/// its own as well. There a provider could only make its own call free, as it could with false token counts.
pub(super) fn is_cache_hit(head: &ResponseHead, format: ApiFormat) -> bool {
    head.has_cache_key && format.is_billed() && (head.is_stream || format != ApiFormat::Messages)
}

/// Returns the provider's counts with the meaning that they have on every route: see [`Usage`].
pub(super) fn counted(usage: Usage, format: ApiFormat) -> Usage {
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
/// streams); the last event is right on streams. A 0 may be the price, or mean that there is no price.
pub(super) fn cost(
    head: Option<&ResponseHead>,
    in_stream: Option<Usd>,
    is_success: bool,
) -> (Option<Usd>, CostSource, Option<NullReason>) {
    let Some(head) = head else {
        return (None, CostSource::None, Some(NullReason::NoCost));
    };
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

/// Usage in a response, as far as it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UsageRead {
    /// The response has usage.
    Known,
    /// The response has no usage.
    Missing,
    /// The response is not what its content type says.
    Unreadable,
}

/// Returns the reason why something in the outcome is null, if anything is. `why` is the reason that the cost gives.
pub(super) fn null_reason(why: Option<NullReason>, usage: UsageRead, end: End) -> Option<NullReason> {
    match (why, usage) {
        (Some(NullReason::NotBilled | NullReason::UpstreamError), _) | (_, UsageRead::Known) => why,
        (Some(_), _) if end != End::Complete => Some(NullReason::Cut),
        (Some(_), UsageRead::Unreadable) => Some(NullReason::Unreadable),
        _ => Some(NullReason::NoUsage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_null_has_its_reason() {
        use NullReason::{Cut, NoCost, NoUsage, NotBilled, Unreadable, UpstreamError, ZeroCost};
        for (why, usage, end, want) in [
            (None, UsageRead::Known, End::Complete, None),
            (None, UsageRead::Missing, End::Complete, Some(NoUsage)),
            (None, UsageRead::Unreadable, End::Complete, Some(NoUsage)),
            (Some(NoCost), UsageRead::Known, End::Complete, Some(NoCost)),
            (Some(ZeroCost), UsageRead::Known, End::CutByClient, Some(ZeroCost)),
            (Some(NoCost), UsageRead::Missing, End::Complete, Some(NoUsage)),
            (Some(NoCost), UsageRead::Unreadable, End::Complete, Some(Unreadable)),
            (Some(NoCost), UsageRead::Missing, End::CutByUpstream, Some(Cut)),
            (Some(UpstreamError), UsageRead::Unreadable, End::Complete, Some(UpstreamError)),
            (Some(NotBilled), UsageRead::Missing, End::Complete, Some(NotBilled)),
            (Some(NotBilled), UsageRead::Missing, End::CutByUpstream, Some(NotBilled)),
        ] {
            assert_eq!(null_reason(why, usage, end), want, "{why:?} {usage:?} {end:?}");
        }
        let unanswered = cost(None, None, false).2;
        assert_eq!(null_reason(unanswered, UsageRead::Missing, End::CutByUpstream), Some(Cut));
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
    fn the_cost_comes_from_the_trusted_source() {
        let head = |is_stream, cost: &str| ResponseHead {
            status: 200,
            is_stream,
            response_cost: Some(cost.to_owned()),
            ..ResponseHead::default()
        };
        let chunk = || Usd::parse("0.5").ok();
        let source = |head: &ResponseHead, chunk, is_success| cost(Some(head), chunk, is_success).1;
        assert_eq!(source(&head(false, "0.1"), chunk(), true), CostSource::Header);
        assert_eq!(source(&head(true, "0.1"), chunk(), true), CostSource::Chunk);
        assert_eq!(cost(Some(&head(true, "0.1")), None, true).2, Some(NullReason::NoCost));
        assert_eq!(cost(Some(&head(false, "1e30")), None, true), (None, CostSource::None, Some(NullReason::NoCost)));
        assert_eq!(cost(Some(&head(false, "0.0")), None, true).2, Some(NullReason::ZeroCost));
        assert_eq!(cost(Some(&head(false, "0")), None, false).2, Some(NullReason::UpstreamError));
    }
}
