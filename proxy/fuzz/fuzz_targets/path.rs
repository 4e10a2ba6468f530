//! The path policy: an admitted path is, byte for byte, a listed one.
//!
//! Input: a policy, a newline, a method, a blank, a request target.

#![no_main]

use std::sync::LazyLock;

use http::{Method, Uri};
use libfuzzer_sys::fuzz_target;
use sluice_proxy::policy::{AdmittedRequest, ApiFormat, Policy, RelayTarget, is_id, model_id, stored_path};
use sluice_proxy_fuzz::choices_and_input;
use sluice_upstream::Address;

const OPEN: [(&str, &str); 9] = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/embeddings"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/input_tokens"),
    ("GET", "/v1/models"),
];
const ADDED: (&str, &str) = ("POST", "/v1/rerank");
const RELAYED: [(&str, &str); 6] = [
    ("POST", "events"),
    ("GET", "messages"),
    ("POST", "messages/ack"),
    ("GET", "task"),
    ("GET", "interventions"),
    ("POST", "questions"),
];

static PLAIN: LazyLock<Policy> = LazyLock::new(|| Policy::new(&[], None));
static WIDE: LazyLock<Policy> = LazyLock::new(|| {
    let added = ["POST /v1/rerank", "GET /v1/responses/{id}/input_items"];
    Policy::new(&added.map(|text| Policy::parse_route(text).expect("a route")), Some("r1"))
});
static ADDRESS: LazyLock<Address> = LazyLock::new(|| "http://litellm:4000/proxy".parse().expect("an address"));

fuzz_target!(|data: &[u8]| {
    let Some(([choice], line)) = choices_and_input(data) else { return };
    let Some(blank) = line.iter().position(|b| *b == b' ') else { return };
    let (method, target) = (&line[..blank], &line[blank + 1..]);
    let is_wide = choice == b'w';
    let policy = if is_wide { &WIDE } else { &PLAIN };
    let (Ok(parsed_method), Ok(uri)) = (Method::from_bytes(method), Uri::try_from(target)) else { return };
    // The client's text up to its query must be unchanged.
    let written = target.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or_default();

    match policy.admit(&parsed_method, &uri) {
        Ok(AdmittedRequest::Health) => {
            assert!(matches!(method, b"GET" | b"HEAD"));
            assert!(matches!(written, b"/health" | b"/" | b"/api/hello"));
        }
        Ok(AdmittedRequest::Model(_)) => {
            let id = model_id(uri.path()).expect("it was admitted");
            let written = String::from_utf8_lossy(written).replace("%2F", "/").replace("%2f", "/");
            assert!(written.ends_with(&*id) && !id.split('/').any(|segment| matches!(segment, "" | "." | "..")));
        }
        Ok(AdmittedRequest::Stored(route, id)) => {
            assert!(is_wide && method == b"GET" && is_id(id) && !id.contains('/'));
            let path = stored_path(route, uri.path()).expect("it has an id");
            assert_eq!(path, format!("/v1/responses/{id}/input_items"));
            assert!(written == path.as_bytes() || written == &path.as_bytes()[3..]);
        }
        Ok(AdmittedRequest::Call(route)) => {
            assert!(
                OPEN.contains(&(route.method.as_str(), route.path))
                    || is_wide && (route.method.as_str(), route.path) == ADDED
            );
            assert_eq!(method, route.method.as_str().as_bytes());
            let short = (route.format != ApiFormat::Other).then(|| route.path.strip_prefix("/v1")).flatten();
            assert!(written == route.path.as_bytes() || short.is_some_and(|short| written == short.as_bytes()));
            assert_eq!(ADDRESS.target(route.path).to_string(), format!("/proxy{}", route.path));
        }
        Ok(AdmittedRequest::Relay(target @ RelayTarget::Resource(resource))) => {
            let question = resource.strip_prefix("questions/");
            let is_question =
                question.is_some_and(|id| method == b"GET" && !id.is_empty() && !id.contains(['/', '.', '%', '?']));
            let is_known = RELAYED.iter().any(|known| (known.0.as_bytes(), known.1) == (method, resource));
            assert!(is_wide && (is_known || is_question));
            assert_eq!(written, policy.relay_path(target).as_bytes());
        }
        Ok(AdmittedRequest::Relay(RelayTarget::PushedRefs | RelayTarget::Push)) => {
            assert!(is_wide && written.starts_with(b"/git/r1.git/"));
        }
        Err(refusal) => {
            assert!(refusal.reason.status().is_client_error());
            let is_open = OPEN.iter().any(|open| (open.0.as_bytes(), open.1.as_bytes()) == (method, written));
            assert!(!is_open, "an open route was refused");
        }
    }
});
