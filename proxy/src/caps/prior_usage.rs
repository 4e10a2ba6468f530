//! The amounts that a run used before its sidecar was restarted, read from its audit log.
//!
//! Pure.

use sluice_contract::record::{CallResult, CostSource, End, NullReason, Usage};
use sluice_contract::{AuditLog, Usd, could_be_billed};

/// Amounts that a run used before its sidecar was restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "named like the caps")]
pub struct PriorUsage {
    pub calls: u64,
    pub tokens: u64,
    pub nanos: i64,
    /// Number of calls in `calls` that were never sent.
    pub unsent: u64,
}

impl PriorUsage {
    /// Reads the amounts from the audit log. A call whose cost or usage is not known, or whose response was not read to
    /// its end, is charged as it was reserved, or as recorded if that is more.
    #[must_use]
    pub fn of(log: &AuditLog) -> Self {
        let mut used = Self::default();
        for call in log.calls() {
            let outcome = call.outcome.as_ref();
            let why_null = outcome.and_then(|outcome| outcome.null_reason);
            used.calls += 1;
            if why_null == Some(NullReason::NotSent) {
                used.unsent += 1;
            }
            let status = outcome.map(|outcome| outcome.status);
            let is_unknown = outcome.is_none_or(|outcome| outcome.result == CallResult::Unknown);
            let is_free = !is_unknown && status.is_some_and(|status| status.is_some() && !could_be_billed(status));
            let is_cache_hit = outcome.is_some_and(|outcome| outcome.cache_hit == Some(true));
            if is_free || is_cache_hit || matches!(why_null, Some(NullReason::NotSent | NullReason::NotBilled)) {
                continue;
            }
            let cost = outcome.and_then(|outcome| outcome.cost_usd.as_deref());
            let nanos = |text: Option<&str>| text.and_then(|text| Usd::parse(text).ok()).map(|cost| cost.to_nanos());
            let (cost, reserved) = (nanos(cost), nanos(call.intent.reserved_usd.as_deref()));
            let is_whole = outcome.is_some_and(|it| was_read_to_end(it.result, it.end, it.drained));
            let is_final = is_whole || outcome.is_some_and(|it| it.cost_source == CostSource::Header);
            let charged = if is_final { cost.or(reserved) } else { cost.max(reserved) };
            used.nanos = used.nanos.saturating_add(charged.unwrap_or(0));
            let usage = outcome.and_then(|outcome| outcome.usage.as_ref()).map_or(0, Usage::all);
            let reserved = call.intent.reserved_tokens.filter(|_| !is_whole || usage == 0).map_or(0, |tokens| tokens.0);
            used.tokens = used.tokens.saturating_add(usage.max(reserved));
        }
        used
    }
}

/// Returns true if the end of the response was seen, so that its usage is complete. An error in a stream is not its
/// end.
#[must_use]
pub fn was_read_to_end(result: CallResult, end: End, drained: Option<bool>) -> bool {
    result == CallResult::Ok && end == End::Complete || drained == Some(true)
}
