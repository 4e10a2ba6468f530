//! The database of runs: one thread owns it, everybody else holds a handle.
//!
//! A commit is on disk before anybody goes on. Several controllers may use the same file: each change names the
//! generation that it was made from, and a stale one is refused.

use std::fs::{File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, TransactionBehavior, params};
use sluice_contract::{RunId, RunKey, Witness};
use tokio::sync::oneshot;

use crate::process::Process;
use crate::run::{Phase, Run};

/// What makes each schema of the one before. A step that was released is never changed.
const MIGRATIONS: [&str; 7] = [
    include_str!("store/migrations/1-runs.sql"),
    include_str!("store/migrations/2-witnesses.sql"),
    include_str!("store/migrations/3-ledger.sql"),
    include_str!("store/migrations/4-reconcile.sql"),
    include_str!("store/migrations/5-budgets.sql"),
    include_str!("store/migrations/6-tokens.sql"),
    include_str!("store/migrations/7-sums.sql"),
];
const SCHEMA: u32 = MIGRATIONS.len() as u32;
const BUSY: Duration = Duration::from_secs(10);

/// A handle to the database.
#[derive(Debug, Clone)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// What is written of a run before anything of it exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct RunRow {
    pub key: RunKey,
    pub account: String,
    pub agent: String,
    pub model: Option<String>,
    pub image: String,
    /// The controller that drives it.
    pub owner: Process,
}

/// A run that is not over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// What was asked for, and who drives it.
    pub entry: RunRow,
    /// How often it was taken over.
    pub generation: u32,
    /// Its sidecar, if one was recorded.
    pub sidecar: Option<Process>,
}

/// Why the database did not do something.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be opened.
    #[error("cannot open the database {0}")]
    Open(PathBuf, #[source] rusqlite::Error),
    /// It was written by a newer build.
    #[error("the database {path} has schema {found}, and this build knows {SCHEMA}; use the newer sluice")]
    Newer {
        /// Which database.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
    /// It was written by an older build, or is no database of runs.
    #[error("the database {path} has schema {found}, and this build reads {SCHEMA}; the next run upgrades its own")]
    Older {
        /// Which database.
        path: PathBuf,
        /// Its schema.
        found: u32,
    },
    /// SQLite found the file to be broken.
    #[error(
        "the database {path} is damaged: {why}; restore a copy that sluice ledger backup made, then run sluice ledger rebuild"
    )]
    Damaged {
        /// Which database.
        path: PathBuf,
        /// In SQLite's words.
        why: String,
    },
    /// A run of this name is there.
    #[error("there is a run {0} already; a run id is used once")]
    Exists(RunKey),
    /// Somebody else drives the run now.
    #[error("run {0} is driven by another controller now")]
    Stale(RunKey),
    /// SQLite said no.
    #[error("cannot use the database")]
    Sqlite(#[from] rusqlite::Error),
    /// The thread has ended.
    #[error("the database is closed")]
    Closed,
}

