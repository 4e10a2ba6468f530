//! Secrets that the API never returns: values that are planted in a daemon with runs are in no answer, event, error or
//! log.

use std::process::Command;

use super::http::{DaemonAnswer, address, get, send, token};
use super::*;
use sluice_testkit::engine;

/// Value of a variable of a run.
const ENV: &str = "canary-env-5f1d7c";
/// An answer of the upstream that only the agent may get.
const COMPLETION: &str = "canary-completion-77aa10";

/// A planted value.
#[derive(Debug)]
struct Planted {
    name: &'static str,
    value: String,
    /// True if the operator's log may have it.
    is_operators: bool,
}

/// Endings of names of members and headers with numbers that may equal a process id by chance.
const MEASURES: [&str; 12] =
    ["_us", "bytes", "size", "length", "seq", "total", "own", "longest_gap", "queue", "connect", "ttfb", "first_token"];

/// Returns true if a text ends with the name of a measure and a colon.
fn ends_with_measure(text: &str) -> bool {
    let name = text.trim_end().strip_suffix(':').map(|name| name.trim_end_matches('"').to_ascii_lowercase());
    name.is_some_and(|name| MEASURES.iter().any(|measure| name.ends_with(measure)))
}

/// Returns true if a text has a value that is neither a part of a longer word nor a measure.
fn has(text: &str, value: &str) -> bool {
    let is_number = value.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
    text.match_indices(value).any(|(at, _)| {
        let before = at.checked_sub(1).and_then(|at| text.as_bytes().get(at));
        // Longer values are found in any place.
        let is_whole = value.len() > 8 || !(is_word(before) || is_word(text.as_bytes().get(at + value.len())));
        is_whole && !(is_number && ends_with_measure(&text[..at]))
    })
}

#[test]
fn a_number_is_found_unless_it_is_a_measure() {
    for text in ["{\"pid\":4711}", "{\"leader\": 4711}", "process 4711 has ended", "/proc/4711/root", "[4711]"] {
        assert!(has(text, "4711"), "{text}");
    }
    for text in ["content-length: 4711\r\n", "{\"size\":4711}", "{\"total\":4711}", "0.4711", "47110"] {
        assert!(!has(text, "4711"), "{text}");
    }
}

/// Plants what belongs to the host and to a live run.
async fn planted(sluice: &Sluice, daemon: &Daemon<'_>, tokens: &[String]) -> Vec<Planted> {
    let mut planted = Vec::new();
    let mut plant = |name, value: String, is_operators| planted.push(Planted { name, value, is_operators });
    plant("the upstream's key", sluice.key().to_owned(), false);
    plant("the value of a variable", ENV.to_owned(), false);
    tokens.iter().for_each(|token| plant("a token", token.clone(), false));
    let hashes: Vec<(String,)> =
        serde_json::from_str(&sluice.sql("SELECT hash FROM tokens UNION SELECT hash FROM run_tokens").await)
            .expect("a list");
    hashes.into_iter().for_each(|(hash,)| plant("the hash of a token", hash, false));
    plant("the directory of the state and the sockets", sluice.dir().display().to_string(), true);
    plant("the process of the daemon", daemon.process().pid().to_string(), true);
    for sidecar in sluice.processes() {
        plant("the process of a sidecar", sidecar.to_string(), true);
    }
    for name in sluice.containers().await {
        let container = engine::inspect(&name).await;
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        plant("the id of a container", text(&container["Id"])[..12].to_owned(), true);
        plant("the process of a container", container["State"]["Pid"].to_string(), true);
    }
    planted
}

fn assert_none(planted: &[Planted], answer: &DaemonAnswer, shown: &str) {
    for Planted { name, value, .. } in planted {
        assert!(!has(&answer.text, value), "{shown} has {name}, {value}:\n{}", answer.text);
    }
}

/// Returns the paths of all documented GET routes, with each of these values for the parameters of a kind.
pub(super) fn paths(document: &Value, ids: &[(&str, &[String])]) -> Vec<String> {
    let mut paths = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        if methods["get"].is_null() {
            continue;
        }
        let mut made = vec![String::new()];
        for segment in path.split('/').skip(1) {
            let values = match segment.starts_with('{') {
                // A parameter of a kind that is not listed has no known value.
                true => {
                    let last = made[0].rsplit('/').next().unwrap_or_default().to_owned();
                    ids.iter().find(|(kind, _)| *kind == last).map_or(vec!["x".to_owned()], |(_, ids)| ids.to_vec())
                }
                false => vec![segment.to_owned()],
            };
            made = made.iter().flat_map(|start| values.iter().map(move |value| format!("{start}/{value}"))).collect();
        }
        paths.extend(made);
    }
    paths
}

