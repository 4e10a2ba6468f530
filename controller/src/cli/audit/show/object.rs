//! The calls of an audit file as JSON.
//!
//! Pure.

use std::path::Path;

use serde_json::{Value, json};
use sluice_contract::record::{NullReason, Usage};
use sluice_contract::{AuditLog, LoggedCall};

/// Returns the members of `audit show --json`.
pub(super) fn object(path: &Path, log: &AuditLog, torn: u64) -> Value {
    let totals = log.totals();
    json!({
        "file": path,
        "run": log.open().map(|open| json!({
            "run_id": open.run_id,
            "attempt": open.attempt,
            "account": open.billing_account_id,
            "graph_id": open.graph_id,
            "upstream": open.upstream,
            "started_at": open.ts,
        })),
        "calls": log.calls().iter().map(call).collect::<Vec<_>>(),
        "refused_by_reason": log.refused(),
        "total": {
            "calls": totals.calls,
            "refused": totals.refused,
            "unknown": totals.unknown,
            "usage": super::usage(log),
            "cost_usd": totals.cost().to_string(),
        },
        "torn_bytes": torn,
        "closed": log.close().is_some(),
    })
}

/// Returns one call. The members of an outcome are null until it exists.
fn call(call: &LoggedCall) -> Value {
    let LoggedCall { intent, outcome } = call;
    let outcome = outcome.as_ref();
    json!({
        "call": intent.call,
        "call_id": intent.call_id,
        "started_at": intent.ts,
        "method": intent.method,
        "path": intent.path,
        "model": intent.model,
        "result": outcome.map(|outcome| outcome.result.as_str()),
        "http_status": outcome.and_then(|outcome| outcome.status),
        "usage": outcome.and_then(|outcome| outcome.usage).map(Usage::inclusive),
        "cost_usd": outcome.and_then(|outcome| outcome.cost_usd.as_deref()),
        "null_reason": outcome.and_then(|outcome| outcome.null_reason).map(NullReason::as_str),
        "duration_ms": outcome.map(|outcome| outcome.timing_us.total / 1000),
    })
}
