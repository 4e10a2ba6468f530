use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::betas::is_beta;
use super::response::is_amount;
use super::*;

fn identity(metadata: &str) -> Identity {
    Identity {
        run_id: "r1".parse().expect("a run id"),
        attempt: 2,
        account: "acct-1".parse().expect("an account"),
        graph_id: "sandbox:agent".to_owned(),
        metadata: serde_json::from_str(metadata).expect("an object"),
    }
}

fn injector(metadata: &str) -> Result<Injector, MetadataError> {
    let host = HeaderValue::from_static("litellm:4000");
    Injector::new(&identity(metadata), host, HeaderValue::from_static("Bearer KEY"), vec!["mine-2026".to_owned()])
}

fn client(lines: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in lines {
        map.append(name.parse::<HeaderName>().expect("a name"), value.parse().expect("a value"));
    }
    map
}

fn lines(map: &HeaderMap) -> Vec<(String, String)> {
    let mut lines: Vec<_> = map.iter().map(|(n, v)| (n.to_string(), v.to_str().expect("ASCII").to_owned())).collect();
    lines.sort();
    lines
}

/// Headers that some version of LiteLLM acts on.
const HOSTILE: &[(&str, &str)] = &[
    ("x-litellm-api-key", "sk-other"),
    ("authorization", "Bearer sk-dummy"),
    ("api-key", "k"),
    ("x-api-key", "k"),
    ("x-goog-api-key", "k"),
    ("ocp-apim-subscription-key", "k"),
    ("x-litellm-customer-id", "VICTIM"),
    ("x-litellm-end-user-id", "VICTIM"),
    ("x-litellm-end-user-id", "V2"),
    ("x-litellm-spend-logs-metadata", "{\"run_id\":\"other\"}"),
    ("x-litellm-metadata", "{}"),
    ("x-litellm-call-id", "fixed"),
    ("x-litellm-trace-id", "t"),
    ("x-litellm-session-id", "s"),
    ("x-vendor-session-id", "s"),
    ("x-session-id", "s"),
    ("session-id", "s"),
    ("thread-id", "t"),
    ("traceparent", "00-0-0-0"),
    ("tracestate", "a=b"),
    ("baggage", "session.id=x"),
    ("langfuse_trace_id", "t"),
    ("langfuse_existing_trace_id", "t"),
    ("langfuse_trace_user_id", "u"),
    ("x-litellm-tags", "a"),
    ("x-litellm-agent-id", "a"),
    ("x-litellm-disable-callbacks", "all"),
    ("x-litellm-enable-message-redaction", "true"),
    ("litellm-disable-message-redaction", "true"),
    ("x-litellm-timeout", "1"),
    ("x-litellm-num-retries", "9"),
    ("x-litellm-model", "m"),
    ("x-mcp-auth", "a"),
    ("x-pass-x", "1"),
    ("openai-organization", "o"),
    ("openai-project", "p"),
    ("x-forwarded-for", "1.2.3.4"),
    ("forwarded", "for=1"),
    ("x-real-ip", "1.2.3.4"),
    ("cache-control", "no-store"),
    ("content-encoding", "gzip"),
    ("accept-encoding", "gzip"),
    ("user-agent", "claude-cli/1"),
    ("cookie", "a=b"),
    ("proxy-authorization", "x"),
    ("connection", "close, x-keep"),
    ("x-keep", "1"),
    ("upgrade", "websocket"),
    ("te", "trailers"),
    ("host", "evil"),
    ("content-type", "multipart/form-data"),
    ("x-http-method-override", "GET"),
    ("via", "1"),
    ("referer", "x"),
];

#[test]
fn no_client_header_changes_the_head() {
    let injector = injector("{}").expect("valid");
    assert_eq!(
        lines(&injector.outbound(&client(HOSTILE), "cid", true, &mut Vec::new())),
        lines(&injector.outbound(&HeaderMap::new(), "cid", true, &mut Vec::new())),
    );
}

