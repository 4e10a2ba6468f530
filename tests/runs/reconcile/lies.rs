//! A spend log with wrong rows of every kind.

use std::time::{Duration, SystemTime};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::spendlog::{ScriptedSpendLog, time, unmatched_row};
use sluice_testkit::upstream::Script;

use super::*;

/// Class and receipt of each finding, or its row if there is no receipt.
fn told(outcome: &Value) -> Vec<(&str, &str)> {
    let findings = outcome["findings"].as_array().expect("a list").iter();
    findings
        .map(|finding| {
            let name = finding["source_reference"].as_str().or(finding["request_ids"][0].as_str());
            (finding["class"].as_str().expect("a class"), name.expect("a name"))
        })
        .collect()
}

#[tokio::test]
async fn every_lie_has_its_name() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(
        &sluice,
        "ask; ask; ask; ask; ask; ask; stream; stream; stream; ask; curl -so /dev/null $OPENAI_BASE_URL/models",
    )
    .await;
    age(&sluice).await;
    let receipt = |call: &Value| format!("{run}/0/{}", call["litellm_call_id"].as_str().expect("an id"));
    let calls: Vec<_> = log.rows().iter().map(receipt).collect();
    assert_eq!(calls.len(), 10);
    log.show_everybody();
    log.edit(|rows| {
        // Row 0 is unchanged.
        rows[1]["spend"] = json!(0.5);
        rows[2]["completion_tokens"] = json!(6);
        rows[4]["metadata"] = Value::Null;
        let mut again = rows[5].clone();
        again["request_id"] = json!("row-5-again");
        rows[6]["spend"] = json!(0.000000001);
        rows[7]["spend"] = json!(0);
        rows[7]["cache_hit"] = json!("True");
        rows[7]["request_id"] = json!("row-7_cache_hit1795203278.5");
        rows[8]["prompt_tokens"] = json!(11);
        // Another tenant's row has the receipt's call, but its cost is not ours.
        rows[9]["end_user"] = json!("acct-2");
        rows.push(again);
        rows.push(unmatched_row("past", "acct-1", Duration::from_secs(60)));
        rows.push(unmatched_row("theirs", "acct-2", Duration::from_secs(60)));
        rows.remove(3);
    });

    let (code, outcome) = reconcile(&sluice, &["--account", "acct-1"]).await;

    assert_eq!(code, 122);
    let voided = outcome["findings"].as_array().expect("a list").iter().find(|one| one["class"] == "not_billed");
    let voided = voided.and_then(|one| one["source_reference"].as_str()).expect("a list of models").to_owned();
    let mut want = vec![
        ("amount_differs", calls[1].as_str()),
        ("tokens_differ", &calls[2]),
        ("missing_there", &calls[3]),
        ("duplicate", &calls[5]),
        ("settled", &calls[6]),
        ("cache_hit", &calls[7]),
        ("tokens_differ", &calls[8]),
        ("missing_there", &calls[9]),
        ("not_billed", &voided),
        ("missing_here", "past"),
    ];
    let mut found = told(&outcome);
    found.sort_unstable();
    want.sort_unstable();
    assert_eq!(found, want, "{outcome:#}");
    assert_eq!(classes(&outcome)["matched"], 3);
    assert_eq!(outcome["posted"], json!({"receipts": 2, "reversed": 0}));
    assert_eq!(outcome["foreign_rows"], 2);
    // Ten of our rows: row 1 costs 500,000,000, row 6 one, row 7 nothing, and the other seven their usual amount.
    let there = 500_000_000 + 1 + 7 * NANOS;
    assert_eq!(outcome["spend_log"], json!({"count": 10, "nano_usd": there.to_string()}));
    assert_eq!(outcome["receipts"], json!({"count": 11, "nano_usd": (7 * NANOS + 1).to_string()}));
    let duplicate = outcome["findings"].as_array().expect("a list").iter().find(|one| one["class"] == "duplicate");
    assert_eq!(
        duplicate.expect("there is one")["request_ids"],
        json!(["row-5-again"]),
        "the receipt stands by the row of its own"
    );

    let again = reconcile(&sluice, &["--account", "acct-1"]).await;
    assert_eq!((again.0, &again.1["posted"]), (122, &nothing_posted()));
    assert_eq!(again.1["findings"], outcome["findings"]);
}

