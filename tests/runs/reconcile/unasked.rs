//! Reconciliation in the background, and its cost for a run.

use std::time::{Duration, Instant};

use sluice_testkit::poll;
use sluice_testkit::spendlog::ScriptedSpendLog;
use sluice_testkit::upstream::Script;
use sluice_testkit::{Gate, PATIENCE};

use super::*;

/// Script that runs until the test ends it.
const UNTIL_TOLD: &str = "until [ -e /workspace/go ]; do sleep 0.01; done";

async fn statuses(sluice: &Sluice) -> Vec<String> {
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    let list = receipts["receipts"].as_array().expect("a list").iter();
    list.map(|receipt| receipt["status"].as_str().expect("a status").to_owned()).collect()
}

#[tokio::test]
async fn a_run_settles_what_earlier_runs_left_open() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream; ask").await;
    // The open receipts are too young for a query.
    sluice.run(["--quiet", "--", "true"]).finish().await.expect(0);
    assert_eq!((log.asked().len(), statuses(&sluice).await), (0, vec!["pending_cost".to_owned(), "posted".to_owned()]));
    age(&sluice).await;

    let live = sluice.run(["--", "sh", "-c", UNTIL_TOLD]).spawn();
    let settled = poll(PATIENCE, async || statuses(&sluice).await == ["settled", "posted"]).await;
    assert!(settled, "{:?}", statuses(&sluice).await);
    std::fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");
    let ran = live.finish().await.expect(0);

    assert!(!ran.stderr.contains("sluice:"), "{}", ran.stderr);
    assert_eq!(log.asked().len(), 1);
    // All is settled, so there are no more queries.
    sluice.run(["--quiet", "--", "true"]).finish().await.expect(0);
    assert_eq!(log.asked().len(), 1);
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}

#[tokio::test]
async fn a_sweep_settles_what_is_open_too() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    age(&sluice).await;
    sluice.command(["sweep", "--dry-run"]).finish().await.expect(0);
    sluice.command(["sweep"]).env("SLUICE_RECONCILE", "off").finish().await.expect(0);
    assert_eq!(log.asked(), []);

    let ran = sluice.command(["sweep"]).finish().await.expect(0);

    assert_eq!((ran.stderr.as_str(), statuses(&sluice).await), ("", vec!["settled".to_owned()]));
}

#[tokio::test]
async fn a_daemon_settles_what_is_open_too() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    age(&sluice).await;

    let daemon = sluice.serve().await;
    let settled = poll(PATIENCE, async || statuses(&sluice).await == ["settled"]).await;

    assert!(settled, "{:?}", statuses(&sluice).await);
    assert_eq!(log.asked().len(), 1);
    daemon.stop().await;
}

#[tokio::test]
async fn a_missing_spend_log_is_asked_daily_and_silently() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    age(&sluice).await;
    let none = || Script::json(404, json!({"detail": "Not Found"}));
    log.next([none(), none()]);

    for _ in 0..3 {
        let ran = sluice.command(["sweep"]).finish().await.expect(0);
        assert_eq!(ran.stderr, "");
    }

    assert_eq!((log.asked().len(), statuses(&sluice).await), (1, vec!["pending_cost".to_owned()]));
    let day = "SELECT next_us / 1000000 - unixepoch() > 23 * 3600 FROM spend_logs WHERE fault IS NOT NULL";
    assert_eq!(sluice.sql(day).await, "[[1]]");
}

#[tokio::test]
async fn a_clock_once_ahead_does_not_stop_reconciliation() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    age(&sluice).await;
    log.next([Script::json(404, json!({"detail": "Not Found"}))]);
    sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!(statuses(&sluice).await, ["pending_cost"]);

    sluice.sql("UPDATE spend_logs SET next_us = next_us + 3600 * 24 * 365 * 1000000").await;
    sluice.command(["sweep"]).finish().await.expect(0);

    assert_eq!(statuses(&sluice).await, ["settled"]);
}

#[tokio::test]
async fn a_run_does_not_wait_for_the_spend_log() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    age(&sluice).await;
    let gate = Gate::new();
    log.next([Script::json(200, json!({"data": [], "total": 0})).hold_head(&gate)]);

    let live = sluice.run(["--quiet", "--", "sh", "-c", UNTIL_TOLD]).spawn();
    log.asked_times(1).await;
    let asked = Instant::now();
    assert!(poll(PATIENCE, async || sluice.runs().iter().any(|run| run.join("work").exists())).await);
    std::fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");
    // The gate stays closed: a run that waited would end half a minute after the question.
    live.finish().await.expect(0);

    assert!(asked.elapsed() < Duration::from_secs(28), "{:?}", asked.elapsed());
    assert_eq!(statuses(&sluice).await, ["pending_cost"]);
    // The reconciliation was killed with the run and has left nothing; another one can settle the rest.
    sluice.sql("DELETE FROM spend_logs").await;
    sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!(statuses(&sluice).await, ["settled"]);
}
