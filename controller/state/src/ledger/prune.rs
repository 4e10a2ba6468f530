//! Removal of audit files whose receipts are permanently in the ledger.
//!
//! The receipts stay, and so do the last hash and the number of lines of each file, so that a file that comes back is
//! recognized. The removal is recorded before it is done.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use sluice_contract::RunKey;

use super::compare::compare_all;
use super::parsed_audit::ParsedAudit;
use super::rebuild::AuditArchive;
use super::run_state::{ReadState, read_state};
use super::{LedgerError, receipts_of_run};
use crate::decisions::{self, Decision, DecisionError, PrunedRun};
use crate::file;
use crate::keys::Keys;
use crate::run::RunPhase;
use crate::store::StoreError;
use crate::witness;

/// Request to prune audit files.
#[derive(Debug, Clone)]
pub struct PruneOrder {
    /// Only runs whose last booking is before this time, in microseconds since 1970.
    pub before_us: i64,
    /// Directory that takes the files.
    pub archive: Option<PathBuf>,
    /// True if nothing is to be removed.
    pub dry_run: bool,
}

/// Result of a pruning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Pruned {
    /// Runs whose files were removed, or would be.
    pub runs: Vec<String>,
    /// Size of these files.
    pub bytes: u64,
    /// Runs before the time whose files stay, each with the reason.
    pub kept: Vec<KeptFile>,
    /// Number of newer files.
    pub newer: u64,
}

/// A file that stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeptFile {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Reason.
    pub reason: String,
}

