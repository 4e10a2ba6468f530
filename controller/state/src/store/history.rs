//! Queries of runs that are open or over, for people.

use rusqlite::{OptionalExtension, Row, params};
use sluice_contract::RunKey;

use super::{OpenRun, RunRow, Store, StoreError, run_key};
use crate::process::Process;
use crate::run::{RunPhase, RunVerdict};

/// One attempt of a run, as the database has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownRun {
    /// The request, and the controller that drives or drove the run.
    pub entry: RunRow,
    /// Phase, as a word.
    pub phase: String,
    /// Number of takeovers.
    pub generation: u32,
    /// The sidecar, if one was recorded.
    pub sidecar: Option<Process>,
    /// Reason of the end.
    pub verdict: Option<RunVerdict>,
    /// Word for the error; `None` if the run is ok, or open.
    pub error_code: Option<String>,
    /// Exit code of `sluice run`.
    pub exit_code: Option<i32>,
    /// Time of the request in microseconds since 1970.
    pub created_us: i64,
    /// Time of the last change in microseconds since 1970.
    pub updated_us: i64,
    /// Number of receipts in the ledger.
    pub calls: u64,
    /// Sum of the known costs in the ledger, in nano-USD: 0 for a closed run without calls whose audit file was read.
    pub nano_usd: Option<i128>,
}

/// Selection of runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunFilter {
    /// Only runs that are not over.
    pub open: bool,
    /// Only runs of this account.
    pub account: Option<String>,
    /// Only runs that began at or after this time, in microseconds since 1970.
    pub since_us: Option<i64>,
}

const COLUMNS: &str = "run_id, attempt, account, agent, model, image, owner_pid, owner_start, owner_boot, generation, \
    sidecar_pid, sidecar_start, sidecar_boot, driver, phase, verdict, error_code, exit_code, created_us, updated_us, \
    (SELECT sum(calls) FROM usage_sums AS sums WHERE sums.run_id = runs.run_id AND sums.attempt = runs.attempt), \
    (SELECT sum(nano_usd_high) FROM usage_sums AS sums WHERE sums.run_id = runs.run_id AND sums.attempt = runs.attempt), \
    (SELECT sum(nano_usd_low) FROM usage_sums AS sums WHERE sums.run_id = runs.run_id AND sums.attempt = runs.attempt), \
    (SELECT ended = 1 AND (worth IN ('complete', 'incomplete') OR (worth = 'absent' AND fault IS NULL)) \
     FROM readings AS seen WHERE seen.run_id = runs.run_id AND seen.attempt = runs.attempt ORDER BY id DESC LIMIT 1)";

impl KnownRun {
    /// Returns true if the run is over.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.phase == RunPhase::Closed.as_str()
    }

    /// Returns the run as one that has not ended.
    #[must_use]
    pub fn as_open(&self) -> OpenRun {
        OpenRun { entry: self.entry.clone(), generation: self.generation, sidecar: self.sidecar.clone() }
    }
}

