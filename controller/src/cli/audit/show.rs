//! `sluice audit show`: the calls of a file, as a table.

use std::path::Path;

use sluice_contract::record::Usage;
use sluice_contract::{AuditLog, LoggedCall, TrustAnchors, Verdict, verify};
use sluice_state::receipt::audit_log_to;

use super::super::{Failed, print};
use super::{bad_line, one_line};

/// Prints the table; a file that is altered is shown up to the first bad line, and then named.
pub(super) fn show(path: &Path, bytes: &[u8]) -> Result<(), Failed> {
    let altered = match verify(bytes, &TrustAnchors::default()) {
        Verdict::Tampered(fault) => Err(fault),
        Verdict::Complete(report) | Verdict::Incomplete(report) => Ok(report.torn),
    };
    let log = audit_log_to(bytes, altered.as_ref().map_or_else(|fault| fault.line - 1, |_| u64::MAX));
    print(&head(&log));
    print(&format!(
        "{:>4}  {:<15}  {:<36}  {:<24}  {:<14}  {:>8}  {:>8}  {:>12}  {:>9}\n",
        "call", "time (UTC)", "call id", "model", "result", "in", "out", "cost, $", "ms"
    ));
    log.calls().iter().for_each(|call| print(&row(call)));
    for (reason, count) in log.refused() {
        print(&one_line(&format!("refused  {count} × {reason}")));
    }
    let totals = log.totals();
    let usage = usage(&log);
    print(&format!(
        "total    {} calls, {} refused, {} of unknown cost; {} tokens in, {} out; ${}\n",
        totals.calls,
        totals.refused,
        totals.unknown,
        tokens(usage.input),
        tokens(usage.output),
        totals.cost(),
    ));
    let torn = altered.map_err(|fault| {
        let Failed { code, message } = bad_line(&fault);
        Failed { code, message: format!("{}: {message}; what is above came before it", path.display()) }
    })?;
    if torn > 0 {
        print(&format!("torn     {torn} bytes of a last line\n"));
    }
    if log.close().is_none() {
        print("open     the log has no end: its run goes on, or its sidecar was killed\n");
    }
    Ok(())
}

/// The tokens of all calls, whichever sidecar wrote the line: see [`Usage`].
fn usage(log: &AuditLog) -> Usage {
    let mut sum = Usage::default();
    let told = log.calls().iter().filter_map(|call| call.outcome.as_ref()?.usage);
    told.for_each(|usage| sum.add(&usage.inclusive()));
    sum
}

fn head(log: &AuditLog) -> String {
    log.open().map_or_else(String::new, |open| {
        one_line(&format!(
            "run      {}.{}, account {}, agent {}, upstream {}, since {}",
            open.run_id, open.attempt, open.billing_account_id, open.graph_id, open.upstream, open.ts
        ))
    })
}

fn row(call: &LoggedCall) -> String {
    let intent = &call.intent;
    let outcome = call.outcome.as_ref();
    let usage = outcome.and_then(|outcome| outcome.usage).unwrap_or_default().inclusive();
    let cost = outcome.map_or("-".into(), |outcome| match (&outcome.cost_usd, outcome.null_reason) {
        (Some(cost), _) => cost.to_string(),
        (None, Some(reason)) => reason.as_str().to_owned(),
        (None, None) => "-".to_owned(),
    });
    one_line(&format!(
        "{:>4}  {:<15}  {:<36}  {:<24}  {:<14}  {:>8}  {:>8}  {cost:>12}  {:>9}",
        intent.call,
        intent.ts.get(11..26).unwrap_or(&intent.ts),
        intent.call_id,
        intent.model.as_deref().unwrap_or("-"),
        outcome.map_or("open", |outcome| outcome.result.as_str()),
        tokens(usage.input),
        tokens(usage.output),
        outcome.map_or("-".to_owned(), |outcome| (outcome.timing_us.total / 1000).to_string()),
    ))
}

fn tokens(count: Option<u64>) -> String {
    count.map_or("-".to_owned(), |count| count.to_string())
}