impl Store {
    /// Opens the database, and makes or upgrades its tables.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Newer`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut connection = connect(path).map_err(|error| cannot_open(path, error))?;
        migrate(&mut connection, path)?;
        Ok(Self::over(connection))
    }

    /// Opens a database to read it alone: it may be evidence, and is not changed.
    ///
    /// # Errors
    /// [`StoreError::Open`], [`StoreError::Newer`], [`StoreError::Older`].
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let failed = |error| cannot_open(path, error);
        let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(failed)?;
        connection.busy_timeout(BUSY).map_err(failed)?;
        match connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).map_err(failed)? {
            SCHEMA => Ok(Self::over(connection)),
            found if found > SCHEMA => Err(StoreError::Newer { path: path.to_owned(), found }),
            found => Err(StoreError::Older { path: path.to_owned(), found }),
        }
    }

    fn over(mut connection: Connection) -> Self {
        let (jobs, queue) = mpsc::channel::<Job>();
        thread::spawn(move || {
            for job in queue {
                job(&mut connection);
            }
        });
        Self { jobs }
    }

    /// Writes down that a run was asked for.
    ///
    /// # Errors
    /// [`StoreError::Exists`], and those of SQLite.
    pub async fn begin(&self, entry: RunRow) -> Result<(), StoreError> {
        self.call(move |connection| insert(connection, &entry)).await
    }

    /// Writes down where a run stands.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when somebody has taken it over.
    pub async fn record(
        &self,
        key: &RunKey,
        generation: u32,
        run: &Run,
        sidecar: Option<&Process>,
    ) -> Result<(), StoreError> {
        let (key, phase, sidecar) = (key.clone(), run.phase, sidecar.cloned());
        let verdict = run.verdict.as_ref().map(|verdict| serde_json::to_string(verdict).expect("plain data"));
        self.call(move |connection| {
            let changed = connection.execute(
                "UPDATE runs SET phase = ?4, verdict = ?5, sidecar_pid = ?6, sidecar_start = ?7, sidecar_boot = ?8,
                                 updated_us = ?9
                 WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3",
                params![
                    key.run_id.as_str(),
                    key.attempt,
                    generation,
                    phase.as_str(),
                    verdict,
                    sidecar.as_ref().map(|process| process.pid),
                    sidecar.as_ref().map(ticks),
                    sidecar.as_ref().map(|process| process.boot.as_str()),
                    now_us(),
                ],
            )?;
            if changed == 1 { Ok(()) } else { Err(StoreError::Stale(key)) }
        })
        .await
    }

    /// Writes down what a run came to.
    ///
    /// # Errors
    /// [`StoreError::Stale`].
    pub async fn judge(
        &self,
        key: &RunKey,
        generation: u32,
        error_code: Option<&'static str>,
        exit_code: i32,
    ) -> Result<(), StoreError> {
        let key = key.clone();
        self.call(move |connection| {
            let changed = connection.execute(
                "UPDATE runs SET error_code = ?4, exit_code = ?5 WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3",
                params![key.run_id.as_str(), key.attempt, generation, error_code, exit_code],
            )?;
            if changed == 1 { Ok(()) } else { Err(StoreError::Stale(key)) }
        })
        .await
    }

    /// Writes down what was seen of a run's audit file. What was seen first stands.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn witness(&self, key: &RunKey, seen: Witness) -> Result<(), StoreError> {
        let key = key.clone();
        self.call(move |connection| {
            connection.execute(
                "INSERT OR IGNORE INTO witnesses (run_id, attempt, seq, head, seen_us) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![key.run_id.as_str(), key.attempt, seen.seq.cast_signed(), seen.head.to_string(), now_us()],
            )?;
            Ok(())
        })
        .await
    }

    /// What was seen of a run's audit file.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn witnesses(&self, key: &RunKey) -> Result<Vec<Witness>, StoreError> {
        let key = key.clone();
        self.call(move |connection| {
            let mut query = connection
                .prepare("SELECT seq, head FROM witnesses WHERE run_id = ?1 AND attempt = ?2 ORDER BY seq")?;
            let rows = query.query_map(params![key.run_id.as_str(), key.attempt], |row| {
                let head: String = row.get(1)?;
                let head = head.parse().map_err(|error| {
                    rusqlite::Error::FromSqlConversionFailure(1, rusqlite::types::Type::Text, Box::new(error))
                })?;
                Ok(Witness { seq: row.get::<_, i64>(0)?.cast_unsigned(), head })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The runs that are not over.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn open_runs(&self) -> Result<Vec<OpenRun>, StoreError> {
        self.call(|connection| {
            let mut query = connection.prepare(
                "SELECT run_id, attempt, account, agent, model, image, owner_pid, owner_start, owner_boot, generation,
                        sidecar_pid, sidecar_start, sidecar_boot
                 FROM runs WHERE phase <> 'closed' ORDER BY created_us",
            )?;
            let rows = query.query_map([], open)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Takes over a run; of several that try, one succeeds.
    ///
    /// # Errors
    /// [`StoreError::Stale`] for the others.
    pub async fn take_over(&self, open: &OpenRun, owner: &Process) -> Result<u32, StoreError> {
        let (key, owner, generation) = (open.entry.key.clone(), owner.clone(), open.generation);
        self.call(move |connection| {
            let changed = connection.execute(
                "UPDATE runs SET owner_pid = ?4, owner_start = ?5, owner_boot = ?6, generation = generation + 1
                 WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3 AND phase <> 'closed'",
                params![key.run_id.as_str(), key.attempt, generation, owner.pid, ticks(&owner), owner.boot],
            )?;
            if changed == 1 { Ok(generation + 1) } else { Err(StoreError::Stale(key)) }
        })
        .await
    }

    /// Forgets a run that nobody is to hear of, and what was seen of its log.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when somebody has taken it over.
    pub async fn forget(&self, key: &RunKey, generation: u32) -> Result<(), StoreError> {
        let key = key.clone();
        self.call(move |connection| {
            let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let forgotten = change.execute(
                "DELETE FROM runs WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3",
                params![key.run_id.as_str(), key.attempt, generation],
            )?;
            if forgotten != 1 {
                return Err(StoreError::Stale(key));
            }
            change.execute(
                "DELETE FROM witnesses WHERE run_id = ?1 AND attempt = ?2",
                params![key.run_id.as_str(), key.attempt],
            )?;
            Ok(change.commit()?)
        })
        .await
    }

    /// Whether a run is known and over.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn phase(&self, key: &RunKey) -> Result<Option<String>, StoreError> {
        let key = key.clone();
        self.call(move |connection| {
            Ok(connection
                .query_row(
                    "SELECT phase FROM runs WHERE run_id = ?1 AND attempt = ?2",
                    params![key.run_id.as_str(), key.attempt],
                    |row| row.get(0),
                )
                .optional()?)
        })
        .await
    }

    pub(crate) async fn call<T: Send + 'static, E: From<StoreError> + Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E> {
        self.submit(job).await.map_err(|_| StoreError::Closed)?
    }

    /// Has it done behind all that was asked for before, whether or not anybody waits for the answer.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce(&mut Connection) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move |connection: &mut Connection| {
            // Nobody may wait for it any more.
            let _ = answer.send(job(connection));
        });
        // If the thread has ended, the answer's channel says so.
        let _ = self.jobs.send(job);
        answered
    }
}

/// The first record of a run.
pub(crate) fn insert(connection: &Connection, entry: &RunRow) -> Result<(), StoreError> {
    let done = connection.execute(
        "INSERT INTO runs (run_id, attempt, phase, account, agent, model, image, owner_pid, owner_start, owner_boot,
                               created_us, updated_us)
             VALUES (?1, ?2, 'pending', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10)",
        params![
            entry.key.run_id.as_str(),
            entry.key.attempt,
            entry.account,
            entry.agent,
            entry.model,
            entry.image,
            entry.owner.pid,
            ticks(&entry.owner),
            entry.owner.boot,
            now_us(),
        ],
    );
    match done {
        Err(rusqlite::Error::SqliteFailure(error, _))
            if error.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY =>
        {
            Err(StoreError::Exists(entry.key.clone()))
        }
        done => done.map(drop).map_err(StoreError::from),
    }
}

