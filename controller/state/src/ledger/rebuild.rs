//! The ledger, held against the audit files that it follows from, or filled from them.

use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use rusqlite::Connection;
use serde::Serialize;
use sluice_contract::{PublicKey, RunKey, TrustAnchors, Witness};

use super::bill::{BookedEntry, BookedReceipt};
use super::entry::SOURCE;
use super::ingest::{AuditSource, ParsedAudit, Writer, read};
use super::status::ReceiptStatus;
use super::total::Total;
use super::{LedgerError, Posted, query};
use crate::layout::Layout;
use crate::store::{Store, StoreError};
use crate::witness;

/// All audit files of a state directory, and what is known of them.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like their types")]
pub struct AuditArchive<'a> {
    pub layout: &'a Layout,
    pub store: &'a Store,
    /// Who may have signed.
    pub keys: &'a [PublicKey],
}

/// What came of holding one against the other.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Rebuilt {
    /// Audit files that were read.
    pub files: u64,
    /// Runs that are under way: they are not looked at.
    pub under_way: u64,
    /// Rows that the ledger did not have, and has now.
    pub added: Posted,
    /// What a lost or old database got back; null if it was neither.
    pub restored: Option<Restored>,
    /// Sums that the ledger kept wrongly, and keeps rightly now.
    pub sums_renewed: u64,
    /// What the files come to.
    pub by_files: Total,
    /// What the ledger has of them.
    pub by_ledger: Total,
    /// Where they differ.
    pub differences: Vec<Difference>,
}

/// What a lost or old database got back beside its receipts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Restored {
    /// Changes of budgets.
    pub budgets: u64,
    /// What nothing says any more.
    pub not_known: &'static [&'static str],
}

/// One thing that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// The receipt; null if it is the whole file.
    pub source_reference: Option<String>,
    /// What it is.
    pub found: Found,
    /// More of it, for people.
    pub detail: String,
}

/// What can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The file has it, and the ledger has not.
    NotInLedger,
    /// The ledger has it, and the file has not.
    NotInFile,
    /// Both have it, and not the same.
    Differs,
    /// The file of a run is gone.
    NoFile,
    /// The file is not as it was written.
    Tampered,
    /// The file is signed by a key that this host does not know, and nothing of it is billed.
    UnknownKey,
    /// A sum that the ledger keeps is not the sum of its rows.
    WrongSum,
    /// The budget log and the database differ.
    BudgetLog,
    /// The ledger refused it.
    Conflict,
}

impl Found {
    /// The word in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotInLedger => "not_in_ledger",
            Self::NotInFile => "not_in_file",
            Self::Differs => "differs",
            Self::NoFile => "no_file",
            Self::Tampered => "tampered",
            Self::UnknownKey => "unknown_key",
            Self::WrongSum => "wrong_sum",
            Self::BudgetLog => "budget_log",
            Self::Conflict => "conflict",
        }
    }
}

/// Files that are verified together, while those before them are compared or posted.
const BATCH: usize = 64;

