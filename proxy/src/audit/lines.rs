//! The records of the audit log as lines.
//!
//! Pure: the stamp, with its time, is given.

use std::borrow::Cow;

use sluice_contract::chain::{close_line, line};
use sluice_contract::record::{
    Close, Control, ControlValues, Epoch, Held, Intent, Open, OptionalText, OptionalTexts, Outcome, Recovered, Refused,
    RelayCounts, ReleaseDecision, Released, SCHEMA, Stamp, TokenCount,
};
use sluice_contract::recovery::RecoveryPlan;
use sluice_contract::{AuditSigner, Totals, Usd};

use super::guard::CallNames;
use super::{CallIntent, CallOutcome};
use crate::refusal::Refusal;
use crate::text::clip;

/// Record of a file that did not end in order, with the calls whose outcome is missing.
pub(super) fn recovered(stamp: Stamp<'_>, plan: &RecoveryPlan) -> Vec<u8> {
    let open_calls = plan.log.open_ids().map(Into::into).collect();
    line(&Recovered {
        attempt: stamp.attempt,
        bytes: plan.torn,
        kind: Recovered::KIND.into(),
        offset: plan.keep,
        open_calls,
        prev: stamp.prev.into(),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        sha256: plan.sha256.to_string().into(),
        ts: stamp.ts.into(),
        v: SCHEMA,
    })
}

/// Record of a new process that continues a file, with the facts of the `open` that it would have written.
pub(super) fn epoch(stamp: Stamp<'_>, opened: &Open<'_>) -> Vec<u8> {
    line(&Epoch {
        attempt: stamp.attempt,
        boot_id: (&*opened.boot_id).into(),
        build: (&*opened.build).into(),
        kind: Epoch::KIND.into(),
        pid: opened.pid,
        policy: (&*opened.policy).into(),
        prev: stamp.prev.into(),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        sync: (&*opened.sync).into(),
        ts: stamp.ts.into(),
        upstream: (&*opened.upstream).into(),
        v: SCHEMA,
    })
}

/// Record of a call that is about to be sent upstream.
pub(super) fn intent(stamp: Stamp<'_>, call: u64, planned: CallIntent<'_>) -> Vec<u8> {
    line(&Intent {
        attempt: stamp.attempt,
        bound: planned.bound.map(TokenCount),
        call,
        call_id: planned.call_id.into(),
        injected_message_ids: planned.injected.map(|ids| OptionalTexts(ids.into_iter().map(Into::into).collect())),
        kind: Intent::KIND.into(),
        method: planned.method.into(),
        model: planned.model.map(Into::into),
        path: planned.path.into(),
        peer: planned.peer,
        prev: stamp.prev.into(),
        req_bytes: planned.req_bytes,
        reserved_strict: planned.reserved_strict,
        reserved_tokens: planned.reserved_tokens.map(TokenCount),
        reserved_usd: planned.reserved_usd.map(Into::into),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        stream: planned.stream,
        stripped: planned.stripped,
        ts: stamp.ts.into(),
        v: SCHEMA,
    })
}

/// Record of a request that was not forwarded.
pub(super) fn refused(stamp: Stamp<'_>, account: &str, method: &str, path: &str, refusal: &Refusal) -> Vec<u8> {
    line(&Refused {
        account: name(Some(account)),
        attempt: stamp.attempt,
        kind: Refused::KIND.into(),
        method: clip(method, 32).into(),
        model: name(refusal.model.as_deref()),
        param: name(refusal.param.as_deref()),
        path: clip(path, 256).into(),
        prev: stamp.prev.into(),
        reason: refusal.reason.as_str().into(),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        status: refusal.status().as_u16(),
        tool: name(refusal.tool.as_deref()),
        ts: stamp.ts.into(),
        v: SCHEMA,
    })
}

/// Record of a change that the operator makes.
pub(super) fn control(
    stamp: Stamp<'_>,
    what: &str,
    from: ControlValues<'_>,
    to: ControlValues<'_>,
    by: Option<&str>,
    reason: Option<&str>,
) -> Vec<u8> {
    line(&Control {
        attempt: stamp.attempt,
        by: name(by),
        from,
        kind: Control::KIND.into(),
        prev: stamp.prev.into(),
        reason: name(reason),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        to,
        ts: stamp.ts.into(),
        v: SCHEMA,
        what: what.into(),
    })
}

