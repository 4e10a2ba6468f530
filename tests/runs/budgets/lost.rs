//! Budgets after their database was lost, in part or completely.

use std::fs;

use sluice_testkit::controller::FinishedCommand;
use sluice_testkit::{Sluice, Upstream};

use super::{NANOS, RUN, ask, budget, granted, prices, receipts, stands};

/// Removes the database, as a lost disk would.
fn lose(sluice: &Sluice) {
    for end in ["", "-wal", "-shm"] {
        let _ = fs::remove_file(sluice.state().join(format!("sluice.db{end}")));
    }
}

/// Returns the bytes of a database without rows.
async fn new_database(upstream: &Upstream) -> Vec<u8> {
    let other = Sluice::to(upstream);
    other.command(["sweep"]).finish().await.expect(0);
    let copy = other.dir().join("new.db").display().to_string();
    other.command(["ledger", "backup", &copy]).finish().await.expect(0);
    fs::read(copy).expect("it is ours")
}

/// Makes a run of acct-1 with one call.
async fn one_call(sluice: &Sluice, prices: &str) -> FinishedCommand {
    let words = ["--max-cost-usd", "0.01", "--prices", prices, "--", "sh", "-c"];
    sluice.run(RUN).args(words).arg(ask(1)).finish().await
}

async fn rebuild(sluice: &Sluice) -> FinishedCommand {
    sluice.command(["ledger", "rebuild"]).finish().await
}

