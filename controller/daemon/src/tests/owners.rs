//! What belongs to another owner answers as what never existed, in each route.

use serde_json::{Value, json};
use sluice_state::sandboxes::{SandboxStep, SandboxVerdict};

use crate::test_daemon::{Answer, TestDaemon};

fn head(answer: &Answer) -> Vec<&str> {
    answer.head.lines().filter(|line| !line.starts_with("date:")).collect()
}

/// Returns a body that each route with one accepts.
fn body(path: &str) -> Option<Value> {
    match path.rsplit('/').next() {
        Some("fail") => Some(json!({ "reason": "x" })),
        Some("transition") => Some(json!({ "target_state": "IDLE" })),
        _ => None,
    }
}

#[tokio::test]
async fn a_foreign_object_is_one_that_never_existed() {
    let daemon = TestDaemon::with_runs().await;
    let agent = json!({ "agent_id": "bot" });
    assert_eq!(daemon.request("slu_alice", "POST", "/api/v1/agents", Some(&agent)).await.status, 201);
    let id = daemon.create("slu_alice", json!({ "task": "x", "name": "mine" })).await;
    let document = daemon.get("slu_alice", "/api/openapi.json").await.json();
    let mut seen = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        if !path.contains("{id}") {
            continue;
        }
        let names =
            if path.contains("/agents/") { vec!["bot", "alice%2Fbot"] } else { vec![&id, "mine", "alice%2Fmine"] };
        for method in methods.as_object().expect("methods").keys().filter(|key| *key != "parameters") {
            for name in &names {
                let method = method.to_uppercase();
                let at = |name: &str| path.replace("{id}", name).replace("{event_id}", "evt_1");
                let foreign = daemon.request("slu_bob", &method, &at(name), body(path).as_ref()).await;
                let missing = daemon.request("slu_bob", &method, &at("never"), body(path).as_ref()).await;
                assert_eq!(foreign.error(), (404, "not_found".to_owned()), "{method} {path} {name}");
                assert_eq!((head(&foreign), &foreign.body), (head(&missing), &missing.body), "{method} {path} {name}");
                seen += 1;
            }
        }
    }
    assert!(seen >= 40, "{seen}");
    let dependency = |id: &str| json!({ "task": "x", "depends_on": [id] });
    let path = "/api/v1/sandboxes";
    let foreign = daemon.request("slu_bob", "POST", path, Some(&dependency(&id))).await;
    let missing = daemon.request("slu_bob", "POST", path, Some(&dependency("r_00000000000000000000"))).await;
    assert_eq!((foreign.status, &foreign.body), (422, &missing.body));
    let run = |agent: &str| json!({ "task": "x", "agent_id": agent });
    let foreign = daemon.request("slu_bob", "POST", path, Some(&run("bot"))).await;
    let missing = daemon.request("slu_bob", "POST", path, Some(&run("never"))).await;
    assert_eq!((foreign.status, &foreign.body), (404, &missing.body));
    for query in ["?sandbox=mine".to_owned(), format!("?sandbox={id}")] {
        assert_eq!(daemon.get("slu_bob", &format!("/api/v1/events/stream{query}")).await.status, 404);
    }
    // Nothing has happened to it.
    let mine = daemon.get("slu_alice", "/api/v1/sandboxes/mine").await.json();
    assert_eq!((&mine["state"], &mine["generation"]), (&json!("PENDING"), &json!(0)));
}

#[tokio::test]
async fn owners_of_one_account_see_their_own_runs() {
    let daemon = TestDaemon::with_runs().await;
    let budget = json!({ "kind": "set", "usd": "5" });
    assert_eq!(daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&budget)).await.status, 200);
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for path in ["/api/v1/budgets", "/api/v1/usage", "/api/v1/receipts"] {
        let own = daemon.get("slu_alice", path).await;
        let other = daemon.get("slu_eve", path).await;
        assert_eq!((own.status, other.status), (200, 200), "{path}");
        assert_eq!(own.body.contains(&id), !path.ends_with("receipts"), "{}", own.body);
        assert!(!other.body.contains(&id), "{}", other.body);
    }
    let shared = daemon.get("slu_eve", "/api/v1/budgets").await.json();
    assert_eq!((&shared["budgets"][0]["held_usd"], &shared["budgets"][0]["holds"]), (&json!("1"), &json!([])));
}

#[tokio::test]
async fn a_retry_spends_from_an_account_of_its_token() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let path = format!("/api/v1/sandboxes/{id}");
    let failed = SandboxStep::Drop(SandboxVerdict::Failed { code: "internal".to_owned(), message: None });
    daemon.step(&id, failed).await;
    let answer = daemon.request("slu_alice2", "POST", &format!("{path}/retry"), None).await;
    assert_eq!(answer.error(), (403, "account_not_allowed".to_owned()));
    assert_eq!(daemon.request("slu_alice", "POST", &format!("{path}/retry"), None).await.status, 200);
}
