//! What belongs to another owner answers as what never existed, in each route.

use serde_json::{Value, json};

use crate::test_daemon::{Answer, TestDaemon, policy};

fn head(answer: &Answer) -> Vec<&str> {
    answer.head.lines().filter(|line| !line.starts_with("date:")).collect()
}

/// Returns a body that each route with one accepts.
fn body(path: &str) -> Option<Value> {
    match path.rsplit('/').next() {
        Some("fail") => Some(json!({ "reason": "x" })),
        Some("transition") => Some(json!({ "target_state": "IDLE" })),
        Some("exec") => Some(json!({ "argv": ["true"] })),
        Some("resize") => Some(json!({ "rows": 24, "columns": 80 })),
        _ => None,
    }
}

#[tokio::test]
async fn a_foreign_object_is_one_that_never_existed() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.limits.request_burst = 10_000).await;
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
                let parts = [("{event_id}", "evt_1"), ("{exec_id}", "x_1"), ("{path}", "workspace/a"), ("{name}", "a")];
                let at = |name: &str| {
                    parts.iter().fold(path.replace("{id}", name), |path, (part, value)| path.replace(part, value))
                };
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
