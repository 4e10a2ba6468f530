//! Rows without a receipt in question.

use sluice_contract::RunKey;
use sluice_litellm::spend_log::row::{RowNames, SpendRow};

use super::index::ReceiptIndex;
use super::{Finding, FindingClass, GRACE_US, JoinInput, RowScope, side_of_row};

/// Returns the finding of a row without a receipt; none if the row is not in question.
pub(super) fn finding(row: &SpendRow, input: &JoinInput, index: &ReceiptIndex<'_>) -> Option<Finding> {
    let payer = payer(row.names(), input, index);
    if payer == Some(&row.account) || !is_in_scope(row.run.as_ref(), Some(row.start_us), &input.row_scope) {
        return None;
    }
    let is_under_way = row.run.as_ref().is_some_and(|run| input.under_way.contains(run));
    let until = row.end_us + GRACE_US;
    let (class, reason) = if let Some(payer) = payer {
        (FindingClass::MissingHere, format!("it names a call that {payer} pays"))
    } else if is_under_way {
        (
            FindingClass::NotYet,
            "its run is under way, or its controller was killed and no sweep has followed".to_owned(),
        )
    } else if row.is_failure && row.nanos == 0 && row.sluice_call_id.is_none() {
        let reason = "LiteLLM refused it before it knew the account, and spent nothing";
        (FindingClass::NotBilled, reason.to_owned())
    } else if until > input.now_us {
        (FindingClass::NotYet, "its receipt may not be written yet".to_owned())
    } else if row.sluice_call_id.is_some() {
        (FindingClass::MissingHere, "it names a call that no audit file has".to_owned())
    } else {
        (FindingClass::MissingHere, "it names no call: it came past the sidecar".to_owned())
    };
    Some(Finding {
        class,
        reason,
        account: row.account.clone(),
        run: row.run.as_ref().map(ToString::to_string),
        source_reference: None,
        call_id: row.sluice_call_id.clone(),
        request_ids: vec![row.request_id.clone()],
        ledger: None,
        spend_log: Some(side_of_row(row)),
        until_us: (class == FindingClass::NotYet && !is_under_way).then_some(until),
        remedy: None,
    })
}

/// Returns the account that pays the call named by the row, if the call has a receipt.
pub(super) fn payer<'a>(names: RowNames<'_>, input: &'a JoinInput, index: &ReceiptIndex<'_>) -> Option<&'a String> {
    let id = names.call_id()?;
    let in_question = index.by_call(id).map(|at| &input.receipts[at].receipt.account);
    in_question.or_else(|| input.elsewhere.get(id))
}

/// Returns whether a row of this run and of this time is in question. A row without a time is in each span.
pub(super) fn is_in_scope(run: Option<&RunKey>, start_us: Option<i64>, scope: &RowScope) -> bool {
    match scope {
        RowScope::None => false,
        RowScope::Run(run_id, attempt) => {
            run.is_some_and(|run| run.run_id.as_str() == run_id && attempt.is_none_or(|attempt| attempt == run.attempt))
        }
        RowScope::Span(from, to) => start_us.is_none_or(|start| (*from..=*to).contains(&start)),
    }
}
