//! Joins receipts and rows of LiteLLM's spend log, and finds differences.
//!
//! Pure: no clock, no I/O. The entries that correct a difference are part of the result, and posted elsewhere.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use sluice_contract::RunKey;
use sluice_contract::record::Usage;
use sluice_litellm::spend_log::row::{SpendRow, UnreadableRow};
use sluice_state::ledger::BookedReceipt;

use super::finding::{Finding, FindingClass, Remedy, SideAmounts};

mod index;
mod matched;
mod retries;
mod settlement;
mod unmatched_receipt;
mod unmatched_row;
mod unreadable_row;

use index::ReceiptIndex;

/// A receipt in question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptInQuestion {
    /// The receipt with its entries.
    pub receipt: BookedReceipt,
    /// UTC day of the call.
    pub origin_day: String,
    /// Time of the last entry in microseconds since 1970.
    pub heard_us: i64,
}

/// Both sides at one moment.
#[derive(Debug, Clone, Default)]
pub struct JoinInput {
    /// Receipts in question.
    pub receipts: Vec<ReceiptInQuestion>,
    /// Accounts of the calls whose receipts are not in question, by call id.
    pub elsewhere: HashMap<String, String>,
    /// Runs whose receipts may be incomplete.
    pub under_way: HashSet<RunKey>,
    /// Rows of the accounts in question.
    pub rows: Vec<SpendRow>,
    /// Rows of these accounts that cannot be read.
    pub unreadable: Vec<UnreadableRow>,
    /// Rows in question that have no receipt.
    pub row_scope: RowScope,
    /// Time of the join in microseconds since 1970.
    pub now_us: i64,
}

/// Rows without a receipt that are in question.
#[derive(Debug, Clone, Default)]
pub enum RowScope {
    /// No rows.
    #[default]
    None,
    /// Rows that name this run, or this attempt of it.
    Run(String, Option<u32>),
    /// Rows of calls from this time to that one, in microseconds since 1970.
    Span(i64, i64),
}

/// Maximum time that LiteLLM takes to write a row, in microseconds. Observed: 2 to 15 s.
pub const GRACE_US: i64 = 30_000_000;

/// Joins receipts and rows. Each receipt has one finding of its own, and each row in question is in one finding.
#[must_use]
pub fn join(input: &JoinInput) -> Vec<Finding> {
    let index = ReceiptIndex::of(&input.receipts);
    let mut rows_of: HashMap<usize, Vec<&SpendRow>> = HashMap::new();
    let mut unmatched = Vec::new();
    for row in &input.rows {
        match index.find(row.names()).filter(|at| input.receipts[*at].receipt.account == row.account) {
            Some(at) => rows_of.entry(at).or_default().push(row),
            None => unmatched.extend(unmatched_row::finding(row, input, &index)),
        }
    }
    let mut unreadable_of: HashMap<usize, Vec<&UnreadableRow>> = HashMap::new();
    for row in &input.unreadable {
        match index.find(row.names()).filter(|at| input.receipts[*at].receipt.account == row.account) {
            Some(at) => unreadable_of.entry(at).or_default().push(row),
            None => unmatched.extend(unreadable_row::finding(row, input, &index)),
        }
    }
    let mut findings = Vec::new();
    for (at, receipt) in input.receipts.iter().enumerate() {
        let rows = rows_of.remove(&at).unwrap_or_default();
        match unreadable_of.remove(&at) {
            Some(unreadable) => findings.push(unreadable_row::finding_of_receipt(receipt, &unreadable, &rows)),
            None => findings.extend(findings_of(receipt, rows, input.now_us)),
        }
    }
    findings.extend(unmatched);
    findings
}

/// Returns the finding of a receipt, then the findings of its further rows.
fn findings_of(known: &ReceiptInQuestion, mut rows: Vec<&SpendRow>, now_us: i64) -> Vec<Finding> {
    let retries: Vec<&SpendRow> = rows.extract_if(.., |row| retries::is_retry(known, row)).collect();
    let own = known.without_retries();
    rows.sort_by_key(|row| matched::rank(&own, row));
    let (first, rest) = rows.split_first().unzip();
    let (paid, free): (Vec<&SpendRow>, Vec<&SpendRow>) = rest.into_iter().flatten().partition(|row| row.nanos > 0);
    let main = match first {
        Some(first) => matched::finding(&own, first, &free),
        None => unmatched_receipt::finding(&own, now_us),
    };
    let is_settled = matches!(main.remedy, Some(Remedy::Settle(_))) || !own.receipt.is_open();
    let of_call = if is_settled { retries::RetryCost::Settled } else { retries::RetryCost::Open };
    let mut findings = vec![Finding { ledger: Some(side_of_receipt(&known.receipt)), ..main }];
    findings.extend(first.iter().flat_map(|first| paid.iter().map(|row| matched::duplicate(known, first, row))));
    findings.extend(retries.into_iter().map(|row| retries::finding(known, row, of_call)));
    findings
}

impl ReceiptInQuestion {
    /// Returns the receipt without the costs of earlier attempts of the call.
    fn without_retries(&self) -> Cow<'_, Self> {
        match self.receipt.without_retries() {
            Cow::Borrowed(_) => Cow::Borrowed(self),
            Cow::Owned(receipt) => Cow::Owned(Self { receipt, ..self.clone() }),
        }
    }
}

/// Returns a finding of a receipt, to be completed by the caller.
fn finding_of(class: FindingClass, receipt: &BookedReceipt) -> Finding {
    Finding {
        class,
        reason: String::new(),
        account: receipt.account.clone(),
        run: Some(format!("{}.{}", receipt.run_id, receipt.attempt)),
        source_reference: Some(receipt.source_reference.clone()),
        call_id: Some(receipt.call_id.clone()),
        request_ids: Vec::new(),
        ledger: Some(side_of_receipt(receipt)),
        spend_log: None,
        until_us: None,
        remedy: None,
    }
}

/// Returns a finding of a further row of a call. The receipt's own amount is in its other finding.
fn finding_of_further_row(class: FindingClass, receipt: &BookedReceipt, row: &SpendRow) -> Finding {
    Finding {
        request_ids: vec![row.request_id.clone()],
        ledger: None,
        spend_log: Some(side_of_row(row)),
        ..finding_of(class, receipt)
    }
}

fn side_of_receipt(receipt: &BookedReceipt) -> SideAmounts {
    SideAmounts {
        nano_usd: receipt.nano_usd,
        input: receipt.usage.as_ref().map(input_tokens),
        output: receipt.usage.as_ref().and_then(|usage| usage.output),
    }
}

fn side_of_row(row: &SpendRow) -> SideAmounts {
    SideAmounts { nano_usd: Some(i128::from(row.nanos)), input: Some(row.input), output: Some(row.output) }
}

/// Returns input tokens as LiteLLM counts them, including the tokens of a prompt cache.
fn input_tokens(usage: &Usage) -> u64 {
    usage.inclusive().input.unwrap_or(0)
}

#[cfg(test)]
mod tests;
