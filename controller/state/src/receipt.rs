//! What each call of a run came to, from its audit file alone.
//!
//! Pure: the same file gives the same receipts, whoever reads it and whenever.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_contract::exhausted::{Exhausted, exhausted};
use sluice_contract::record::{CallResult, NullReason, Usage};
use sluice_contract::{AuditLog, LoggedCall, RunKey, reader};

use crate::ledger::{ParsedAudit, ReceiptStatus, reference, status};

/// The bill of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// `RUN/ATTEMPT/CALL`: the same call has the same one for ever.
    pub source_reference: String,
    /// The sidecar's own id of the call, which stands on LiteLLM's spend row.
    pub call_id: String,
    /// LiteLLM's.
    pub litellm_call_id: Option<String>,
    /// Whether its money is known.
    pub status: ReceiptStatus,
    /// How the call went.
    pub result: Option<CallResult>,
    /// What was asked for.
    pub model: Option<String>,
    /// What answered.
    pub model_served: Option<String>,
    /// Tokens as the provider counted them, with all input as input.
    pub usage: Option<Usage>,
    /// Dollars, in the provider's own words.
    pub cost_usd: Option<String>,
    /// Why tokens or dollars are null.
    pub null_reason: Option<NullReason>,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunTotals {
    /// One for each call that was written down.
    pub receipts: Vec<Receipt>,
    /// Requests that were not forwarded.
    pub refused: u64,
    /// How many of them each reason has; those beyond the lines that a sidecar writes are in no reason.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// All tokens.
    pub usage: Usage,
    /// All dollars that are known; null when there are none.
    pub cost_usd: Option<String>,
    /// Why a request was refused for money, if one was: a cap of the run, or else a budget at LiteLLM.
    pub budget: Option<String>,
    /// The budgets at LiteLLM that refused calls.
    pub litellm_budgets: Vec<Exhausted>,
    /// Lines of the file.
    pub lines: u64,
    /// Why the file is no complete account, if so.
    pub fault: Option<String>,
}

/// The reason of refusals for a cap on the whole run.
const CAP: &str = "budget_exceeded";

/// What an audit file comes to.
#[must_use]
pub fn tally(reading: &ParsedAudit) -> RunTotals {
    let log = reading.log();
    let receipts: Vec<_> = log.calls().iter().map(|call| receipt(&reading.key, call)).collect();
    let litellm_budgets = exhausted(&log);
    let priced = receipts.iter().any(|receipt| receipt.cost_usd.is_some());
    RunTotals {
        refused: log.totals().refused,
        refused_by_reason: log.refused().clone(),
        usage: usage(&receipts),
        cost_usd: priced.then(|| log.totals().cost().to_string()),
        budget: match litellm_budgets.first() {
            _ if log.refused().contains_key(CAP) => Some(format!("a call was refused: {CAP}")),
            budget => budget.map(Exhausted::advice),
        },
        litellm_budgets,
        lines: reading.lines,
        fault: reading.fault.clone(),
        receipts,
    }
}

/// The tokens of all calls. Not those of `close`: an older sidecar may have begun the file, with counts of another meaning.
fn usage(receipts: &[Receipt]) -> Usage {
    let mut sum = Usage::default();
    receipts.iter().filter_map(|receipt| receipt.usage.as_ref()).for_each(|usage| sum.add(usage));
    sum
}

/// What the lines up to this one tell, from 1.
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

fn receipt(key: &RunKey, call: &LoggedCall) -> Receipt {
    let intent = &call.intent;
    let outcome = call.outcome.as_ref();
    Receipt {
        source_reference: reference(key, &intent.call_id),
        call_id: intent.call_id.to_string(),
        litellm_call_id: outcome.and_then(|o| o.litellm_call_id.as_deref().map(str::to_owned)),
        status: status(outcome),
        result: outcome.map(|o| o.result),
        model: intent.model.as_deref().map(str::to_owned),
        model_served: outcome.and_then(|o| o.model_served.as_deref().map(str::to_owned)),
        usage: outcome.and_then(|o| o.usage).filter(|usage| *usage != Usage::default()).map(Usage::inclusive),
        cost_usd: outcome.and_then(|o| o.cost_usd.as_deref().map(str::to_owned)),
        null_reason: outcome.and_then(|o| o.null_reason),
    }
}
