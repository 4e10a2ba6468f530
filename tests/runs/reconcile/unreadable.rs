//! Rows that cannot be read: a provider has stated absurd numbers, and LiteLLM keeps them.

use sluice_testkit::spendlog::{ScriptedSpendLog, unmatched_row};
use sluice_testkit::upstream::Script;

use super::*;

/// Accounts of three runs, each with a call that has its cost only in the spend log.
const ACCOUNTS: [&str; 3] = ["acct-1", "acct-2", "acct-3"];

/// Makes a call for each account, and then the row of the first one unreadable.
async fn spend_of_three(sluice: &Sluice, log: &ScriptedSpendLog) {
    for account in ACCOUNTS {
        spend_of(sluice, account, "stream").await;
    }
    age(sluice).await;
    log.edit(|rows| rows[0]["spend"] = json!(-0.5));
}

/// Account and status of each receipt.
async fn statuses(sluice: &Sluice) -> Vec<(String, String)> {
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let list = receipts["receipts"].as_array().expect("a list").iter();
    list.map(|receipt| (text(&receipt["account"]), text(&receipt["status"]))).collect()
}

/// Statuses after a reconciliation that could not read the row of the first account.
fn two_settled() -> Vec<(String, String)> {
    let statuses = ["pending_cost", "settled", "settled"];
    ACCOUNTS.iter().zip(statuses).map(|(account, status)| ((*account).to_owned(), status.to_owned())).collect()
}

#[tokio::test]
async fn an_unreadable_row_stops_only_its_own_call() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend_of_three(&sluice, &log).await;

    let (code, outcome) = reconcile(&sluice, &[]).await;

    assert_eq!((code, classes(&outcome)), (122, counts([("settled", 2), ("unreadable_row", 1)])));
    let [finding] = mismatches(&outcome)[..] else { panic!("{outcome:#}") };
    assert_eq!(
        (&finding["class"], &finding["account"], &finding["request_ids"]),
        (&json!("unreadable_row"), &json!("acct-1"), &json!(["row-0"]))
    );
    let reason = finding["reason"].as_str().expect("a text");
    assert!(reason.starts_with("row row-0 of the spend log cannot be read: spend is -0.5: "), "{reason}");
    assert_eq!(statuses(&sluice).await, two_settled());
    let text = sluice.command(["reconcile"]).finish().await.expect(122).stdout;
    assert!(text.contains(": unreadable_row: row row-0 ") && text.ends_with("they DIFFER\n"), "{text}");

    // Once the row is corrected, its call settles.
    log.edit(|rows| rows[0]["spend"] = json!(0.0000054));
    let (code, outcome) = reconcile(&sluice, &[]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("settled", 3)])));
    assert_eq!(agreed(&outcome), 3 * NANOS);
}

#[tokio::test]
async fn an_unreadable_row_does_not_postpone_a_sweep() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend_of_three(&sluice, &log).await;

    let ran = sluice.command(["sweep"]).finish().await.expect(0);

    assert_eq!((ran.stderr.as_str(), statuses(&sluice).await), ("", two_settled()));
    assert_eq!(sluice.sql("SELECT count(*) FROM spend_logs WHERE fault IS NOT NULL").await, "[[0]]");
}

#[tokio::test]
async fn each_unreadable_row_is_named_and_posts_nothing() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    let run = spend(&sluice, "stream").await;
    let row = log.rows()[0].clone();
    let with = |name: &str, value: Value| {
        let mut row = row.clone();
        row[name] = value;
        Script::json(200, json!({"data": [row], "total": 1}))
    };
    for (script, why) in [
        (with("spend", json!(sluice.key())), "spend is \"(key)\""),
        (with("prompt_tokens", json!(sluice.key())), "a member is missing, doubled, or not of its kind, in line 1"),
        (with("spend", json!("5")), "row row-0 of the spend log cannot be read: spend"),
        (with("spend", json!(-0.5)), "spend is -0.5"),
        (with("prompt_tokens", json!(-5)), "row-0"),
        (with("prompt_tokens", json!(1e300)), "row-0"),
        (with("startTime", json!("now")), "startTime"),
        (with("request_id", json!(["x"])), "row without a name of the spend log cannot be read"),
    ] {
        log.next([script]);
        let ran = sluice.command(["reconcile", "--run", &run]).finish().await.expect(122);
        assert!(ran.stdout.contains(why) && ran.stdout.contains("found      1 unreadable_row\n"), "{why}: {ran:?}");
        assert!(!ran.stdout.contains(sluice.key()) && !ran.stderr.contains(sluice.key()), "{ran:?}");
    }
    assert_eq!(sluice.sql("SELECT count(*) FROM entries WHERE source_system = 'litellm-spend'").await, "[[0]]");
}

#[tokio::test]
async fn an_unreadable_row_without_a_receipt_is_reported() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream().start().await;
    let sluice = Sluice::to(&upstream);
    spend(&sluice, "ask").await;
    age(&sluice).await;
    let mut past = unmatched_row("past", "acct-1", std::time::Duration::from_secs(60));
    past["completion_tokens"] = json!(-1);
    log.edit(|rows| rows.push(past));

    let (code, outcome) = reconcile(&sluice, &[]).await;

    assert_eq!((code, classes(&outcome)), (122, counts([("matched", 1), ("unreadable_row", 1)])));
    assert_eq!(mismatches(&outcome)[0]["request_ids"], json!(["past"]));
}
