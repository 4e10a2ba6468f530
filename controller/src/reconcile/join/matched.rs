//! Receipts with a row.

use std::fmt::Display;

use sluice_litellm::spend_log::row::SpendRow;
use sluice_state::ledger::{BookedReceipt, GUESS_FLOOR, IMPLAUSIBLE, IMPLAUSIBLE_FACTOR, ReceiptStatus};

use super::settlement::{addition, replacement};
use super::{Finding, FindingClass, ReceiptInQuestion, Remedy, finding_of, finding_of_further_row};
use super::{input_tokens, side_of_row};

/// Suffix of the reason for a call that LiteLLM logged as failed.
const FAILED_THERE: &str = "; LiteLLM logged it as failed";

/// Maximum difference between equal amounts, in nano-USD.
const TOLERANCE: u128 = 1;

/// Divisor of an amount; the quotient is the maximum difference between equal large amounts. LiteLLM's amounts are
/// float64 with 15 to 17 digits: above a million dollars they cannot represent each nano-USD.
const RELATIVE_TOLERANCE: u128 = 1_000_000_000_000_000;

/// Rank of a row among the rows of a call; the receipt is compared with the first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowRank {
    did_not_settle: bool,
    differs: bool,
    is_failure: bool,
    is_free_hit: bool,
    start_us: i64,
    request_id: String,
}

/// Returns the rank of a row. The row that settled the receipt comes first, then a row that agrees with it, then success
/// before failure, then a paid row before a cached one, then the earliest.
pub(super) fn rank(known: &ReceiptInQuestion, row: &SpendRow) -> RowRank {
    let receipt = &known.receipt;
    let agrees = same_amount(receipt.nano_usd, row.nanos) && tokens(receipt, row) == TokenCounts::Same;
    RowRank {
        did_not_settle: !receipt.entries.iter().any(|entry| entry.payload_hash == row.hash().to_string()),
        differs: !agrees,
        is_failure: row.is_failure,
        is_free_hit: row.is_free_hit(),
        start_us: row.start_us,
        request_id: row.request_id.clone(),
    }
}

/// Token counts of both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TokenCounts {
    /// They are equal, or no tokens were counted here.
    Same,
    /// They are not equal.
    Different,
}

fn tokens(receipt: &BookedReceipt, row: &SpendRow) -> TokenCounts {
    let is_same = receipt
        .usage
        .as_ref()
        .is_none_or(|usage| (input_tokens(usage), usage.output.unwrap_or(0)) == (row.input, row.output));
    if is_same { TokenCounts::Same } else { TokenCounts::Different }
}

fn same_amount(ledger: Option<i128>, row: i64) -> bool {
    let row = i128::from(row);
    ledger.is_some_and(|nanos| {
        let most = nanos.unsigned_abs().max(row.unsigned_abs());
        nanos.abs_diff(row) <= TOLERANCE.max(most / RELATIVE_TOLERANCE)
    })
}

/// Returns the finding of a receipt and its row; `free` are further rows of the call without a cost.
pub(super) fn finding(known: &ReceiptInQuestion, row: &SpendRow, free: &[&SpendRow]) -> Finding {
    let RowJudgement { class, reason, remedy } = judge(known, row);
    let more = match free.len() {
        0 => String::new(),
        count => format!("; and {count} more rows of it without money"),
    };
    let request_ids = [row].iter().chain(free).map(|row| row.request_id.clone()).collect();
    let spend_log = Some(side_of_row(row));
    Finding { reason: reason + &more, request_ids, spend_log, remedy, ..finding_of(class, &known.receipt) }
}

/// Returns the finding of a further row with a cost of a call that has one.
pub(super) fn duplicate(known: &ReceiptInQuestion, first: &SpendRow, row: &SpendRow) -> Finding {
    Finding {
        reason: format!(
            "the receipt is settled by row {}; this one has {} nano-USD more, which LiteLLM has charged and the ledger has not",
            first.request_id, row.nanos
        ),
        ..finding_of_further_row(FindingClass::Duplicate, &known.receipt, row)
    }
}