#[test]
fn the_head_is_what_litellm_needs() {
    let head = injector(r#"{"team":"ä😀","session_id":"s1"}"#).expect("valid").outbound(
        &HeaderMap::new(),
        "cid",
        true,
        &mut Vec::new(),
    );
    let metadata = r#"{"attempt":2,"graph_id":"sandbox:agent","run_id":"r1","sluice_call_id":"cid","session_id":"s1","team":"\u00e4\ud83d\ude00"}"#;
    let want = [
        ("accept-encoding", "identity"),
        ("authorization", "Bearer KEY"),
        ("content-type", "application/json"),
        ("host", "litellm:4000"),
        ("langfuse_session_id", "s1"),
        ("user-agent", concat!("sluice-proxy/", env!("CARGO_PKG_VERSION"))),
        ("x-litellm-call-id", "cid"),
        ("x-litellm-customer-id", "acct-1"),
        ("x-litellm-end-user-id", "acct-1"),
        ("x-litellm-metadata", metadata),
        ("x-litellm-num-retries", "0"),
        ("x-litellm-session-id", "s1"),
        ("x-litellm-spend-logs-metadata", metadata),
        ("x-litellm-trace-id", "s1"),
    ];
    assert_eq!(lines(&head), want.map(|(n, v)| (n.to_owned(), v.to_owned())));
    serde_json::from_str::<Value>(metadata).expect("the metadata is JSON");
}

#[test]
fn only_listed_headers_pass() {
    let head = injector("{}").expect("valid").outbound(
        &client(&[
            ("accept", "text/event-stream"),
            ("accept", "x/y"),
            ("anthropic-version", "2023-06-01"),
            ("anthropic-beta", "prompt-caching-2024-07-31, mcp-client-2025-04-04"),
            ("anthropic-beta", "mine-2026"),
        ]),
        "cid",
        false,
        &mut Vec::new(),
    );
    let of = |name: &str| head.get_all(name).iter().map(|v| v.to_str().expect("ASCII")).collect::<Vec<_>>();
    assert_eq!(of("accept"), ["text/event-stream"]);
    assert_eq!(of("anthropic-version"), ["2023-06-01"]);
    assert_eq!(of("anthropic-beta"), ["prompt-caching-2024-07-31,mine-2026"]);
    assert_eq!(of("content-type"), [""; 0]);
}

#[test]
fn each_dropped_header_is_named_once() {
    let mut names = Vec::new();
    let _ = injector("{}").expect("valid").outbound(&client(HOSTILE), "cid", true, &mut names);
    for name in ["authorization", "x-litellm-customer-id", "langfuse_trace_id", "cookie", "x-keep", "traceparent"] {
        assert_eq!(names.iter().filter(|n| *n == name).count(), 1, "{name}");
    }
    assert!(!names.iter().any(|name| name == "host" || name == "user-agent"));
    let many: Vec<_> = (0..100).map(|n| (format!("x-{n}"), "v".to_owned())).collect();
    let many: Vec<_> = many.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let mut names = Vec::new();
    let _ = injector("{}").expect("valid").outbound(&client(&many), "cid", true, &mut names);
    assert_eq!(names.len(), 100);
}

/// The names of headers that the sidecar replaces in silence.
const TRANSPORT: &[&str] = &[
    "host", "connection", "content-length", "content-type", "transfer-encoding", "expect", "accept-encoding",
    "user-agent", "keep-alive",
];

