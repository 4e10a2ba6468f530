//! Guarantees of the audit file, with the real process: intents first, complete records, no secrets.

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::signal::Signal;
use nix::unistd::Pid;
use serde_json::{Value, json};
use sluice_testkit::audit::CheckedAuditFile;
use sluice_testkit::{RawClient, Sidecar, TempDir, Upstream};

mod faults;
mod refusals;
mod restarts;
mod secrets;
mod syncs;

const CHAT: &str = "/v1/chat/completions";

fn call() -> Value {
    json!({"model": "m", "messages": []})
}

fn stream() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[tokio::test]
async fn every_kind_of_record_has_exactly_its_members() {
    let common = ["attempt", "kind", "prev", "run_id", "seq", "ts", "v"];
    let members: [(&str, &[&str]); 5] = [
        (
            "open",
            &[
                "billing_account_id", "boot_id", "build", "graph_id", "limits", "pid", "policy", "proxy_version",
                "sync", "upstream",
            ],
        ),
        (
            "intent",
            &["call", "call_id", "method", "model", "path", "peer", "req_bytes", "reserved_usd", "stream", "stripped"],
        ),
        (
            "outcome",
            &[
                "account", "call", "call_id", "cost_source", "cost_usd", "end", "litellm_call_id", "model",
                "model_served", "null_reason", "resp_bytes", "response_id", "result", "status", "timing_us", "usage",
            ],
        ),
        ("refused", &["account", "method", "path", "reason", "status"]),
        ("close", &["calls", "cost_usd", "head", "key_id", "reason", "refused", "signature", "unknown", "usage"]),
    ];
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    sidecar.get("/nope").await.expect(404);
    sidecar.stop().await;

    let audit = sidecar.audit();

    for (kind, own) in members {
        let mut all: Vec<_> = common.iter().chain(own).copied().collect();
        all.sort_unstable();
        assert_eq!(keys(audit.of_kind(kind)[0]), all, "{kind}");
    }
    let call = audit.only_call();
    assert_eq!(keys(&call.intent["peer"]), ["pid", "uid"]);
    assert_eq!(keys(&call.outcome["usage"]), ["cache_write", "cached_input", "input", "output", "reasoning", "total"]);
    let times = ["connect", "first_token", "longest_gap", "own", "queue", "total", "ttfb"];
    assert_eq!(keys(&call.outcome["timing_us"]), times);
}

#[tokio::test]
async fn open_names_the_program_and_its_rules() {
    let upstream = Upstream::chat("hello").start().await;
    let with_path = format!("{}/secret/prefix", upstream.url());
    let launch = Sidecar::to_url(&with_path).run_id("run-9").account("acct-9");
    let launch = launch
        .args(["--attempt", "3", "--graph-id", "g", "--max-calls", "4", "--max-tokens", "5", "--rate", "6/s"])
        .args(["--max-memory", "64MiB"]);
    let launch =
        launch.args(["--max-cost-usd", "0.70", "--deadline", "2m", "--max-concurrency", "8", "--max-body", "9KiB"]);
    let sidecar = launch.start().await;
    sidecar.stop().await;

    let audit = sidecar.audit();

    let open = audit.open();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux has a boot id");
    for (member, value) in [
        ("run_id", json!("run-9")),
        ("billing_account_id", json!("acct-9")),
        ("attempt", json!(3)),
        ("graph_id", json!("g")),
        ("upstream", json!(upstream.url())),
        ("sync", json!("call")),
        ("pid", json!(sidecar.pid())),
        ("boot_id", json!(boot.trim())),
        ("policy", sidecar.ready()["policy"].clone()),
        (
            "limits",
            json!({"deadline_s": 120, "max_body": 9216, "max_calls": 4, "max_concurrency": 8, "max_cost_usd": "0.7",
            "max_memory": 67_108_864, "max_tokens": 5, "rate_per_s": 6}),
        ),
    ] {
        assert_eq!(open[member], value, "{member}");
    }
    assert!(open["build"].as_str().is_some_and(|build| build.len() >= 7), "{}", open["build"]);
}

