//! The ledger and all audit files of a state directory: check, rebuild, catch up.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use sluice_contract::{PublicKey, RunKey, TrustAnchors, Witness};

use super::audit_source::{AuditSource, Writer};
use super::compare::{Difference, DifferenceKind, RebuildReport, compare_all};
use super::insert::{LateOutcome, Posted, PostingResult};
use super::parsed_audit::{ParsedAudit, read};
use super::{LedgerError, receipt_rows};
use crate::decisions::Decisions;
use crate::layout::Layout;
use crate::store::{Store, StoreError};
use crate::witness;

/// All audit files of a state directory, with the ledger and the keys.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like their types")]
pub struct AuditArchive<'a> {
    pub layout: &'a Layout,
    pub store: &'a Store,
    /// Keys that may have signed the files.
    pub keys: &'a [PublicKey],
}

/// Result of posting several files.
#[derive(Debug, Clone, Default)]
pub struct PostedFiles {
    /// New rows.
    pub added: Posted,
    /// Files that the ledger refused.
    pub refused: Vec<Difference>,
    /// Receipts that stay as they are.
    pub late: Vec<LateOutcome>,
}

/// Number of files that are verified together, while the files before them are compared or posted.
pub(super) const BATCH: usize = 64;

impl AuditArchive<'_> {
    /// Compares the ledger with all files, call by call, and its stored sums with its rows.
    ///
    /// # Errors
    /// Errors of files and of SQLite.
    pub async fn check(&self) -> Result<RebuildReport, LedgerError> {
        let mut rebuilt = RebuildReport::default();
        let audited = self.audited()?;
        // Read before the files, so that a run that ends in the meantime is skipped.
        let open = self.open_runs().await?;
        let keys: Vec<_> = audited.iter().filter(|key| !open.contains(key)).cloned().collect();
        let mut batches = keys.chunks(BATCH);
        let mut next = self.read_next(&mut batches).await?;
        while let Some(readings) = next {
            let readings = readings.await.map_err(|_| StoreError::Closed)??;
            next = self.read_next(&mut batches).await?;
            rebuilt.add(self.store.query(move |connection| compare_all(connection, &readings)).await?);
        }
        rebuilt.under_way = open.len() as u64;
        self.report_missing_files(&mut rebuilt, &audited, &open).await?;
        rebuilt.report_sums(self.store.check_sums().await?);
        Ok(rebuilt)
    }

    /// Reports runs of the ledger without a file, pruned files without receipts, and voids that the ledger does not have.
    async fn report_missing_files(
        &self,
        rebuilt: &mut RebuildReport,
        audited: &BTreeSet<RunKey>,
        open: &BTreeSet<RunKey>,
    ) -> Result<(), LedgerError> {
        let decisions = Decisions::read(self.layout, self.keys)?;
        let known = self.store.known_runs().await?;
        let is_pruned = |key: &&RunKey| decisions.pruned.contains_key(*key);
        for key in known.difference(audited).filter(|key| !open.contains(key) && !is_pruned(key)) {
            let run = key.clone();
            let receipts = self.store.query(move |connection| receipt_rows::count_of(connection, &run)).await?;
            rebuilt.report(key, None, DifferenceKind::NoFile, format!("the ledger has {receipts} receipts of it"));
        }
        for (key, (pruned, _)) in &decisions.pruned {
            if pruned.receipts > 0 && !known.contains(key) && !audited.contains(key) {
                let receipts = pruned.receipts;
                let detail = format!(
                    "its audit file was pruned, and this database does not have its {receipts} receipts; bring the file or \
                     the database back from a backup or an archive"
                );
                rebuilt.report(key, None, DifferenceKind::NoFile, detail);
            }
        }
        for (key, receipt) in self.store.missing_voids(decisions.voids).await? {
            let detail = "sluice ledger rebuild voids it again".to_owned();
            rebuilt.report(&key, Some(&receipt), DifferenceKind::NotVoided, detail);
        }
        rebuilt.pruned = decisions.pruned.keys().filter(|key| !audited.contains(key)).count() as u64;
        Ok(())
    }

    /// Adds rows that the ledger does not have, and compares.
    ///
    /// # Errors
    /// Errors of files and of SQLite.
    pub async fn fill(&self) -> Result<RebuildReport, LedgerError> {
        let open = self.open_runs().await?;
        let keys: Vec<_> = self.audited()?.into_iter().filter(|key| !open.contains(key)).collect();
        // Late outcomes are among the differences of the check.
        let PostedFiles { mut added, refused, late: _ } = self.post_files(&keys).await?;
        added.entries += self.store.add_voids(Decisions::read(self.layout, self.keys)?.voids).await?;
        let sums_renewed = self.store.renew_sums().await?.len() as u64;
        let mut rebuilt = self.check().await?;
        rebuilt.sums_renewed = sums_renewed;
        rebuilt.added = added;
        rebuilt.differences.extend(refused);
        Ok(rebuilt)
    }

    /// Posts these files in their order.
    ///
    /// # Errors
    /// Errors of files and of SQLite.
    pub async fn post_files(&self, keys: &[RunKey]) -> Result<PostedFiles, LedgerError> {
        let mut all = PostedFiles::default();
        let mut batches = keys.chunks(BATCH);
        let mut next = self.read_next(&mut batches).await?;
        while let Some(readings) = next {
            let readings = readings.await.map_err(|_| StoreError::Closed)??;
            let names: Vec<_> = readings.iter().map(|reading| reading.key.to_string()).collect();
            next = self.read_next(&mut batches).await?;
            for (run, posted) in names.into_iter().zip(self.store.ingest_all(readings).await?) {
                match posted {
                    Ok(PostingResult { added, late }) => {
                        all.added.receipts += added.receipts;
                        all.added.entries += added.entries;
                        all.late.extend(late);
                    }
                    Err(error) if error.is_contradiction() => {
                        let detail = error.to_string();
                        all.refused.push(Difference {
                            run,
                            source_reference: None,
                            found: DifferenceKind::Conflict,
                            detail,
                        });
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(all)
    }

    /// Posts files of runs that have ended and whose file was not read, since their controller was killed.
    ///
    /// # Errors
    /// The first error; the other files are posted.
    pub async fn catch_up(&self) -> Result<(), LedgerError> {
        // A few at a time: a run may be waiting for the database.
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

    /// Starts to verify the next files, on a thread for blocking work: it hashes megabytes. Files that are pruned meanwhile are
    /// left out.
    pub(super) async fn read_next(
        &self,
        batches: &mut std::slice::Chunks<'_, RunKey>,
    ) -> Result<Option<Reader>, LedgerError> {
        let Some(batch) = batches.next() else { return Ok(None) };
        let decisions = Decisions::read(self.layout, self.keys)?;
        let mut files = Vec::with_capacity(batch.len());
        for key in batch {
            let mut seen = self.store.witnesses(key).await?;
            seen.extend(decisions.pruned_head(key));
            let is_own = !seen.is_empty() || self.is_own(key).await?;
            files.push((key.clone(), is_own, seen));
        }
        let (keys, layout) = (self.keys.to_vec(), self.layout.clone());
        Ok(Some(tokio::task::spawn_blocking(move || {
            let read = |(key, is_own, seen): (RunKey, bool, Vec<Witness>)| {
                let source = match witness::open(&layout.run(&key).audit) {
                    Ok(file) => Ok(AuditSource::File(Arc::new(file))),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        // `sluice prune` records a file before it removes it, which may have happened just now.
                        if Decisions::read(&layout, &keys)?.pruned.contains_key(&key) {
                            return Ok(None);
                        }
                        Ok(AuditSource::Absent)
                    }
                    Err(error) => Err(error),
                };
                let reading = source.and_then(|source| match decisions.vouched(&key) {
                    Some(last) => read_imported(&key, source, last),
                    None => {
                        let mut reading = read(&key, source, &TrustAnchors { keys: &keys, seen: &seen }, Writer::Gone)?;
                        if !is_own && !keys.is_empty() {
                            reading.doubt_without_end();
                        }
                        Ok(reading)
                    }
                });
                reading.map(Some).map_err(|error| LedgerError::UnreadableAudit(key, error))
            };
            files.into_iter().filter_map(|file| read(file).transpose()).collect()
        })))
    }

    /// Returns whether a run is one of this host, also after the loss of the database. For such a run, a file without its
    /// end is trusted, although no signature covers it: its sidecar was killed.
    async fn is_own(&self, key: &RunKey) -> Result<bool, LedgerError> {
        Ok(self.layout.records().of(key).exists() || self.store.phase(key).await?.is_some())
    }

    pub(super) fn audited(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        let audit = self.layout.state().join("audit");
        Ok(self.layout.audited().map_err(|error| LedgerError::UnreadableDirectory(audit, error))?.into_iter().collect())
    }

    async fn open_runs(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        Ok(self.store.open_runs().await?.into_iter().map(|open| open.entry.key).collect())
    }
}

/// Verifies an unsigned file that the operator has imported: exactly these lines are trusted.
fn read_imported(key: &RunKey, source: AuditSource, last: Witness) -> io::Result<ParsedAudit> {
    let mut reading = read(key, source, &TrustAnchors { keys: &[], seen: &[last] }, Writer::Gone)?;
    if reading.is_trusted() && reading.lines > last.seq + 1 {
        reading.distrust(format!("the audit file has {} lines, and {} were imported", reading.lines, last.seq + 1));
    }
    Ok(reading)
}

/// Files that are being verified.
pub(super) type Reader = tokio::task::JoinHandle<Result<Vec<ParsedAudit>, LedgerError>>;
