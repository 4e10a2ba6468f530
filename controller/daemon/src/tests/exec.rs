//! Programs in sandboxes, as far as they need no engine.

use serde_json::json;

use crate::test_daemon::TestDaemon;

#[tokio::test]
async fn requests_for_programs_are_read_strictly() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let path = format!("/api/v1/sandboxes/{id}/exec");
    let argv = |more: serde_json::Value| {
        let mut body = json!({ "argv": ["true"] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    for (body, code, field) in [
        (json!({}), "invalid_field", "."),
        (json!({ "argv": [] }), "invalid_field", "argv"),
        (json!({ "argv": ["a".repeat(64 << 10)] }), "invalid_field", "argv"),
        (argv(json!({ "privileged": true })), "unknown_field", "privileged"),
        (argv(json!({ "user": "root" })), "unknown_field", "user"),
        (argv(json!({ "env": { "OPENAI_BASE_URL": "http://evil" } })), "reserved_variable", "env.OPENAI_BASE_URL"),
        (argv(json!({ "env": { "SLUICE_EXEC_ID": "x" } })), "reserved_variable", "env.SLUICE_EXEC_ID"),
        (argv(json!({ "env": { "A": "b".repeat(64 << 10) } })), "invalid_field", "env"),
        (argv(json!({ "cwd": "/etc" })), "invalid_field", "cwd"),
        (argv(json!({ "cwd": "/workspace/../etc" })), "invalid_field", "cwd"),
        (argv(json!({ "timeout": "2h" })), "invalid_field", "timeout"),
        (argv(json!({ "timeout": 0 })), "invalid_field", "timeout"),
        (argv(json!({ "timeout": "soon" })), "invalid_field", "timeout"),
    ] {
        let answer = daemon.request("slu_alice", "POST", &path, Some(&body)).await;
        assert_eq!(answer.error(), (422, code.to_owned()), "{answer:?}");
        assert_eq!(answer.json()["error"]["details"]["field"], field, "{answer:?}");
    }
    let nul = daemon.request("slu_alice", "POST", &path, Some(&json!({ "argv": ["a\0b"] }))).await;
    assert_eq!(nul.error(), (422, "invalid_text".to_owned()));
    // Without an engine, no program can run.
    let answer = daemon.request("slu_alice", "POST", &path, Some(&argv(json!({ "timeout": "30s" })))).await;
    assert_eq!(answer.error(), (503, "sandbox_disabled".to_owned()));
    assert!(daemon.control_log().iter().all(|line| line.operation != "sandbox.exec"));
}

#[tokio::test]
async fn only_owners_start_programs_and_only_in_live_runs() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let waiting = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let body = json!({ "argv": ["true"] });
    let start = async |token: &str, id: &str| {
        daemon.request(token, "POST", &format!("/api/v1/sandboxes/{id}/exec"), Some(&body)).await.error()
    };
    assert_eq!(start("slu_viewer", &id).await, (403, "forbidden".to_owned()));
    assert_eq!(start("slu_bob", &id).await, (404, "not_found".to_owned()));
    assert_eq!(start("slu_alice", &waiting).await, (409, "invalid_state".to_owned()));
    daemon.end(&id).await;
    assert_eq!(start("slu_alice", &id).await, (409, "invalid_state".to_owned()));
    let size = json!({ "rows": 1, "columns": 1 });
    for (method, end, body) in [("POST", "/stdin", None), ("POST", "/resize", Some(&size)), ("DELETE", "", None)] {
        let path = format!("/api/v1/sandboxes/{id}/exec/x_00000000000000000000{end}");
        assert_eq!(daemon.request("slu_alice", method, &path, body).await.error(), (404, "not_found".to_owned()));
        assert_eq!(daemon.request("slu_viewer", method, &path, body).await.error(), (403, "forbidden".to_owned()));
    }
}
