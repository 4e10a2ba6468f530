//! Routes, roles and owners.

use std::str::FromStr;

use serde_json::{Value, json};
use sluice_contract::Account;
use sluice_state::control_log;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::store::Store;

use crate::test_daemon::TestDaemon;

async fn set(daemon: &TestDaemon, account: &str, usd: &str) {
    let body = json!({ "kind": "set", "usd": usd });
    let answer = daemon.request("slu_admin", "PUT", &format!("/api/v1/budgets/{account}"), Some(&body)).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

fn accounts(answer: &Value) -> Vec<&str> {
    answer["budgets"].as_array().expect("a list").iter().filter_map(|budget| budget["account"].as_str()).collect()
}

#[tokio::test]
async fn an_owner_sees_the_budgets_of_its_accounts() {
    let daemon = TestDaemon::start().await;
    set(&daemon, "acct-1", "25").await;
    set(&daemon, "acct-2", "0.5").await;
    let admin = daemon.get("slu_admin", "/api/v1/budgets").await.json();
    assert_eq!(accounts(&admin), ["acct-1", "acct-2"]);
    assert_eq!(admin["budgets"][1]["left_usd"], "0.5");
    for token in ["slu_alice", "slu_viewer"] {
        assert_eq!(accounts(&daemon.get(token, "/api/v1/budgets").await.json()), ["acct-1"]);
        assert_eq!(accounts(&daemon.get(token, "/api/v1/budgets?account=acct-1").await.json()), ["acct-1"]);
    }
}

#[tokio::test]
async fn a_foreign_account_answers_as_one_that_is_not_there() {
    let daemon = TestDaemon::start().await;
    set(&daemon, "acct-2", "5").await;
    for path in ["/api/v1/budgets", "/api/v1/receipts", "/api/v1/usage"] {
        let foreign = daemon.get("slu_alice", &format!("{path}?account=acct-2")).await;
        let missing = daemon.get("slu_alice", &format!("{path}?account=acct-9")).await;
        assert_eq!(foreign.error(), (404, "not_found".to_owned()));
        assert_eq!(without_date(&foreign.head), without_date(&missing.head));
        assert_eq!(foreign.body, missing.body);
    }
}

fn without_date(head: &str) -> Vec<&str> {
    head.lines().filter(|line| !line.starts_with("date:")).collect()
}

#[tokio::test]
async fn only_admins_change_budgets_and_each_change_is_recorded() {
    let daemon = TestDaemon::start().await;
    let body = json!({ "kind": "set", "usd": 12.5 });
    for token in ["slu_alice", "slu_viewer"] {
        for account in ["acct-1", "acct-2", "acct-9"] {
            let answer = daemon.request(token, "PUT", &format!("/api/v1/budgets/{account}"), Some(&body)).await;
            assert_eq!(answer.error(), (403, "admin_only".to_owned()));
        }
    }
    let path = "/api/v1/budgets/acct-1";
    let add = json!({ "kind": "add", "usd": "1" });
    assert_eq!(daemon.request("slu_admin", "PUT", path, Some(&add)).await.error(), (409, "no_budget".to_owned()));
    let answer = daemon.request("slu_admin", "PUT", path, Some(&body)).await.json();
    assert_eq!(answer["budgets"][0]["granted_usd"], "12.5");
    let answer = daemon.request("slu_admin", "PUT", path, Some(&add)).await.json();
    assert_eq!(answer["budgets"][0]["granted_usd"], "13.5");
    let answer = daemon.request("slu_admin", "PUT", path, Some(&json!({ "kind": "remove" }))).await.json();
    assert_eq!(answer, json!({ "budgets": [] }));

    let state = &daemon.settings.state;
    let keys = Keys::at(state).public().expect("they were made");
    let mut lines = Vec::new();
    control_log::verify(&Layout::at(state).control_log(), &keys, |line| lines.push(line.clone())).expect("it is whole");
    let told: Vec<_> = lines.iter().map(|line| (line.operation.as_str(), line.principal.as_str())).collect();
    let admin = &*format!("token:{}", daemon.token_id("slu_admin"));
    let expected = [("daemon.start", "daemon"), ("budget.set", admin), ("budget.add", admin), ("budget.remove", admin)];
    assert_eq!(told, expected);
    assert_eq!(lines[1].after, Some(json!({ "kind": "set", "usd": "12.5" })));
    assert_eq!((lines[1].source.as_deref(), lines[1].way.as_str()), (Some("127.0.0.1"), "bearer"));
    assert_eq!(lines[2].before.as_ref().map(|before| before["granted_usd"].clone()), Some(json!("12.5")));
}

#[tokio::test]
async fn what_cannot_be_recorded_is_not_done() {
    let daemon = TestDaemon::start().await;
    set(&daemon, "acct-1", "1").await;
    // The lines that the daemon has written are gone.
    let layout = Layout::at(&daemon.settings.state);
    std::fs::write(layout.control_log(), "").expect("it is ours");
    let body = json!({ "kind": "set", "usd": "99" });
    let answer = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&body)).await;
    assert_eq!(answer.error(), (503, "audit_unavailable".to_owned()));
    let host_path = daemon.settings.state.display().to_string();
    assert!(!answer.body.contains(&host_path) && !answer.body.contains("control.jsonl"), "{}", answer.body);
    let store = Store::open_for_queries(&layout.database()).expect("it is there");
    let account = Account::from_str("acct-1").expect("an account");
    let budgets = store.budgets(Some(&account)).await.expect("it is there");
    assert_eq!(budgets[0].1.granted, 1_000_000_000);
}