/// Record of a request that waits for a person.
pub(super) fn held(stamp: Stamp<'_>, hold_id: &str, cap: &str, asked: Option<&str>, max_wait_s: u64) -> Vec<u8> {
    line(&Held {
        asked: name(asked),
        attempt: stamp.attempt,
        cap: cap.into(),
        hold_id: hold_id.into(),
        kind: Held::KIND.into(),
        max_wait_s,
        prev: stamp.prev.into(),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        ts: stamp.ts.into(),
        v: SCHEMA,
    })
}

/// Record of the end of a request's wait.
pub(super) fn released(
    stamp: Stamp<'_>,
    hold_id: &str,
    decision: ReleaseDecision,
    by: &str,
    waited_ms: u64,
) -> Vec<u8> {
    line(&Released {
        attempt: stamp.attempt,
        by: by.into(),
        decision,
        hold_id: hold_id.into(),
        kind: Released::KIND.into(),
        prev: stamp.prev.into(),
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        ts: stamp.ts.into(),
        v: SCHEMA,
        waited_ms,
    })
}

/// Record of the end of a call.
pub(super) fn outcome(stamp: Stamp<'_>, account: &str, call: u64, names: &CallNames, outcome: CallOutcome) -> Vec<u8> {
    let connect = outcome.connect_error.as_deref();
    let budget = outcome.budget.as_deref();
    let usd = |amount: Option<i64>| amount.map(|nanos| OptionalText(Usd::from_nanos(nanos).to_string().into()));
    line(&Outcome {
        account: name(Some(account)),
        attempt: stamp.attempt,
        budget_limit_usd: usd(budget.and_then(|budget| budget.limit)),
        budget_of: budget.map(|budget| OptionalText(budget.owner.into())),
        budget_spent_usd: usd(budget.and_then(|budget| budget.spent)),
        cache_hit: outcome.cache_hit,
        call,
        call_id: names.call_id().into(),
        connect_detail: connect.map(|error| OptionalText(clip(&error.detail, DETAIL_MAX).into())),
        connect_error: name(connect.map(|error| error.failure.as_str())),
        cost_source: outcome.cost_source,
        cost_usd: outcome.cost.map(|cost| cost.to_string().into()),
        drained: outcome.drained,
        end: outcome.end,
        kind: Outcome::KIND.into(),
        litellm_call_id: printable(outcome.litellm_call_id),
        model: name(names.model()),
        model_served: printable(outcome.model_served),
        null_reason: outcome.null_reason,
        prev: stamp.prev.into(),
        resp_bytes: outcome.resp_bytes,
        response_id: printable(outcome.response_id),
        result: outcome.result,
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        status: outcome.status,
        timing_us: outcome.timing,
        ts: stamp.ts.into(),
        usage: outcome.usage,
        v: SCHEMA,
    })
}

/// The last record of a file, signed if there is a key. `open` is the number of calls without an outcome.
pub(super) fn close(
    stamp: Stamp<'_>,
    totals: &Totals,
    open: u64,
    relay: Option<RelayCounts>,
    reason: &str,
    signer: Option<&AuditSigner>,
) -> Vec<u8> {
    let record = Close {
        attempt: stamp.attempt,
        calls: totals.calls,
        certificate: signer.and_then(AuditSigner::certificate).cloned(),
        cost_usd: totals.cost().to_string().into(),
        head: "".into(),
        key_id: None,
        kind: Close::KIND.into(),
        prev: stamp.prev.into(),
        reason: reason.into(),
        refused: totals.refused,
        relay,
        run_id: stamp.run_id.into(),
        seq: stamp.seq,
        signature: None,
        ts: stamp.ts.into(),
        unknown: totals.unknown + open,
        usage: totals.usage,
        v: SCHEMA,
    };
    close_line(record, signer.map(AuditSigner::key))
}

/// Maximum length of the reason why there was no connection, in bytes.
const DETAIL_MAX: usize = 200;

fn name(text: Option<&str>) -> Option<OptionalText<'_>> {
    text.map(|text| OptionalText(text.into()))
}

/// Drops a name with control characters: the names of models and responses are text, and anything else would only
/// lengthen the line.
fn printable(name: Option<String>) -> Option<Cow<'static, str>> {
    name.filter(|name| !name.chars().any(char::is_control)).map(Into::into)
}