fn cannot_open(path: &Path, error: rusqlite::Error) -> StoreError {
    if is_damage(&error) {
        StoreError::Damaged { path: path.to_owned(), why: error.to_string() }
    } else {
        StoreError::Open(path.to_owned(), error)
    }
}

/// Whether SQLite says that the file itself is broken, and not that it may not be used now.
pub(crate) fn is_damage(error: &rusqlite::Error) -> bool {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    matches!(error.sqlite_error_code(), Some(DatabaseCorrupt | NotADatabase))
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
    if mode != "wal" {
        // For its owner alone, and so will be the files that SQLite puts beside it. By its name: see below.
        let _ = std::fs::set_permissions(path, Permissions::from_mode(0o600));
        // SQLite does not wait for this one: of several first starts, one goes first. The lock is on the directory,
        // since closing any descriptor of the file would take SQLite's own locks from it.
        let invalid = || rusqlite::Error::InvalidPath(path.to_owned());
        let directory = path.parent().and_then(|directory| File::open(directory).ok()).ok_or_else(invalid)?;
        let _first = Flock::lock(directory, FlockArg::LockExclusive).map_err(|_| invalid())?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
    }
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "foreign_keys", "ON")?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let failed = |error| cannot_open(path, error);
    let version = |connection: &Connection| {
        connection.pragma_query_value(None, "user_version", |row| row.get::<_, u32>(0)).map_err(failed)
    };
    if version(connection)? == SCHEMA {
        return Ok(());
    }
    // Of two controllers that start at once, one makes the tables.
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&change)?;
    if found > SCHEMA {
        return Err(StoreError::Newer { path: path.to_owned(), found });
    }
    for step in &MIGRATIONS[found as usize..] {
        change.execute_batch(step).map_err(failed)?;
    }
    change.pragma_update(None, "user_version", SCHEMA).map_err(failed)?;
    change.commit().map_err(failed)
}

fn open(row: &Row<'_>) -> rusqlite::Result<OpenRun> {
    let text = row.get::<_, String>(0)?;
    let run_id: RunId = text
        .parse()
        .map_err(|error| rusqlite::Error::FromSqlConversionFailure(0, rusqlite::types::Type::Text, Box::new(error)))?;
    let process = |first: usize| -> rusqlite::Result<Option<Process>> {
        let pid: Option<i32> = row.get(first)?;
        let Some(pid) = pid else { return Ok(None) };
        let start: i64 = row.get(first + 1)?;
        Ok(Some(Process { pid, start: start.cast_unsigned(), boot: row.get(first + 2)? }))
    };
    Ok(OpenRun {
        entry: RunRow {
            key: RunKey { run_id, attempt: row.get(1)? },
            account: row.get(2)?,
            agent: row.get(3)?,
            model: row.get(4)?,
            image: row.get(5)?,
            owner: process(6)?.expect("the column is not null"),
        },
        generation: row.get(9)?,
        sidecar: process(10)?,
    })
}

fn ticks(process: &Process) -> i64 {
    process.start.cast_signed()
}

/// Returns the time of the system clock, in microseconds since 1970.
#[must_use]
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

impl OpenRun {
    /// Whether the controller that drives it is gone.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        !self.entry.owner.is_alive()
    }

    /// Where it stands is decided by whoever takes it over.
    #[must_use]
    pub fn as_run(&self) -> Run {
        Run { phase: Phase::Running, ..Run::new() }
    }
}

#[cfg(test)]
mod tests;
