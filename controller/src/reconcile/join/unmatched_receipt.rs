//! Receipts without a row.

use sluice_contract::could_be_billed;
use sluice_state::ledger::{BookedReceipt, ReceiptStatus, Settlement};

use super::{Finding, FindingClass, GRACE_US, ReceiptInQuestion, Remedy, finding_of};

/// Returns the finding of a receipt without a row.
pub(super) fn finding(known: &ReceiptInQuestion, now_us: i64) -> Finding {
    let receipt = &known.receipt;
    let until = known.heard_us + GRACE_US;
    let wait = if until > now_us { RowWait::MayCome } else { RowWait::Over };
    let (class, reason) = classify(receipt, wait);
    let until_us = (class == FindingClass::NotYet && receipt.status != ReceiptStatus::Pending).then_some(until);
    // A later row may still be posted after this entry, so the receipt may be settled now.
    let remedy = (class == FindingClass::NotBilled && receipt.is_open())
        .then(|| Remedy::Settle(Settlement::not_billed(&receipt.source_reference)));
    let mut reason = reason.to_owned();
    if class == FindingClass::MissingThere && receipt.is_open() {
        reason += &advice(&receipt.source_reference);
    }
    Finding { reason, until_us, remedy, ..finding_of(class, receipt) }
}

/// State of the wait for a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RowWait {
    /// LiteLLM may still write the row.
    MayCome,
    /// LiteLLM would have written the row by now.
    Over,
}

fn classify(receipt: &BookedReceipt, wait: RowWait) -> (FindingClass, &'static str) {
    use FindingClass::{MissingThere, NotBilled, NotYet};
    match receipt.status {
        ReceiptStatus::Voided => (NotBilled, "no money was possible"),
        ReceiptStatus::Pending => (NotYet, "its run is under way, or its audit file was not read to its end yet"),
        ReceiptStatus::Settled if receipt.nano_usd.is_none() => (NotBilled, "LiteLLM writes no row of such a call"),
        ReceiptStatus::Reversed => (NotBilled, "it was taken back"),
        _ if !has_row(&receipt.method, &receipt.path) => (NotBilled, "LiteLLM writes no row of such a call"),
        _ if wait == RowWait::MayCome => (NotYet, "its row may not be written yet"),
        ReceiptStatus::PendingCost if !could_be_billed(receipt.http_status) => {
            (NotBilled, "no provider bills an answer with this status, and LiteLLM need not write a row of it")
        }
        ReceiptStatus::Unknown => {
            (MissingThere, "its end was not seen here, and LiteLLM has no row of it; it may be under way there")
        }
        ReceiptStatus::PendingCost if receipt.http_status.is_some_and(|status| status >= 400) => {
            (MissingThere, "it failed after a provider could have answered, and LiteLLM has no row of it")
        }
        ReceiptStatus::PendingCost => (MissingThere, "its cost is not known here, and LiteLLM has no row of it"),
        ReceiptStatus::Posted | ReceiptStatus::Settled => {
            (MissingThere, "it was paid here, and LiteLLM has no row of it")
        }
    }
}

/// Returns advice on a call whose cost stays unknown.
fn advice(receipt: &str) -> String {
    format!(
        "; it stays open, and a budget of its account holds what was reserved for it, until sluice reconcile finds its \
         row; if no row will come, sluice ledger void {receipt} --reason TEXT closes it"
    )
}

/// Returns whether LiteLLM writes rows for such calls. It writes none for reading requests and for counting tokens.
fn has_row(method: &str, path: &str) -> bool {
    method == "POST" && !["/count_tokens", "/input_tokens", "/cancel"].iter().any(|end| path.ends_with(end))
}
