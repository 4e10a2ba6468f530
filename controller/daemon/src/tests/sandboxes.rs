//! Runs over HTTP: creation, lists, details, cancellation.

use serde_json::{Value, json};
use sluice_contract::RunId;
use sluice_state::process::Process;
use sluice_state::sandboxes::{NextAttempt, SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;

use crate::test_daemon::TestDaemon;

const PATH: &str = "/api/v1/sandboxes";

async fn post(daemon: &TestDaemon, token: &str, path: &str, body: &Value) -> (u16, String) {
    let answer = daemon.request(token, "POST", path, Some(body)).await;
    if answer.status < 400 { (answer.status, String::new()) } else { answer.error() }
}

async fn budget(daemon: &TestDaemon, account: &str, usd: &str) {
    let body = json!({ "kind": "set", "usd": usd });
    let answer = daemon.request("slu_admin", "PUT", &format!("/api/v1/budgets/{account}"), Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

#[tokio::test]
async fn a_run_is_created_with_its_defaults() {
    let daemon = TestDaemon::with_runs().await;
    budget(&daemon, "acct-1", "5").await;
    let body = json!({
        "task": "fix it", "name": "fix", "max_cost_usd": 0.5, "labels": { "team": "a" }, "env": { "SECRET": "hunter2" },
        "limits": { "memory": "512m", "timeout": 60, "cpus": "0.5" }, "models": ["large"], "metadata": { "tags": ["x"] }
    });
    let answer = daemon.request("slu_alice", "POST", PATH, Some(&body)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let created = answer.json();
    let id = created["sandbox_id"].as_str().expect("an id");
    assert!(id.starts_with("r_") && answer.head.contains(&format!("location: /api/v1/sandboxes/{id}")), "{answer:?}");
    assert_eq!((&created["run_id"], &created["state"]), (&created["sandbox_id"], &json!("PENDING")));
    assert_eq!((&created["attempt"], &created["budget_checked"]), (&json!(0), &json!(true)));
    assert_eq!((&created["agent"]["state"], &created["mount_table"]), (&json!("CONNECTED"), &json!([])));
    for name in [id, "fix"] {
        let shown = daemon.get("slu_alice", &format!("{PATH}/{name}")).await;
        assert!(!shown.body.contains("hunter2"), "{}", shown.body);
        let shown = shown.json();
        assert_eq!((&shown["sandbox_id"], &shown["waiting_for"]), (&json!(id), &json!("turn")));
        assert_eq!((&shown["image"], &shown["models"]), (&json!("agent@sha256:0"), &json!(["large"])));
        assert_eq!((&shown["env_names"], &shown["max_cost_usd"]), (&json!(["SECRET"]), &json!("0.5")));
        assert_eq!((&shown["limits"]["timeout"], &shown["limits"]["pids"]), (&json!("60s"), &json!(256)));
        assert_eq!(shown["billing_account_id"], "acct-1");
    }
    let run_id: RunId = id.parse().expect("an id");
    let stored = daemon.store().sandbox_request(&run_id).await.expect("it is readable").expect("it is there");
    assert!(stored.contains("fix it") && !stored.contains("hunter2"), "{stored}");
    let variables = daemon.running.context.variables.get(&run_id).expect("they are kept");
    assert_eq!(variables["SECRET"].as_str(), "hunter2");
}

#[tokio::test]
async fn a_run_keeps_metadata_and_trace_of_its_request() {
    let daemon = TestDaemon::with_runs().await;
    let metadata = json!({ "user_id": "ada", "session_id": "s-1", "tags": ["a"], "mask_input": true });
    let body = json!({ "task": "x", "metadata": metadata });
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let origin = format!("traceparent: {parent}\r\nx-request-id: req-1");
    let created = daemon.with_header("slu_alice", ("POST", PATH), &body, &origin).await;
    let id = created.json()["sandbox_id"].as_str().expect("an id").to_owned();
    let shown = daemon.get("slu_alice", &format!("{PATH}/{id}")).await.json();
    let mut expected = metadata;
    expected["request_id"] = json!("req-1");
    assert_eq!(shown["metadata"], expected);
    assert_eq!(shown["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    let stored = daemon.running.context.stored_request(&id.parse().expect("an id")).await;
    let stored = stored.map_err(|error| error.code()).expect("it is stored");
    assert_eq!(stored.traceparent.map(|parent| parent.to_string()).as_deref(), Some(parent));
}

#[tokio::test]
async fn metadata_that_no_header_can_carry_is_refused() {
    let daemon = TestDaemon::with_runs().await;
    // Each quote has two bytes in JSON, and these names are sent several times.
    let quotes = "\"".repeat(255);
    let tags: Vec<_> = (0..17).map(|number| format!("{number:0200}")).collect();
    let body = json!({ "task": "x", "metadata": { "user_id": quotes, "tags": tags } });
    let origin = format!("x-request-id: {quotes}");

    let answer = daemon.with_header("slu_alice", ("POST", PATH), &body, &origin).await;

    assert_eq!(answer.error(), (422, "invalid_field".to_owned()), "{answer:?}");
    assert_eq!(answer.json()["error"]["details"]["field"], "metadata");
    let listed = daemon.get("slu_alice", PATH).await.json();
    assert_eq!(listed["sandboxes"], json!([]));
    daemon.create("slu_alice", body).await;
}

#[tokio::test]
async fn requests_that_break_a_rule_create_nothing() {
    let daemon = TestDaemon::with_runs().await;
    let task = |more: Value| {
        let mut body = json!({ "task": "x" });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    let rows = [
        (json!({}), "invalid_field", "task"),
        (json!({ "task": " " }), "invalid_field", "task"),
        (json!({ "task": "x", "messages": [{ "role": "user", "content": "x" }] }), "invalid_field", "task"),
        (json!({ "messages": [{ "role": "system", "content": "x" }] }), "invalid_field", "messages"),
        (json!({ "messages": [] }), "invalid_field", "messages"),
        (json!({ "argv": [] }), "invalid_field", "argv"),
        (task(json!({ "image": "evil:latest" })), "image_not_allowed", "image"),
        (task(json!({ "repo": "/etc" })), "unknown_field", "repo"),
        (task(json!({ "graph_id": "sandbox:other" })), "unknown_graph", "graph_id"),
        (task(json!({ "name": "r_1" })), "invalid_field", "name"),
        (task(json!({ "name": "health" })), "invalid_field", "name"),
        (task(json!({ "limits": { "memory": "3g" } })), "limit_exceeded", "limits.memory"),
        (task(json!({ "limits": { "timeout": "3h" } })), "limit_exceeded", "limits.timeout"),
        (task(json!({ "limits": { "cpus": "x" } })), "invalid_field", "limits.cpus"),
        (task(json!({ "limits": { "workspace": "3g" } })), "limit_exceeded", "limits.workspace"),
        (task(json!({ "limits": { "workspace": "1k" } })), "limit_exceeded", "limits.workspace"),
        (task(json!({ "limits": { "idle": "25h" } })), "limit_exceeded", "limits.idle"),
        (task(json!({ "limits": { "idle": "5m" }, "ttl_minutes": 5 })), "invalid_field", "limits.idle"),
        (task(json!({ "limits": { "disk": 1 } })), "unknown_field", "limits.disk"),
        (task(json!({ "env": { "OPENAI_API_KEY": "x" } })), "invalid_field", "env"),
        (task(json!({ "env": { "A B": "x" } })), "invalid_field", "env"),
        (task(json!({ "env": { "A": "x".repeat(40_000), "B": "x".repeat(40_000) } })), "invalid_field", "env"),
        (task(json!({ "max_cost_usd": "-1" })), "invalid_field", "max_cost_usd"),
        (task(json!({ "max_cost_usd": 0 })), "invalid_field", "max_cost_usd"),
        (task(json!({ "ttl_minutes": 0 })), "invalid_field", "ttl_minutes"),
        (task(json!({ "priority": 101 })), "invalid_field", "priority"),
        (task(json!({ "labels": { "a": "x".repeat(64) } })), "invalid_field", "labels"),
        (task(json!({ "depends_on": ["r_00000000000000000000"] })), "unknown_dependency", "depends_on"),
        (task(json!({ "metadata": { "billing_account_id": "x" } })), "unknown_field", "metadata.billing_account_id"),
        (
            task(json!({ "metadata": { "user_api_key_end_user_id": "x" } })),
            "unknown_field",
            "metadata.user_api_key_end_user_id",
        ),
        (task(json!({ "metadata": { "request_id": "jörg" } })), "invalid_field", "metadata.request_id"),
        (task(json!({ "metadata": { "tags": ["a,b"] } })), "invalid_field", "metadata.tags"),
        (task(json!({ "retry_on": ["X"] })), "invalid_field", "retry_on"),
    ];
    for (body, code, field) in rows {
        let answer = daemon.request("slu_alice", "POST", PATH, Some(&body)).await;
        assert_eq!(answer.error(), (422, code.to_owned()), "{body}");
        assert_eq!(answer.json()["error"]["details"]["field"], field, "{body}");
    }
    let other = task(json!({ "owner_id": "bob" }));
    assert_eq!(post(&daemon, "slu_alice", PATH, &other).await, (403, "admin_only".to_owned()));
    let viewer = post(&daemon, "slu_viewer", PATH, &task(json!({}))).await;
    assert_eq!(viewer, (403, "forbidden".to_owned()));
    let agent = task(json!({ "agent_id": "nobody" }));
    assert_eq!(post(&daemon, "slu_alice", PATH, &agent).await, (404, "not_found".to_owned()));
    let listed = daemon.get("slu_admin", PATH).await.json();
    assert_eq!((&listed["sandboxes"], &listed["counts"]["PENDING"]), (&json!([]), &json!(0)));
}

#[tokio::test]
async fn a_host_without_a_policy_creates_no_runs() {
    let daemon = TestDaemon::start().await;
    let answer = daemon.request("slu_alice", "POST", PATH, Some(&json!({ "task": "x" }))).await;
    assert_eq!(answer.error(), (503, "sandbox_disabled".to_owned()));
}

#[tokio::test]
async fn budget_name_and_queue_bound_what_is_created() {
    let daemon = TestDaemon::with_runs().await;
    budget(&daemon, "acct-1", "0.5").await;
    let dear = json!({ "task": "x", "max_cost_usd": "0.6" });
    assert_eq!(post(&daemon, "slu_alice", PATH, &dear).await, (402, "insufficient_credits".to_owned()));
    let cheap = json!({ "task": "x", "max_cost_usd": "0.1", "name": "one" });
    let dry = daemon.request("slu_alice", "POST", &format!("{PATH}?dry_run=true"), Some(&cheap)).await;
    assert_eq!((dry.status, &dry.json()["sandbox_id"]), (200, &Value::Null), "{dry:?}");
    assert_eq!(daemon.get("slu_alice", PATH).await.json()["sandboxes"], json!([]));
    daemon.create("slu_alice", cheap.clone()).await;
    assert_eq!(post(&daemon, "slu_alice", PATH, &cheap).await, (409, "name_taken".to_owned()));
    for name in ["two", "three"] {
        daemon.create("slu_alice", json!({ "task": "x", "max_cost_usd": "0.1", "name": name })).await;
    }
    let fourth = json!({ "task": "x", "max_cost_usd": "0.1" });
    assert_eq!(post(&daemon, "slu_alice", PATH, &fourth).await, (429, "queue_full".to_owned()));
    // The failed creation left no hold.
    let budgets = daemon.get("slu_alice", "/api/v1/budgets").await.json();
    assert_eq!(budgets["budgets"][0]["held_usd"], "0.3");
}

#[tokio::test]
async fn a_repeated_request_creates_one_run() {
    let daemon = TestDaemon::with_runs().await;
    let body = json!({ "task": "x" });
    let send = async |token: &str, body: &Value, key: &str| {
        let header = format!("Idempotency-Key: {key}");
        daemon.with_header(token, ("POST", PATH), body, &header).await
    };
    let first = send("slu_alice", &body, "k1").await;
    assert_eq!(first.status, 201, "{first:?}");
    let again = send("slu_alice", &body, "k1").await;
    assert_eq!((again.status, &again.json()["sandbox_id"]), (200, &first.json()["sandbox_id"]));
    let id = first.json()["sandbox_id"].as_str().expect("an id").to_owned();
    daemon.request("slu_alice", "DELETE", &format!("{PATH}/{id}"), None).await;
    assert_eq!(send("slu_alice", &body, "k1").await.json()["state"], "COMPLETED", "the present state");
    let other = send("slu_alice", &json!({ "task": "y" }), "k1").await;
    assert_eq!(other.error(), (409, "idempotency_conflict".to_owned()));
    assert_eq!(send("slu_bob", &body, "k1").await.status, 201, "keys belong to their principal");
    assert_eq!(send("slu_alice", &body, "a b").await.status, 422);
    // A key of a request that failed can be used again.
    assert_eq!(send("slu_alice", &json!({ "task": "" }), "k2").await.status, 422);
    assert_eq!(send("slu_alice", &body, "k2").await.status, 201);
}

#[tokio::test]
async fn one_of_many_equal_requests_creates_a_run() {
    let daemon = TestDaemon::with_runs().await;
    let body = json!({ "task": "x" });
    let sends = (0..20).map(|_| daemon.with_header("slu_alice", ("POST", PATH), &body, "Idempotency-Key: k"));
    let answers = futures_util::future::join_all(sends).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1);
    assert!(answers.iter().all(|answer| [200, 201, 409].contains(&answer.status)), "{answers:?}");
    assert_eq!(daemon.get("slu_alice", PATH).await.json()["counts"]["PENDING"], 1);
}

#[tokio::test]
async fn lists_are_selected_counted_and_paged() {
    let daemon = TestDaemon::with_runs().await;
    let mut ids = Vec::new();
    for name in ["a", "b", "c"] {
        ids.push(daemon.create("slu_alice", json!({ "task": "x", "name": name, "labels": { "n": name } })).await);
    }
    daemon.create("slu_bob", json!({ "task": "x", "name": "a" })).await;
    let list = async |token: &str, query: &str| daemon.get(token, &format!("{PATH}{query}")).await.json();
    assert_eq!(list("slu_admin", "").await["counts"]["PENDING"], 4);
    let first = list("slu_alice", "?limit=2").await;
    assert_eq!((&first["has_more"], first["sandboxes"].as_array().map(Vec::len)), (&json!(true), Some(2)));
    assert_eq!(first["sandboxes"][0]["sandbox_id"], ids[2]);
    let cursor = first["next_cursor"].as_str().expect("a cursor");
    let second = list("slu_alice", &format!("?limit=2&cursor={cursor}")).await;
    assert_eq!((&second["sandboxes"][0]["sandbox_id"], &second["has_more"]), (&json!(ids[0]), &json!(false)));
    assert_eq!(list("slu_alice", "?label=n=b").await["sandboxes"][0]["sandbox_id"], ids[1]);
    assert_eq!(list("slu_alice", "?q=acct-1").await["sandboxes"].as_array().map(Vec::len), Some(3));
    let ended = list("slu_alice", "?state=COMPLETED,FAILED").await;
    assert_eq!((&ended["sandboxes"], &ended["counts"]["PENDING"]), (&json!([]), &json!(3)));
    for (query, field) in [
        ("?state=pending", "state"),
        ("?label=x", "label"),
        ("?limit=0", "limit"),
        ("?cursor=x", "cursor"),
        ("?offset=1", "offset"),
    ] {
        let answer = list("slu_alice", query).await;
        assert_eq!(answer["error"]["details"]["field"], field, "{query}");
    }
    // An admin names a run of another owner with it.
    assert_eq!(daemon.get("slu_admin", &format!("{PATH}/alice%2Fa")).await.json()["sandbox_id"], ids[0]);
    assert_eq!(daemon.get("slu_admin", &format!("{PATH}/a")).await.status, 404);
    assert_eq!(daemon.get("slu_bob", &format!("{PATH}/alice%2Fa")).await.status, 404);
}

#[tokio::test]
async fn a_list_shows_why_each_run_waits() {
    const HOUR_US: i64 = 3600 * 1_000_000;
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.claim().await;
    let code = "creation_failed".to_owned();
    let failed = SandboxVerdict::Failed { code: code.clone(), message: Some("no image".to_owned()) };
    daemon.step(&id, SandboxStep::Decide(failed)).await;
    let run_id: RunId = id.parse().expect("an id");
    let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    let own = Process::current().expect("it is there");
    let next = NextAttempt { daemon: own, next_try_us: now_us() + HOUR_US, reason: code };
    daemon.store().retry_sandbox(&run_id, run.generation, next, now_us()).await.expect("it has retries");
    daemon.create("slu_alice", json!({ "task": "x", "depends_on": [id] })).await;
    daemon.create("slu_alice", json!({ "task": "x" })).await;

    let listed = daemon.get("slu_alice", PATH).await.json();

    let rows = listed["sandboxes"].as_array().expect("a list");
    let cause = |row: &Value| json!([row["waiting_for"], row["reason"], row["error_message"]]);
    let expected = [
        json!(["turn", null, null]),
        json!(["dependencies", null, null]),
        json!(["retry", "creation_failed", "no image"]),
    ];
    assert_eq!(rows.iter().map(cause).collect::<Vec<_>>(), expected);
    for row in rows {
        let path = format!("{PATH}/{}", row["sandbox_id"].as_str().expect("an id"));
        let shown = daemon.get("slu_alice", &path).await.json();
        for member in ["waiting_for", "error_message"] {
            assert_eq!(shown[member], row[member], "{shown}");
        }
    }
}

#[tokio::test]
async fn a_run_is_cancelled_at_once_or_by_its_desired_state() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "n", "env": { "A": "b" } })).await;
    let path = format!("{PATH}/{id}");
    assert_eq!(daemon.request("slu_alice", "DELETE", &format!("{PATH}/n"), None).await.status, 404, "a name");
    assert_eq!(daemon.request("slu_viewer", "DELETE", &path, None).await.status, 403);
    let answer = daemon.request("slu_alice", "DELETE", &path, None).await;
    assert_eq!((answer.status, &answer.json()["outcome"]), (202, &json!("cancelled")), "{answer:?}");
    assert_eq!(answer.json()["failure_code"], Value::Null);
    assert!(daemon.running.context.variables.get(&id.parse().expect("an id")).is_none());
    assert_eq!(daemon.request("slu_alice", "DELETE", &path, None).await.status, 200);
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "n" })).await;
    daemon.claim().await;
    let answer = daemon.request("slu_alice", "DELETE", &format!("{PATH}/{id}"), None).await;
    assert_eq!((answer.status, &answer.json()["desired_state"]), (202, &json!("stopped")), "{answer:?}");
    assert_eq!((&answer.json()["state"], &answer.json()["observed_state"]), (&json!("CREATING"), &json!("creating")));
}

