//! The members of request bodies, in every API format: a test makes the attack and compares the forwarded body.

use serde_json::{Value, json};
use sluice_testkit::{ReceivedRequest, Sidecar, Upstream};

mod amounts;
mod content;
mod exploits;
mod limits;
mod members;

/// Each `POST` route, with the members that its bodies need besides the model.
pub(crate) const WIRES: [(&str, &str); 6] = [
    ("/v1/chat/completions", r#""messages":[]"#),
    ("/v1/completions", r#""prompt":"p""#),
    ("/v1/embeddings", r#""input":"i""#),
    ("/v1/responses", r#""input":"i""#),
    ("/v1/messages", r#""max_tokens":9,"messages":[]"#),
    ("/v1/messages/count_tokens", r#""messages":[]"#),
];

/// Returns a body for model `m`; `more` holds further members, each with a comma before it.
pub(crate) fn body(rest: &str, more: &str) -> String {
    format!(r#"{{"model":"m",{rest}{more}}}"#)
}

/// Sends a body and checks its refusal: the status, the reason, and the named `param` if one is given.
async fn refused(sidecar: &Sidecar, path: &str, sent: &str, status: u16, reason: &str, param: Option<&str>) {
    let answer = sidecar.post(path, sent).await;
    let shown: String = sent.chars().take(200).collect();
    assert_eq!((answer.status, answer.reason()), (status, reason), "{path} {shown}: {}", answer.text());
    let error = answer.error();
    if let Some(param) = param {
        assert_eq!(error["param"], param, "{path} {shown}: {error}");
    }
    if path.contains("/messages") {
        assert_eq!(answer.json()["type"], "error", "{path} {shown}");
    } else {
        assert_eq!(error["code"], reason, "{path} {shown}");
    }
}

/// Sends a body that passes, and returns the request that the upstream received.
async fn passed(upstream: &Upstream, sidecar: &Sidecar, path: &str, sent: &str) -> ReceivedRequest {
    let answer = sidecar.post(path, sent).await;
    assert_eq!(answer.status, 200, "{path} {}: {}", &sent[..sent.len().min(200)], answer.text());
    upstream.received().await
}

/// The names of removed members in the intent of the last call.
fn stripped(sidecar: &Sidecar) -> Vec<String> {
    let audit = sidecar.audit();
    let intents = audit.intents();
    let intent = intents.last().expect("an intent");
    let names = intent["stripped"].as_array().expect("a list").iter();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

#[tokio::test]
async fn a_plain_body_is_forwarded_unchanged_after_our_account() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).account("acct-\"7\"").start().await;
    for (path, rest) in WIRES {
        let sent = format!("{{ \"model\" : \"m\",\n\t{rest} , \"temperature\":0.10e-1 }}");
        let received = passed(&upstream, &sidecar, path, &sent).await;
        let kept = match path {
            "/v1/embeddings" | "/v1/messages/count_tokens" => format!("\"model\" : \"m\",\n\t{rest}"),
            _ => format!("\"model\" : \"m\",\n\t{rest} , \"temperature\":0.10e-1"),
        };
        assert_eq!(received.text(), format!(r#"{{"user":"acct-\"7\"",{kept}}}"#), "{path}");
        assert_eq!(received.header("content-length"), Some(received.body.len().to_string().as_str()));
    }
}

#[tokio::test]
async fn identity_members_are_ours_on_every_route() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let victim = r#","user":"VICTIM","metadata":{"user_id":"VICTIM","tags":["VICTIM"],"trace_id":"VICTIM"},
        "litellm_metadata":null,"safety_identifier":"VICTIM","tags":["VICTIM"]"#;
    for (path, rest) in WIRES {
        let sent = body(rest, victim).replace(r#""litellm_metadata":null,"#, "");
        let received = passed(&upstream, &sidecar, path, &sent).await;
        assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, "")[1..]), "{path}");
        assert_eq!(stripped(&sidecar), ["user", "metadata", "safety_identifier", "tags"], "{path}");

        // The same holds for each member alone, with any value and any spelling of its name.
        for alone in [
            r#""user":null"#,
            r#""user":{"a":["VICTIM"]}"#,
            r#""\u0075ser":"VICTIM""#,
            r#""metadata":"VICTIM""#,
            r#""meta\u0064ata":{"user_id":"VICTIM"}"#,
            r#""litellm_metadata":{"spend_logs_metadata":{"run_id":"VICTIM"},"user":"VICTIM"}"#,
            r#""safety_identifier":["VICTIM"]"#,
            r#""tags":"VICTIM""#,
        ] {
            let sent = format!(r#"{{{alone},"model":"m",{rest}}}"#);
            let received = passed(&upstream, &sidecar, path, &sent).await;
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, "")[1..]), "{path} {alone}");
        }
    }
}

#[tokio::test]
async fn an_unknown_member_is_dropped_and_named() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let long = format!(r#","{}":1"#, "z".repeat(5000));
    for (path, rest) in WIRES {
        for (unknown, names) in [
            (r#","totally_unknown":1,"vendor":{"api_base":"x","a":[{}]}"#, vec!["totally_unknown", "vendor"]),
            (r#","":1,"model ":"other","\u0000":2,"MODEL":"other","Messages":[]"#, vec!["MODEL", "Messages", "+3"]),
            // Dangerous names that the newest SDKs know and LiteLLM does not.
            (
                r#","billing_policy":1,"workspace_id":"w","user_profile_id":"u","thread":{}"#,
                vec!["billing_policy", "workspace_id", "user_profile_id", "thread"],
            ),
            (&long, vec![&*"z".repeat(64)]),
        ] {
            let received = passed(&upstream, &sidecar, path, &body(rest, unknown)).await;
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, "")[1..]), "{path} {unknown}");
            assert_eq!(stripped(&sidecar), names, "{path}");
        }
    }
}

#[tokio::test]
async fn streams_without_usage_are_made_to_send_it() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let ours = json!({"include_usage": true});
    for (path, rest) in WIRES {
        let forced = path.ends_with("completions");
        for (more, client_asked) in [
            ("", false),
            (r#","stream_options":null"#, false),
            (r#","stream_options":{}"#, false),
            (r#","stream_options":{"include_usage":false}"#, false),
            (r#","stream_options":{"include_usage":null,"x":1}"#, false),
            (r#","stream_options":{"x":{"include_usage":true}}"#, false),
            (r#","stream_options":{"include_usage":true}"#, true),
        ] {
            if !forced && !more.is_empty() {
                continue;
            }
            let answer = sidecar.post(path, body(rest, &format!(r#","stream":true{more}"#))).await.expect(200);
            let sent = upstream.received().await.json();
            assert_eq!(sent.get("stream_options"), forced.then_some(&ours), "{path} {more}");
            if forced {
                let shown = answer.data().iter().any(|data| data.contains("usage"));
                assert_eq!(shown, client_asked, "{path} {more}: {}", answer.text());
                assert!(answer.text().contains("hi") && answer.text().ends_with("data: [DONE]\n\n"));
            }
            let unary = sidecar.post(path, body(rest, &format!(r#","stream":false{more}"#))).await.expect(200);
            let sent = upstream.received().await.json();
            assert_ne!(sent.get("stream_options"), more.is_empty().then_some(&ours), "{path} {more}");
            assert_eq!(unary.json().get("usage").is_some(), !path.ends_with("count_tokens"), "{path}");
        }
    }
    let unknown = |line: &Value| line["usage"].is_null();
    let billed = sidecar.audit().calls().into_iter().filter(|call| call.intent["path"] != "/v1/messages/count_tokens");
    assert!(billed.into_iter().all(|call| !unknown(&call.outcome)), "a stream without a usage");
}

/// Parsers disagree on which of two equal members counts: the sidecar asks for usage in any case, or refuses the call.
#[tokio::test]
async fn a_contradictory_usage_request_hides_nothing() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in &WIRES[..2] {
        for second in ["false", "null", "{}", "[]", "0", "\"\"", "[{}]"] {
            let options = format!(r#"{{"include_usage":true,"include_usage":{second}}}"#);
            let sent = body(rest, &format!(r#","stream":true,"stream_options":{options}"#));
            let answer = sidecar.post(path, sent).await;
            if answer.status == 400 {
                assert_eq!(answer.reason(), "invalid_param", "{path} {options}");
                continue;
            }
            let arrived = upstream.received().await.json();
            assert_eq!(arrived["stream_options"], json!({"include_usage": true}), "{path} {options}");
        }
    }
    let calls = sidecar.audit().calls();
    assert!(calls.iter().all(|call| call.tokens().is_some()), "{calls:?}");
}
