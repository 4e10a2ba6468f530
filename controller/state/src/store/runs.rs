//! The table of runs: one row for each attempt.

use rusqlite::{Connection, OptionalExtension, Row, TransactionBehavior, params};
use sluice_contract::RunKey;

use super::{Store, StoreError, now_us, run_key};
use crate::process::Process;
use crate::run::{Run, RunPhase};

/// The row of an attempt before anything of the attempt exists.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct RunRow {
    pub key: RunKey,
    pub account: String,
    pub agent: String,
    pub model: Option<String>,
    pub image: String,
    /// The controller that drives the run.
    pub owner: Process,
    pub driver: RunDriver,
}

/// Kind of the program that drives a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RunDriver {
    /// A command that ends with its run. If it is killed, any other command removes the remains of the run.
    Once,
    /// The daemon. Its runs continue while it is down, and only a daemon takes them over.
    Daemon,
}

/// A run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenRun {
    /// The request, and the controller that drives the run.
    pub entry: RunRow,
    /// Number of takeovers.
    pub generation: u32,
    /// The sidecar, if one was recorded.
    pub sidecar: Option<Process>,
}

impl Store {
    /// Adds the row of a run.
    ///
    /// # Errors
    /// [`StoreError::Exists`], and errors of SQLite.
    pub async fn begin(&self, entry: RunRow) -> Result<(), StoreError> {
        self.write(move |connection| insert(connection, &entry)).await
    }

    /// Records the state of a run.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when another controller has taken over the run.
    pub async fn record(
        &self,
        key: &RunKey,
        generation: u32,
        run: &Run,
        sidecar: Option<&Process>,
    ) -> Result<(), StoreError> {
        let (key, phase, sidecar) = (key.clone(), run.phase, sidecar.cloned());
        let verdict = run.verdict.as_ref().map(|verdict| serde_json::to_string(verdict).expect("plain data"));
        self.write(move |connection| {
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

    /// Records the result of a run.
    ///
    /// # Errors
    /// [`StoreError::Stale`].
    pub async fn record_result(
        &self,
        key: &RunKey,
        generation: u32,
        error_code: Option<&'static str>,
        exit_code: i32,
    ) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            let changed = connection.execute(
                "UPDATE runs SET error_code = ?4, exit_code = ?5 WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3",
                params![key.run_id.as_str(), key.attempt, generation, error_code, exit_code],
            )?;
            if changed == 1 { Ok(()) } else { Err(StoreError::Stale(key)) }
        })
        .await
    }

    /// Returns the runs that have not ended, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn open_runs(&self) -> Result<Vec<OpenRun>, StoreError> {
        self.query(|connection| {
            let mut query = connection.prepare(
                "SELECT run_id, attempt, account, agent, model, image, owner_pid, owner_start, owner_boot, generation,
                        sidecar_pid, sidecar_start, sidecar_boot, driver
                 FROM runs WHERE phase <> 'closed' ORDER BY created_us",
            )?;
            let rows = query.query_map([], open_run)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns the runs that have not ended and that programs of this kind drive, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn open_runs_of(&self, driver: RunDriver) -> Result<Vec<OpenRun>, StoreError> {
        let mut open = self.open_runs().await?;
        open.retain(|run| run.entry.driver == driver);
        Ok(open)
    }

    /// Takes over a run, and returns its new generation. Of several controllers that try, one succeeds.
    ///
    /// # Errors
    /// [`StoreError::Stale`] for the others.
    pub async fn take_over(&self, open: &OpenRun, owner: &Process) -> Result<u32, StoreError> {
        let (key, owner, generation) = (open.entry.key.clone(), owner.clone(), open.generation);
        self.write(move |connection| {
            let changed = connection.execute(
                "UPDATE runs SET owner_pid = ?4, owner_start = ?5, owner_boot = ?6, generation = generation + 1
                 WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3 AND phase <> 'closed'",
                params![key.run_id.as_str(), key.attempt, generation, owner.pid, ticks(&owner), owner.boot],
            )?;
            if changed == 1 { Ok(generation + 1) } else { Err(StoreError::Stale(key)) }
        })
        .await
    }

    /// Opens the row of an attempt again that was closed without its result: its controller was killed between the two.
    /// Returns true if that was so. The next controller judges the run by its verdict and its records.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn reopen_unjudged(&self, key: &RunKey) -> Result<bool, StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            let changed = connection.execute(
                "UPDATE runs SET phase = 'completing'
                 WHERE run_id = ?1 AND attempt = ?2 AND phase = 'closed' AND verdict IS NOT NULL AND exit_code IS NULL",
                params![key.run_id.as_str(), key.attempt],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    /// Deletes a run without remains, and its witnesses.
    ///
    /// # Errors
    /// [`StoreError::Stale`] when another controller has taken over the run.
    pub async fn delete_run(&self, key: &RunKey, generation: u32) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let deleted = transaction.execute(
                "DELETE FROM runs WHERE run_id = ?1 AND attempt = ?2 AND generation = ?3",
                params![key.run_id.as_str(), key.attempt, generation],
            )?;
            if deleted != 1 {
                return Err(StoreError::Stale(key));
            }
            transaction.execute(
                "DELETE FROM witnesses WHERE run_id = ?1 AND attempt = ?2",
                params![key.run_id.as_str(), key.attempt],
            )?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Returns the phase of a run; `None` for an unknown run.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn phase(&self, key: &RunKey) -> Result<Option<String>, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
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
}

/// Inserts the first row of a run.
pub(crate) fn insert(connection: &Connection, entry: &RunRow) -> Result<(), StoreError> {
    let done = connection.execute(
        "INSERT INTO runs (run_id, attempt, phase, account, agent, model, image, owner_pid, owner_start, owner_boot,
                           created_us, updated_us, driver)
         VALUES (?1, ?2, 'pending', ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10, ?11)",
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
            entry.driver.as_str(),
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

pub(super) fn open_run(row: &Row<'_>) -> rusqlite::Result<OpenRun> {
    let process = |first: usize| -> rusqlite::Result<Option<Process>> {
        let pid: Option<i32> = row.get(first)?;
        let Some(pid) = pid else { return Ok(None) };
        let start: i64 = row.get(first + 1)?;
        Ok(Some(Process { pid, start: start.cast_unsigned(), boot: row.get(first + 2)? }))
    };
    Ok(OpenRun {
        entry: RunRow {
            key: run_key(row, 0)?,
            account: row.get(2)?,
            agent: row.get(3)?,
            model: row.get(4)?,
            image: row.get(5)?,
            owner: process(6)?.expect("the column is not null"),
            driver: RunDriver::of(&row.get::<_, String>(13)?),
        },
        generation: row.get(9)?,
        sidecar: process(10)?,
    })
}

fn ticks(process: &Process) -> i64 {
    process.start.cast_signed()
}

impl RunDriver {
    /// Returns the word in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Daemon => "daemon",
        }
    }

    fn of(word: &str) -> Self {
        if word == Self::Daemon.as_str() { Self::Daemon } else { Self::Once }
    }
}

impl OpenRun {
    /// Returns true if the controller that drives the run has ended.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        !self.entry.owner.is_alive()
    }

    /// Returns the run as running. The controller that takes it over finds out its real state.
    #[must_use]
    pub fn as_run(&self) -> Run {
        Run { phase: RunPhase::Running, ..Run::new() }
    }
}
