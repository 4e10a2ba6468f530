//! Receipts and totals of one run, from its audit file alone.
//!
//! Pure: the same file gives the same receipts at any time.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;
use sluice_contract::exhausted::{Exhausted, exhausted};
use sluice_contract::record::{CallResult, NullReason, Usage};
use sluice_contract::{AuditLog, LoggedCall, RunKey, Usd, could_be_billed, reader, reason};

use crate::ledger::{IMPLAUSIBLE, ImplausibleCost, ParsedAudit, ReceiptStatus, reference, status, usd};
use crate::no_connection::no_connection;
use crate::over_cap::{OverCap, limits_at_end, over_caps};

/// Receipt of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// Permanent name: `RUN/ATTEMPT/CALL`.
    pub source_reference: String,
    /// Id of the call, which LiteLLM writes into its spend row.
    pub call_id: String,
    /// Id of the call at LiteLLM.
    pub litellm_call_id: Option<String>,
    /// Status of the receipt: what is known about the cost.
    pub status: ReceiptStatus,
    /// Result of the call.
    pub result: Option<CallResult>,
    /// Requested model.
    pub model: Option<String>,
    /// Model that answered.
    pub model_served: Option<String>,
    /// Tokens as the provider counted them, with all input as input.
    pub usage: Option<Usage>,
    /// Dollars as the provider writes them.
    pub cost_usd: Option<String>,
    /// Reason that tokens or dollars are null.
    pub null_reason: Option<&'static str>,
    /// True if the cost is unknown, and a provider could bill the call.
    #[serde(skip)]
    pub could_be_billed: bool,
}

/// Totals of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunTotals {
    /// Receipt of each recorded call.
    pub receipts: Vec<Receipt>,
    /// Number of requests that were not forwarded.
    pub refused: u64,
    /// Number of refusals for each reason. Refusals above the number of lines that a sidecar writes have no reason here.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// Sum of all tokens.
    pub usage: Usage,
    /// Sum of all known dollars; none without any.
    pub cost_usd: Option<String>,
    /// Reason that a request was refused for its cost: a cap of the run, or else a budget at LiteLLM.
    pub budget: Option<String>,
    /// Budgets at LiteLLM that refused calls.
    pub litellm_budgets: Vec<Exhausted>,
    /// Costs that are not posted, because they cannot be true.
    pub implausible: Vec<ImplausibleCost>,
    /// Caps that the known use exceeds.
    pub over_caps: Vec<OverCap>,
    /// Message about calls that found no connection to the upstream.
    pub no_connection: Option<String>,
    /// Number of trusted lines.
    pub lines: u64,
    /// Reason that the file is not a complete account of the run.
    pub fault: Option<String>,
}

/// Computes the totals of an audit file.
#[must_use]
pub fn tally(reading: &ParsedAudit) -> RunTotals {
    let (log, implausible) = reading.log_and_implausible_costs();
    let without: HashSet<&str> = implausible.iter().map(|cost| cost.call_id.as_str()).collect();
    let receipts = log.calls().iter().map(|call| match without.contains(&*call.intent.call_id) {
        true => without_cost(receipt(&reading.key, call)),
        false => receipt(&reading.key, call),
    });
    let receipts: Vec<_> = receipts.collect();
    let litellm_budgets = exhausted(&log);
    // A complete log without calls says that nothing was used.
    let is_unused = receipts.is_empty() && reading.fault.is_none() && reading.lines > 0;
    let used = if is_unused { no_tokens() } else { usage(&receipts) };
    let priced = is_unused || receipts.iter().any(|receipt| receipt.cost_usd.is_some());
    RunTotals {
        refused: log.totals().refused,
        refused_by_reason: log.refused().clone(),
        usage: used,
        cost_usd: priced.then(|| cost(&receipts)),
        budget: match litellm_budgets.first() {
            _ if log.refused().contains_key(reason::BUDGET_EXCEEDED) => Some(cap_reached(&log, &used)),
            budget => budget.map(Exhausted::advice),
        },
        litellm_budgets,
        implausible,
        over_caps: over_caps(&log, &used),
        no_connection: no_connection(&log),
        lines: reading.lines,
        fault: reading.fault.clone(),
        receipts,
    }
}