#[tokio::test]
async fn bodies_are_read_strictly() {
    let daemon = TestDaemon::start().await;
    let rows = [
        (json!({ "kind": "set", "usd": "1", "owner_id": "bob" }), 422, "unknown_field", "owner_id"),
        (json!({ "kind": "double", "usd": "1" }), 422, "invalid_field", "kind"),
        (json!({ "kind": "set", "usd": [1] }), 422, "invalid_field", "usd"),
        (json!({ "kind": "set", "usd": "one" }), 422, "invalid_field", "usd"),
        (json!({ "kind": "set", "usd": "-1" }), 422, "invalid_field", "usd"),
        (json!({ "kind": "set" }), 422, "invalid_field", "usd"),
        (json!({ "kind": "remove", "usd": "1" }), 422, "invalid_field", "usd"),
        (json!({ "usd": "1" }), 422, "invalid_field", "."),
    ];
    for (body, status, code, field) in rows {
        let answer = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&body)).await;
        assert_eq!(answer.error(), (status, code.to_owned()), "{body}");
        assert_eq!(answer.json()["error"]["details"]["field"], field, "{body}");
    }
    let deep = (0..40).fold(json!(1), |value, _| json!([value]));
    let answer = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&deep)).await;
    assert_eq!(answer.error(), (422, "json_too_deep".to_owned()));
    let unnamed = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", None).await;
    assert_eq!(unnamed.error(), (415, "not_json".to_owned()));
}

#[tokio::test]
async fn a_body_is_refused_where_none_is_taken() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for (method, path) in [
        ("POST", format!("/api/v1/sandboxes/{id}/retry")),
        ("DELETE", format!("/api/v1/sandboxes/{id}")),
        ("GET", format!("/api/v1/sandboxes/{id}")),
    ] {
        let answer = daemon.request("slu_alice", method, &path, Some(&json!({ "max_cost_usd": "1" }))).await;
        assert_eq!(answer.error(), (422, "unexpected_body".to_owned()), "{method} {path}");
    }
    let run = daemon.get("slu_alice", &format!("/api/v1/sandboxes/{id}")).await.json();
    assert_eq!(run["desired_state"], "running", "nothing was done: {run}");
    let unknown = daemon.request("slu_alice", "POST", "/api/v1/nothing", Some(&json!({}))).await;
    assert_eq!(unknown.status, 404);
}

#[tokio::test]
async fn queries_paths_and_methods_are_read_strictly() {
    let daemon = TestDaemon::start().await;
    for (path, field) in [
        ("/api/v1/budgets?acount=acct-1", "acount"),
        ("/api/v1/receipts?limit=0", "limit"),
        ("/api/v1/receipts?limit=501", "limit"),
        ("/api/v1/receipts?limit=x", "limit"),
        ("/api/v1/receipts?cursor=x", "cursor"),
        ("/api/v1/receipts?offset=1", "offset"),
        ("/api/v1/usage?by=owner", "by"),
        ("/api/v1/usage?since=yesterday", "since"),
        ("/api/v1/sandboxes/health?x=1", "x"),
    ] {
        let answer = daemon.get("slu_admin", path).await;
        assert_eq!(answer.status, 422, "{path}");
        assert_eq!(answer.json()["error"]["details"]["field"], field, "{path}: {}", answer.body);
    }
    assert_eq!(daemon.get("slu_admin", "/api/v1/nothing").await.error(), (404, "not_found".to_owned()));
    assert_eq!(daemon.get("slu_admin", "/nothing").await.error(), (404, "not_found".to_owned()));
    let answer = daemon.request("slu_admin", "DELETE", "/api/v1/budgets", None).await;
    assert_eq!(answer.error(), (405, "method_not_allowed".to_owned()));
    assert!(answer.head.contains("allow: get"), "{}", answer.head);
}

#[tokio::test]
async fn the_document_lists_each_route() {
    let daemon = TestDaemon::start().await;
    let document = daemon.get("slu_viewer", "/api/openapi.json").await.json();
    for path in [
        "/alive", "/ready", "/api/v1/sandboxes/health", "/api/v1/budgets/{account}", "/api/v1/receipts",
        "/api/v1/usage",
    ] {
        assert!(document["paths"][path].is_object(), "{path}");
    }
    let health = daemon.get("slu_viewer", "/api/v1/sandboxes/health").await.json();
    assert_eq!((&health["status"], &health["service"]), (&json!("disabled"), &json!("sandboxes")));
    for path in ["/api/v1/receipts", "/api/v1/usage"] {
        assert_eq!(daemon.get("slu_viewer", path).await.status, 200);
    }
}
