//! Comparison of the ledger with the audit files that it follows from.

use std::collections::HashSet;

use rusqlite::Connection;
use serde::Serialize;
use sluice_contract::RunKey;

use super::LedgerError;
use super::booked::{BookedEntry, BookedReceipt};
use super::entry::SOURCE;
use super::insert::Posted;
use super::parsed_audit::{Doubt, ParsedAudit};
use super::receipt_rows;
use super::status::ReceiptStatus;
use super::totals::Total;

/// Result of a check or a rebuild.
#[derive(Debug, Clone, Default, Serialize)]
pub struct RebuildReport {
    /// Number of audit files that were read.
    pub files: u64,
    /// Number of runs that have not ended. They are skipped.
    pub under_way: u64,
    /// Number of runs whose audit files were pruned.
    pub pruned: u64,
    /// Rows that were added to the ledger.
    pub added: Posted,
    /// Data that was restored to a new or an older database; null otherwise.
    pub restored: Option<RestoreReport>,
    /// Number of stored sums that were corrected.
    pub sums_renewed: u64,
    /// Sum of the files.
    pub by_files: Total,
    /// Sum of the same calls in the ledger.
    pub by_ledger: Total,
    /// Differences between files and ledger.
    pub differences: Vec<Difference>,
}

/// Data other than receipts that was restored to a new or an older database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RestoreReport {
    /// Number of changes of budgets.
    pub budgets: u64,
    /// Data that could not be restored.
    pub not_known: &'static [&'static str],
}

/// A difference between audit files, ledger and budget log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Name of the receipt; null for a whole file.
    pub source_reference: Option<String>,
    /// Kind of the difference.
    pub found: DifferenceKind,
    /// Description for people.
    pub detail: String,
}

/// Kind of a difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DifferenceKind {
    /// The file has the receipt or its entry, and the ledger does not.
    NotInLedger,
    /// The ledger has the receipt, and the file does not.
    NotInFile,
    /// File and ledger have different contents.
    Differs,
    /// The file of a run does not exist.
    NoFile,
    /// The file was altered.
    Tampered,
    /// The file is signed by a key that this host does not know, and is not billed.
    UnknownKey,
    /// The file has no signature, and is not billed.
    Unsigned,
    /// The file is not an audit file.
    NotAnAuditFile,
    /// The operator has voided the receipt, and the ledger does not know it.
    NotVoided,
    /// A stored sum is not the sum of its rows.
    WrongSum,
    /// The budget log and the database differ.
    BudgetLog,
    /// The ledger has other content under the same name.
    Conflict,
}

impl From<Doubt> for DifferenceKind {
    fn from(doubt: Doubt) -> Self {
        match doubt {
            Doubt::UnknownKey => Self::UnknownKey,
            Doubt::Unsigned => Self::Unsigned,
            Doubt::NotAnAuditFile => Self::NotAnAuditFile,
        }
    }
}

impl DifferenceKind {
    /// Returns the word in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotInLedger => "not_in_ledger",
            Self::NotInFile => "not_in_file",
            Self::Differs => "differs",
            Self::NoFile => "no_file",
            Self::Tampered => "tampered",
            Self::UnknownKey => "unknown_key",
            Self::Unsigned => "unsigned",
            Self::NotAnAuditFile => "not_an_audit_file",
            Self::NotVoided => "not_voided",
            Self::WrongSum => "wrong_sum",
            Self::BudgetLog => "budget_log",
            Self::Conflict => "conflict",
        }
    }
}

/// Compares these files with the ledger.
pub(super) fn compare_all(connection: &Connection, readings: &[ParsedAudit]) -> Result<RebuildReport, LedgerError> {
    let mut rebuilt = RebuildReport::default();
    for reading in readings {
        rebuilt.files += 1;
        if !reading.is_trusted() {
            let found = reading.doubt.map_or(DifferenceKind::Tampered, DifferenceKind::from);
            rebuilt.report(&reading.key, None, found, reading.fault.clone().unwrap_or_default());
        }
        rebuilt.compare(connection, reading)?;
    }
    Ok(rebuilt)
}

impl RebuildReport {
    /// Adds a part of the comparison.
    pub(super) fn add(&mut self, part: Self) {
        self.files += part.files;
        self.by_files.merge(&part.by_files);
        self.by_ledger.merge(&part.by_ledger);
        self.differences.extend(part.differences);
    }

    /// Adds a difference of a run.
    pub(super) fn report(&mut self, key: &RunKey, reference: Option<&str>, found: DifferenceKind, detail: String) {
        let source_reference = reference.map(str::to_owned);
        self.differences.push(Difference { run: key.to_string(), source_reference, found, detail });
    }