/// Error of a pruning. Files that were removed before it stay removed.
#[derive(Debug, thiserror::Error)]
pub enum PruneError {
    /// A file cannot be read, copied or removed.
    #[error("cannot prune {0}")]
    Io(PathBuf, #[source] io::Error),
    /// The archive has another file of this name.
    #[error("{0} exists already, and is another file; name another directory with --archive")]
    Exists(PathBuf),
    /// The archive is a part of the state directory.
    #[error("the archive {0} is in the state directory; name a directory outside of it with --archive")]
    InState(PathBuf),
    /// The archive has the file itself, under another name or by a link.
    #[error("{0} is the audit file itself, and not a copy; name another directory with --archive")]
    SameFile(PathBuf),
    /// The decision cannot be recorded.
    #[error(transparent)]
    Decision(#[from] DecisionError),
    /// The ledger cannot be used.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// State of a file.
enum Candidate {
    /// The file may be removed.
    Settled(PrunedRun),
    /// The file stays.
    Kept(String),
    /// The last booking of the run is not before the time of the request.
    Newer,
}

impl AuditArchive<'_> {
    /// Removes the audit files of runs that are closed and settled, if the ledger agrees with the files.
    ///
    /// # Errors
    /// [`PruneError`]
    pub async fn prune(&self, keys: &Keys, order: &PruneOrder) -> Result<Pruned, PruneError> {
        let mut pruned = Pruned::default();
        let mut settled = Vec::new();
        let audited: Vec<_> = self.audited()?.into_iter().collect();
        let mut batches = audited.chunks(super::rebuild::BATCH);
        while let Some(readings) = self.read_next(&mut batches).await? {
            let readings = readings.await.map_err(|_| LedgerError::from(StoreError::Closed))??;
            let before_us = order.before_us;
            let judge = move |connection: &mut Connection| {
                let snapshot = connection.transaction()?;
                let judge = |reading| Ok((key_of(reading), judge(&snapshot, reading, before_us)?));
                readings.iter().map(judge).collect::<Result<Vec<_>, LedgerError>>()
            };
            for (key, candidate) in self.store.query(judge).await? {
                match candidate {
                    Candidate::Settled(run) => settled.push((key, run)),
                    Candidate::Kept(reason) => pruned.kept.push(KeptFile { run: key.to_string(), reason }),
                    Candidate::Newer => pruned.newer += 1,
                }
            }
        }
        let mut runs = Vec::new();
        for (key, mut run) in settled {
            let path = self.layout.run(&key).audit;
            run.bytes = fs::metadata(&path).map_err(|error| PruneError::Io(path.clone(), error))?.len();
            pruned.bytes += run.bytes;
            pruned.runs.push(run.run.clone());
            runs.push((path, run));
        }
        if !order.dry_run && !runs.is_empty() {
            self.remove(keys, order, runs)?;
        }
        Ok(pruned)
    }

    /// Creates the directory that takes the files, and returns its path without links.
    fn open_archive(&self, archive: &Path) -> Result<PathBuf, PruneError> {
        let failed = |error| PruneError::Io(archive.to_owned(), error);
        DirBuilder::new().recursive(true).mode(0o700).create(archive).map_err(failed)?;
        let archive = fs::canonicalize(archive).map_err(failed)?;
        let state = fs::canonicalize(self.layout.state()).map_err(failed)?;
        if archive.starts_with(state) { Err(PruneError::InState(archive)) } else { Ok(archive) }
    }

    fn remove(&self, keys: &Keys, order: &PruneOrder, runs: Vec<(PathBuf, PrunedRun)>) -> Result<(), PruneError> {
        if let Some(archive) = &order.archive {
            let archive = &self.open_archive(archive)?;
            runs.iter().try_for_each(|(path, _)| move_copy(path, archive))?;
            file::sync_directory(archive).map_err(|error| PruneError::Io(archive.clone(), error))?;
        }
        let (paths, runs): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        decisions::record(self.layout, keys, Decision::Prune { runs })?;
        for path in paths {
            fs::remove_file(&path).map_err(|error| PruneError::Io(path, error))?;
        }
        Ok(())
    }
}

fn key_of(reading: &ParsedAudit) -> RunKey {
    reading.key.clone()
}

/// Decides whether a file may be removed. In every unclear case, it stays.
fn judge(connection: &Connection, reading: &ParsedAudit, before_us: i64) -> Result<Candidate, LedgerError> {
    let (run_id, attempt) = (reading.key.run_id.as_str(), reading.key.attempt);
    let last_us: Option<i64> = connection.query_row(
        "SELECT max(us) FROM (
             SELECT updated_us AS us FROM runs WHERE run_id = ?1 AND attempt = ?2
             UNION ALL SELECT arrived_us FROM receipts WHERE run_id = ?1 AND attempt = ?2
             UNION ALL SELECT entries.arrived_us FROM entries JOIN receipts ON receipts.id = entries.receipt
                       WHERE run_id = ?1 AND attempt = ?2)",
        params![run_id, attempt],
        |row| row.get(0),
    )?;
    let kept = |reason: &str| Ok(Candidate::Kept(reason.to_owned()));
    let Some(last_us) = last_us else { return kept("the ledger does not know it; sluice ledger rebuild reads it") };
    if last_us >= before_us {
        return Ok(Candidate::Newer);
    }
    let row: Option<(String, String)> = connection
        .prepare_cached("SELECT phase, account FROM runs WHERE run_id = ?1 AND attempt = ?2")?
        .query_row(params![run_id, attempt], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if row.as_ref().is_some_and(|(phase, _)| phase != RunPhase::Closed.as_str()) {
        return kept("it is under way");
    }
    match read_state(connection, &reading.key)? {
        ReadState::ReadToEnd => {}
        ReadState::NotRead => return kept("its audit file was not read to its end"),
        ReadState::NotTrusted { reason } => return Ok(Candidate::Kept(reason)),
    }
    let receipts = receipts_of_run(connection, &reading.key)?;
    let open = receipts.iter().filter(|receipt| receipt.holds_budget()).count();
    if open > 0 {
        return Ok(Candidate::Kept(format!("the cost of {open} of its calls is not known")));
    }
    if let Some(difference) = compare_all(connection, std::slice::from_ref(reading))?.differences.first() {
        return Ok(Candidate::Kept(format!("it and the ledger differ: {}", difference.detail)));
    }
    let account = receipts.first().map(|receipt| receipt.account.clone()).or(row.map(|(_, account)| account));
    Ok(Candidate::Settled(PrunedRun {
        run: reading.key.to_string(),
        account: account.unwrap_or_default(),
        lines: reading.lines,
        head: reading.head.map(|head| head.to_string()),
        bytes: 0,
        receipts: receipts.len() as u64,
        last_us,
    }))
}

/// Copies a file into the archive. The same content may be there already.
fn move_copy(path: &Path, archive: &Path) -> Result<(), PruneError> {
    let name = path.file_name().unwrap_or_default();
    let to = archive.join(name);
    let failed = |error| PruneError::Io(to.clone(), error);
    let mut source = witness::open(path).map_err(|error| PruneError::Io(path.to_owned(), error))?;
    match witness::open(&to) {
        Ok(mut old) => {
            let place = |file: &File| file.metadata().map(|meta| (meta.dev(), meta.ino()));
            if place(&old).map_err(failed)? == place(&source).map_err(failed)? {
                return Err(PruneError::SameFile(to));
            }
            let (mut had, mut has) = (Vec::new(), Vec::new());
            old.read_to_end(&mut had).and_then(|_| source.read_to_end(&mut has)).map_err(failed)?;
            if had == has { Ok(()) } else { Err(PruneError::Exists(to)) }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // A killed command may have left it.
            let part = archive.join(format!("{}.part", name.display()));
            let _ = fs::remove_file(&part);
            let copied =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part).and_then(|mut copy| {
                    io::copy(&mut source, &mut copy)?;
                    copy.sync_all()?;
                    fs::rename(&part, &to)
                });
            if copied.is_err() {
                let _ = fs::remove_file(&part);
            }
            copied.map_err(failed)
        }
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::store::Store;

    struct PruneFiles {
        directory: tempfile::TempDir,
        source: PathBuf,
    }

    fn files() -> PruneFiles {
        let directory = tempfile::tempdir().expect("there is room");
        let source = directory.path().join("r1.0.jsonl");
        fs::write(&source, "a line\n").expect("it is ours");
        fs::create_dir(directory.path().join("archive")).expect("there is room");
        PruneFiles { directory, source }
    }

    impl PruneFiles {
        fn archive(&self) -> PathBuf {
            self.directory.path().join("archive")
        }

        fn to(&self) -> PathBuf {
            self.archive().join("r1.0.jsonl")
        }
    }

    #[test]
    fn a_link_to_the_file_is_no_copy() {
        let files = files();
        std::os::unix::fs::symlink(&files.source, files.to()).expect("the name is free");
        assert!(matches!(move_copy(&files.source, &files.archive()), Err(PruneError::Io(..))));
        fs::remove_file(files.to()).expect("it is ours");
        fs::hard_link(&files.source, files.to()).expect("the name is free");
        assert!(matches!(move_copy(&files.source, &files.archive()), Err(PruneError::SameFile(_))));
        assert!(matches!(move_copy(&files.source, files.directory.path()), Err(PruneError::SameFile(_))));
    }

    #[test]
    fn only_a_whole_copy_has_the_name_of_the_file() {
        let files = files();
        let part = files.archive().join("r1.0.jsonl.part");
        fs::write(&part, "a li").expect("as a killed command leaves it");
        for _ in 0..2 {
            move_copy(&files.source, &files.archive()).expect("there is room");
            assert_eq!(fs::read(files.to()).expect("it is there"), b"a line\n");
            assert!(!part.exists());
        }
        fs::write(files.to(), "another line\n").expect("it is ours");
        assert!(matches!(move_copy(&files.source, &files.archive()), Err(PruneError::Exists(_))));

        fs::remove_file(files.to()).expect("it is ours");
        fs::create_dir(&part).expect("nothing can be written under this name");
        assert!(move_copy(&files.source, &files.archive()).is_err());
        assert!(!files.to().exists());
    }

    #[tokio::test]
    async fn the_state_directory_is_no_archive() {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(&directory.path().join("st")).expect("there is room");
        let store = Store::open(&layout.database()).expect("it is new");
        let archive = AuditArchive { layout: &layout, store: &store, keys: &[] };
        std::os::unix::fs::symlink(layout.state().join("audit"), directory.path().join("link")).expect("it is free");
        for name in ["st", "st/audit", "st/runs/../audit", "link"] {
            let opened = archive.open_archive(&directory.path().join(name));
            assert!(matches!(opened, Err(PruneError::InState(_))), "{name}: {opened:?}");
        }
        let other = directory.path().join("state-archive");
        assert_eq!(archive.open_archive(&other).expect("it is outside"), other);
    }
}