#[tokio::test]
async fn intent_and_outcome_tell_one_call() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let headers = [("content-type", "application/json"), ("x-mine", "1"), ("authorization", "Bearer mine")];
    let body = json!({"model": "m", "messages": [], "user": "me", "harmless": 1}).to_string();

    let answer = sidecar.request("POST", "/chat/completions?api_base=x", &headers, &body).await.expect(200);
    sidecar.stop().await;

    let call = sidecar.audit().only_call();
    let sent = upstream.only_request();
    assert_eq!(call.id(), sent.header("x-litellm-call-id").expect("we mint one"));
    for (member, value) in [
        ("method", json!("POST")),
        ("path", json!(CHAT)),
        ("model", json!("m")),
        ("stream", json!(false)),
        ("req_bytes", json!(body.len())),
        ("call", json!(1)),
        ("reserved_usd", Value::Null),
    ] {
        assert_eq!(call.intent[member], value, "{member}");
    }
    let stripped = call.intent["stripped"].to_string();
    for name in ["x-mine", "authorization", "user", "harmless"] {
        assert!(stripped.contains(&format!("\"{name}\"")), "{name} in {stripped}");
    }
    for (member, value) in [
        ("status", json!(200)),
        ("litellm_call_id", json!(call.id())),
        ("response_id", json!("chatcmpl-sluice1")),
        ("model_served", json!("m")),
        ("resp_bytes", json!(answer.body.len())),
        ("cost_source", json!("header")),
        ("null_reason", Value::Null),
    ] {
        assert_eq!(call.outcome[member], value, "{member}");
    }
}

#[tokio::test]
async fn an_intent_is_written_before_the_upstream_connection() {
    let dir = TempDir::new();
    let (accept, request) = (dir.join("a.jsonl"), dir.join("a.jsonl"));
    let seen = Arc::new(Mutex::new(0));
    let count = seen.clone();
    let upstream = Upstream::chat("hello")
        .on_accept(move |_| assert!(!CheckedAuditFile::read_torn(&accept).0.intents().is_empty()))
        .on_request(move |_| {
            let mut seen = count.lock().expect("no thread panics with it");
            *seen += 1;
            assert_eq!(CheckedAuditFile::read_torn(&request).0.intents().len(), *seen);
        })
        .start()
        .await;
    let sidecar = Sidecar::to(&upstream).audit_path(dir.join("a.jsonl")).start().await;

    for body in [call(), stream(), call()] {
        sidecar.post(CHAT, body).await.expect(200);
    }

    assert_eq!(*seen.lock().expect("no thread panics with it"), 3);
}

#[tokio::test]
async fn a_kill_at_the_first_byte_loses_no_intent() {
    for round in 0..20 {
        let pid = Arc::new(AtomicI32::new(0));
        let victim = pid.clone();
        let kill = move |_| {
            let _ = nix::sys::signal::kill(Pid::from_raw(victim.load(Ordering::SeqCst)), Signal::SIGKILL);
        };
        // Half of the rounds kill at the accept, before any byte.
        let plan = Upstream::never();
        let upstream = if round % 2 == 0 { plan.on_accept(kill) } else { plan.on_request(kill) };
        let upstream = upstream.start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        pid.store(sidecar.pid(), Ordering::SeqCst);

        let calls: Vec<RawClient> = futures(&sidecar, 4).await;

        assert_eq!(sidecar.wait().await.signal, Some(9));
        drop(calls);
        let (audit, torn) = CheckedAuditFile::read_torn(sidecar.audit_path());
        assert_eq!(torn, b"", "one record is one write");
        assert!(audit.intents().len() >= upstream.connections(), "round {round}");
    }
}

/// Sends calls that are not answered.
async fn futures(sidecar: &Sidecar, count: usize) -> Vec<RawClient> {
    let mut calls = Vec::new();
    for _ in 0..count {
        let Ok(mut raw) = RawClient::try_connect(sidecar.socket()).await else {
            break;
        };
        raw.send_request("POST", CHAT, &[], call()).await;
        calls.push(raw);
    }
    calls
}
