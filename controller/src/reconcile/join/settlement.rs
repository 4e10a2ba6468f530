//! Entries that post the cost of a row to a receipt.

use sluice_litellm::spend_log::row::SpendRow;
use sluice_state::ledger::{BookedReceipt, BookedTokens, PriceSource, ReceiptStatus, Settlement};

/// Returns the entry that adds a row to a receipt.
pub(super) fn addition(receipt: &BookedReceipt, row: &SpendRow) -> Settlement {
    Settlement {
        // Tokens that were counted here are in the receipt already.
        usage: if receipt.usage.is_none() { row.usage() } else { None },
        replaces: Vec::new(),
        cause: None,
        ..replacement(receipt, row, "")
    }
}

/// Returns the entry that replaces all entries of a receipt by a row.
pub(super) fn replacement(receipt: &BookedReceipt, row: &SpendRow, cause: &str) -> Settlement {
    let live = receipt.live().filter(|entry| entry.nano_usd.is_some() || entry.tokens != BookedTokens::default());
    // A row settles a receipt once. A second settlement by the same row with other content is another entry.
    let times = receipt.entries.iter().filter(|entry| entry.status == ReceiptStatus::Settled).count();
    let again = if times > 0 { format!("#{times}") } else { String::new() };
    Settlement {
        receipt: receipt.source_reference.clone(),
        reference: format!("{}#{}{again}", receipt.source_reference, row.request_id),
        hash: row.hash(),
        cost_usd: Some(row.spend.clone()),
        nano_usd: Some(row.nanos),
        price_source: match row.is_failure {
            _ if row.is_free_hit() => PriceSource::CacheHit,
            true => PriceSource::FailureRow,
            false => PriceSource::SpendLog,
        },
        usage: row.usage(),
        null_reason: None,
        litellm_call_id: row.litellm_call_id.clone(),
        model_served: row.model.clone(),
        origin_us: row.end_us,
        replaces: live.map(|entry| entry.id).collect(),
        cause: Some(format!("row {} of the spend log: {cause}", row.request_id)),
    }
}

/// Returns the entry that adds an earlier attempt of a call to its receipt.
pub(super) fn retry(receipt: &BookedReceipt, row: &SpendRow) -> Settlement {
    Settlement {
        reference: format!("{}#{}", receipt.source_reference, row.request_id),
        price_source: PriceSource::Retry,
        usage: row.usage(),
        ..addition(receipt, row)
    }
}
