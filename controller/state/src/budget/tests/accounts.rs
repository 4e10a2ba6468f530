//! Budgets in a real database, with made-up rows of the ledger.

use sluice_contract::{Account, RunKey};
use tempfile::TempDir;

use crate::budget::{AdmissionRequest, Balance, BudgetError};
use crate::ledger::Settlement;
use crate::process::Process;
use crate::run::{Run, RunPhase};
use crate::store::{RunDriver, RunRow, Store};

struct TestDatabase {
    directory: TempDir,
    store: Store,
}

impl TestDatabase {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        Self { store: Store::open(&directory.path().join("sluice.db")).expect("it is new"), directory }
    }

    /// Counts as another process for SQLite.
    fn another(&self) -> Store {
        Store::open(&self.directory.path().join("sluice.db")).expect("it is there")
    }

    async fn set(&self, nanos: i64) {
        self.store.set_budget(&acct(), nanos).await.expect("it is writable");
    }

    async fn stands(&self) -> Option<Balance> {
        let budgets = self.store.budgets(None).await.expect("it is readable");
        budgets.into_iter().map(|(_, balance, _)| balance).next()
    }

    /// Granted, spent, held.
    async fn amounts(&self) -> (i128, i128, i128) {
        let Balance { granted, spent, held } = self.stands().await.expect("it has a budget");
        (granted, spent, held)
    }

    /// Ends a run, with its log read into the ledger.
    async fn over(&self, name: &str, worth: &str) {
        self.close(name).await;
        self.sql(&format!(
            "INSERT INTO readings (run_id, attempt, worth, fault, lines, ended, read_us)
             VALUES ('{name}', 0, '{worth}', iif('{worth}' = 'complete', NULL, 'it is {worth}'), 9, 1, 1)"
        ));
    }

    async fn close(&self, name: &str) {
        let closed = Run { phase: RunPhase::Closed, ..Run::new() };
        self.store.record(&key(name), 0, &closed, None).await.expect("it is ours");
    }

    /// Adds a receipt, with the amount that was reserved for it.
    fn receipt(&self, run: &str, call: u32, reserved: &str) {
        self.sql(&format!(
            "INSERT INTO receipts (source_system, source_reference, payload_hash, run_id, attempt, call, call_id, account,
                                   graph_id, method, path, stream, reserved_usd, origin_us, origin_day, arrived_us, arrived_day)
             VALUES ('sluice-audit', '{run}/0/{call}', '{:064}', '{run}', 0, {call}, '{call}', 'acct', '', 'POST', '/', 0,
                     {reserved}, 1, '2026-11-20', 1, '2026-11-20')",
            0
        ));
    }

    /// Adds an entry: an amount, or none.
    fn entry(&self, run: &str, call: u32, status: &str, nanos: &str) {
        self.sql(&format!(
            "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, cost_usd, nano_usd,
                                  price_source, origin_us, origin_day, arrived_us, arrived_day)
             SELECT id, 'made-up', '{run}/0/{call}#{status}', payload_hash, '{status}', iif({nanos} IS NULL, NULL, 'x'),
                    {nanos}, 'x', 1, '2026-11-20', 1, '2026-11-20'
             FROM receipts WHERE source_reference = '{run}/0/{call}'"
        ));
    }

    fn sql(&self, statement: &str) {
        let connection = rusqlite::Connection::open(self.directory.path().join("sluice.db")).expect("it is there");
        connection.execute_batch(statement).expect(statement);
    }

    fn count(&self, query: &str) -> i64 {
        let connection = rusqlite::Connection::open(self.directory.path().join("sluice.db")).expect("it is there");
        connection.query_row(query, [], |row| row.get(0)).expect(query)
    }
}

fn acct() -> Account {
    "acct".parse().expect("a name")
}

fn key(name: &str) -> RunKey {
    format!("{name}.0").parse().expect("a key")
}

