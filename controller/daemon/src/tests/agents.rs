//! Agents over HTTP.

use serde_json::{Value, json};

use crate::test_daemon::TestDaemon;

const PATH: &str = "/api/v1/agents";

async fn post(daemon: &TestDaemon, token: &str, path: &str, body: &Value) -> (u16, String) {
    let answer = daemon.request(token, "POST", path, Some(body)).await;
    if answer.status < 400 { (answer.status, String::new()) } else { answer.error() }
}

#[tokio::test]
async fn an_agent_has_owner_and_account_of_its_token() {
    let daemon = TestDaemon::start().await;
    let body = json!({ "agent_id": "bot", "name": "Bot", "metadata": { "a": 1 } });
    let first = daemon.request("slu_alice", "POST", PATH, Some(&body)).await;
    assert_eq!(first.status, 201, "{first:?}");
    let agent = first.json();
    assert_eq!((&agent["owner_id"], &agent["billing_account_id"]), (&json!("alice"), &json!("acct-1")));
    assert_eq!((&agent["allow_sandbox"], &agent["grants"]), (&json!(true), &json!([])));
    assert_eq!((&agent["state"], &agent["generation"]), (&json!("UNKNOWN"), &json!(0)));
    let again = daemon.request("slu_alice", "POST", PATH, Some(&body)).await;
    assert_eq!((again.status, again.json()), (200, agent));
    assert_eq!(post(&daemon, "slu_bob", PATH, &body).await.0, 201, "ids are unique for their owner");
    for field in ["owner_id", "billing_account_id", "allow_sandbox", "grants"] {
        let value = match field {
            "allow_sandbox" => json!(true),
            "grants" => json!([]),
            _ => json!("alice"),
        };
        let body = json!({ "agent_id": "other", field: value });
        assert_eq!(post(&daemon, "slu_alice", PATH, &body).await, (403, "admin_only".to_owned()), "{field}");
    }
    for field in ["state", "generation", "suspended_by_admin"] {
        let body = json!({ "agent_id": "other", field: 1 });
        assert_eq!(post(&daemon, "slu_admin", PATH, &body).await, (422, "unknown_field".to_owned()), "{field}");
    }
    let grant = json!({ "agent_id": "other", "billing_account_id": "acct-9", "grants": ["/root"] });
    assert_eq!(post(&daemon, "slu_admin", PATH, &grant).await, (422, "grant_outside_roots".to_owned()));
    assert_eq!(post(&daemon, "slu_viewer", PATH, &body).await, (403, "forbidden".to_owned()));
}

#[tokio::test]
async fn agents_are_listed_in_pages() {
    let daemon = TestDaemon::start().await;
    for (token, id) in [("slu_alice", "a"), ("slu_alice", "b"), ("slu_alice", "c"), ("slu_bob", "a")] {
        assert_eq!(post(&daemon, token, PATH, &json!({ "agent_id": id })).await.0, 201);
    }
    let first = daemon.get("slu_alice", &format!("{PATH}?limit=2")).await.json();
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let second = daemon.get("slu_alice", &format!("{PATH}?limit=2&cursor={cursor}")).await.json();
    assert_eq!((&second["agents"][0]["agent_id"], &second["has_more"]), (&json!("c"), &json!(false)));
    // The cursor of another owner shows none of its agents.
    let foreign = daemon.get("slu_alice", &format!("{PATH}?cursor=a/a")).await.json();
    assert_eq!(foreign["agents"].as_array().map(Vec::len), Some(3));
    assert_eq!(daemon.get("slu_admin", PATH).await.json()["agents"].as_array().map(Vec::len), Some(4));
    assert_eq!(daemon.get("slu_admin", &format!("{PATH}/bob%2Fa")).await.json()["owner_id"], "bob");
    assert_eq!(daemon.get("slu_alice", &format!("{PATH}/bob%2Fa")).await.status, 404);
}

