use serde_json::json;

use super::*;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn metadata(value: Value) -> RunMetadata {
    serde_json::from_value(value).expect("its members are known")
}

fn members(given: Value, operator: Value, agent: Option<&str>, parent: Option<&TraceParent>) -> Value {
    let key = "r_1.2".parse().expect("a key");
    let run =
        RunIdentity { key: &key, account: "acct-1", graph_id: "sandbox:agent", agent, name: None, traceparent: parent };
    let Value::Object(operator) = operator else { panic!("{operator}") };
    Value::Object(metadata(given).of_calls(&run, operator))
}

#[test]
fn calls_carry_the_names_of_caller_and_run() {
    let given = json!({
        "user_id": "ada", "session_id": "s 1", "tags": ["a", "team:x"], "mask_input": true, "mask_output": false,
        "request_id": "req-1"
    });
    let parent: TraceParent = PARENT.parse().expect("a parent");
    let expected = json!({
        "user_id": "ada", "trace_user_id": "ada", "session_id": "s 1", "tags": ["ops", "a", "team:x"], "mask_input": true,
        "request_id": "req-1", "trace_name": "reviewer", "generation_name": "sandbox:agent", "team": "core",
        "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "billing_account_id": "acct-1",
        "traceparent": format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", span_id("run", "r_1")),
        "trace_metadata": {
            "run_id": "r_1", "graph_id": "sandbox:agent", "billing_account_id": "acct-1", "user_id": "ada",
            "request_id": "req-1"
        }
    });
    let operator = json!({ "team": "core", "tags": ["ops", "a"], "billing_account_id": "other", "trace_id": "x", "traceparent": "x" });
    assert_eq!(members(given, operator, Some("reviewer"), Some(&parent)), expected);
}

#[test]
fn a_run_without_metadata_has_a_trace() {
    let members = members(json!({}), json!({ "traceparent": "00-of-ops-01" }), None, None);
    assert_eq!(members["traceparent"], Value::Null, "only a caller has a span");
    let id = members["trace_id"].as_str().expect("an id");
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    assert_eq!((&members["trace_name"], &members["tags"]), (&json!("sandbox:agent"), &Value::Null));
    let other: RunId = "r_2".parse().expect("an id");
    assert_ne!(id, trace_id(&other, None));
}

#[test]
fn an_existing_trace_keeps_its_name() {
    let members = members(json!({ "existing_trace_id": "t-1", "trace_user_id": "u" }), json!({}), Some("a"), None);
    assert_eq!((&members["existing_trace_id"], &members["trace_user_id"]), (&json!("t-1"), &json!("u")));
    assert_eq!((&members["trace_name"], &members["trace_metadata"]), (&Value::Null, &Value::Null));
}

#[test]
fn metadata_that_breaks_a_rule_is_named() {
    let long = "x".repeat(256);
    let rows = [
        (json!({ "user_id": "" }), "metadata.user_id"),
        (json!({ "user_id": "jörg" }), "metadata.user_id"),
        (json!({ "session_id": " s" }), "metadata.session_id"),
        (json!({ "existing_trace_id": "a\r\nx-litellm-api-key: k" }), "metadata.existing_trace_id"),
        (json!({ "trace_user_id": long }), "metadata.trace_user_id"),
        (json!({ "request_id": "a\tb" }), "metadata.request_id"),
        (json!({ "tags": ["a,b"] }), "metadata.tags"),
        (json!({ "tags": vec!["a"; 33] }), "metadata.tags"),
        (json!({ "tags": vec!["x".repeat(200); 32] }), "metadata"),
    ];
    for (value, field) in rows {
        assert_eq!(metadata(value.clone()).check().expect_err("it breaks a rule").field, field, "{value}");
    }
    metadata(json!({ "user_id": "Ada L", "tags": vec!["x"; 32] })).check().expect("it keeps the rules");
}

#[test]
fn a_header_has_room_for_the_members_of_calls() {
    // Each quote has two bytes in JSON, and the names of people and requests are sent several times.
    let quotes = "\"".repeat(255);
    let tags: Vec<_> = (0..14).map(|number| format!("{number:0200}")).collect();
    let given = metadata(json!({ "user_id": quotes, "request_id": quotes, "tags": tags }));
    given.check().expect("it is short enough alone");
    let key: RunKey = "r_1.2".parse().expect("a key");
    let check = |name: &str| {
        let (account, graph_id, agent) = (name, "sandbox:agent", Some(name));
        given.check_call_size(&RunIdentity { key: &key, account, graph_id, agent, name: None, traceparent: None })
    };
    check("acct-1").expect("there is room");
    let fault = check(&"a".repeat(255)).expect_err("its names are too long");
    assert_eq!(fault.field, "metadata");
}

#[test]
fn json_is_measured_as_a_header_carries_it() {
    for (text, bytes) in [("a\"", 5), ("ä", 8), ("日", 8), ("😀", 14)] {
        assert_eq!(ascii_json_bytes(&json!(text)), bytes, "{text}");
    }
}

#[test]
fn names_of_people_become_ascii() {
    for (given, sent) in [("ann", "ann"), ("a%20b", "a%20b"), ("Åsa 5%", "%C3%85sa%205%25"), ("日", "%E6%97%A5")] {
        let named = metadata(json!({ "user_id": given, "session_id": given, "trace_user_id": given })).in_ascii();
        assert_eq!(named, metadata(json!({ "user_id": sent, "session_id": sent, "trace_user_id": sent })));
        named.check().expect("a header can carry it");
    }
    for wrong in [" Åsa", "Å\n", &"日".repeat(255)] {
        let fault = metadata(json!({ "user_id": wrong })).in_ascii().check().expect_err(wrong);
        assert_eq!(fault.field, "metadata.user_id");
    }
    let fault = metadata(json!({ "request_id": "Å" })).in_ascii().check().expect_err("ids of programs are ASCII");
    assert_eq!(fault.field, "metadata.request_id");
}

#[test]
fn names_of_litellm_cannot_be_set() {
    let forged = [
        "billing_account_id", "run_id", "attempt", "graph_id", "sluice_call_id", "trace_id", "trace_name",
        "trace_metadata", "generation_name", "spend_logs_metadata", "user_api_key", "user_api_key_end_user_id",
        "user_api_key_team_id", "user", "headers", "model_info", "requester_metadata", "guardrails",
        "update_trace_keys", "langfuse_masking_function", "traceparent",
    ];
    for name in forged {
        let value = json!({ name: "x" });
        assert!(serde_json::from_value::<RunMetadata>(value).is_err(), "{name}");
    }
}

#[test]
fn malformed_headers_of_a_request_are_left_out() {
    let mut headers = HeaderMap::new();
    headers.insert("traceparent", PARENT.parse().expect("a value"));
    headers.insert("x-request-id", "req-7".parse().expect("a value"));
    let origin = RequestOrigin::of(&headers);
    assert_eq!(origin.traceparent.as_ref().map(TraceParent::to_string).as_deref(), Some(PARENT));
    let named = metadata(json!({ "request_id": "own" }));
    assert_eq!(RunMetadata::default().of_request(&origin).request_id.as_deref(), Some("req-7"));
    assert_eq!(named.of_request(&origin).request_id.as_deref(), Some("own"));
    headers.insert("traceparent", "00-x".parse().expect("a value"));
    headers.insert("x-request-id", "x".repeat(300).parse().expect("a value"));
    assert_eq!(RequestOrigin::of(&headers), RequestOrigin::default());
}