/// The cap that a run begins with, if it is admitted.
async fn admit(store: &Store, name: &str, cap: Option<i64>) -> Option<Option<i64>> {
    let entry = RunRow {
        key: key(name),
        account: "acct".into(),
        agent: "sandbox:agent".into(),
        model: None,
        image: "image".into(),
        owner: Process::current().expect("there is /proc"),
        driver: RunDriver::Once,
    };
    match store.admit(AdmissionRequest { entry, cap, default: 40 }).await {
        Ok(admitted) => Some(admitted.cap),
        Err(BudgetError::Insufficient(_)) => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn an_account_without_a_budget_has_no_limit() {
    let database = TestDatabase::new();
    assert_eq!(admit(&database.store, "r1", Some(i64::MAX)).await, Some(Some(i64::MAX)));
    assert_eq!(admit(&database.store, "r2", None).await, Some(None));
    assert_eq!((database.stands().await, database.count("SELECT count(*) FROM holds")), (None, 0));
}

#[tokio::test]
async fn a_run_without_a_cap_holds_the_default() {
    let database = TestDatabase::new();
    database.set(100).await;
    assert_eq!(admit(&database.store, "r1", None).await, Some(Some(40)));
    assert_eq!(admit(&database.store, "r2", Some(61)).await, None);
    assert_eq!(admit(&database.store, "r2", Some(50)).await, Some(Some(50)));
    assert_eq!(admit(&database.store, "r3", None).await, Some(Some(10)));
    assert_eq!(admit(&database.store, "r4", None).await, None);
    assert_eq!(database.amounts().await, (100, 0, 100));
    // A refused run leaves no row, so its name is free.
    assert_eq!(database.count("SELECT count(*) FROM runs"), 3);
}

#[tokio::test]
async fn concurrent_runs_never_exceed_the_budget() {
    let database = TestDatabase::new();
    database.set(5 * 7 + 6).await;
    // Each store has a thread and a connection of its own.
    let tries = (0..8).map(|process| {
        let store = database.another();
        tokio::spawn(async move {
            let mut admitted = 0;
            for n in 0..8 {
                admitted += usize::from(admit(&store, &format!("r{process}-{n}"), Some(7)).await.is_some());
            }
            admitted
        })
    });
    let mut admitted = 0;
    for one in tries.collect::<Vec<_>>() {
        admitted += one.await.expect("it does not panic");
    }
    assert_eq!((admitted, database.amounts().await), (5, (41, 0, 35)));
}

#[tokio::test]
async fn receipts_replace_the_hold_of_their_run() {
    let database = TestDatabase::new();
    database.set(100).await;
    admit(&database.store, "r1", Some(60)).await.expect("there is enough");
    database.receipt("r1", 1, "'0.00000004'");
    database.entry("r1", 1, "posted", "25");
    // Its log may be read while it runs: no amount counts twice.
    assert_eq!(database.amounts().await, (100, 25, 35));
    database.over("r1", "complete").await;
    assert_eq!(database.amounts().await, (100, 25, 0));
    assert_eq!(database.count("SELECT count(*) FROM hold_ends"), 0, "to look changes nothing");
    admit(&database.store, "r2", Some(75)).await.expect("there is enough");
    assert_eq!(database.count("SELECT count(*) FROM hold_ends WHERE why = 'settled'"), 1);
}

#[tokio::test]
async fn a_call_of_unknown_cost_holds_its_reservation() {
    let database = TestDatabase::new();
    database.set(100).await;
    admit(&database.store, "r1", Some(60)).await.expect("there is enough");
    database.receipt("r1", 1, "'0.00000003'");
    database.receipt("r1", 2, "'0.00000002'");
    database.entry("r1", 1, "posted", "5");
    database.entry("r1", 2, "pending_cost", "NULL");
    database.over("r1", "complete").await;
    assert_eq!(database.amounts().await, (100, 5, 20));
    assert_eq!(admit(&database.store, "r2", Some(76)).await, None);

    database.entry("r1", 2, "settled", "90");
    assert_eq!(database.amounts().await, (100, 95, 0));
}

#[tokio::test]
async fn a_failed_call_is_held_unless_nobody_bills_it() {
    let database = TestDatabase::new();
    database.set(100).await;
    admit(&database.store, "r1", Some(60)).await.expect("there is enough");
    for (call, status) in [(1, "500"), (2, "404"), (3, "NULL")] {
        database.receipt("r1", call, "'0.00000002'");
        database.entry("r1", call, "pending_cost", "NULL");
        database.sql(&format!(
            "DROP TRIGGER entries_stay;
             UPDATE entries SET http_status = {status}, arrived_us = 1 WHERE source_reference LIKE 'r1/0/{call}#%';
             CREATE TRIGGER entries_stay BEFORE UPDATE ON entries BEGIN SELECT RAISE(ABORT, 'x'); END;"
        ));
    }
    database.over("r1", "complete").await;
    // No provider bills the 404; the 500, and the call without an answer, may have cost the reserved amount.
    assert_eq!(database.amounts().await, (100, 0, 40));

    // A reconciliation found no row for any of them.
    let settlement = Settlement::not_billed("r1/0/2");
    database.store.settle(vec![settlement]).await.expect("the database is writable");
    assert_eq!(database.amounts().await, (100, 0, 40));
    assert_eq!(admit(&database.store, "r2", Some(61)).await, None);
    database.entry("r1", 1, "settled", "0");
    database.entry("r1", 3, "settled", "7");
    assert_eq!(database.amounts().await, (100, 7, 0));
}

#[tokio::test]
async fn unreserved_calls_and_untrusted_logs_hold_the_rest() {
    for (worth, reserved, expected) in
        [("complete", "NULL", 55), ("tampered", "'0.00000002'", 55), ("conflict", "NULL", 55), ("absent", "NULL", 55)]
    {
        let database = TestDatabase::new();
        database.set(100).await;
        admit(&database.store, "r1", Some(60)).await.expect("there is enough");
        database.receipt("r1", 1, "'0.00000004'");
        database.entry("r1", 1, "posted", "5");
        database.receipt("r1", 2, reserved);
        database.entry("r1", 2, "unknown", "NULL");
        database.close("r1").await;
        assert_eq!(database.amounts().await, (100, 5, 55), "before its log was read");
        database.over("r1", worth).await;
        assert_eq!(database.amounts().await, (100, 5, expected), "{worth}");
    }
}

#[tokio::test]
async fn a_call_above_its_hold_counts_in_full() {
    let database = TestDatabase::new();
    database.set(100).await;
    admit(&database.store, "r1", Some(60)).await.expect("there is enough");
    database.receipt("r1", 1, "'0.00000006'");
    database.entry("r1", 1, "posted", "130");
    database.over("r1", "complete").await;
    assert_eq!(database.stands().await.expect("it has a budget").left(), -30);
    assert_eq!(admit(&database.store, "r2", None).await, None);
    database.store.add_budget(&acct(), 50).await.expect("it has a budget");
    assert_eq!(admit(&database.store, "r2", None).await, Some(Some(20)));
}

#[tokio::test]
async fn a_new_budget_keeps_only_holds_of_open_runs() {
    let database = TestDatabase::new();
    database.set(100).await;
    for name in ["over", "unread", "live"] {
        admit(&database.store, name, Some(30)).await.expect("there is enough");
    }
    database.receipt("over", 1, "NULL");
    database.entry("over", 1, "unknown", "NULL");
    database.over("over", "complete").await;
    database.close("unread").await;
    assert_eq!(database.amounts().await, (100, 0, 90));

    database.set(1000).await;
    assert_eq!(database.amounts().await, (1000, 0, 30));
    // Late entries are paid from the remainder at that time.
    database.entry("over", 1, "settled", "7");
    assert_eq!(database.amounts().await, (1000, 7, 30));

    database.store.remove_budget(&acct()).await.expect("it has one");
    assert_eq!(database.stands().await, None);
    assert!(matches!(database.store.add_budget(&acct(), 1).await, Err(BudgetError::NoBudget(_))));
    assert!(matches!(database.store.remove_budget(&acct()).await, Err(BudgetError::NothingToRemove(_))));
    assert_eq!(admit(&database.store, "free", None).await, Some(None));
}

#[tokio::test]
async fn spending_since_the_last_hold_equals_all_spending() {
    let database = TestDatabase::new();
    database.set(10_000).await;
    let mut spent = 0;
    for n in 1..=12 {
        let run = format!("r{n}");
        admit(&database.store, &run, Some(300)).await.expect("there is enough");
        // Receipts of this account, and of another one in between.
        database.receipt(&run, 1, "NULL");
        database.entry(&run, 1, "posted", "100");
        database.receipt(&format!("other{n}"), 1, "NULL");
        database.entry(&format!("other{n}"), 1, "posted", "7");
        database.sql(
            "DROP TRIGGER receipts_stay; UPDATE receipts SET account = 'other' WHERE run_id LIKE 'other%';
                  CREATE TRIGGER receipts_stay BEFORE UPDATE ON receipts BEGIN SELECT RAISE(ABORT, 'x'); END;",
        );
        if n > 1 {
            // Late entry of the earlier run.
            database.entry(&format!("r{}", n - 1), 1, "settled", "5");
            spent += 5;
        }
        spent += 100;
        database.over(&run, "complete").await;
        assert_eq!(database.amounts().await, (10_000, spent, 0));
        let whole = "SELECT sum(nano_usd) FROM entries JOIN receipts ON receipts.id = receipt WHERE account = 'acct'";
        assert_eq!(i128::from(database.count(whole)), spent);
    }
    database.set(500).await;
    assert_eq!(database.amounts().await, (500, 0, 0));
    admit(&database.store, "again", Some(500)).await.expect("there is enough");
    database.entry("r12", 1, "settled", "3");
    assert_eq!(database.amounts().await, (500, 3, 500));
}

#[tokio::test]
async fn budget_rows_are_only_added() {
    let database = TestDatabase::new();
    database.set(100).await;
    admit(&database.store, "r1", Some(30)).await.expect("there is enough");
    database.close("r1").await;
    database.set(100).await;
    let connection = rusqlite::Connection::open(database.directory.path().join("sluice.db")).expect("it is there");
    for table in ["budgets", "holds", "hold_ends"] {
        for statement in [
            format!("DELETE FROM {table}"),
            format!("UPDATE {table} SET rowid = rowid"),
            format!("INSERT OR REPLACE INTO {table} SELECT * FROM {table}"),
        ] {
            let error = connection.execute_batch(&statement).expect_err(&statement).to_string();
            assert!(["is never", "there is a", "has ended"].iter().any(|words| error.contains(words)), "{error}");
        }
    }
}
