//! Permissions of the roles, in each operation of the document.

use serde_json::json;

use super::document::operations;
use crate::test_daemon::{TestDaemon, policy};

/// Operations that need a token, of any role.
const OF_ALL_ROLES: [&str; 3] = ["/api/openapi.json", "/api/v1/sandboxes/health", "/api/v1/session"];
/// The operation that only sessions have: a token has no session to end.
const LOGOUT: &str = "/api/v1/session/logout";
/// Members that an owner never sets.
const FORBIDDEN: [&str; 12] = [
    "owner_id", "owner", "billing_account_id", "grants", "allow_sandbox", "state", "generation", "suspended_by_admin",
    "source", "role", "run_id", "created_at",
];

/// Returns whether a path is a chat path.
fn is_chat(path: &str) -> bool {
    path.starts_with("/v1/") || path.contains("/ai/")
}

async fn daemon() -> TestDaemon {
    TestDaemon::with_policy(Some(policy()), |settings| {
        settings.limits.requests_per_second = 10_000;
        settings.limits.request_burst = 10_000;
        settings.limits.failed_logins = 10_000;
    })
    .await
}

#[tokio::test]
async fn each_route_needs_a_valid_token() {
    let daemon = daemon().await;
    let host = &*format!("Host: {}", daemon.address());
    let mut seen = 0;
    for operation in operations() {
        let path = operation.at(&vec!["x"; operation.parameters().len()]);
        let cookie = &*format!("Cookie: a=b; sluice-{}=1", daemon.address().port());
        let bad = ["Authorization: Bearer slu_wrong", "Authorization: Basic cm9vdDo=", cookie];
        for credential in bad {
            let answer = daemon.bare(&operation.method, &path, &[host, credential]).await;
            assert_eq!(answer.error(), (401, "unauthorized".to_owned()), "{} {path}", operation.method);
            assert!(answer.head.contains("www-authenticate: bearer"), "{}", answer.head);
        }
        let answer = daemon.bare(&operation.method, &path, &[host]).await;
        let expected = if operation.is_anonymous { 200 } else { 401 };
        assert_eq!(answer.status, expected, "{} {path}", operation.method);
        let by_query = daemon.bare(&operation.method, &format!("{path}?token=slu_admin"), &[host]).await;
        assert_eq!(by_query.status, expected, "{} {path}", operation.method);
        seen += 1;
    }
    assert!(seen > 25, "{seen}");
}

#[tokio::test]
async fn a_role_without_an_operation_is_refused() {
    let daemon = daemon().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    for operation in operations().iter().filter(|operation| !operation.is_anonymous) {
        // A run of alice, a missing run, and a run of bob: the role is checked before the object.
        for first in [&*id, "x", "bob%2Fx"] {
            let mut values = vec!["x"; operation.parameters().len()];
            values.iter_mut().take(1).for_each(|value| *value = first);
            let path = operation.at(&values);
            let is_chat = is_chat(&path);
            let is_viewers = (operation.method == "GET" && !is_chat) || path == "/api/v1/login-codes";
            for (token, is_allowed) in [("slu_chat", is_chat), ("slu_viewer", is_viewers)] {
                if is_allowed || OF_ALL_ROLES.contains(&path.as_str()) || path == LOGOUT {
                    continue;
                }
                let answer = daemon.request(token, &operation.method, &path, operation.body.as_ref()).await;
                assert_eq!(answer.status, 403, "{token} {} {path}: {answer:?}", operation.method);
                assert!(["forbidden", "admin_only"].contains(&&*answer.error().1), "{answer:?}");
            }
        }
    }
    for path in OF_ALL_ROLES {
        assert_eq!(daemon.get("slu_chat", path).await.status, 200);
    }
}

#[tokio::test]
async fn a_body_with_a_forbidden_member_is_refused() {
    let daemon = daemon().await;
    let agent = json!({ "agent_id": "bot" });
    assert_eq!(daemon.request("slu_alice", "POST", "/api/v1/agents", Some(&agent)).await.status, 201);
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let before = [format!("/api/v1/sandboxes/{id}"), "/api/v1/agents/bot".to_owned(), "/api/v1/agents".to_owned()];
    let state = async || {
        let mut texts = Vec::new();
        for path in &before {
            texts.push(daemon.get("slu_alice", path).await.body);
        }
        texts
    };
    let first = state().await;
    let mut seen = 0;
    for operation in operations() {
        let Some(body) = &operation.body else { continue };
        let values = operation.parameters().into_iter().map(|(collection, _)| match collection {
            "sandboxes" => &*id,
            "agents" => "bot",
            "budgets" => "acct-1",
            _ => "x",
        });
        let path = operation.at(&values.collect::<Vec<_>>());
        for field in FORBIDDEN {
            let mut body = body.clone();
            body[field] = match field {
                "grants" => json!(["/root"]),
                "allow_sandbox" | "suspended_by_admin" => json!(true),
                "generation" => json!(7),
                "owner_id" | "owner" => json!("bob"),
                "billing_account_id" => json!("acct-2"),
                _ => json!("CONNECTED"),
            };
            let answer = daemon.request("slu_alice", &operation.method, &path, Some(&body)).await;
            let refused = answer.error();
            let is_named = answer.json()["error"]["details"]["field"] == field;
            // A chat client gets the same error with the status of its own form.
            let unknown = match (is_chat(&path), path.starts_with("/v1/")) {
                (true, true) => (400, "unsupported_parameter".to_owned()),
                (true, false) => (400, "unknown_field".to_owned()),
                (false, _) => (422, "unknown_field".to_owned()),
            };
            let is_refused = refused == unknown && is_named || refused == (403, "admin_only".to_owned());
            assert!(is_refused, "{} {path} {field}: {answer:?}", operation.method);
            seen += 1;
        }
    }
    assert!(seen >= 60, "{seen}");
    assert_eq!(state().await, first, "nothing has changed");
}
