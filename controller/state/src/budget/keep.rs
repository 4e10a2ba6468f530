//! The budget log on disk, and how log and database follow each other.
//!
//! A change is committed to the database, then appended to the log, then noted in the database as logged. A kill between two of
//! these steps leaves one that the next command takes up.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use nix::fcntl::{Flock, FlockArg};
use sluice_contract::{Hash, RunKey};

use super::book::LogState;
use super::error::LogError;
use super::log::{self, Change, Kind, Known, LogEntry, Plan};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::ledger::{AuditArchive, LedgerError};
use crate::store::{Store, now_us};
use crate::witness;

/// The budget log of a state directory, beside its database.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like their types")]
pub struct BudgetLog<'a> {
    pub layout: &'a Layout,
    pub keys: &'a Keys,
    pub store: &'a Store,
}

impl BudgetLog<'_> {
    /// Whether a run of this account may be admitted: the database knows all that was said of budgets, and, where the account
    /// has one, all audit files. Returns what somebody should know of the log all the same.
    ///
    /// # Errors
    /// Why it must not be.
    pub async fn ready(&self, account: &str) -> Result<Option<LogError>, LogError> {
        let note = if self.is_followed().await? { None } else { self.follow().await? };
        if self.store.has_budget(account.to_owned()).await? {
            let files = self.layout.audited().map_err(|error| self.failed(error))?;
            let unknown = self.store.unknown_runs(files).await?;
            if let Some(example) = unknown.first().cloned() {
                return Err(LogError::Behind { account: account.to_owned(), runs: unknown.len(), example });
            }
        }
        Ok(note)
    }

    /// Whether log and database agree, or would once the last command is taken up. Returns what is wrong with the log where the
    /// database alone knows all budgets.
    ///
    /// # Errors
    /// As of [`BudgetLog::follow`].
    pub async fn look(&self) -> Result<Option<LogError>, LogError> {
        let path = self.path();
        let (state, entries) = match self.read().await {
            Ok(read) => read,
            Err(damaged @ LogError::Damaged { .. }) => return Ok(Some(damaged)),
            Err(error) => return Err(error),
        };
        match log::plan(entries.as_deref(), &state.known) {
            Plan::Ahead { lines } => Err(LogError::Ahead { path, lines }),
            Plan::Lost => Err(LogError::Lost(path)),
            Plan::Damaged { reason } => Ok(Some(LogError::Damaged { path, reason })),
            Plan::Begin | Plan::Follow { .. } => Ok(None),
        }
    }

    /// Brings the log to where the database is. Returns what is wrong with the log where the database alone knows all
    /// budgets.
    ///
    /// # Errors
    /// Why that cannot be done, [`LogError::Ahead`] and [`LogError::Lost`] above all.
    pub async fn follow(&self) -> Result<Option<LogError>, LogError> {
        let _lock = self.lock()?;
        let (state, entries) = match self.read().await {
            Ok(read) => read,
            Err(damaged @ LogError::Damaged { .. }) => return Ok(Some(damaged)),
            Err(error) => return Err(error),
        };
        let path = self.path();
        match log::plan(entries.as_deref(), &state.known) {
            Plan::Ahead { lines } => Err(LogError::Ahead { path, lines }),
            Plan::Lost => Err(LogError::Lost(path)),
            Plan::Damaged { reason } => Ok(Some(LogError::Damaged { path, reason })),
            Plan::Begin => {
                self.append(&state, 0, Hash::ZERO).await?;
                Ok(None)
            }
            Plan::Follow { adopt } => {
                let entries = entries.unwrap_or_default();
                let first = state.known.logged.len();
                for (seq, entry) in entries.iter().enumerate().skip(first).take(adopt) {
                    let budget = seq.checked_sub(first.max(1)).and_then(|place| state.ids.get(place)).copied();
                    self.store.note_logged(seq as u64, entry.hash, budget.filter(|_| seq > 0)).await?;
                }
                let done = adopt.saturating_sub(usize::from(first == 0));
                let last = entries.last().map_or(Hash::ZERO, |entry| entry.hash);
                self.append(&state.after(done), entries.len(), last).await?;
                Ok(None)
            }
        }
    }

    /// Restores the changes that the log has and the database does not, each after the receipts of the runs that were paid
    /// before it. Returns how many there were.
    ///
    /// # Errors
    /// Why that cannot be done; what was restored by then stays so.
    pub async fn restore(&self, shelf: &AuditArchive<'_>) -> Result<u64, LogError> {
        let _lock = self.lock()?;
        let (state, entries) = self.read().await?;
        let entries = entries.unwrap_or_default();
        let Plan::Ahead { .. } = log::plan(Some(&entries), &state.known) else { return Ok(0) };
        if !state.known.unlogged.is_empty() {
            let reason = "budgets were set in a database that did not know its changes";
            return Err(LogError::Damaged { path: self.path(), reason: reason.to_owned() });
        }
        let open: Vec<_> = self.store.open_runs().await.map_err(LedgerError::from)?;
        let files = self.layout.audited().map_err(|error| self.failed(error))?;
        let unread = self.store.unread_files(files).await?;
        let unread = unread.into_iter().filter(|key| open.iter().all(|open| open.entry.key != *key));
        let mut files: Vec<_> = unread.map(|key| (self.paid_us(&key, &entries), key)).collect();
        files.sort();
        let mut files = files.into_iter().peekable();
        let mut restored = 0;
        for (seq, entry) in entries.into_iter().enumerate().skip(state.known.logged.len()) {
            let mut before = Vec::new();
            while let Some((_, key)) = files.next_if(|(paid_us, _)| *paid_us <= entry.change.made_us) {
                before.push(key);
            }
            // What the ledger refuses of them is told when all files are read.
            shelf.post_files(&before).await?;
            restored += u64::from(entry.change.kind != Kind::Begun);
            self.store.restore_budget(seq as u64, entry).await?;
        }
        Ok(restored)
    }

    /// Says that the budgets in the database are all that hold: a new log begins with them. The old log is kept beside it.
    ///
    /// # Errors
    /// Why that cannot be done.
    pub async fn confirm(&self) -> Result<Option<PathBuf>, LogError> {
        let _lock = self.lock()?;
        let path = self.path();
        let mut aside = None;
        if path.symlink_metadata().is_ok() {
            let to = path.with_extension(format!("log.{}", now_us()));
            fs::rename(&path, &to).and_then(|()| self.sync()).map_err(|error| self.failed(error))?;
            aside = Some(to);
        }
        self.store.forget_log().await?;
        let state = self.store.log_state().await?;
        self.append(&state, 0, Hash::ZERO).await?;
        Ok(aside)
    }

    /// Whether the log ends with the line that the database wrote last, and nothing waits to be written.
    async fn is_followed(&self) -> Result<bool, LogError> {
        let Some((lines, last)) = self.store.last_logged().await? else { return Ok(false) };
        let Some(bytes) = self.bytes()? else { return Ok(false) };
        let whole = log::whole(&bytes);
        let mut all = whole.split_inclusive(|byte| *byte == b'\n');
        Ok(all.next_back().is_some_and(|line| Hash::of(line) == last) && all.count() as u64 + 1 == lines)
    }

    /// Until when a run's receipts were in the ledger at the latest, as far as that can be known: its end, or the change of a
    /// budget that says that they were not there yet.
    fn paid_us(&self, key: &RunKey, entries: &[LogEntry]) -> i64 {
        let late = entries.iter().filter(|entry| entry.late.contains(key)).map(|entry| entry.change.made_us + 1);
        let ended = last_us(&self.layout.run(key).audit).unwrap_or(i64::MAX);
        late.chain([ended]).max().unwrap_or(i64::MAX)
    }

    async fn read(&self) -> Result<(LogState, Option<Vec<LogEntry>>), LogError> {
        let mut state = self.store.log_state().await?;
        state.known.is_original |= self.layout.audited().map_err(|error| self.failed(error))?.is_empty();
        let Some(bytes) = self.bytes()? else { return Ok((state, None)) };
        match log::read(&bytes, &self.keys.public()?) {
            Ok(entries) => Ok((state, Some(entries))),
            Err(fault) => {
                let lines = log::whole(&bytes).iter().filter(|byte| **byte == b'\n').count();
                Err(if lines <= state.known.logged.len() {
                    LogError::Damaged { path: self.path(), reason: fault.to_string() }
                } else {
                    LogError::Forged(self.path(), fault)
                })
            }
        }
    }

    /// Appends the changes that the log does not have, and the line that begins it where there is none.
    async fn append(&self, state: &LogState, lines: usize, last: Hash) -> Result<(), LogError> {
        let begin = (lines == 0).then(|| {
            let change = Change { account: String::new(), kind: Kind::Begun, nano_usd: 0, made_us: now_us() };
            (None, change, Vec::new())
        });
        let rows = state.ids.iter().zip(&state.known.unlogged).zip(&state.late);
        let rows = rows.map(|((id, change), late)| (Some(*id), change.clone(), late.clone()));
        let (mut seq, mut prev) = (lines as u64, last);
        for (id, change, late) in begin.into_iter().chain(rows) {
            let key = self.keys.budget_signer()?;
            let line = log::line(&change, &late, seq, prev, &key.public().id(), |hash| key.sign_budget(hash));
            prev = Hash::of(&line);
            self.write(&line).map_err(|error| self.failed(error))?;
            self.store.note_logged(seq, prev, id).await?;
            seq += 1;
        }
        Ok(())
    }

    /// Puts a line behind the last whole one, and on disk.
    fn write(&self, line: &[u8]) -> io::Result<()> {
        let path = self.path();
        let is_new = path.symlink_metadata().is_err();
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        // What a killed process has left of its line.
        let end = log::whole(&fs::read(&path)?).len() as u64;
        file.set_len(end)?;
        let written = file.write_all(line).and_then(|()| file.sync_all());
        if written.is_err() {
            let _ = file.set_len(end);
        }
        written?;
        if is_new { self.sync() } else { Ok(()) }
    }

    fn bytes(&self) -> Result<Option<Vec<u8>>, LogError> {
        match fs::read(self.path()) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn lock(&self) -> Result<Flock<File>, LogError> {
        let directory = File::open(self.layout.state()).map_err(|error| self.failed(error))?;
        Flock::lock(directory, FlockArg::LockExclusive).map_err(|(_, error)| self.failed(error.into()))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.layout.state())?.sync_all()
    }

    fn path(&self) -> PathBuf {
        self.layout.budget_log()
    }

    fn failed(&self, error: io::Error) -> LogError {
        LogError::Io(self.path(), error)
    }
}

impl LogState {
    /// The same when the first changes are logged.
    fn after(&self, logged: usize) -> Self {
        let Known { logged: hashes, unlogged, is_original } = &self.known;
        let unlogged = unlogged[logged..].to_vec();
        let known = Known { logged: hashes.clone(), unlogged, is_original: *is_original };
        Self { known, ids: self.ids[logged..].to_vec(), late: self.late[logged..].to_vec() }
    }
}

/// The time of the last whole line of an audit file.
fn last_us(path: &std::path::Path) -> Option<i64> {
    use std::io::{Read, Seek, SeekFrom};
    const ENOUGH: u64 = 1 << 16;
    let mut file = witness::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(ENOUGH))).ok()?;
    let mut bytes = Vec::new();
    file.take(ENOUGH).read_to_end(&mut bytes).ok()?;
    let last = log::whole(&bytes).split_inclusive(|byte| *byte == b'\n').next_back()?;
    let line: serde_json::Value = serde_json::from_slice(last).ok()?;
    let time = humantime::parse_rfc3339(line["ts"].as_str()?).ok()?;
    i64::try_from(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_micros()).ok()
}
