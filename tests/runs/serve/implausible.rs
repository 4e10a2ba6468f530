//! Answers that state a cost that cannot be true: the run ends, and its account pays what was reserved.

use sluice_testkit::controller::Daemon;
use sluice_testkit::upstream::Script;
use sluice_testkit::{PATIENCE, poll};

use super::*;

/// Price of a token: ten dollars for a million tokens.
const PRICE: &str = "1e-5";

/// Starts a LiteLLM that states this cost in its answers.
async fn stating(cost: &'static str) -> Upstream {
    let edit =
        move |script: Script| script.without_header("x-litellm-response-cost").header("x-litellm-response-cost", cost);
    Upstream::provider("hello").edit(edit).start().await
}

/// Starts a daemon with prices, and a budget of three dollars for its account.
async fn budgeted<'a>(sluice: &'a Sluice) -> Daemon<'a> {
    let info = format!(r#"{{"input_cost_per_token":{PRICE},"output_cost_per_token":{PRICE}}}"#);
    let prices = sluice.file("prices.json", &format!(r#"{{"data":[{{"model_name":"m","model_info":{info}}}]}}"#));
    sluice.file("sluice.toml", &format!("prices = '{prices}'\n"));
    let daemon = sluice.serve().await;
    daemon.request("PUT", "/api/v1/budgets/default", &json!({"kind": "set", "usd": "3"})).await.expect(200);
    daemon
}

/// A run that makes a call, and then does what the script says.
fn calling(then: &str) -> Value {
    let call = r#"curl -sf --json '{"model":"m","max_tokens":20,"messages":[]}' $OPENAI_BASE_URL/chat/completions"#;
    json!({"argv": ["sh", "-c", format!("{call} > /dev/null; {then}")], "model": "m", "max_cost_usd": "1"})
}

/// Waits until the only receipt of a run is pending, and returns it.
async fn receipt(daemon: &Daemon<'_>, id: &str) -> Value {
    let mut receipts = Value::Null;
    let posted = poll(PATIENCE, async || {
        receipts = daemon.get(&format!("/api/v1/sandboxes/{id}/receipts")).await.expect(200).json();
        receipts["receipts"][0]["status"] == "pending_cost"
    });
    assert!(posted.await, "{receipts}");
    receipts["receipts"][0].clone()
}

#[tokio::test]
async fn an_implausible_cost_ends_the_run_not_the_account() {
    let upstream = stating("1000000").await;
    let sluice = Sluice::to(&upstream);
    let daemon = budgeted(&sluice).await;

    let id = daemon.create(calling("while true; do sleep 0.1; done")).await;
    let run = daemon.reaches(&id, "FAILED").await;

    assert_eq!(run["failure_code"], "implausible_cost", "{run}");
    let message = run["error_message"].as_str().unwrap_or_default();
    assert!(message.contains("$1000000") && message.contains("sluice reconcile"), "{run}");
    let events = daemon.events(&id).await;
    let alert = events.iter().find(|event| event["event_type"] == "budget.implausible_cost");
    let alert = &alert.unwrap_or_else(|| panic!("no alert: {events:?}"))["event_data"];
    assert_eq!(alert["cost_usd"], "1000000", "{alert}");
    let call = events.iter().find(|event| event["event_type"] == "llm.call").expect("a call has ended");
    assert_eq!(call["event_data"]["cost"], json!({"unknown": {"reason": "implausible"}}), "{call}");
    let receipt = receipt(&daemon, &id).await;
    assert_eq!(receipt["null_reason"], "implausible", "{receipt}");
    let budget = daemon.get("/api/v1/budgets").await.expect(200).json()["budgets"][0].clone();
    assert_eq!((&budget["spent_usd"], &budget["held_usd"]), (&json!("0"), &receipt["reserved_usd"]), "{budget}");
    let mut metrics = String::new();
    let is_counted = poll(PATIENCE, async || {
        metrics = daemon.get("/metrics").await.expect(200).text();
        metrics.contains("\nsluice_implausible_costs_total 1\n")
    });
    assert!(is_counted.await, "{metrics}");

    // The account goes on.
    daemon.create(json!({"argv": ["true"], "model": "m", "max_cost_usd": "1"})).await;
}

#[tokio::test]
async fn a_cost_beyond_all_money_is_not_a_cost() {
    let upstream = stating("1e12").await;
    let sluice = Sluice::to(&upstream);
    let daemon = budgeted(&sluice).await;

    let id = daemon.create(calling("true")).await;
    daemon.reaches(&id, "COMPLETED").await;

    assert_eq!(receipt(&daemon, &id).await["null_reason"], "no_cost");
    let budget = daemon.get("/api/v1/budgets").await.expect(200).json()["budgets"][0].clone();
    assert_eq!(budget["spent_usd"], "0", "{budget}");
}