#[tokio::test]
async fn an_agent_has_one_live_run() {
    let daemon = TestDaemon::with_runs().await;
    assert_eq!(post(&daemon, "slu_alice", PATH, &json!({ "agent_id": "bot" })).await.0, 201);
    let run = json!({ "task": "x", "agent_id": "bot" });
    let sends = (0..4).map(|_| daemon.request("slu_alice", "POST", "/api/v1/sandboxes", Some(&run)));
    let mut answers: Vec<_> = futures_util::future::join_all(sends).await.iter().map(|answer| answer.status).collect();
    answers.sort_unstable();
    assert_eq!(answers, [201, 409, 409, 409]);
    let delete = daemon.request("slu_alice", "DELETE", &format!("{PATH}/bot"), None).await;
    assert_eq!(delete.error(), (409, "agent_connected".to_owned()));
    assert!(delete.body.contains("wait for the end of its run, or cancel it"), "{delete:?}");
    let idle = json!({ "target_state": "IDLE" });
    let path = format!("{PATH}/bot/transition");
    assert_eq!(post(&daemon, "slu_alice", &path, &idle).await, (409, "agent_busy".to_owned()));
    let events = daemon.get("slu_alice", &format!("{PATH}/bot/events")).await.json();
    assert_eq!((&events["events"][0]["event_type"], &events["total_count"]), (&json!("sandbox.created"), &json!(1)));
}

/// Bug: the run was refused with `invalid_transition` for up to a minute after the end of the suspension.
#[tokio::test]
async fn a_resumed_agent_accepts_a_run_at_once() {
    let daemon = TestDaemon::with_runs().await;
    assert_eq!(post(&daemon, "slu_alice", PATH, &json!({ "agent_id": "bot" })).await.0, 201);
    let path = format!("{PATH}/bot/transition");
    for target in ["SUSPENDED", "CONNECTED"] {
        assert_eq!(post(&daemon, "slu_alice", &path, &json!({ "target_state": target })).await.0, 200, "{target}");
    }
    let run = json!({ "task": "x", "agent_id": "bot" });
    assert_eq!(post(&daemon, "slu_alice", "/api/v1/sandboxes", &run).await.0, 201);
    assert_eq!(post(&daemon, "slu_alice", "/api/v1/sandboxes", &run).await, (409, "agent_busy".to_owned()));
    let agent = daemon.get("slu_alice", &format!("{PATH}/bot")).await.json();
    assert_eq!((&agent["state"], &agent["generation"]), (&json!("CONNECTED"), &json!(1)));
}

#[tokio::test]
async fn a_suspension_by_an_admin_is_ended_by_an_admin() {
    let daemon = TestDaemon::with_runs().await;
    assert_eq!(post(&daemon, "slu_alice", PATH, &json!({ "agent_id": "bot" })).await.0, 201);
    let (own, admins) = (format!("{PATH}/bot/transition"), format!("{PATH}/alice%2Fbot/transition"));
    let to = |state: &str| json!({ "target_state": state });
    assert_eq!(post(&daemon, "slu_alice", &own, &to("IDLE")).await, (409, "invalid_transition".to_owned()));
    assert_eq!(post(&daemon, "slu_alice", &own, &to("SUSPENDED")).await.0, 200, "it has had no run yet");
    assert_eq!(post(&daemon, "slu_alice", &own, &to("CONNECTED")).await.0, 200);
    let stale = json!({ "target_state": "IDLE", "expected_generation": 0 });
    assert_eq!(post(&daemon, "slu_alice", &own, &stale).await, (409, "stale_generation".to_owned()));
    assert_eq!(post(&daemon, "slu_admin", &admins, &to("SUSPENDED")).await.0, 200);
    let run = json!({ "task": "x", "agent_id": "bot" });
    let refused = post(&daemon, "slu_alice", "/api/v1/sandboxes", &run).await;
    assert_eq!(refused, (403, "agent_suspended".to_owned()));
    assert_eq!(post(&daemon, "slu_alice", &own, &to("CONNECTED")).await, (403, "admin_only".to_owned()));
    let delete = daemon.request("slu_alice", "DELETE", &format!("{PATH}/bot"), None).await;
    assert_eq!(delete.error(), (403, "admin_only".to_owned()));
    assert_eq!(post(&daemon, "slu_admin", &admins, &to("CONNECTED")).await.0, 200);
    assert_eq!(post(&daemon, "slu_alice", &own, &to("IDLE")).await.0, 200);
    let beat = daemon.request("slu_alice", "POST", &format!("{PATH}/bot/heartbeat"), None).await;
    assert_eq!(beat.json()["status"], "received");
    let agent = daemon.get("slu_alice", &format!("{PATH}/bot")).await.json();
    assert_eq!((&agent["last_heartbeat"], &agent["generation"]), (&beat.json()["timestamp"], &json!(2)));
    assert_eq!(daemon.request("slu_alice", "DELETE", &format!("{PATH}/bot"), None).await.status, 204);
    assert_eq!(daemon.get("slu_alice", &format!("{PATH}/bot")).await.status, 404);
}