#[test]
fn every_client_header_is_sent_or_named() {
    let allowed = [
        ("accept", "text/event-stream"),
        ("accept", "x/y"),
        ("anthropic-version", "2023-06-01"),
        ("anthropic-version", "2024-01-01"),
        ("anthropic-beta", "prompt-caching-2024-07-31, mcp-client-2025-04-04"),
        ("anthropic-beta", "mine-2026"),
        ("anthropic-beta", "sk-secret"),
        ("x-stainless-os", "Linux"),
    ];
    let request = client(&[HOSTILE, &allowed].concat());
    let mut dropped = Vec::new();
    let sent = injector("{}").expect("valid").outbound(&request, "cid", true, &mut dropped);
    for (name, value) in request.iter().filter(|(name, _)| !TRANSPORT.contains(&name.as_str())) {
        let value = value.to_str().expect("ASCII");
        for part in value.split(',').map(str::trim) {
            let is_sent = sent.get_all(name).iter().any(|sent| sent.to_str().is_ok_and(|sent| sent.contains(part)));
            let is_named = dropped.iter().any(|dropped| {
                *dropped == name.as_str()
                    || **dropped == format!("{name}:{part}")
                    || dropped.strip_suffix('*').is_some_and(|prefix| name.as_str().starts_with(prefix))
            });
            assert!(is_sent || is_named, "{name}: {part}");
        }
    }
}

