//! Synchronization of the budget log and the database.
//!
//! A change is committed to the database, then appended to the log, then recorded in the database as logged. After a kill
//! between two of these steps, the next command continues.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sluice_contract::time::unix_micros;
use sluice_contract::{Hash, RunKey};

use super::error::LogError;
use super::log::{self, BudgetChange, ChangeKind, LogEntry, LogPlan};
use super::log_rows::LogRows;
use crate::append_log::{AppendLog, whole_lines};
use crate::decisions::{Decisions, PrunedRun};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::ledger::{AuditArchive, LedgerError};
use crate::store::{Store, now_us};
use crate::witness;

/// The budget log of a state directory, and its database.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like their types")]
pub struct BudgetLog<'a> {
    pub layout: &'a Layout,
    pub keys: &'a Keys,
    pub store: &'a Store,
}

impl BudgetLog<'_> {
    /// Checks that runs of this account may be admitted: the database has all budgets and, where the account has one,
    /// all audit files. Returns damage of the log that does not prevent the admission.
    ///
    /// # Errors
    /// The reason that runs must not be admitted.
    pub async fn check_admission(&self, account: &str) -> Result<Option<LogError>, LogError> {
        let damage = if self.is_synchronized().await? { None } else { self.synchronize().await? };
        if let Some(opened_us) = self.store.budget_opened(account.to_owned()).await? {
            let files = self.layout.audited().map_err(|error| self.failed(error))?;
            // The receipts of a pruned file are only in the database.
            let pruned = if self.layout.decisions().exists() { self.decisions()?.pruned } else { BTreeMap::new() };
            let counts = |run: &PrunedRun| run.account == account && run.receipts > 0 && run.last_us >= opened_us;
            let is_here: BTreeSet<_> = files.iter().cloned().collect();
            let pruned = pruned.into_iter().filter(|(key, (run, _))| counts(run) && !is_here.contains(key));
            let account = account.to_owned();
            let unknown = self.store.unknown_runs(files).await?;
            if let Some(example) = unknown.first().cloned() {
                return Err(LogError::Behind { account, runs: unknown.len(), example });
            }
            let lost = self.store.unknown_runs(pruned.map(|(key, _)| key).collect()).await?;
            if let Some(example) = lost.first().cloned() {
                return Err(LogError::Pruned { account, runs: lost.len(), example });
            }
        }
        Ok(damage)
    }

    /// Checks that log and database agree, or would after [`BudgetLog::synchronize`]. Returns damage of the log if only the
    /// database has all budgets.
    ///
    /// # Errors
    /// As of [`BudgetLog::synchronize`].
    pub async fn inspect(&self) -> Result<Option<LogError>, LogError> {
        let (rows, entries) = match self.read().await {
            Ok(read) => read,
            Err(damaged @ LogError::Damaged { .. }) => return Ok(Some(damaged)),
            Err(error) => return Err(error),
        };
        match log::plan(entries.as_deref(), &rows.state) {
            LogPlan::Begin | LogPlan::Follow { .. } => Ok(None),
            plan => self.refuse(plan),
        }
    }

    /// Appends the database's changes to the log. Returns damage of the log if only the database has all budgets.
    ///
    /// # Errors
    /// The reason why it is impossible, usually [`LogError::Ahead`] or [`LogError::Lost`].
    pub async fn synchronize(&self) -> Result<Option<LogError>, LogError> {
        let _lock = self.file().lock_in_task().await.map_err(|error| self.failed(error))?;
        let (rows, entries) = match self.read().await {
            Ok(read) => read,
            Err(damaged @ LogError::Damaged { .. }) => return Ok(Some(damaged)),
            Err(error) => return Err(error),
        };
        match log::plan(entries.as_deref(), &rows.state) {
            LogPlan::Begin => {
                self.append(&rows, 0, Hash::ZERO).await?;
                Ok(None)
            }
            LogPlan::Follow { adopt } => {
                self.follow(&rows, &entries.unwrap_or_default(), adopt).await?;
                Ok(None)
            }
            plan => self.refuse(plan),
        }
    }

    /// Restores the changes that only the log has. The receipts of runs that were paid before a change are posted
    /// before it. Returns the number of changes.
    ///
    /// # Errors
    /// The reason that it cannot be done. Changes that were restored before stay.
    pub async fn restore(&self, archive: &AuditArchive<'_>) -> Result<u64, LogError> {
        let _lock = self.file().lock_in_task().await.map_err(|error| self.failed(error))?;
        let (rows, entries) = self.read().await?;
        let entries = entries.unwrap_or_default();
        let LogPlan::Ahead { .. } = log::plan(Some(&entries), &rows.state) else { return Ok(0) };
        if !rows.state.unlogged.is_empty() {
            let reason = "budgets were set in a database that did not know its changes".to_owned();
            return Err(LogError::Damaged { path: self.path(), reason });
        }
        let mut files = self.unread_files(&entries).await?.into_iter().peekable();
        let mut restored = 0;
        for (seq, entry) in entries.into_iter().enumerate().skip(rows.state.logged.len()) {
            let mut before = Vec::new();
            while let Some((_, key)) = files.next_if(|(paid_us, _)| *paid_us <= entry.change.made_us) {
                before.push(key);
            }
            // Files that the ledger refuses are reported when all files are read.
            archive.post_files(&before).await?;
            restored += u64::from(entry.change.kind != ChangeKind::Begun);
            self.store.restore_budget(seq as u64, entry).await?;
        }
        Ok(restored)
    }

    /// Confirms the budgets in the database as the only valid ones: a new log begins with them. Returns the new name of the
    /// old log.
    ///
    /// # Errors
    /// The reason that it cannot be done.
    pub async fn confirm(&self) -> Result<Option<PathBuf>, LogError> {
        let file = self.file();
        let _lock = file.lock_in_task().await.map_err(|error| self.failed(error))?;
        let old = file.set_aside().map_err(|error| self.failed(error))?;
        self.store.clear_logged().await?;
        let rows = self.store.log_rows().await?;
        self.append(&rows, 0, Hash::ZERO).await?;
        Ok(old)
    }

    fn decisions(&self) -> Result<Decisions, LogError> {
        Ok(Decisions::read(self.layout, &self.keys.public()?).map_err(LedgerError::from)?)
    }

    /// Returns true if the log ends with the line that the database recorded last, and every change is logged.
    async fn is_synchronized(&self) -> Result<bool, LogError> {
        let Some((lines, last)) = self.store.last_logged().await? else { return Ok(false) };
        let Some(bytes) = self.file().read().map_err(|error| self.failed(error))? else { return Ok(false) };
        let mut all = whole_lines(&bytes).split_inclusive(|byte| *byte == b'\n');
        Ok(all.next_back().is_some_and(|line| Hash::of(line) == last) && all.count() as u64 + 1 == lines)
    }

    /// Records lines that were written and not recorded, and appends the changes that the log does not have.
    async fn follow(&self, rows: &LogRows, entries: &[LogEntry], adopt: usize) -> Result<(), LogError> {
        let first = rows.state.logged.len();
        for (seq, entry) in entries.iter().enumerate().skip(first).take(adopt) {
            let budget = seq.checked_sub(first.max(1)).and_then(|place| rows.ids.get(place)).copied();
            self.store.record_logged(seq as u64, entry.hash, budget.filter(|_| seq > 0)).await?;
        }
        let done = adopt.saturating_sub(usize::from(first == 0));
        let last = entries.last().map_or(Hash::ZERO, |entry| entry.hash);
        self.append(&rows.without_first(done), entries.len(), last).await
    }

    /// Converts a plan that changes nothing into damage or an error.
    fn refuse(&self, plan: LogPlan) -> Result<Option<LogError>, LogError> {
        let path = self.path();
        match plan {
            LogPlan::Ahead { lines } => Err(LogError::Ahead { path, lines }),
            LogPlan::Lost => Err(LogError::Lost(path)),
            LogPlan::Damaged { reason } => Ok(Some(LogError::Damaged { path, reason })),
            LogPlan::Begin | LogPlan::Follow { .. } => Ok(None),
        }
    }

    /// Returns the runs whose audit files were not read, each with the time when it was paid, sorted by that time.
    async fn unread_files(&self, entries: &[LogEntry]) -> Result<Vec<(i64, RunKey)>, LogError> {
        let open = self.store.open_runs().await.map_err(LedgerError::from)?;
        let files = self.layout.audited().map_err(|error| self.failed(error))?;
        let unread = self.store.unread_files(files).await?;
        let unread = unread.into_iter().filter(|key| open.iter().all(|open| open.entry.key != *key));
        let imports = if self.layout.decisions().exists() { self.decisions()?.imports } else { BTreeMap::new() };
        let imported = |key: &RunKey| imports.get(key).map(|import| import.made_us);
        let mut files: Vec<_> = unread.map(|key| (self.paid_us(&key, entries, imported(&key)), key)).collect();
        files.sort();
        Ok(files)
    }

    /// Returns the latest time at which a run's receipts reached the ledger, as far as it can be known: the end of the run,
    /// the import of its file, or the change of a budget that names the run as late.
    fn paid_us(&self, key: &RunKey, entries: &[LogEntry], imported_us: Option<i64>) -> i64 {
        let late = entries.iter().filter(|entry| entry.late.contains(key)).map(|entry| entry.change.made_us + 1);
        let ended = last_us(&self.layout.run(key).audit).unwrap_or(i64::MAX);
        late.chain(imported_us).chain([ended]).max().unwrap_or(i64::MAX)
    }

    async fn read(&self) -> Result<(LogRows, Option<Vec<LogEntry>>), LogError> {
        let mut rows = self.store.log_rows().await?;
        // Even if no audit files are left, decisions show that there were some.
        let is_unused = self.layout.audited().map_err(|error| self.failed(error))?.is_empty();
        rows.state.is_original |= is_unused && !self.layout.decisions().exists();
        let Some(bytes) = self.file().read().map_err(|error| self.failed(error))? else { return Ok((rows, None)) };
        match log::read(&bytes, &self.keys.public()?) {
            Ok(entries) => Ok((rows, Some(entries))),
            Err(fault) => {
                let (records, known) = (log::possible_records(&bytes), rows.state.logged.len());
                // Any further record may be a change that the database does not know. Other text cannot be one.
                Err(if known > 0 && records <= known {
                    LogError::Damaged { path: self.path(), reason: fault.to_string() }
                } else {
                    LogError::Forged(self.path(), fault)
                })
            }
        }
    }

    /// Appends the changes that the log lacks, and the first line if it has none.
    async fn append(&self, rows: &LogRows, lines: usize, last: Hash) -> Result<(), LogError> {
        let begin = (lines == 0).then(|| {
            let kind = ChangeKind::Begun;
            (
                None,
                BudgetChange { account: String::new(), kind, nano_usd: 0, made_us: now_us(), made_by: None },
                Vec::new(),
            )
        });
        let changes = rows.ids.iter().zip(&rows.state.unlogged).zip(&rows.late);
        let changes = changes.map(|((id, change), late)| (Some(*id), change.clone(), late.clone()));
        let (mut seq, mut prev) = (lines as u64, last);
        for (id, change, late) in begin.into_iter().chain(changes) {
            let key = self.keys.budget_signer()?;
            let line = log::line(&change, &late, seq, prev, &key.public().id(), |hash| key.sign_budget(hash));
            prev = Hash::of(&line);
            self.file().append(&line).map_err(|error| self.failed(error))?;
            self.store.record_logged(seq, prev, id).await?;
            seq += 1;
        }
        Ok(())
    }

    fn file(&self) -> AppendLog {
        AppendLog::at(self.layout.state(), self.layout.budget_log())
    }

    fn path(&self) -> PathBuf {
        self.file().path().to_owned()
    }

    fn failed(&self, error: io::Error) -> LogError {
        LogError::Io(self.path(), error)
    }
}

/// Returns the time of the last whole line of an audit file, in microseconds since 1970.
fn last_us(path: &Path) -> Option<i64> {
    const ENOUGH: u64 = 1 << 16;
    let mut file = witness::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH))).ok()?;
    let mut bytes = Vec::new();
    file.take(ENOUGH).read_to_end(&mut bytes).ok()?;
    let last = whole_lines(&bytes).split_inclusive(|byte| *byte == b'\n').next_back()?;
    let line: serde_json::Value = serde_json::from_slice(last).ok()?;
    unix_micros(humantime::parse_rfc3339(line["ts"].as_str()?).ok()?)
}