impl AuditArchive<'_> {
    /// Holds the ledger against all files, call by call, and its sums against its rows.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn check(&self) -> Result<Rebuilt, LedgerError> {
        let mut rebuilt = Rebuilt::default();
        let audited = self.audited()?;
        // Asked before the files are read: a run that ends meanwhile is one that is not looked at.
        let open = self.open_runs().await?;
        let keys: Vec<_> = audited.iter().filter(|key| !open.contains(key)).cloned().collect();
        let mut batches = keys.chunks(BATCH);
        let mut next = self.read_next(&mut batches).await?;
        while let Some(readings) = next {
            let readings = readings.await.map_err(|_| StoreError::Closed)??;
            next = self.read_next(&mut batches).await?;
            rebuilt.add(self.store.call(move |connection| compare_all(connection, &readings)).await?);
        }
        rebuilt.under_way = open.len() as u64;
        for key in self.store.known_runs().await?.difference(&audited).filter(|key| !open.contains(key)) {
            let run = key.clone();
            let receipts = self.store.call(move |connection| query::count_of(connection, &run)).await?;
            rebuilt.tell(key, None, Found::NoFile, format!("the ledger has {receipts} receipts of it"));
        }
        rebuilt.tell_sums(self.store.check_sums().await?);
        Ok(rebuilt)
    }

    /// Adds what the ledger has not, and compares.
    ///
    /// # Errors
    /// When something cannot be read or written.
    pub async fn fill(&self) -> Result<Rebuilt, LedgerError> {
        let open = self.open_runs().await?;
        let keys: Vec<_> = self.audited()?.into_iter().filter(|key| !open.contains(key)).collect();
        let (added, refused) = self.post_files(&keys).await?;
        let sums_renewed = self.store.renew_sums().await?.len() as u64;
        let mut rebuilt = self.check().await?;
        rebuilt.sums_renewed = sums_renewed;
        rebuilt.added = added;
        rebuilt.differences.extend(refused);
        Ok(rebuilt)
    }

    /// Adds what the ledger has not of these files, in their order; returns what was new, and what was refused.
    ///
    /// # Errors
    /// When something cannot be read or written.
    pub async fn post_files(&self, keys: &[RunKey]) -> Result<(Posted, Vec<Difference>), LedgerError> {
        let (mut added, mut refused) = (Posted::default(), Vec::new());
        let mut batches = keys.chunks(BATCH);
        let mut next = self.read_next(&mut batches).await?;
        while let Some(readings) = next {
            let readings = readings.await.map_err(|_| StoreError::Closed)??;
            let names: Vec<_> = readings.iter().map(|reading| reading.key.to_string()).collect();
            next = self.read_next(&mut batches).await?;
            for (run, posted) in names.into_iter().zip(self.store.ingest_all(readings).await?) {
                match posted {
                    Ok(posted) => {
                        added.receipts += posted.receipts;
                        added.entries += posted.entries;
                    }
                    Err(error) if error.is_contradiction() => {
                        let detail = error.to_string();
                        refused.push(Difference { run, source_reference: None, found: Found::Conflict, detail });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok((added, refused))
    }

    /// Takes up runs that ended without their file having been read: their controller was killed just then.
    ///
    /// # Errors
    /// The first thing that went wrong; the others were taken up all the same.
    pub async fn catch_up(&self) -> Result<(), LedgerError> {
        // A few at a time: somebody is waiting for a run beside this.
        const AT_ONCE: u32 = 32;
        let mut failed = Ok(());
        for key in self.store.unread_runs(AT_ONCE).await? {
            let keys = [key];
            let readings = match self.read_next(&mut keys.chunks(1)).await? {
                Some(readings) => readings.await.map_err(|_| StoreError::Closed)?,
                None => Ok(Vec::new()),
            };
            let done = match readings {
                Ok(mut readings) => match readings.pop() {
                    Some(reading) => self.store.ingest(reading).done().await.map(drop),
                    None => Ok(()),
                },
                Err(error) => Err(error),
            };
            failed = failed.and(done);
        }
        failed
    }

    /// Begins to verify the next files: hashes of megabytes are not for the thread that waits for a run.
    async fn read_next(&self, batches: &mut std::slice::Chunks<'_, RunKey>) -> Result<Option<Reader>, LedgerError> {
        let Some(batch) = batches.next() else { return Ok(None) };
        let mut files = Vec::with_capacity(batch.len());
        for key in batch {
            files.push((key.clone(), self.layout.run(key).audit, self.store.witnesses(key).await?));
        }
        let keys = self.keys.to_vec();
        Ok(Some(tokio::task::spawn_blocking(move || {
            let read = |(key, path, seen): (RunKey, PathBuf, Vec<Witness>)| {
                let source = match witness::open(&path) {
                    Ok(file) => Ok(AuditSource::File(Arc::new(file))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(AuditSource::Absent),
                    Err(error) => Err(error),
                };
                let trust = TrustAnchors { keys: &keys, seen: &seen };
                let reading = source.and_then(|source| read(&key, source, &trust, Writer::Gone));
                reading.map_err(|error| LedgerError::UnreadablePage(key, error))
            };
            files.into_iter().map(read).collect()
        })))
    }

    fn audited(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        let audit = self.layout.state().join("audit");
        Ok(self.layout.audited().map_err(|error| LedgerError::NoFiles(audit, error))?.into_iter().collect())
    }

    async fn open_runs(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        Ok(self.store.open_runs().await?.into_iter().map(|open| open.entry.key).collect())
    }
}

/// Files that are being verified.
type Reader = tokio::task::JoinHandle<Result<Vec<ParsedAudit>, LedgerError>>;

fn compare_all(connection: &Connection, readings: &[ParsedAudit]) -> Result<Rebuilt, LedgerError> {
    let mut rebuilt = Rebuilt::default();
    for reading in readings {
        rebuilt.files += 1;
        if !reading.is_trusted() {
            let found = if reading.unknown_key { Found::UnknownKey } else { Found::Tampered };
            rebuilt.tell(&reading.key, None, found, reading.fault.clone().unwrap_or_default());
        }
        rebuilt.compare(connection, reading)?;
    }
    Ok(rebuilt)
}

impl Rebuilt {
    /// Adds a part of the comparison.
    fn add(&mut self, part: Self) {
        self.files += part.files;
        self.by_files.merge(&part.by_files);
        self.by_ledger.merge(&part.by_ledger);
        self.differences.extend(part.differences);
    }

    fn tell(&mut self, key: &RunKey, reference: Option<&str>, found: Found, detail: String) {
        let source_reference = reference.map(str::to_owned);
        self.differences.push(Difference { run: key.to_string(), source_reference, found, detail });
    }

    /// Adds that the log of budgets and the database differ.
    pub fn tell_budget_log(&mut self, detail: String) {
        let run = "all runs".to_owned();
        self.differences.push(Difference { run, source_reference: None, found: Found::BudgetLog, detail });
    }

    fn tell_sums(&mut self, wrong: Vec<(String, String)>) {
        let difference = |(run, detail)| Difference { run, source_reference: None, found: Found::WrongSum, detail };
        self.differences.extend(wrong.into_iter().map(difference));
    }

    fn compare(&mut self, connection: &Connection, reading: &ParsedAudit) -> Result<(), LedgerError> {
        let key = &reading.key;
        let mut matched = 0;
        for rows in reading.rows()? {
            for (receipt, entry) in rows? {
                let mut bill = BookedReceipt::of(&receipt);
                entry.iter().for_each(|entry| bill.take(BookedEntry::of(entry)));
                self.by_files.take(&bill);
                let known = query::bill_of(connection, SOURCE, &receipt.reference)?;
                // One of another run is none of this one.
                let known =
                    known.filter(|known| (known.run_id.as_str(), known.attempt) == (key.run_id.as_str(), key.attempt));
                matched += u64::from(known.is_some());
                self.compare_one(key, &bill, known.as_ref().map(by_file));
            }
        }
        if query::count_of(connection, key)? > matched {
            self.tell_unfounded(connection, reading)?;
        }
        Ok(())
    }

    fn compare_one(&mut self, key: &RunKey, file: &BookedReceipt, ledger: Option<BookedReceipt>) {
        let reference = Some(file.source_reference.as_str());
        let Some(known) = ledger else {
            return self.tell(key, reference, Found::NotInLedger, format!("it is {}", file.status.as_str()));
        };
        self.by_ledger.take(&known);
        if known == *file {
            return;
        }
        if known.entries.is_empty() {
            let detail = format!("what came of it is {}", file.status.as_str());
            return self.tell(key, reference, Found::NotInLedger, detail);
        }
        self.tell(key, reference, Found::Differs, difference(file, &known));
    }

    /// Names the receipts that the ledger has of a run, and its file has not.
    fn tell_unfounded(&mut self, connection: &Connection, reading: &ParsedAudit) -> Result<(), LedgerError> {
        let mut in_file = HashSet::new();
        for rows in reading.rows()? {
            in_file.extend(rows?.into_iter().map(|(receipt, _)| receipt.reference));
        }
        for (source, reference) in query::references_of(connection, &reading.key)? {
            if source == SOURCE && in_file.contains(&reference) {
                continue;
            }
            let Some(bill) = query::bill_of(connection, &source, &reference)?.as_ref().map(by_file) else { continue };
            self.by_ledger.take(&bill);
            let detail = format!("it is {} in the ledger", bill.status.as_str());
            self.tell(&reading.key, Some(&reference), Found::NotInFile, detail);
        }
        Ok(())
    }
}

/// What of a receipt follows from its audit file, whenever it came.
fn by_file(bill: &BookedReceipt) -> BookedReceipt {
    let ours: Vec<_> = bill.entries.iter().filter(|entry| entry.source_system == SOURCE).collect();
    // An end that nobody saw was believed until somebody had seen it.
    let seen = ours.iter().any(|entry| entry.status != ReceiptStatus::Unknown);
    let mut alone = BookedReceipt { entries: Vec::new(), period: String::new(), ..bill.clone() };
    (alone.status, alone.usage, alone.cost_usd, alone.nano_usd) = (ReceiptStatus::Pending, None, None, None);
    (alone.price_source, alone.null_reason, alone.result, alone.end) = (None, None, None, None);
    (alone.http_status, alone.litellm_call_id, alone.response_id, alone.model_served) = (None, None, None, None);
    for entry in ours.into_iter().filter(|entry| !seen || entry.status != ReceiptStatus::Unknown) {
        alone.take(BookedEntry { id: 0, period: String::new(), ..entry.clone() });
    }
    alone
}

/// The first member that is not the same.
fn difference(file: &BookedReceipt, ledger: &BookedReceipt) -> String {
    let object = |bill: &BookedReceipt| match serde_json::to_value(bill) {
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