#[test]
fn metadata_may_not_take_our_names_or_overflow() {
    assert_eq!(injector(r#"{"run_id":"other"}"#).err(), Some(MetadataError::Reserved("run_id")));
    for wrong in [r#"{"session_id":" a"}"#, r#"{"session_id":"é"}"#, r#"{"session_id":"a\nb"}"#, r#"{"session_id":""}"#]
    {
        assert_eq!(injector(wrong).err(), Some(MetadataError::NotAHeader("session_id")), "{wrong}");
    }
    assert_eq!(injector(r#"{"tags":["a",1]}"#).err(), Some(MetadataError::NotAHeader("tags")));
    assert!(matches!(injector(&format!(r#"{{"a":"{}"}}"#, "x".repeat(9000))), Err(MetadataError::TooLong(_))));
}

#[test]
fn litellm_gets_trace_names_tags_and_masks() {
    let sent = |metadata: &str| {
        let head = injector(metadata).expect("valid").outbound(&HeaderMap::new(), "cid", true, &mut Vec::new());
        let is_read = |name: &str| name.starts_with("langfuse_") || ["x-litellm-tags", "traceparent"].contains(&name);
        lines(&head).into_iter().filter(|(name, _)| is_read(name)).collect::<Vec<_>>()
    };
    let want = [
        ("langfuse_generation_name", "g"),
        ("langfuse_mask_input", "true"),
        ("langfuse_mask_output", "true"),
        ("langfuse_session_id", "s 1"),
        ("langfuse_trace_id", "t1"),
        ("langfuse_trace_metadata", r#"{"a":"\u00e4"}"#),
        ("langfuse_trace_name", "n"),
        ("langfuse_trace_user_id", "u"),
        ("traceparent", "00-aa-bb-01"),
        ("x-litellm-tags", "a,b c"),
    ];
    let metadata = r#"{"trace_id":"t1","session_id":"s 1","trace_user_id":"u","trace_name":"n","trace_metadata":{"a":"ä"},
        "generation_name":"g","mask_input":true,"mask_output":"true","tags":["a","b c"],"user_id":"x","traceparent":"00-aa-bb-01"}"#;
    assert_eq!(sent(metadata), want.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let existing = sent(r#"{"trace_id":"t1","existing_trace_id":"t0"}"#);
    assert_eq!(existing, [("langfuse_existing_trace_id".to_owned(), "t0".to_owned())]);
}

#[test]
fn a_sandbox_never_sets_the_span_of_its_run() {
    let forged = client(&[("traceparent", "00-evil-evil-01"), ("tracestate", "a=b")]);
    for (metadata, passes) in [(r#"{"traceparent":"00-aa-bb-01"}"#, vec!["00-aa-bb-01"]), ("{}", vec![])] {
        let mut dropped = Vec::new();
        let head = injector(metadata).expect("valid").outbound(&forged, "cid", true, &mut dropped);
        let sent: Vec<_> = head.get_all("traceparent").iter().collect();
        assert_eq!(sent, passes, "{metadata}");
        assert_eq!((head.get("tracestate"), &dropped[..]), (None, &["traceparent".into(), "tracestate".into()][..]));
    }
}

#[test]
fn no_default_beta_makes_the_provider_act() {
    for part in [
        "code-execution", "files-api", "mcp", "web-fetch", "web-search", "skills", "compact", "memory", "agents",
        "fallback", "fast-mode", "advisor", "inline-tools", "tool-changes", "batches", "cache-keepalive",
    ] {
        assert!(!DEFAULT_BETAS.iter().any(|beta| beta.contains(part)), "{part}");
    }
    assert!(DEFAULT_BETAS.is_sorted() && DEFAULT_BETAS.iter().all(|beta| is_beta(beta)));
}

#[test]
fn a_dropped_beta_is_named_by_its_value() {
    let named = |value: &str| {
        let mut names = Vec::new();
        let _ = injector("{}").expect("valid").outbound(&client(&[("anthropic-beta", value)]), "cid", true, &mut names);
        names
    };
    assert_eq!(named("claude-code-20250219, ,mine-2026"), [""; 0]);
    assert_eq!(
        named("skills-2025-10-02,claude-code-20250219,x-20260101"),
        ["anthropic-beta:skills-2025-10-02", "anthropic-beta:x-20260101"]
    );
    // A secret that was put there by mistake does not have the form of a beta.
    assert_eq!(named("sk-secret, SKILLS-2025-10-02, a b-2025-10-02, 2025-10-02"), ["anthropic-beta"]);
    assert_eq!(named(&format!("{}-2025-10-02", "x".repeat(60))), ["anthropic-beta"]);
}

#[test]
fn only_numbers_durations_and_times_are_amounts() {
    for value in
        ["0", "41", "-5", "1.5", "6m0s", "120ms", "1h2m3.5s", "2026-01-27T12:00:30Z", "2026-01-27T12:00:30.5+00:00"]
    {
        assert!(is_amount(value.as_bytes()), "{value}");
    }
    for value in
        ["", "-", "s", "m5", "sk-1", "1h; org=acme", "1 2", "1e5x", "12abc", "5sm", "2026-01-27Tacme", "acme", "1,2"]
    {
        assert!(!is_amount(value.as_bytes()), "{value}");
    }
    assert!(!is_amount("1".repeat(41).as_bytes()));
}

#[test]
fn the_answer_shows_only_what_is_listed() {
    let upstream = client(&[
        ("content-type", "application/json"),
        ("content-length", "5"),
        ("retry-after", "1"),
        ("x-litellm-call-id", "c"),
        ("x-litellm-response-cost", "0.1"),
        ("x-litellm-key-spend", "9"),
        ("x-litellm-model-api-base", "http://internal"),
        ("x-litellm-model-id", "i"),
        ("x-litellm-version", "1"),
        ("x-litellm-cache-key", "k"),
        ("llm_provider-set-cookie", "c"),
        ("set-cookie", "c"),
        ("server", "s"),
        ("location", "l"),
        ("x-request-id", "r"),
    ]);
    let names = |map: &HeaderMap| lines(map).into_iter().map(|(n, _)| n).collect::<Vec<_>>();
    let default = ["content-length", "content-type", "retry-after", "x-litellm-call-id", "x-litellm-response-cost"];
    assert_eq!(names(&screen(&upstream, &[], b"sk-secret")), default);
    let also = [HeaderName::from_static("x-request-id")];
    assert!(names(&screen(&upstream, &also, b"sk-secret")).contains(&"x-request-id".to_owned()));
    let leak = client(&[("content-type", "x/sk-secret")]);
    assert!(screen(&leak, &[], b"sk-secret").is_empty());
    assert!(
        !may_pass(&header::SET_COOKIE)
            && !may_pass(&header::LOCATION)
            && may_pass(&HeaderName::from_static("x-request-id"))
    );
}