/// Class, reason and remedy of a receipt and its row.
struct RowJudgement {
    class: FindingClass,
    reason: String,
    remedy: Option<Remedy>,
}

impl RowJudgement {
    fn plain(class: FindingClass, reason: impl Into<String>) -> Self {
        Self { class, reason: reason.into(), remedy: None }
    }

    fn settles(class: FindingClass, reason: impl Into<String>, receipt: &BookedReceipt, row: &SpendRow) -> Self {
        Self { class, reason: reason.into(), remedy: Some(Remedy::Settle(addition(receipt, row))) }
    }

    /// Makes the judgement of a difference. A correction replaces the receipt's entries by the row.
    fn differs(class: FindingClass, reason: String, receipt: &BookedReceipt, row: &SpendRow) -> Self {
        let remedy = Some(Remedy::Correct(replacement(receipt, row, &reason)));
        Self { class, reason, remedy }
    }
}

fn judge(known: &ReceiptInQuestion, row: &SpendRow) -> RowJudgement {
    let receipt = &known.receipt;
    let is_decided = !matches!(receipt.status, ReceiptStatus::Pending | ReceiptStatus::Voided);
    if row.is_free_hit() && is_decided {
        return judge_cache_hit(receipt, row);
    }
    match receipt.status {
        ReceiptStatus::Pending => RowJudgement::plain(
            FindingClass::NotYet,
            "its run is under way, or its audit file was not read to its end yet",
        ),
        ReceiptStatus::Voided if row.nanos == 0 => {
            RowJudgement::plain(FindingClass::NotBilled, "no money was possible, and none was spent")
        }
        ReceiptStatus::Voided => {
            let reason = format!("no money was possible here, and there are {} nano-USD there", row.nanos);
            RowJudgement::differs(FindingClass::AmountDiffers, reason, receipt, row)
        }
        ReceiptStatus::PendingCost | ReceiptStatus::Unknown => judge_open(receipt, row),
        // It was settled as free before it had a row.
        ReceiptStatus::Settled if receipt.nano_usd.is_none() && row.nanos > 0 && !is_implausible(receipt, row) => {
            RowJudgement::settles(FindingClass::Settled, "the spend log has its cost by now", receipt, row)
        }
        ReceiptStatus::Posted | ReceiptStatus::Settled | ReceiptStatus::Reversed => judge_posted(known, row),
    }
}

fn judge_open(receipt: &BookedReceipt, row: &SpendRow) -> RowJudgement {
    // If the answer was cut, each side counts the tokens that it saw.
    let was_cut = receipt.status == ReceiptStatus::Unknown || receipt.end.as_deref() != Some("complete");
    if tokens(receipt, row) == TokenCounts::Different && !was_cut {
        return RowJudgement::differs(FindingClass::TokensDiffer, both_tokens(receipt, row), receipt, row);
    }
    if is_implausible(receipt, row) {
        let reason = format!(
            "{} nano-USD there, which is more than {IMPLAUSIBLE_FACTOR} times the {} that were reserved",
            row.nanos,
            amount(receipt.reserved_nanos())
        );
        return RowJudgement::differs(FindingClass::AmountDiffers, reason, receipt, row);
    }
    let is_unknown = receipt.status == ReceiptStatus::Unknown;
    let class = if is_unknown { FindingClass::UnknownSettled } else { FindingClass::Settled };
    let failed = if row.is_failure { FAILED_THERE } else { "" };
    RowJudgement::settles(class, format!("the spend log has its cost{failed}"), receipt, row)
}

/// Returns true for an amount that only a person may post: far more than was reserved for the call or, if the answer
/// stated an implausible cost, any amount above the reservation. A wrong row must not use up the budget of an account.
fn is_implausible(receipt: &BookedReceipt, row: &SpendRow) -> bool {
    let reserved = receipt.reserved_nanos().unwrap_or(0);
    if receipt.null_reason.as_deref() == Some(IMPLAUSIBLE) {
        return row.nanos > reserved;
    }
    // The receipt does not say whether the reservation was an upper bound.
    let measure = i128::from(reserved.max(GUESS_FLOOR)) * i128::from(IMPLAUSIBLE_FACTOR);
    reserved > 0 && i128::from(row.nanos) > measure
}

