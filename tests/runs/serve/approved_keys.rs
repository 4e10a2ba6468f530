//! Raised costs of runs with a virtual key: LiteLLM gets the budget of the cap that is in force, after the decision.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use sluice_testkit::upstream::{Script, UpstreamPlan};

use super::approvals::held;
use super::*;

/// Shell code of a call that waits for a person's decision.
const PATIENT: &str = r#"curl -sf --retry 10 --retry-max-time 600 --json '{"model":"m","max_tokens":20,"messages":[]}' $OPENAI_BASE_URL/chat/completions > /dev/null"#;

/// A LiteLLM that makes keys, and answers their changes with this status.
fn litellm(status_of_changes: &Arc<AtomicU16>) -> UpstreamPlan {
    let status_of_changes = Arc::clone(status_of_changes);
    Upstream::with(move |request| match request.target.as_str() {
        "/key/generate" => Script::json(200, json!({"key": "sk-virtual-key-1", "token": "hash"})),
        "/key/update" => Script::json(status_of_changes.load(Ordering::Relaxed), json!({})),
        "/key/delete" => Script::json(200, json!({})),
        _ => Script::provider("hello"),
    })
}

/// The budgets that LiteLLM was told to give to the key, in their order.
fn key_budgets(upstream: &Upstream) -> Vec<Value> {
    let requests = upstream.requests();
    let updates = requests.iter().filter(|request| request.target == "/key/update");
    updates.filter_map(|update| update.json().get("max_budget").cloned()).collect()
}

/// Number of model calls.
fn calls(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.target == "/v1/chat/completions").count()
}

/// Sets virtual keys and prices, and starts a daemon with a budget of three dollars for its account.
async fn keyed(sluice: &Sluice) -> Daemon<'_> {
    let info = r#"{"input_cost_per_token":1e-5,"output_cost_per_token":1e-5}"#;
    let prices = sluice.file("prices.json", &format!(r#"{{"data":[{{"model_name":"m","model_info":{info}}}]}}"#));
    sluice.file("sluice.toml", &format!("prices = '{prices}'\nkey_mode = 'per-run'\n"));
    let daemon = sluice.serve().await;
    daemon.request("PUT", "/api/v1/budgets/default", &json!({"kind": "set", "usd": "3"})).await.expect(200);
    daemon
}

/// Creates a run with one call that needs more than the cap, and waits until the call waits. Returns the run and its
/// approval.
async fn asking(daemon: &Daemon<'_>) -> (String, Value) {
    let request = json!({"argv": ["sh", "-c", PATIENT], "model": "m", "on_cap": "ask", "max_cost_usd": "0.0001"});
    let id = daemon.create(request).await;
    let approval = held(daemon, &id).await;
    (id, approval)
}

/// Approves a raise of the cost cap to this amount.
async fn raise(daemon: &Daemon<'_>, (id, approval): &(String, Value), usd: &str) -> ClientAnswer {
    let approval_id = approval["approval_id"].as_str().expect("an id");
    let path = format!("/api/v1/sandboxes/{id}/approvals/{approval_id}/decision");
    let body = json!({"decision": "approve", "digest": approval["digest"], "raise": {"max_cost_usd": usd}});
    daemon.request("POST", &path, &body).await
}

#[tokio::test]
async fn a_refused_raise_leaves_the_key_alone() {
    let upstream = litellm(&Arc::new(AtomicU16::new(200))).start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = keyed(&sluice).await;
    let asked = asking(&daemon).await;

    raise(&daemon, &asked, "5").await.expect(402);
    let after_refusal = key_budgets(&upstream);
    let (first, second) = tokio::join!(raise(&daemon, &asked, "2"), raise(&daemon, &asked, "2.5"));
    let run = daemon.reaches(&asked.0, "COMPLETED").await;

    assert_eq!(after_refusal, Vec::<Value>::new(), "the account has no five dollars");
    let mut statuses = [first.status, second.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{} {}", first.text(), second.text());
    let expected = if run["max_cost_usd"] == "2" { json!(200) } else { json!(250) };
    let budgets = key_budgets(&upstream);
    assert!(!budgets.is_empty() && budgets.iter().all(|budget| *budget == expected), "{budgets:?} of {run}");
    assert_eq!((&run["outcome"], calls(&upstream)), (&json!("success"), 1), "{run}");
}

#[tokio::test]
async fn an_approved_raise_waits_for_litellm() {
    let status_of_changes = Arc::new(AtomicU16::new(500));
    let upstream = litellm(&status_of_changes).start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = keyed(&sluice).await;
    let asked = asking(&daemon).await;

    let decided = raise(&daemon, &asked, "2").await.expect(200).json();
    daemon.kill().await;
    let before = calls(&upstream);
    status_of_changes.store(200, Ordering::Relaxed);
    let daemon = sluice.serve().await;
    let run = daemon.reaches(&asked.0, "COMPLETED").await;

    assert_eq!((&decided["decision"], &decided["applied_at"]), (&json!("approve"), &Value::Null), "{decided}");
    assert_eq!(before, 0, "the sidecar had the old cap");
    assert_eq!((&run["outcome"], calls(&upstream)), (&json!("success"), 1), "{run}");
    assert_eq!(key_budgets(&upstream).last(), Some(&json!(200)));
}

/// Bug: the daemon tried to raise a key that LiteLLM did not have until the run ended, and the approved call never went
/// on.
#[tokio::test]
async fn a_raise_goes_on_without_its_deleted_key() {
    let upstream = litellm(&Arc::new(AtomicU16::new(404))).start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = keyed(&sluice).await;
    let asked = asking(&daemon).await;

    let decided = raise(&daemon, &asked, "2").await.expect(200).json();
    let run = daemon.reaches(&asked.0, "COMPLETED").await;

    assert!(decided["applied_at"].is_string(), "{decided}");
    // This LiteLLM answers calls with any key.
    assert_eq!((&run["outcome"], calls(&upstream)), (&json!("success"), 1), "{run}");
    let events = daemon.events(&asked.0).await;
    let stays: Vec<_> = events.iter().filter(|event| event["event_type"] == "approval.key_not_raised").collect();
    let [event] = &stays[..] else { panic!("one event: {stays:?}") };
    let reason = event["event_data"]["reason"].as_str().unwrap_or_default();
    assert!(reason.contains("status 404"), "{event}");
    let log = daemon.process().stderr();
    assert_eq!(log.matches("its virtual key stays").count(), 1, "{log}");
}
