//! The steps of creation over HTTP: the refusals of each, and the state after it.

use serde_json::{Value, json};
use sluice_state::process::Process;
use sluice_state::sandboxes::{ClaimLimits, SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;

use crate::test_daemon::{TestAnswer, TestDaemon, policy};

const AGENTS: &str = "/api/v1/agents";
const RUNS: &str = "/api/v1/sandboxes";

async fn agent(daemon: &TestDaemon, id: &str, more: Value) {
    let mut body = json!({ "agent_id": id, "owner_id": "alice", "billing_account_id": "acct-1" });
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    let answer = daemon.request("slu_admin", "POST", AGENTS, Some(&body)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

async fn create(daemon: &TestDaemon, body: Value) -> TestAnswer {
    daemon.request("slu_alice", "POST", RUNS, Some(&body)).await
}

/// State and generation of an agent of alice, number of runs, and the sum that the account holds.
async fn left(daemon: &TestDaemon, id: &str) -> (Value, Value, usize, Value) {
    let agent = daemon.get("slu_alice", &format!("{AGENTS}/{id}")).await.json();
    let runs = daemon.get("slu_alice", RUNS).await.json();
    let budgets = daemon.get("slu_alice", "/api/v1/budgets").await.json();
    let runs = runs["sandboxes"].as_array().map_or(0, Vec::len);
    (agent["state"].clone(), agent["generation"].clone(), runs, budgets["budgets"][0]["held_usd"].clone())
}

async fn budget(daemon: &TestDaemon, usd: &str) {
    let body = json!({ "kind": "set", "usd": usd });
    let answer = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_step_that_refuses_leaves_nothing() {
    let daemon = TestDaemon::with_runs().await;
    budget(&daemon, "1").await;
    agent(&daemon, "bot", json!({})).await;
    agent(&daemon, "barred", json!({ "allow_sandbox": false })).await;
    agent(&daemon, "held", json!({})).await;
    for target in ["CONNECTED", "SUSPENDED"] {
        let path = format!("{AGENTS}/alice%2Fheld/transition");
        let answer = daemon.request("slu_admin", "POST", &path, Some(&json!({ "target_state": target }))).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let run = |agent: &str, cap: &str| json!({ "task": "x", "agent_id": agent, "max_cost_usd": cap });
    for (body, status, code, agent, state, generation) in [
        (run("nobody", "0.1"), 404, "not_found", "bot", "UNKNOWN", 0),
        (run("barred", "0.1"), 403, "sandbox_not_allowed", "barred", "UNKNOWN", 0),
        (run("held", "0.1"), 403, "agent_suspended", "held", "SUSPENDED", 1),
        (run("bot", "1.1"), 402, "insufficient_credits", "bot", "UNKNOWN", 0),
    ] {
        for path in [RUNS.to_owned(), format!("{RUNS}?dry_run=true")] {
            let answer = daemon.request("slu_alice", "POST", &path, Some(&body)).await;
            assert_eq!(answer.error(), (status, code.to_owned()), "{path} {body}");
            let expected = (json!(state), json!(generation), 0, json!("0"));
            assert_eq!(left(&daemon, agent).await, expected, "{path} {body}");
        }
    }
    let admins = json!({ "task": "x", "agent_id": "bot", "owner_id": "bob" });
    let answer = daemon.request("slu_admin", "POST", RUNS, Some(&admins)).await;
    assert_eq!(answer.error(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn of_two_creations_at_once_one_wins() {
    let daemon = TestDaemon::with_runs().await;
    budget(&daemon, "1").await;
    agent(&daemon, "bot", json!({})).await;
    let body = json!({ "task": "x", "agent_id": "bot", "max_cost_usd": "0.3" });
    let (one, other) = tokio::join!(create(&daemon, body.clone()), create(&daemon, body));
    let (won, lost) = if one.status == 201 { (one, other) } else { (other, one) };
    assert_eq!((won.status, lost.status), (201, 409), "{won:?} {lost:?}");
    let (won, lost) = (won.json(), lost.json());
    assert_eq!(lost["error"]["code"], "agent_busy", "{lost}");
    let run = won["sandbox_id"].as_str().expect("an id");
    let message = format!("agent bot has a live run, {run}; wait for its end, or cancel it");
    assert_eq!(lost["error"]["message"], message, "{lost}");
    assert_eq!(left(&daemon, "bot").await, (json!("CONNECTED"), json!(1), 1, json!("0.3")));
}

#[tokio::test]
async fn a_run_that_cannot_be_created_frees_its_agent() {
    let daemon = TestDaemon::with_runs().await;
    agent(&daemon, "bot", json!({})).await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "agent_id": "bot" })).await;
    assert_eq!(left(&daemon, "bot").await.0, "CONNECTED");
    daemon.claim().await;
    let failed = SandboxVerdict::Failed { code: "creation_failed".to_owned(), message: Some("no image".to_owned()) };
    daemon.step(&id, SandboxStep::Decide(failed)).await;
    daemon.step(&id, SandboxStep::Finish).await;
    assert_eq!(left(&daemon, "bot").await.0, "IDLE");
    let events = daemon.get("slu_alice", &format!("{RUNS}/{id}/events")).await.json();
    assert_eq!(events["events"][0]["event_type"], "sandbox.stopped", "{events}");
    // The agent is free for another run.
    assert_eq!(create(&daemon, json!({ "task": "x", "agent_id": "bot" })).await.status, 201);
}

#[tokio::test]
async fn a_stopped_run_frees_its_agent() {
    let daemon = TestDaemon::with_runs().await;
    budget(&daemon, "1").await;
    agent(&daemon, "bot", json!({})).await;
    let body = json!({ "task": "x", "agent_id": "bot", "max_cost_usd": "0.4" });
    let id = daemon.create("slu_alice", body).await;
    assert_eq!(left(&daemon, "bot").await, (json!("CONNECTED"), json!(1), 1, json!("0.4")));
    let path = format!("{RUNS}/{id}");
    assert_eq!(daemon.request("slu_bob", "DELETE", &path, None).await.status, 404, "only by its owner");
    assert_eq!(daemon.request("slu_alice", "DELETE", &path, None).await.status, 202);
    assert_eq!(left(&daemon, "bot").await, (json!("IDLE"), json!(1), 1, json!("0")));
    let events = daemon.get("slu_alice", &format!("{path}/events?event_type=sandbox.stopped")).await.json();
    assert_eq!(events["total_count"], 1, "{events}");
}

#[tokio::test]
async fn a_project_is_of_its_owners_alone() {
    let daemon = TestDaemon::with_runs().await;
    let send = async |token: &str, project: &str| {
        daemon.request(token, "POST", RUNS, Some(&json!({ "task": "x", "project": project }))).await
    };
    let own = send("slu_alice", "site").await;
    let id = own.json()["sandbox_id"].as_str().expect("an id").to_owned();
    assert_eq!(daemon.get("slu_alice", &format!("{RUNS}/{id}")).await.json()["project"], "site");
    assert_eq!(send("slu_bob", "depot").await.status, 201);
    let (foreign, missing) = (send("slu_bob", "site").await, send("slu_bob", "never").await);
    assert_eq!(foreign.error(), (404, "unknown_project".to_owned()));
    assert_eq!(foreign.body, missing.body);
    assert_eq!(send("slu_admin", "site").await.status, 201, "admins configure projects");
    assert_eq!(send("slu_admin", "never").await.status, 404);
    assert_eq!(send("slu_alice", "https://forge.example/site.git").await.status, 404);
}

#[tokio::test]
async fn a_project_has_a_limit_of_its_own() {
    let daemon = TestDaemon::with_runs().await;
    for project in [Some("site"), Some("site"), Some("depot")] {
        daemon.create("slu_alice", json!({ "task": "x", "project": project })).await;
    }
    let limits = ClaimLimits { host: 10, project: 1, owner: 10 };
    let own = Process::current().expect("it is there");
    let mut claimed = Vec::new();
    while let Some(run) = daemon.store().claim_next(&own, limits, now_us()).await.expect("it is writable").claimed {
        claimed.extend(run.sandbox.project);
    }
    assert_eq!(claimed, ["site", "depot"]);
}

#[tokio::test]
async fn limits_of_the_operator_bound_requests() {
    let mut policy = policy();
    policy.max_cost_max = Some(500_000_000);
    policy.limits_max.max_calls = Some(10);
    policy.limits_max.timeout_s = 20_000;
    let daemon = TestDaemon::with_policy(Some(policy), |_| {}).await;
    for (more, field) in [
        (json!({ "max_cost_usd": "0.6" }), "max_cost_usd"),
        (json!({ "limits": { "max_calls": 11 } }), "limits.max_calls"),
        (json!({ "limits": { "timeout": "6h" } }), "limits.timeout"),
    ] {
        let mut body = json!({ "task": "x" });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        let answer = create(&daemon, body).await;
        assert_eq!(answer.error(), (422, "limit_exceeded".to_owned()), "{answer:?}");
        assert_eq!(answer.json()["error"]["details"]["field"], field, "{answer:?}");
    }
    let body = json!({ "task": "x", "image": "tools", "profile": "permissive", "limits": { "timeout": "5h" } });
    let id = daemon.create("slu_alice", body).await;
    let run = daemon.get("slu_alice", &format!("{RUNS}/{id}")).await.json();
    assert_eq!((&run["image"], &run["max_cost_usd"]), (&json!("tools@sha256:0"), &json!("0.5")));
    assert_eq!((&run["limits"]["memory"], &run["limits"]["max_calls"]), (&json!("2147483648"), &json!(10)));
    assert_eq!(run["ttl_minutes"], Value::Null);
    let row = daemon.store().find_sandbox(None, &id.parse().expect("an id")).await.expect("it is readable");
    assert_eq!(row.expect("it is there").run_time_us, 18_000_000_000, "it may work for five hours");
}
