//! Rows of earlier attempts of a call that LiteLLM retried by itself.

use sluice_litellm::spend_log::row::SpendRow;
use sluice_state::ledger::ReceiptStatus;

use super::{Finding, FindingClass, ReceiptInQuestion, Remedy, finding_of_further_row, settlement};

/// State of the cost of the call itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RetryCost {
    /// The cost is settled, or settled by this reconciliation.
    Settled,
    /// The cost is unknown.
    Open,
}

/// Returns whether a row bills an earlier attempt of this call with a cost. A call that was never sent has none.
pub(super) fn is_retry(known: &ReceiptInQuestion, row: &SpendRow) -> bool {
    let receipt = &known.receipt;
    let is_of_this = |call| call == receipt.call_id || Some(call) == receipt.litellm_call_id.as_deref();
    row.nanos > 0 && receipt.status != ReceiptStatus::Voided && row.retried_call().is_some_and(is_of_this)
}

/// Returns the finding of an earlier attempt. Its cost is added to the receipt once the call itself is settled.
pub(super) fn finding(known: &ReceiptInQuestion, row: &SpendRow, of_call: RetryCost) -> Finding {
    let receipt = &known.receipt;
    let settlement = settlement::retry(receipt, row);
    let posted = receipt.live().find(|entry| entry.source_reference == settlement.reference);
    let (class, reason, remedy) = match (posted, of_call) {
        (Some(entry), _) if entry.payload_hash == settlement.hash.to_string() => {
            (FindingClass::Settled, "an earlier attempt of the call, which LiteLLM billed in addition", None)
        }
        (Some(_), _) => {
            (FindingClass::AmountDiffers, "the row of an earlier attempt was changed after it was posted", None)
        }
        (None, RetryCost::Settled) => {
            let reason = "the spend log has the cost of an earlier attempt of the call";
            (FindingClass::Settled, reason, Some(Remedy::Settle(settlement)))
        }
        (None, RetryCost::Open) => {
            let reason = "an earlier attempt of the call, which is posted when the call itself is settled";
            (FindingClass::NotYet, reason, None)
        }
    };
    Finding { reason: reason.to_owned(), remedy, ..finding_of_further_row(class, receipt, row) }
}
