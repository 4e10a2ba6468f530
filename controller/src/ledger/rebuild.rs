//! The ledger, held against the audit files that it follows from, or filled from them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use sluice_contract::{PublicKey, Trust};

use super::bill::{Bill, Posting, Status};
use super::entry::SOURCE;
use super::ingest::{Reading, Writer, read};
use super::query::Filter;
use super::total::{Total, total};
use super::{LedgerError, Posted};
use crate::layout::{Layout, RunKey};
use crate::scene::read_audit;
use crate::store::{Store, StoreError};

/// All audit files of a state directory, and what is known of them.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like their types")]
pub struct Shelf<'a> {
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
    /// What the files come to.
    pub by_files: Total,
    /// What the ledger has of them.
    pub by_ledger: Total,
    /// Where they differ.
    pub differences: Vec<Difference>,
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
            Self::Conflict => "conflict",
        }
    }
}

impl Shelf<'_> {
    /// Builds the ledger anew, in memory, and compares.
    ///
    /// # Errors
    /// When something cannot be read.
    pub async fn check(&self) -> Result<Rebuilt, LedgerError> {
        let mut rebuilt = Rebuilt::default();
        let audited: BTreeSet<_> = self.audited()?;
        // Asked before the files are read: a run that ends meanwhile is one that is not looked at.
        let open = self.open_runs().await?;
        for key in audited.iter().filter(|key| !open.contains(key)) {
            rebuilt.files += 1;
            let reading = self.read(key).await?;
            if !reading.is_trusted() {
                rebuilt.tell(key, None, Found::Tampered, reading.fault.clone().unwrap_or_default());
            }
            rebuilt.compare(key, &reading, &self.of_run(key).await?);
        }
        rebuilt.under_way = open.len() as u64;
        for key in self.store.known_runs().await?.difference(&audited).filter(|key| !open.contains(key)) {
            let bills = self.of_run(key).await?;
            rebuilt.tell(key, None, Found::NoFile, format!("the ledger has {} receipts of it", bills.len()));
        }
        Ok(rebuilt)
    }

    /// Adds what the ledger has not, and compares.
    ///
    /// # Errors
    /// When something cannot be read or written.
    pub async fn fill(&self) -> Result<Rebuilt, LedgerError> {
        let (mut added, mut refused) = (Posted::default(), Vec::new());
        let open = self.open_runs().await?;
        for key in self.audited()?.iter().filter(|key| !open.contains(key)) {
            match self.store.ingest(self.read(key).await?).done().await {
                Ok(posted) => {
                    added.receipts += posted.receipts;
                    added.entries += posted.entries;
                }
                Err(error @ (LedgerError::Conflict { .. } | LedgerError::Late { .. })) => refused.push(Difference {
                    run: key.to_string(),
                    source_reference: None,
                    found: Found::Conflict,
                    detail: error.to_string(),
                }),
                Err(error) => return Err(error),
            }
        }
        let mut rebuilt = self.check().await?;
        rebuilt.added = added;
        rebuilt.differences.extend(refused);
        Ok(rebuilt)
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
            let done = match self.read(&key).await {
                Ok(reading) => self.store.ingest(reading).done().await.map(drop),
                Err(error) => Err(error),
            };
            failed = failed.and(done);
        }
        failed
    }

    async fn read(&self, key: &RunKey) -> Result<Reading, LedgerError> {
        let seen = self.store.witnesses(key).await?;
        let (path, name, keys) = (self.layout.run(key).audit, key.clone(), self.keys.to_vec());
        // Hashes of megabytes are not for the thread that waits for a run.
        let reading = tokio::task::spawn_blocking(move || {
            let trust = Trust { keys: &keys, seen: &seen };
            match read_audit(&path) {
                Ok(file) => Ok(read(&name, file.as_deref(), &trust, Writer::Gone)),
                Err(error) => Err(LedgerError::Unreadable(name, error)),
            }
        });
        reading.await.map_err(|_| StoreError::Closed)?
    }

    fn audited(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        let audit = self.layout.state().join("audit");
        Ok(self.layout.audited().map_err(|error| LedgerError::NoFiles(audit, error))?.into_iter().collect())
    }

    async fn open_runs(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        Ok(self.store.open_runs().await?.into_iter().map(|open| open.entry.key).collect())
    }

    async fn of_run(&self, key: &RunKey) -> Result<Vec<Bill>, LedgerError> {
        let run = Filter { run_id: Some(key.run_id.to_string()), attempt: Some(key.attempt), ..Filter::default() };
        Ok(self.store.select(run).await?.bills)
    }
}

impl Rebuilt {
    fn tell(&mut self, key: &RunKey, reference: Option<&str>, found: Found, detail: String) {
        let source_reference = reference.map(str::to_owned);
        self.differences.push(Difference { run: key.to_string(), source_reference, found, detail });
    }

    fn compare(&mut self, key: &RunKey, reading: &Reading, ledger: &[Bill]) {
        let file: Vec<_> = reading
            .rows()
            .iter()
            .map(|(receipt, entry)| {
                let mut bill = Bill::of(receipt);
                entry.iter().for_each(|entry| bill.take(Posting::of(entry)));
                bill
            })
            .collect();
        let ledger: Vec<_> = ledger.iter().map(by_file).collect();
        self.by_files.merge(&total(&file));
        self.by_ledger.merge(&total(&ledger));
        let mut known: BTreeMap<_, _> = ledger.iter().map(|bill| (&bill.source_reference, bill)).collect();
        for bill in &file {
            let reference = Some(bill.source_reference.as_str());
            match known.remove(&bill.source_reference) {
                None => self.tell(key, reference, Found::NotInLedger, format!("it is {}", bill.status.as_str())),
                Some(known) if known == bill => {}
                Some(known) if known.entries.is_empty() => {
                    self.tell(
                        key,
                        reference,
                        Found::NotInLedger,
                        format!("what came of it is {}", bill.status.as_str()),
                    );
                }
                Some(known) => self.tell(key, reference, Found::Differs, difference(bill, known)),
            }
        }
        for bill in known.into_values() {
            let detail = format!("it is {} in the ledger", bill.status.as_str());
            self.tell(key, Some(&bill.source_reference), Found::NotInFile, detail);
        }
    }
}

/// What of a receipt follows from its audit file, whenever it came.
fn by_file(bill: &Bill) -> Bill {
    let ours: Vec<_> = bill.entries.iter().filter(|entry| entry.source_system == SOURCE).collect();
    // An end that nobody saw was believed until somebody had seen it.
    let seen = ours.iter().any(|entry| entry.status != Status::Unknown);
    let mut alone = Bill { entries: Vec::new(), period: String::new(), ..bill.clone() };
    (alone.status, alone.usage, alone.cost_usd, alone.nano_usd) = (Status::Pending, None, None, None);
    (alone.price_source, alone.null_reason, alone.result, alone.end) = (None, None, None, None);
    (alone.http_status, alone.litellm_call_id, alone.response_id, alone.model_served) = (None, None, None, None);
    for entry in ours.into_iter().filter(|entry| !seen || entry.status != Status::Unknown) {
        alone.take(Posting { id: 0, period: String::new(), ..entry.clone() });
    }
    alone
}

/// The first member that is not the same.
fn difference(file: &Bill, ledger: &Bill) -> String {
    let object = |bill: &Bill| match serde_json::to_value(bill) {
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