/// Names the caps that can have refused a call, and how much of each is used. If all calls that the cap on calls allows
/// were made, that cap is the reason.
fn cap_reached(log: &AuditLog, used: &Usage) -> String {
    let limits = limits_at_end(log);
    let calls = log.calls().len() as u64;
    let caps = match limits.max_calls {
        Some(max) if max <= calls => vec![format!("{max} calls (--max-calls; {calls} made)")],
        _ => {
            let tokens = used.total.unwrap_or(0);
            let of_tokens = limits.max_tokens.map(|max| format!("{max} tokens (--max-tokens; {tokens} used)"));
            // The hold of an account's budget is also a cap. The audit log says neither which of them it was, nor
            // whether the account has a budget.
            let cost = log.totals().cost();
            let account = log.open().map_or("", |open| open.billing_account_id.as_ref());
            let of_cost = limits.max_cost_usd.map(|max| {
                format!(
                    "${max} (${cost} used; a higher --max-cost-usd raises the cap; if account {account} has a budget, \
                     that amount must be left in it: sluice budget add {account} USD)"
                )
            });
            of_tokens.into_iter().chain(of_cost).collect()
        }
    };
    let of = if caps.is_empty() { "a cap".to_owned() } else { caps.join(" and ") };
    format!("a call was refused, since the run has too little left of {of}")
}

/// Adds up the tokens of all calls. The sums in `close` are not used: an older sidecar may have counted differently.
fn usage(receipts: &[Receipt]) -> Usage {
    let mut sum = Usage::default();
    receipts.iter().filter_map(|receipt| receipt.usage.as_ref()).for_each(|usage| sum.add(usage));
    sum
}

/// Adds up the known costs exactly, as the ledger does: each rounded to nano-USD.
fn cost(receipts: &[Receipt]) -> String {
    let costs = receipts.iter().filter_map(|receipt| Usd::parse(receipt.cost_usd.as_deref()?).ok());
    usd(costs.map(|cost| i128::from(cost.to_nanos())).sum())
}

fn no_tokens() -> Usage {
    let zero = Some(0);
    Usage { cache_write: zero, cached_input: zero, input: zero, output: zero, reasoning: zero, total: zero }
}

/// Parses the lines up to this number, from 1.
#[must_use]
pub fn audit_log_to(bytes: &[u8], last: u64) -> AuditLog {
    let mut log = AuditLog::default();
    for line in reader::lines(bytes).map_while(Result::ok).take_while(|line| line.number <= last) {
        if log.take(line).is_err() {
            break;
        }
    }
    log
}

/// Returns the receipt of a call whose cost is implausible.
fn without_cost(receipt: Receipt) -> Receipt {
    Receipt {
        status: ReceiptStatus::PendingCost,
        cost_usd: None,
        null_reason: Some(IMPLAUSIBLE),
        could_be_billed: true,
        ..receipt
    }
}

fn receipt(key: &RunKey, call: &LoggedCall) -> Receipt {
    let intent = &call.intent;
    let outcome = call.outcome.as_ref();
    let status = status(outcome);
    Receipt {
        source_reference: reference(key, &intent.call_id),
        call_id: intent.call_id.to_string(),
        litellm_call_id: outcome.and_then(|o| o.litellm_call_id.as_deref().map(str::to_owned)),
        could_be_billed: match status {
            ReceiptStatus::PendingCost => could_be_billed(outcome.and_then(|outcome| outcome.status)),
            status => status == ReceiptStatus::Unknown,
        },
        status,
        result: outcome.map(|o| o.result),
        model: intent.model.as_deref().map(str::to_owned),
        model_served: outcome.and_then(|o| o.model_served.as_deref().map(str::to_owned)),
        usage: outcome.and_then(|o| o.usage).filter(|usage| *usage != Usage::default()).map(Usage::inclusive),
        cost_usd: outcome.and_then(|o| o.cost_usd.as_deref().map(str::to_owned)),
        null_reason: outcome.and_then(|o| o.null_reason).map(NullReason::as_str),
    }
}