#[tokio::test]
async fn no_answer_has_what_belongs_to_the_host() {
    let upstream = Upstream::provider(COMPLETION).start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let mut tokens = Vec::new();
    for (owner, role) in
        [("root", "admin"), ("alice", "owner"), ("alice", "viewer"), ("bob", "owner"), ("alice", "chat")]
    {
        tokens.push(token(&sluice, owner, role, if owner == "bob" { "acct-2" } else { "acct-1" }).await);
    }
    let address = address(&daemon);
    let alice = &tokens[1];
    let agent = json!({"agent_id": "bot", "metadata": {"a": 1}});
    assert_eq!(send(&address, alice, "POST", "/api/v1/agents", &agent).await.status, 201);
    let budget = json!({"kind": "set", "usd": "5"});
    assert_eq!(send(&address, &tokens[0], "PUT", "/api/v1/budgets/acct-3", &budget).await.status, 200);
    let create = async |script: &str| {
        let mut run = shell(script);
        run["env"] = json!({"CANARY": ENV});
        let created = send(&address, alice, "POST", "/api/v1/sandboxes", &run).await;
        let body = created.text.split_once("\r\n\r\n").expect("a head").1.to_owned();
        serde_json::from_str::<Value>(&body).expect("JSON")["run_id"].as_str().expect("an id").to_owned()
    };
    let succeeded = create(&format!("{CALL}; test -n \"$CANARY\"")).await;
    let failed = create("no-such-program").await;
    let working = create(&format!("{CALL}; sleep 600")).await;
    daemon.reaches(&succeeded, "COMPLETED").await;
    daemon.reaches(&failed, "FAILED").await;
    daemon.reaches(&working, "RUNNING").await;
    let planted = planted(&sluice, &daemon, &tokens).await;
    assert!(planted.len() >= 16, "{planted:?}");

    let events: Vec<_> =
        daemon.events(&succeeded).await.iter().map(|event| event["id"].as_str().expect("an id").to_owned()).collect();
    let ids: [(&str, &[String]); 4] = [
        ("sandboxes", &[succeeded, failed, working.clone()]),
        ("agents", &["bot".to_owned()]),
        ("budgets", &["acct-1".to_owned()]),
        ("file-diffs", &events[..1]),
    ];
    let document = daemon.get("/api/openapi.json").await.expect(200).json();
    let (mut seen, mut shown_to) = (0, [0; 5]);
    for path in paths(&document, &ids) {
        // Read a stream from its beginning, and wait only briefly.
        let query = match path.rsplit('/').next() {
            Some("stream") => "?after=0",
            Some("wait") => "?timeout=100ms",
            _ => "",
        };
        for (number, token) in tokens.iter().enumerate() {
            let answer = get(&address, token, &format!("{path}{query}")).await;
            assert!((200..500).contains(&answer.status), "{path}: {answer:?}");
            assert_none(&planted, &answer, &path);
            assert!(!answer.text.contains(COMPLETION), "{path}: no answer has what the model said");
            seen += 1;
            shown_to[number] += usize::from(answer.status == 200);
        }
    }
    assert!(seen > 100 && shown_to[0] > 24 && shown_to[1] > 24 && shown_to[3] < 20, "{seen} {shown_to:?}");
    // Errors of requests that change something.
    for (method, path, body) in [
        ("POST", "/api/v1/sandboxes".to_owned(), json!({"task": 1})),
        ("POST", "/api/v1/sandboxes".to_owned(), json!({"argv": ["x"], "model": "m", "image": "/etc/passwd"})),
        ("POST", "/api/v1/sandboxes".to_owned(), json!({"argv": ["x"], "model": "m", "env": {"OPENAI_API_KEY": ENV}})),
        ("POST", format!("/api/v1/sandboxes/{working}/retry"), Value::Null),
        ("POST", "/api/v1/agents".to_owned(), json!({"agent_id": "x", "grants": ["/root"]})),
        ("PUT", "/api/v1/budgets/acct-1".to_owned(), json!({"kind": "set", "usd": "x"})),
    ] {
        for token in &tokens {
            let answer = send(&address, token, method, &path, &body).await;
            assert!((400..500).contains(&answer.status), "{path} {body}: {answer:?}");
            assert_none(&planted, &answer, &path);
        }
    }
    let log = daemon.process().stderr();
    for Planted { name, value, .. } in planted.iter().filter(|planted| !planted.is_operators) {
        assert!(!has(&log, value), "the log has {name}: {log}");
    }
    for (name, value) in [("the upstream's key", sluice.key()), ("a variable", ENV), ("a token", &**alice)] {
        let found = Command::new("grep").args(["-rlaF", value]).arg(sluice.state()).output().expect("there is a grep");
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "{name} is in the state directory");
    }
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{working}"), &Value::Null).await.expect(202);
    daemon.reaches(&working, "COMPLETED").await;
}