#[tokio::test]
async fn a_wait_ends_with_its_state_or_its_time() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("{PATH}/{id}/wait");
    assert_eq!(daemon.get("slu_alice", &format!("{path}?timeout=50ms")).await.status, 204);
    assert_eq!(daemon.get("slu_alice", &format!("{path}?timeout=301")).await.status, 422);
    let (target, other) = (format!("{path}?timeout=60"), format!("{path}?timeout=60&until=running"));
    let (ended, running, ()) = tokio::join!(daemon.get("slu_alice", &target), daemon.get("slu_alice", &other), async {
        daemon.claim().await;
        daemon.step(&id, SandboxStep::Start).await;
        daemon.step(&id, SandboxStep::Decide(SandboxVerdict::Success)).await;
        daemon.step(&id, SandboxStep::Finish).await;
    });
    assert_eq!((ended.status, &ended.json()["outcome"]), (200, &json!("success")));
    assert_eq!(running.status, 200);
}

#[tokio::test]
async fn waits_end_when_the_daemon_stops() {
    let TestDaemon { running, .. } = TestDaemon::with_runs().await;
    let stop = running.context.stop.clone();
    running.stop().await;
    assert!(stop.is_stopped());
}

#[tokio::test]
async fn a_run_that_failed_is_tried_again() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "n" })).await;
    let path = format!("{PATH}/{id}");
    let answer = daemon.request("slu_alice", "POST", &format!("{path}/retry"), None).await;
    assert_eq!(answer.error(), (409, "invalid_state".to_owned()));
    let reason = json!({ "reason": "it is stuck" });
    let answer = daemon.request("slu_alice", "POST", &format!("{path}/fail"), Some(&reason)).await;
    assert_eq!((answer.status, &answer.json()["failure_code"]), (202, &json!("agent_failed")), "{answer:?}");
    assert_eq!(answer.json()["error_message"], "it is stuck");
    let again = daemon.request("slu_alice", "POST", &format!("{path}/fail"), Some(&reason)).await;
    assert_eq!(again.error(), (409, "invalid_state".to_owned()));
    let retry = async |id: &str| {
        let path = format!("{PATH}/{id}/retry");
        daemon.with_header("slu_alice", ("POST", &path), &Value::Null, "Idempotency-Key: k").await
    };
    for _ in 0..2 {
        let answer = retry(&id).await;
        assert_eq!(
            (answer.status, &answer.json()["attempt"], &answer.json()["state"]),
            (200, &json!(1), &json!("PENDING"))
        );
    }
    // Values of variables are removed with their run.
    let id = daemon.create("slu_alice", json!({ "task": "x", "env": { "A": "b" } })).await;
    daemon.request("slu_alice", "DELETE", &format!("{PATH}/{id}"), None).await;
    assert_eq!(retry(&id).await.error(), (409, "variables_lost".to_owned()));
    let connect = daemon.request("slu_alice", "POST", &format!("{PATH}/n/connect"), None).await;
    assert_eq!(connect.json(), json!({ "mount_table": [] }));
    let receipts = daemon.get("slu_alice", &format!("{PATH}/n/receipts")).await.json();
    assert_eq!((&receipts["receipts"], &receipts["has_more"]), (&json!([]), &json!(false)));
}

#[tokio::test]
async fn routes_of_the_relay_are_not_here() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let body = json!({ "event_type": "agent.progress" });
    assert_eq!(post(&daemon, "slu_alice", &format!("{PATH}/{id}/events"), &body).await.0, 405);
    assert_eq!(post(&daemon, "slu_alice", &format!("{PATH}/{id}/task"), &body).await.0, 405);
    assert_eq!(post(&daemon, "slu_alice", &format!("{PATH}/{id}/messages/ack"), &body).await.0, 405);
    assert_eq!(post(&daemon, "slu_alice", &format!("{PATH}/{id}/questions"), &body).await.0, 405);
}

#[tokio::test]
async fn a_run_that_never_began_has_an_empty_log() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    daemon.step(&id, SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let answer = daemon.get("slu_alice", &format!("{PATH}/{id}/logs?stream=stdout")).await;
    assert_eq!((answer.status, answer.body.trim_end_matches(['0', '\r', '\n'])), (200, ""), "{answer:?}");
}