fn judge_posted(known: &ReceiptInQuestion, row: &SpendRow) -> RowJudgement {
    let receipt = &known.receipt;
    let by_spend_log = receipt.entries.iter().rev().find(|entry| entry.status == ReceiptStatus::Settled);
    if !same_amount(receipt.nano_usd.or(by_spend_log.map(|_| 0)), row.nanos) {
        let reason = format!("{} here, {} there, in nano-USD", amount(receipt.nano_usd), row.nanos);
        return RowJudgement::differs(FindingClass::AmountDiffers, reason, receipt, row);
    }
    let counts = tokens(receipt, row);
    let is_complete = receipt.status == ReceiptStatus::Posted || receipt.end.as_deref() == Some("complete");
    if counts == TokenCounts::Different && is_complete {
        return RowJudgement::differs(FindingClass::TokensDiffer, both_tokens(receipt, row), receipt, row);
    }
    match by_spend_log {
        None => RowJudgement::plain(FindingClass::Matched, "both say the same"),
        Some(entry) => judge_settled(known, row, &entry.period, counts),
    }
}

/// Judges a call that LiteLLM's cache answered. LiteLLM may repeat the price of the first answer in band, and the tokens of
/// an answer from a cache are not billed. So the correction needs no permission.
fn judge_cache_hit(receipt: &BookedReceipt, row: &SpendRow) -> RowJudgement {
    let was_reversed = receipt.entries.iter().any(|entry| entry.reverses.is_some());
    let (reason, remedy) = if receipt.is_open() {
        (String::new(), Some(addition(receipt, row)))
    } else if receipt.nano_usd.unwrap_or(0) != 0 {
        let posted = amount(receipt.nano_usd);
        let cause = format!("a cache of LiteLLM answered: {posted} here, 0 there, in nano-USD");
        (format!("; {posted} nano-USD were posted"), Some(replacement(receipt, row, &cause)))
    } else if was_reversed {
        ("; what was posted before was taken back".to_owned(), None)
    } else {
        (String::new(), None)
    };
    let reason = format!("a cache of LiteLLM answered, for nothing{reason}");
    RowJudgement { class: FindingClass::CacheHit, reason, remedy: remedy.map(Remedy::Settle) }
}

/// Judges a receipt that a row has settled.
fn judge_settled(known: &ReceiptInQuestion, row: &SpendRow, period: &str, counts: TokenCounts) -> RowJudgement {
    let receipt = &known.receipt;
    let mut reason = "its cost is the spend log's".to_owned();
    if counts == TokenCounts::Different {
        let usage = receipt.usage.unwrap_or_default();
        let (input, output) = (input_tokens(&usage), usage.output.unwrap_or(0));
        reason += &format!(
            "; it was cut, and {input} tokens in and {output} out were seen here, {} and {} there",
            row.input, row.output
        );
    }
    if receipt.entries.iter().any(|entry| entry.reverses.is_some()) {
        reason += "; what was posted before was taken back";
    }
    if row.is_failure {
        reason += FAILED_THERE;
    }
    let was_unknown = receipt.entries.iter().any(|entry| entry.status == ReceiptStatus::Unknown);
    let is_late = period > known.origin_day.as_str();
    if is_late {
        reason += &format!("; the call is of {}, and counts on {period}", known.origin_day);
    }
    let class = match (was_unknown, is_late) {
        (true, _) => FindingClass::UnknownSettled,
        (_, true) => FindingClass::Late,
        _ => FindingClass::Settled,
    };
    RowJudgement::plain(class, reason)
}

fn both_tokens(receipt: &BookedReceipt, row: &SpendRow) -> String {
    let counted = receipt.usage.as_ref().map(|usage| (input_tokens(usage), usage.output.unwrap_or(0)));
    let (input, output) = counted.unwrap_or_default();
    format!("{input} tokens in and {output} out here, {} and {} there", row.input, row.output)
}

fn amount(nanos: Option<impl Display>) -> String {
    nanos.map_or_else(|| "nothing".to_owned(), |nanos| nanos.to_string())
}
