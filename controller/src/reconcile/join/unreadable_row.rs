//! Rows that cannot be read: their calls stay as they are.

use sluice_litellm::spend_log::row::{SpendRow, UnreadableRow};

use super::index::ReceiptIndex;
use super::unmatched_row::{is_in_scope, payer};
use super::{Finding, FindingClass, JoinInput, ReceiptInQuestion, finding_of};

/// Returns the finding of a receipt with rows that cannot be read; `rows` are the other rows of its call. It has no remedy,
/// since the rows that can be read may be a part of the bill of the call.
pub(super) fn finding_of_receipt(
    known: &ReceiptInQuestion,
    unreadable: &[&UnreadableRow],
    rows: &[&SpendRow],
) -> Finding {
    let faults: Vec<_> = unreadable.iter().map(ToString::to_string).collect();
    let names = unreadable.iter().filter_map(|row| row.request_id.clone());
    Finding {
        reason: format!("{}; nothing is posted for its call", faults.join("; ")),
        request_ids: names.chain(rows.iter().map(|row| row.request_id.clone())).collect(),
        ..finding_of(FindingClass::UnreadableRow, &known.receipt)
    }
}

/// Returns the finding of a row that cannot be read and has no receipt; none if the row is not in question.
pub(super) fn finding(row: &UnreadableRow, input: &JoinInput, index: &ReceiptIndex<'_>) -> Option<Finding> {
    let is_elsewhere = payer(row.names(), input, index) == Some(&row.account);
    if is_elsewhere || !is_in_scope(row.run.as_ref(), row.start_us, &input.row_scope) {
        return None;
    }
    Some(Finding {
        class: FindingClass::UnreadableRow,
        reason: row.to_string(),
        account: row.account.clone(),
        run: row.run.as_ref().map(ToString::to_string),
        source_reference: None,
        call_id: row.sluice_call_id.clone(),
        request_ids: row.request_id.iter().cloned().collect(),
        ledger: None,
        spend_log: None,
        until_us: None,
        remedy: None,
    })
}
