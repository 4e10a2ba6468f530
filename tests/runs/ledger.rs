//! Bills that add up: every call that reached the upstream has a receipt, with any end of its run.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::upstream::Script;
use sluice_testkit::upstream::answers::COST;
use sluice_testkit::{Sluice, Upstream};

mod commands;
mod ends;
mod faults;
mod import;
mod prune;

/// Shell function that calls the model, for the beginning of a script.
const ASK: &str = r#"
ask() {
    curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" --output /dev/null \
        --json '{"model": "m", "messages": [{"role": "user", "content": "hello"}]}'
}
"#;

/// Cost of one answered call: [`COST`].
const NANOS: u64 = 5400;

/// Runs a command, and returns the object that it prints.
async fn value(sluice: &Sluice, args: &[&str]) -> Value {
    sluice.command(args).finish().await.expect(0).value()
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Nano-USD in a string; null is 0.
fn nanos(value: &Value) -> u64 {
    match value {
        Value::Null => 0,
        value => {
            value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is not an amount"))
        }
    }
}

/// Calls, calls of unknown cost, and nano-USD, added up in every way; fails unless all ways agree.
async fn total(sluice: &Sluice) -> (u64, u64, u64) {
    let receipts = value(sluice, &["receipts", "--json"]).await;
    let list = receipts["receipts"].as_array().expect("a list");
    let open = |receipt: &&Value| !["posted", "voided"].contains(&receipt["status"].as_str().unwrap_or_default());
    let by_hand = (
        list.len() as u64,
        list.iter().filter(open).count() as u64,
        list.iter().map(|receipt| nanos(&receipt["nano_usd"])).sum::<u64>(),
    );
    let read = |total: &Value| (number(&total["calls"]), number(&total["open"]), nanos(&total["nano_usd"]));
    assert_eq!(read(&receipts["total"]), by_hand, "{receipts}");
    for by in ["account", "run", "model", "day"] {
        let usage = value(sluice, &["usage", "--by", by, "--json"]).await;
        assert_eq!(usage["total"], receipts["total"], "by {by}");
        let groups = usage["groups"].as_array().expect("a list").iter().map(read);
        let sum = groups.fold((0, 0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1, sum.2 + one.2));
        assert_eq!(sum, by_hand, "by {by}: {usage}");
    }
    let checked = value(sluice, &["ledger", "rebuild", "--check", "--json"]).await;
    assert_eq!(checked["differences"], json!([]), "{checked}");
    assert_eq!((read(&checked["by_files"]), read(&checked["by_ledger"])), (by_hand, by_hand), "{checked}");
    by_hand
}

/// Returns the status of each receipt.
async fn statuses(sluice: &Sluice) -> Vec<String> {
    let receipts = value(sluice, &["receipts", "--json"]).await;
    let list = receipts["receipts"].as_array().expect("a list").iter();
    list.map(|receipt| receipt["status"].as_str().expect("a status").to_owned()).collect()
}

/// Runs that are not settled, and why.
async fn unsettled(sluice: &Sluice) -> Vec<(String, String)> {
    let receipts = value(sluice, &["receipts", "--json"]).await;
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let runs = receipts["unsettled_runs"].as_array().expect("a list").iter();
    runs.map(|run| (text(&run["run"]), text(&run["reason"]))).collect()
}

#[tokio::test]
async fn every_way_of_adding_gives_one_total() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let script = format!("{ASK} ask && ask && ask");
    let mut reports = Vec::new();
    for account in ["acct-1", "acct-2", "acct-1"] {
        let words = ["--account", account, "--model", "m", "--json", "--", "sh", "-c", &script];
        reports.push(sluice.run(words).finish().await.expect(0).json());
    }

    assert_eq!(total(&sluice).await, (9, 0, 9 * NANOS));
    assert_eq!(upstream.requests().len(), 9);
    assert_eq!(COST, "0.0000054");
    assert_eq!(unsettled(&sluice).await, []);
    let usage = value(&sluice, &["usage", "--json"]).await;
    let of = |group: &Value| (group["name"].clone(), group["calls"].clone(), group["cost_usd"].clone());
    let groups: Vec<_> = usage["groups"].as_array().expect("a list").iter().map(of).collect();
    assert_eq!(
        groups,
        [(json!("acct-1"), json!(6), json!("0.0000324")), (json!("acct-2"), json!(3), json!("0.0000162"))]
    );
    assert_eq!(usage["total"]["usage"]["total"], 9 * 15);
    for report in &reports {
        let receipts = value(&sluice, &["receipts", "--run", &report.run_id, "--json"]).await;
        assert_eq!(receipts["total"]["cost_usd"], json!(report.cost_usd));
        let list = receipts["receipts"].as_array().expect("a list");
        assert_eq!(list.len(), report.receipts.len());
        for (receipt, told) in list.iter().zip(&report.receipts) {
            assert_eq!(receipt["source_reference"], told.source_reference.as_str());
            assert_eq!(receipt["call_id"], told.call_id.as_str());
            assert_eq!(receipt["litellm_call_id"], json!(told.litellm_call_id));
            assert_eq!(receipt["status"], told.status.as_str());
            assert_eq!(receipt["result"], json!(told.result));
            assert_eq!((&receipt["model"], &receipt["model_served"]), (&json!(told.model), &json!(told.model_served)));
            assert_eq!(receipt["cost_usd"], json!(told.cost_usd));
            assert_eq!(receipt["null_reason"], json!(told.null_reason));
            let usage = told.usage.expect("the upstream counts");
            assert_eq!(receipt["usage"]["input"], json!(usage.input));
            assert_eq!(receipt["usage"]["output"], json!(usage.output));
        }
    }
}

#[tokio::test]
async fn receipts_agree_with_the_real_litellm() {
    let litellm = LiteLlm::shared().await;
    let sluice = Sluice::new().await;
    let words = ["--model", "gpt-4o-mini", "--account", "acct-9", "--json", "hello"];
    let report = sluice.run(words).finish().await.expect(0).json();

    let receipts = value(&sluice, &["receipts", "--account", "acct-9", "--json"]).await;

    let receipt = &receipts["receipts"][0];
    let record = litellm.record_for(&report.only_receipt().call_id).await;
    assert_eq!(receipt["call_id"], record["spend_logs_metadata"]["sluice_call_id"], "{record}");
    assert_eq!(receipt["account"], record["end_user"]);
    let told: f64 = receipt["cost_usd"].as_str().and_then(|cost| cost.parse().ok()).expect("the mock has a price");
    assert!((told - record["response_cost"].as_f64().expect("a cost")).abs() < 1e-12, "{receipt} {record}");
    assert_eq!((&receipt["model"], &receipt["price_source"]), (&json!("gpt-4o-mini"), &json!("header")));
    assert_eq!(total(&sluice).await.0, 1);
}