#[tokio::test]
async fn a_lost_database_lifts_no_budget() {
    let (upstream, sluice, prices) = granted("1").await;
    let new = new_database(&upstream).await;
    one_call(&sluice, &prices).await.expect(0);
    budget(&sluice, &["set", "acct-1", "2"]).await.expect(0);
    for _ in 0..2 {
        one_call(&sluice, &prices).await.expect(0);
    }
    budget(&sluice, &["add", "acct-1", "0.5"]).await.expect(0);
    let before = stands(&sluice).await;
    assert_eq!(before[..3], [2_500_000_000, 2 * NANOS, 0]);

    lose(&sluice);
    let missing = one_call(&sluice, &prices).await.expect(125);
    assert!(missing.stderr.contains("is missing"), "{}", missing.stderr);
    // As if the database were an old copy.
    fs::write(sluice.state().join("sluice.db"), &new).expect("it is ours");
    let refused = one_call(&sluice, &prices).await.expect(125);
    assert!(refused.stderr.contains("has 3 changes that the database does not know"), "{}", refused.stderr);
    assert!(refused.stderr.contains("sluice ledger rebuild"), "{}", refused.stderr);
    let checked = sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(122);
    assert!(checked.stdout.contains("budget_log"), "{}", checked.stdout);
    budget(&sluice, &["set", "acct-1", "9"]).await.expect(1);
    let rebuilt = rebuild(&sluice).await.expect(0);

    assert!(rebuilt.stdout.contains("restored 3 changes of budgets"), "{}", rebuilt.stdout);
    assert_eq!((stands(&sluice).await, receipts(&sluice).await), (before, 3 * NANOS));
    assert_eq!(upstream.requests().len(), 3);
    one_call(&sluice, &prices).await.expect(0);
    assert_eq!(stands(&sluice).await[1], 3 * NANOS);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_old_database_stops_runs_of_accounts_with_budgets() {
    let (_upstream, sluice, prices) = granted("1").await;
    let copy = sluice.dir().join("copy.db").display().to_string();
    sluice.command(["ledger", "backup", &copy]).finish().await.expect(0);
    let run = one_call(&sluice, &prices).await.expect(0).json().run_id;
    let before = stands(&sluice).await;
    lose(&sluice);
    fs::copy(&copy, sluice.state().join("sluice.db")).expect("both are ours");

    let refused = one_call(&sluice, &prices).await.expect(125);
    let unknown = sluice.command(["audit", "verify", &run]).finish().await.expect(5);
    sluice.run(["--account", "other", "--model", "m", "--", "true"]).finish().await.expect(0);
    rebuild(&sluice).await.expect(0);

    assert!(refused.stderr.contains("the database does not know 1 of the audit files"), "{}", refused.stderr);
    assert!(unknown.stdout.contains("unknown to this database"), "{}", unknown.stdout);
    sluice.command(["audit", "verify", &run]).finish().await.expect(0);
    assert_eq!(stands(&sluice).await, before);
    one_call(&sluice, &prices).await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn another_hosts_file_is_billed_by_a_known_key() {
    let upstream = Upstream::provider("hello").start().await;
    let (here, there) = (Sluice::to(&upstream), Sluice::to(&upstream));
    here.run(["--model", "m", "-q", "hello"]).finish().await.expect(0);
    let run = there.run(["--model", "m", "--json", "hello"]).finish().await.expect(0).json().run_id;
    fs::copy(there.audit_path(&run), here.audit_path(&run)).expect("both are ours");
    let key = there.command(["audit", "keys"]).finish().await.expect(0).stdout;

    let unknown = here.command(["audit", "verify", &run]).finish().await.expect(6);
    let refused = rebuild(&here).await.expect(122);
    here.command(["audit", "import-key", key.trim()]).finish().await.expect(0);
    rebuild(&here).await.expect(0);

    assert!(unknown.stdout.contains("sluice audit import-key"), "{}", unknown.stdout);
    assert!(refused.stdout.contains("unknown_key"), "{}", refused.stdout);
    here.command(["audit", "verify", &run]).finish().await.expect(0);
    let all = here.command(["receipts", "--json"]).finish().await.expect(0).value();
    assert_eq!(all["receipts"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn without_database_and_log_no_run_begins() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-6");
    one_call(&sluice, &prices).await.expect(0);
    lose(&sluice);
    fs::remove_file(sluice.state().join("budgets.log")).expect("it was made by the first run");

    let missing = one_call(&sluice, &prices).await.expect(125);
    let rebuilt = rebuild(&sluice).await.expect(122);
    let refused = one_call(&sluice, &prices).await.expect(125);
    budget(&sluice, &["set", "acct-1", "1"]).await.expect(0);
    one_call(&sluice, &prices).await.expect(125);
    budget(&sluice, &["confirm"]).await.expect(0);

    assert!(missing.stderr.contains("sluice ledger rebuild"), "{}", missing.stderr);
    assert!(refused.stderr.contains("sluice budget confirm"), "{}", refused.stderr);
    assert!(rebuilt.stdout.contains("budget_log"), "{}", rebuilt.stdout);
    one_call(&sluice, &prices).await.expect(0);
    assert_eq!(stands(&sluice).await[..3], [1_000_000_000, NANOS, 0]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_rebuild_that_stopped_at_any_row_goes_on() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-6");
    let new = new_database(&upstream).await;
    for dollars in ["1", "2", "3"] {
        budget(&sluice, &["set", "acct-1", dollars]).await.expect(0);
        one_call(&sluice, &prices).await.expect(0);
    }
    let before = (stands(&sluice).await, receipts(&sluice).await);
    assert_eq!(before, ([3_000_000_000, NANOS, 0, 3_000_000_000 - NANOS], 3 * NANOS));

    for table in ["receipts", "entries", "readings", "budgets", "budget_log"] {
        for row in 0..3 {
            lose(&sluice);
            fs::write(sluice.state().join("sluice.db"), &new).expect("it is ours");
            let stop = format!(
                "CREATE TRIGGER stop BEFORE INSERT ON {table} WHEN (SELECT count(*) FROM {table}) >= {row}
                 BEGIN SELECT RAISE(ABORT, 'stopped'); END"
            );
            sluice.sql(&stop).await;
            let stopped = rebuild(&sluice).await.expect(1);
            assert!(stopped.stderr.contains("stopped"), "{}", stopped.stderr);
            sluice.sql("DROP TRIGGER stop").await;

            rebuild(&sluice).await.expect(0);

            assert_eq!((stands(&sluice).await, receipts(&sluice).await), before, "{table} {row}");
        }
    }
    // Kill a rebuild as soon as there is a database.
    lose(&sluice);
    let live = sluice.command(["ledger", "rebuild"]).spawn();
    while live.is_running() && !sluice.state().join("sluice.db").exists() {
        tokio::task::yield_now().await;
    }
    drop(live);
    rebuild(&sluice).await.expect(0);
    assert_eq!((stands(&sluice).await, receipts(&sluice).await), before);
}