    /// Adds a difference between budget log and database.
    pub fn report_budget_log(&mut self, detail: String) {
        let run = "all runs".to_owned();
        self.differences.push(Difference { run, source_reference: None, found: DifferenceKind::BudgetLog, detail });
    }

    /// Adds a difference for each wrong sum, which is given as its run and a description.
    pub(super) fn report_sums(&mut self, wrong: Vec<(String, String)>) {
        let difference =
            |(run, detail)| Difference { run, source_reference: None, found: DifferenceKind::WrongSum, detail };
        self.differences.extend(wrong.into_iter().map(difference));
    }

    fn compare(&mut self, connection: &Connection, reading: &ParsedAudit) -> Result<(), LedgerError> {
        let key = &reading.key;
        let mut matched = 0;
        for rows in reading.rows()? {
            for (receipt, entry) in rows? {
                let mut filed = BookedReceipt::of(&receipt);
                entry.iter().for_each(|entry| filed.add_entry(BookedEntry::of(entry)));
                self.by_files.add_receipt(&filed);
                let known = receipt_rows::by_reference(connection, SOURCE, &receipt.reference)?;
                // A receipt of another run does not match.
                let known =
                    known.filter(|known| (known.run_id.as_str(), known.attempt) == (key.run_id.as_str(), key.attempt));
                matched += u64::from(known.is_some());
                self.compare_one(key, &filed, known.as_ref().map(audit_part));
            }
        }
        if receipt_rows::count_of(connection, key)? > matched {
            self.report_unfounded(connection, reading)?;
        }
        Ok(())
    }

    fn compare_one(&mut self, key: &RunKey, file: &BookedReceipt, ledger: Option<BookedReceipt>) {
        let reference = Some(file.source_reference.as_str());
        let Some(known) = ledger else {
            return self.report(key, reference, DifferenceKind::NotInLedger, format!("it is {}", file.status.as_str()));
        };
        self.by_ledger.add_receipt(&known);
        if known == *file {
            return;
        }
        if known.entries.is_empty() {
            let detail = format!("what came of it is {}", file.status.as_str());
            return self.report(key, reference, DifferenceKind::NotInLedger, detail);
        }
        self.report(key, reference, DifferenceKind::Differs, describe(file, &known));
    }

    /// Adds the receipts of a run that its file does not have.
    fn report_unfounded(&mut self, connection: &Connection, reading: &ParsedAudit) -> Result<(), LedgerError> {
        let mut in_file = HashSet::new();
        for rows in reading.rows()? {
            in_file.extend(rows?.into_iter().map(|(receipt, _)| receipt.reference));
        }
        for (source, reference) in receipt_rows::references_of(connection, &reading.key)? {
            if source == SOURCE && in_file.contains(&reference) {
                continue;
            }
            let found = receipt_rows::by_reference(connection, &source, &reference)?;
            let Some(receipt) = found.as_ref().map(audit_part) else { continue };
            self.by_ledger.add_receipt(&receipt);
            let detail = format!("it is {} in the ledger", receipt.status.as_str());
            self.report(&reading.key, Some(&reference), DifferenceKind::NotInFile, detail);
        }
        Ok(())
    }
}

/// Returns the part of a receipt that follows from its audit file.
fn audit_part(receipt: &BookedReceipt) -> BookedReceipt {
    let ours: Vec<_> = receipt.entries.iter().filter(|entry| entry.source_system == SOURCE).collect();
    // An unknown end counts only until the real end is known.
    let is_known = ours.iter().any(|entry| entry.status != ReceiptStatus::Unknown);
    let mut part = BookedReceipt { entries: Vec::new(), period: String::new(), ..receipt.clone() };
    (part.status, part.usage, part.cost_usd, part.nano_usd) = (ReceiptStatus::Pending, None, None, None);
    (part.price_source, part.null_reason, part.result, part.end) = (None, None, None, None);
    (part.http_status, part.litellm_call_id, part.response_id, part.model_served) = (None, None, None, None);
    for entry in ours.into_iter().filter(|entry| !is_known || entry.status != ReceiptStatus::Unknown) {
        part.add_entry(BookedEntry { id: 0, period: String::new(), ..entry.clone() });
    }
    part
}

/// Describes the first member that differs.
fn describe(file: &BookedReceipt, ledger: &BookedReceipt) -> String {
    let object = |receipt: &BookedReceipt| match serde_json::to_value(receipt) {
        Ok(serde_json::Value::Object(members)) => members,
        _ => serde_json::Map::new(),
    };
    let (file, ledger) = (object(file), object(ledger));
    let differing = file.iter().find(|(name, value)| ledger.get(*name) != Some(value));
    differing.map_or_else(
        || "an entry of it".to_owned(),
        |(name, value)| format!("{name} is {} in the ledger, and {value} in the file", ledger[name]),
    )
}
