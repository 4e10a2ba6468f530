//! The header policy: for any client and upstream only the listed names pass, and the sidecar's own are never
//! replaced.
//!
//! Input: a choice, a newline, header lines.

#![no_main]

use std::sync::LazyLock;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use sluice_proxy::headers::{self, Identity, Injector};
use sluice_proxy::stripped;
use sluice_proxy_fuzz::choices_and_input;

const KEY: &[u8] = b"sk-secret";
const CLIENT: [&str; 3] = ["accept", "anthropic-version", "anthropic-beta"];
const BACK: [&str; 5] =
    ["content-type", "content-length", "retry-after", "x-litellm-call-id", "x-litellm-response-cost"];

static INJECTOR: LazyLock<Injector> = LazyLock::new(|| {
    let identity = Identity {
        run_id: "r1".parse().expect("a run id"),
        attempt: 2,
        account: "acct-1".parse().expect("an account"),
        graph_id: "sandbox:agent".to_owned(),
        metadata: serde_json::from_str(r#"{"team":"ä","session_id":"s1","trace_id":"t1"}"#).expect("an object"),
    };
    let bearer = HeaderValue::from_static("Bearer sk-secret");
    Injector::new(&identity, HeaderValue::from_static("litellm:4000"), bearer, vec!["mine-2026".to_owned()])
        .expect("valid")
});

fuzz_target!(|data: &[u8]| {
    let Some(([choice], text)) = choices_and_input(data) else { return };
    let map = parse(text);
    outbound(&map, choice != b'g');
    screen(&map);
});

fn parse(text: &[u8]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for line in text.split(|b| *b == b'\n').take(200) {
        let Some(colon) = line.iter().position(|b| *b == b':') else { continue };
        if let (Ok(name), Ok(value)) =
            (HeaderName::from_bytes(&line[..colon]), HeaderValue::from_bytes(line[colon + 1..].trim_ascii()))
        {
            map.append(name, value);
        }
    }
    map
}

fn outbound(client: &HeaderMap, has_body: bool) {
    let ours = INJECTOR.outbound(&HeaderMap::new(), "cid", has_body, &mut Vec::new());
    let mut named = Vec::new();
    let out = INJECTOR.outbound(client, "cid", has_body, &mut named);
    for name in out.keys() {
        assert_eq!(out.get_all(name).iter().count(), 1, "{name} is there twice");
        assert!(ours.contains_key(name) || CLIENT.contains(&name.as_str()), "{name} goes up");
    }
    for (name, value) in &ours {
        assert!(!CLIENT.contains(&name.as_str()));
        assert_eq!(out.get(name), Some(value), "{name} is not ours any more");
    }
    for value in out.values() {
        assert!(value.as_bytes().iter().all(|b| (0x20..0x7f).contains(b)));
    }
    for beta in out.get("anthropic-beta").iter().flat_map(|value| value.to_str().expect("ASCII").split(',')) {
        assert!(beta == "mine-2026" || headers::DEFAULT_BETAS.contains(&beta), "{beta} goes up");
    }
    for name in ["accept", "anthropic-version"] {
        assert!(out.get(name).is_none_or(|value| client.get(name) == Some(value)));
    }

    // Of betas, those that are not allowed are named: `anthropic-beta:VALUE`.
    let is_named = |name: &str| {
        let is_it =
            |named: &str| name.starts_with(named.trim_end_matches('*')) || named.split(':').next() == Some(name);
        named.iter().any(|named| is_it(named))
    };
    for name in client.keys().map(HeaderName::as_str) {
        let passes = CLIENT.contains(&name) && out.contains_key(name) || is_empty_list(client, name);
        let transport = [
            "host", "connection", "content-length", "content-type", "transfer-encoding", "expect", "accept-encoding",
            "user-agent", "keep-alive",
        ];
        assert!(passes || transport.contains(&name) || is_named(name), "{name} was dropped without a name: {named:?}");
    }
    let bytes: usize = stripped::bounded(named).iter().map(|name| name.len() + 3).sum();
    assert!(bytes <= 1024, "{bytes} bytes of names");
}

/// Returns true for betas with nothing between their commas: nothing is dropped with them.
fn is_empty_list(client: &HeaderMap, name: &str) -> bool {
    let is_empty = |text: &str| text.split(',').all(|beta| beta.trim().is_empty());
    name == "anthropic-beta" && client.get_all(name).iter().all(|value| value.to_str().is_ok_and(is_empty))
}

fn screen(upstream: &HeaderMap) {
    let also = [HeaderName::from_static("x-request-id")];
    let out = headers::screen(upstream, &also, KEY);
    for (name, value) in &out {
        assert!(BACK.contains(&name.as_str()) || also.contains(name), "{name} comes back");
        assert_eq!(upstream.get(name), Some(value));
        assert!(!value.as_bytes().windows(KEY.len()).any(|window| window == KEY), "the key comes back in {name}");
        assert_eq!(out.get_all(name).iter().count(), 1);
    }
    assert!(
        headers::call_id(upstream, KEY).is_none_or(|id| (1..=256).contains(&id.len()) && !id.contains("sk-secret"))
    );
    let _ = headers::response_cost(upstream);
    for name in upstream.keys().filter(|name| headers::may_pass(name)) {
        assert!(
            !["set-cookie", "location", "connection", "transfer-encoding", "content-encoding", "upgrade"]
                .contains(&name.as_str())
        );
    }
}