#[tokio::test]
async fn late_rows_are_waited_for() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "ask; stream").await;
    log.hide(true);

    let (code, outcome) = reconcile(&sluice, &["--run", &run, "--no-wait"]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("not_yet", 2)])));
    assert_eq!(outcome["receipts"]["nano_usd"], "0", "what is not decided is in no sum");

    let waiting = sluice.command(["reconcile", "--json", "--run", &run]).spawn();
    log.asked_times(2).await;
    log.hide(false);
    let ran = waiting.finish().await.expect(0);
    assert_eq!(classes(&ran.value()), counts([("matched", 1), ("settled", 1)]));
    assert_eq!(agreed(&ran.value()), 2 * NANOS);
    let terminal = sluice.command(["reconcile", "--run", &run]).finish().await.expect(0).stdout;
    assert!(terminal.ends_with("spend log  2 rows, 10800 nano-USD\nthey agree\n"), "{terminal}");
}

#[tokio::test]
async fn a_call_without_outcome_is_settled_by_its_row() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream_with(Script::never()).start().await;
    let sluice = Sluice::to(&upstream);
    let script = format!("{ASK}ask");
    let words = ["--account", "acct-1", "--json", "--", "sh", "-c", script.as_str()];
    let live = sluice.run(words).spawn();
    upstream.received().await;
    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };
    // A run that is under way has rows, and no receipts yet.
    let (code, outcome) = reconcile(&sluice, &["--account", "acct-1", "--no-wait"]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("not_yet", 1)])));

    kill(Pid::from_raw(sidecar), Signal::SIGKILL).expect("it lives");
    let run = live.finish().await.expect(120).json().run_id;
    log.edit(|rows| rows[0]["spend"] = json!(1.25e-5));

    let (code, outcome) = reconcile(&sluice, &["--run", &run]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("unknown_settled", 1)])));
    assert_eq!(agreed(&outcome), 12_500);
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    let receipt = &receipts["receipts"][0];
    assert_eq!(
        (&receipt["status"], &receipt["nano_usd"], &receipt["cost_usd"], &receipt["price_source"]),
        (&json!("settled"), &json!("12500"), &json!("0.0000125"), &json!("spend_log"))
    );
    assert_eq!((&receipt["usage"]["input"], &receipt["usage"]["output"]), (&json!(10), &json!(5)));
    assert_eq!(receipts["unsettled_runs"], json!([]));
    let kinds = sluice.sql("SELECT kind FROM outbox ORDER BY id").await;
    assert_eq!(kinds, r#"[["receipt.unknown"], ["receipt.settled"]]"#);
    let again = reconcile(&sluice, &["--run", &run]).await.1;
    assert_eq!((classes(&again), &again["posted"]), (counts([("unknown_settled", 1)]), &nothing_posted()));
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}

#[tokio::test]
async fn yesterdays_fact_counts_today_as_late() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    // Two days ago, without a query since: older than the longest look back.
    age(&sluice).await;
    const DAYS: u64 = 2 * 86_400;
    let day = format!("origin_us - {DAYS}000000");
    sluice
        .sql(&format!("UPDATE receipts SET origin_us = {day}, origin_day = date(({day}) / 1000000, 'unixepoch')"))
        .await;
    log.edit(|rows| {
        let then = json!(time(SystemTime::now() - Duration::from_secs(DAYS)));
        (rows[0]["startTime"], rows[0]["endTime"]) = (then.clone(), then);
    });

    let (code, outcome) = reconcile(&sluice, &[]).await;

    assert_eq!((code, classes(&outcome)), (0, counts([("late", 1)])));
    assert_eq!(agreed(&outcome), NANOS);
    let days =
        sluice.sql("SELECT julianday(arrived_day) - julianday(origin_day) FROM entries WHERE status = 'settled'").await;
    // Midnight can come between both.
    assert!(matches!(days.as_str(), "[[2.0]]" | "[[3.0]]"), "{days}");
}