impl Store {
    /// Returns the selected runs, newest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list_runs(&self, filter: RunFilter) -> Result<Vec<KnownRun>, StoreError> {
        self.query(move |connection| {
            let mut query = connection.prepare(&format!(
                "SELECT {COLUMNS} FROM runs
                 WHERE (?1 = 0 OR phase <> 'closed') AND (?2 IS NULL OR account = ?2) AND (?3 IS NULL OR created_us >= ?3)
                 ORDER BY created_us DESC, run_id DESC, attempt DESC"
            ))?;
            let rows = query.query_map(params![filter.open, filter.account, filter.since_us], known_run)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns one attempt of a run; `None` if it is not known.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_run(&self, key: &RunKey) -> Result<Option<KnownRun>, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
            let statement = format!("SELECT {COLUMNS} FROM runs WHERE run_id = ?1 AND attempt = ?2");
            Ok(connection.query_row(&statement, params![key.run_id.as_str(), key.attempt], known_run).optional()?)
        })
        .await
    }

    /// Returns the last attempt of each run with an id that begins with this text, at most `limit`: first the run with
    /// exactly this id, then the newest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn runs_with_prefix(&self, prefix: &str, limit: u32) -> Result<Vec<RunKey>, StoreError> {
        let prefix = prefix.to_owned();
        self.query(move |connection| {
            let mut query = connection.prepare(
                "SELECT run_id, max(attempt) FROM runs WHERE substr(run_id, 1, length(?1)) = ?1
                 GROUP BY run_id ORDER BY run_id = ?1 DESC, max(created_us) DESC LIMIT ?2",
            )?;
            let rows = query.query_map(params![prefix, limit], |row| run_key(row, 0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

fn known_run(row: &Row<'_>) -> rusqlite::Result<KnownRun> {
    let OpenRun { entry, generation, sidecar } = super::runs::open_run(row)?;
    let verdict: Option<String> = row.get(15)?;
    let phase: String = row.get(14)?;
    let calls: Option<i64> = row.get(20)?;
    let (high, low): (Option<i64>, Option<i64>) = (row.get(21)?, row.get(22)?);
    // As in the sums of the ledger: no calls cost nothing once the file is read.
    let is_read: Option<bool> = row.get(23)?;
    let is_unused = calls.unwrap_or(0) == 0 && is_read == Some(true) && phase == RunPhase::Closed.as_str();
    let cost = high.zip(low).map(|(high, low)| (i128::from(high) << 32) + i128::from(low));
    Ok(KnownRun {
        entry,
        phase,
        generation,
        sidecar,
        // A newer build may know more verdicts.
        verdict: verdict.and_then(|text| serde_json::from_str(&text).ok()),
        error_code: row.get(16)?,
        exit_code: row.get(17)?,
        created_us: row.get(18)?,
        updated_us: row.get(19)?,
        calls: calls.map_or(0, i64::cast_unsigned),
        nano_usd: cost.or(is_unused.then_some(0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Run, RunUpdate};
    use crate::store::RunDriver;

    fn row(key: &str, account: &str) -> RunRow {
        RunRow {
            key: key.parse().expect("it is a key"),
            account: account.to_owned(),
            agent: "sandbox:agent".to_owned(),
            model: None,
            image: "image".to_owned(),
            owner: Process::current().expect("there is /proc"),
            driver: RunDriver::Once,
        }
    }

    #[tokio::test]
    async fn runs_are_found_by_a_prefix() {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("there is room");
        for key in ["rabc.0", "rabc.1", "rabd.0", "x_z.0"] {
            store.begin(row(key, "a")).await.expect("the id is free");
        }
        for (prefix, expected) in
            [("rabc", &["rabc.1"][..]), ("rab", &["rabd.0", "rabc.1"]), ("x", &["x_z.0"]), ("%", &[]), ("zz", &[])]
        {
            let mut found: Vec<_> = store.runs_with_prefix(prefix, 9).await.expect("it is ours");
            found.sort();
            let mut expected: Vec<RunKey> = expected.iter().filter_map(|key| key.parse().ok()).collect();
            expected.sort();
            assert_eq!(found, expected, "{prefix}");
        }
        store.begin(row("rabcd.0", "a")).await.expect("the id is free");
        let first = store.runs_with_prefix("rabc", 1).await.expect("it is ours");
        assert_eq!(first, ["rabc.1".parse().expect("a run")], "the id itself comes before a newer, longer one");
        assert_eq!(store.runs_with_prefix("", 2).await.expect("it is ours").len(), 2);
    }

    #[tokio::test]
    async fn runs_are_listed_by_state_and_account() {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("there is room");
        for (key, account) in [("one.0", "a"), ("two.0", "b")] {
            store.begin(row(key, account)).await.expect("the id is free");
        }
        let one: RunKey = "one.0".parse().expect("it is a key");
        let run = Run::new().apply(RunUpdate::Orphaned).expect("it can lose its controller");
        let closed = Run { phase: RunPhase::Closed, ..run };
        store.record(&one, 0, &closed, None).await.expect("it is ours");
        store.record_result(&one, 0, Some("internal"), 125).await.expect("it is ours");

        let ids = async |filter| -> Vec<String> {
            let runs = store.list_runs(filter).await.expect("it is ours");
            runs.iter().map(|run| run.entry.key.to_string()).collect()
        };
        assert_eq!(ids(RunFilter { open: true, ..RunFilter::default() }).await, ["two.0"]);
        assert_eq!(ids(RunFilter { account: Some("a".into()), ..RunFilter::default() }).await, ["one.0"]);
        assert_eq!(ids(RunFilter { since_us: Some(i64::MAX), ..RunFilter::default() }).await, [""; 0]);
        let known = store.find_run(&one).await.expect("it is ours").expect("it is known");
        assert!(known.is_closed());
        assert_eq!((known.verdict, known.exit_code), (Some(RunVerdict::Interrupted), Some(125)));
    }

    #[tokio::test]
    async fn a_closed_run_without_calls_cost_nothing() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("sluice.db");
        let store = Store::open(&path).expect("there is room");
        store.begin(row("one.0", "a")).await.expect("the id is free");
        let one: RunKey = "one.0".parse().expect("it is a key");
        let cost = async || store.find_run(&one).await.expect("it is ours").expect("it is known").nano_usd;
        let sql = |statement: &str| {
            let connection = rusqlite::Connection::open(&path).expect("it is there");
            connection.execute_batch(statement).expect("SQL");
        };
        let read = |reading: &str| {
            let columns = "run_id, attempt, worth, fault, lines, ended, read_us";
            sql(&format!("INSERT INTO readings ({columns}) VALUES ('one', 0, {reading}, 1)"));
        };
        read("'complete', NULL, 2, 1");
        assert_eq!(cost().await, None, "it is under way");
        sql("UPDATE runs SET phase = 'closed'");
        for (reading, expected) in [
            ("'complete', NULL, 2, 1", Some(0)),
            ("'complete', NULL, 3, 0", None),
            ("'absent', NULL, 0, 1", Some(0)),
            ("'absent', 'it is gone', 0, 1", None),
            ("'tampered', 'line 1', 0, 1", None),
        ] {
            read(reading);
            assert_eq!(cost().await, expected, "{reading}");
        }
    }
}