#[tokio::test]
async fn csv_has_the_day_of_a_later_settlement() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "stream").await;
    age(&sluice).await;
    for table in ["receipts", "entries"] {
        sluice.sql(&format!("UPDATE {table} SET arrived_day = date(arrived_day, '-1 day')")).await;
    }

    let (code, outcome) = reconcile(&sluice, &[]).await;

    assert_eq!((code, classes(&outcome)), (0, counts([("settled", 1)])));
    let csv = sluice.command(["receipts", "--csv"]).finish().await.expect(0).stdout;
    let row = csv.split_terminator("\r\n").nth(1).unwrap_or_else(|| panic!("no receipt: {csv}"));
    let mut cells = row.rsplit(',');
    let (last_booked_on, booked_on) = (cells.next().expect("a cell"), cells.next().expect("a cell"));
    assert_ne!(last_booked_on, booked_on);
    let days = sluice.sql("SELECT arrived_day, (SELECT max(arrived_day) FROM entries) FROM receipts").await;
    assert_eq!(days, format!("[[{booked_on}, {last_booked_on}]]"));
}

#[tokio::test]
async fn differences_are_corrected_on_demand_and_once() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "ask; ask; stream").await;
    log.edit(|rows| {
        rows[0]["spend"] = json!(0.000007);
        (rows[1]["prompt_tokens"], rows[1]["spend"]) = (json!(20), json!(0.000009));
        rows[2]["prompt_tokens"] = json!(30);
    });
    let known = counts([("amount_differs", 2), ("tokens_differ", 1)]);

    let (code, outcome) = reconcile(&sluice, &["--run", &run]).await;
    assert_eq!((code, classes(&outcome), &outcome["posted"]), (122, known, &nothing_posted()));

    let (code, outcome) = reconcile(&sluice, &["--run", &run, "--correct", "--reason", "a test"]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("settled", 3)])));
    assert_eq!(outcome["posted"], json!({"receipts": 3, "reversed": 3}));
    assert_eq!(agreed(&outcome), 7000 + 9000 + NANOS);
    let causes = sluice.sql("SELECT cause FROM entries WHERE status = 'reversed' ORDER BY id").await;
    assert!(causes.contains("row row-0 of the spend log: 5400 here, 7000 there, in nano-USD"), "{causes}");
    let usage = sluice.command(["usage", "--json"]).finish().await.expect(0).value();
    assert_eq!(usage["total"]["usage"]["input"], 10 + 20 + 30);
    assert_eq!(usage["total"]["nano_usd"], (16_000 + NANOS).to_string());
    let entries = sluice.sql("SELECT count(*) FROM entries").await;

    let again = reconcile(&sluice, &["--run", &run, "--correct", "--reason", "a test"]).await;
    assert_eq!((again.0, &again.1["findings"], &again.1["posted"]), (0, &outcome["findings"], &nothing_posted()));
    assert_eq!(sluice.sql("SELECT count(*) FROM entries").await, entries);
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}

#[tokio::test]
async fn several_at_once_post_once() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "stream; stream; stream; ask").await;
    log.edit(|rows| rows[3]["spend"] = json!(0.000007));
    let one = async || reconcile(&sluice, &["--run", &run, "--correct", "--reason", "a test"]).await;

    let (a, b, c, d) = tokio::join!(one(), one(), one(), one());

    let posted = |outcome: &Value, what: &str| outcome["posted"][what].as_u64().expect("a count");
    for (code, outcome) in [&a, &b, &c, &d] {
        assert_eq!((*code, classes(outcome), agreed(outcome)), (0, counts([("settled", 4)]), 3 * NANOS + 7000));
    }
    let all = [&a.1, &b.1, &c.1, &d.1];
    assert_eq!(all.iter().map(|outcome| posted(outcome, "receipts")).sum::<u64>(), 4);
    assert_eq!(all.iter().map(|outcome| posted(outcome, "reversed")).sum::<u64>(), 1);
    assert_eq!(sluice.sql("SELECT count(*) FROM entries WHERE source_system = 'litellm-spend'").await, "[[5]]");
}
