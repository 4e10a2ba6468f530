//! Calls that wait at a cap for a person: they go on, are denied, or are told to try again once.

use std::path::Path;
use std::process::Command;

use sluice_testkit::audit::CheckedAuditFile;
use sluice_testkit::{PATIENCE, TempDir, poll};
use tokio::task::JoinSet;

use super::*;

/// Hold time that no test reaches.
pub(super) const LONG: [&str; 2] = ["--hold", "200s"];
/// Hold time that a test waits for.
const SHORT: [&str; 2] = ["--hold", "12s"];

/// A sidecar that asks at its cap, with its only call used up.
async fn at_cap(upstream: &Upstream, hold: [&str; 2]) -> Sidecar {
    let flags = ["--max-calls", "1", "--on-cap", "ask", "--audit-sync", "off"];
    let sidecar = controlled(Sidecar::to(upstream)).args(flags).args(hold).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    sidecar
}

pub(super) fn named(text: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 100})
}

/// Returns the list of held calls once `waiting` requests wait.
pub(super) async fn held(sidecar: &Sidecar, waiting: u64) -> Vec<Value> {
    let mut found = Vec::new();
    let came = poll(PATIENCE, async || {
        found = ask(sidecar, "GET", "/held", Value::Null).await.expect(200).json().as_array().expect("a list").clone();
        found.iter().map(|held| held["waiting"].as_u64().unwrap_or(0)).sum::<u64>() == waiting
    });
    assert!(came.await, "{waiting} are to wait: {found:?}");
    found
}

async fn decide(sidecar: &Sidecar, held: &Value, decision: &str) -> ClientAnswer {
    let path = format!("/held/{}", held["hold_id"].as_str().expect("an id"));
    ask(sidecar, "POST", &path, json!({"by": "alice", "reason": "a test", "decision": decision})).await
}

/// Checks that the answer tells the client to send its request again.
#[track_caller]
fn try_again(answer: &ClientAnswer, reason: &str) {
    let headers = (answer.header("x-should-retry"), answer.header("retry-after"));
    assert_eq!(
        (answer.status, answer.reason(), headers),
        (503, reason, (Some("true"), Some("5"))),
        "{}",
        answer.text()
    );
}

/// Checks that the answer is a final denial.
#[track_caller]
fn denied(answer: &ClientAnswer) {
    let headers = (answer.header("x-should-retry"), answer.header("retry-after"));
    let expected = (400, "budget_exceeded", (Some("false"), None));
    assert_eq!((answer.status, answer.reason(), headers), expected, "{}", answer.text());
}

/// Decisions and authors of all waits that have ended.
fn releases(audit: &CheckedAuditFile) -> Vec<(String, String)> {
    let word = |value: &Value| value.as_str().expect("a word").to_owned();
    audit.of_kind("released").iter().map(|line| (word(&line["decision"]), word(&line["by"]))).collect()
}

#[tokio::test]
async fn a_held_call_passes_when_its_cap_rises() {
    let upstream = Upstream::provider("hello").start().await;
    for (caps, raise, cap, asked) in [
        (["--max-calls", "1"], json!({"max_calls": 2}), "max_calls", "2"),
        (["--max-tokens", "700"], json!({"max_tokens": 9000}), "max_tokens", ""),
    ] {
        let flags = ["--on-cap", "ask", "--cap-wait", "0"];
        let sidecar = controlled(Sidecar::to(&upstream)).args(caps).args(flags).args(LONG).start().await;
        if cap == "max_calls" {
            sidecar.post(CHAT, call()).await.expect(200);
        }
        let mut waiting = sidecar.stream(CHAT, json!({"model": "m", "messages": [], "max_tokens": 8000})).await;
        let [held] = &held(&sidecar, 1).await[..] else { panic!("one waits") };
        assert_eq!((&held["cause"], &held["model"], &held["attempts"]), (&json!(cap), &json!("m"), &json!(1)));
        let found = held["asked"].as_str().expect("a value");
        assert!(asked.is_empty() && (8000..8200).contains(&found.parse::<u64>().expect("tokens")) || found == asked);
        assert_eq!(state(&sidecar).await["held_calls"], 1);

        change(&sidecar, "/caps", raise).await.expect(200);

        waiting.read_response().await.expect(200);
        assert_eq!((state(&sidecar).await["held_calls"].clone(), self::held(&sidecar, 0).await.len()), (json!(0), 0));
        assert_eq!(sidecar.stop().await, 0);
        let audit = sidecar.audit();
        let after = if cap == "max_calls" { &audit.kinds()[3..] } else { &audit.kinds()[1..] };
        assert_eq!(after, ["held", "control", "released", "intent", "outcome", "close"]);
        let line = audit.of_kind("held")[0].clone();
        assert_eq!((&line["cap"], &line["asked"]), (&json!(cap), &json!(found)));
        assert!((190..=200).contains(&line["max_wait_s"].as_u64().expect("seconds")), "{line}");
        assert_eq!(releases(&audit), [("approve".to_owned(), "alice".to_owned())]);
    }
}

#[tokio::test]
async fn a_message_between_two_attempts_keeps_the_hold() {
    let upstream = Upstream::provider("hello").start().await;
    for path in [CHAT, "/v1/messages", "/v1/responses"] {
        let sidecar = at_cap(&upstream, LONG).await;
        let call = inject::turn(path, 2, false);
        let mut first = sidecar.stream(path, call.clone()).await;
        decide(&sidecar, &held(&sidecar, 1).await[0], "later").await.expect(200);
        try_again(&first.read_response().await, "approval_pending");

        inject::inject(&sidecar, json!([inject::message("msg-1", "hurry")])).await.expect(200);
        let mut retry = sidecar.stream(path, call).await;
        let [held] = &held(&sidecar, 1).await[..] else { panic!("it is one hold") };

        assert_eq!(held["attempts"], 2, "{path} {held}");
        assert_eq!(decide(&sidecar, held, "deny").await.status, 200);
        denied(&retry.read_response().await);
        assert_eq!(sidecar.stop().await, 0);
    }
}

#[tokio::test]
async fn an_interrupted_call_waits_no_longer() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, LONG).await;
    let mut waiting = sidecar.stream(CHAT, named("a")).await;
    held(&sidecar, 1).await;

    change(&sidecar, "/interrupt", json!({"reason": "wrong file"})).await.expect(200);

    let answer = waiting.read_response().await.expect_refusal(400, "interrupted");
    assert_eq!(answer.header("x-should-retry"), Some("false"));
    held(&sidecar, 0).await;
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(releases(&sidecar.audit()), [("interrupted".to_owned(), "sidecar".to_owned())]);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_raise_to_what_is_asked_is_enough() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let flags = ["--max-tokens", "3000", "--on-cap", "ask", "--cap-wait", "0"];
    let sidecar = controlled(Sidecar::to(&upstream)).args(flags).args(LONG).start().await;
    let mut calls = JoinSet::new();
    for text in ["a", "b"] {
        let mut raw = sidecar.connect().await;
        let mut body = named(text);
        body["max_tokens"] = json!(4000);
        // The sidecar may lower a bound down to 1,024 tokens; these ask for eight answers.
        body["n"] = json!(8);
        calls.spawn(async move { raw.post_json(CHAT, body).await });
        held(&sidecar, calls.len() as u64).await;
    }
    let asked: Vec<u64> = held(&sidecar, 2)
        .await
        .iter()
        .map(|held| held["asked"].as_str().expect("a value").parse().expect("tokens"))
        .collect();
    assert!(asked[0] < asked[1], "the second one needs room for both: {asked:?}");

    // An open call keeps its reservation: its end would leave room for the other one.
    change(&sidecar, "/caps", json!({"max_tokens": asked[0]})).await.expect(200);
    upstream.held(1).await;
    held(&sidecar, 1).await;
    change(&sidecar, "/caps", json!({"max_tokens": asked[1]})).await.expect(200);
    upstream.held(2).await;
    upstream.release();
    while let Some(answer) = calls.join_next().await {
        answer.expect("no panic").expect(200);
    }
}

#[tokio::test]
async fn a_denied_call_and_its_repeats_get_400() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, LONG).await;
    let mut waiting = sidecar.stream(CHAT, named("a")).await;
    let list = held(&sidecar, 1).await;

    decide(&sidecar, &list[0], "deny").await.expect(200);

    denied(&waiting.read_response().await);
    let before = sidecar.audit_with("refused", 1).await.kinds().len();
    for _ in 0..3 {
        denied(&sidecar.post(CHAT, named("a")).await);
    }
    // A request with another user name is the same request.
    let mut repeat = named("a");
    repeat["user"] = json!("u2");
    repeat["metadata"] = json!({"attempt": "2"});
    denied(&sidecar.post(CHAT, repeat).await);
    assert_eq!(sidecar.audit().kinds().len(), before, "repeats count nowhere");
    decide(&sidecar, &list[0], "deny").await.expect(200);
    let later = decide(&sidecar, &list[0], "later").await;
    assert_eq!(refused(&later), (404, "unknown_hold".to_owned()));

    // Another call waits anew, and one that fits passes.
    let mut other = sidecar.stream(CHAT, named("b")).await;
    held(&sidecar, 1).await;
    change(&sidecar, "/caps", json!({"max_calls": 2})).await.expect(200);
    other.read_response().await.expect(200);
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    let [line] = audit.refusals()[..] else { panic!("{:?}", audit.refusals()) };
    assert_eq!((&line["reason"], &line["status"]), (&json!("budget_exceeded"), &json!(400)));
    let control = &audit.of_kind("control")[0];
    assert_eq!(
        (&control["what"], &control["to"]),
        (&json!("hold"), &json!({"decision": "deny", "hold_id": list[0]["hold_id"]}))
    );
    let deny = ("deny".to_owned(), "alice".to_owned());
    assert_eq!(releases(&audit), [deny, ("approve".to_owned(), "alice".to_owned())]);
}

#[tokio::test]
async fn anthropic_clients_get_their_own_shape() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, LONG).await;
    let mut waiting = sidecar.stream("/v1/messages", named("a")).await;
    let list = held(&sidecar, 1).await;
    decide(&sidecar, &list[0], "later").await.expect(200);
    let answer = waiting.read_response().await;
    try_again(&answer, "approval_pending");
    assert_eq!(answer.json()["error"]["type"], "overloaded_error");
    let mut waiting = sidecar.stream("/v1/messages", named("a")).await;
    held(&sidecar, 1).await;
    decide(&sidecar, &list[0], "deny").await.expect(200);
    let answer = waiting.read_response().await;
    denied(&answer);
    assert_eq!(answer.json()["error"]["type"], "invalid_request_error");
}

#[tokio::test]
async fn each_attempt_gets_one_503_and_the_last_400() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, SHORT).await;
    let mut ids = Vec::new();
    for attempt in 1..=3 {
        let mut waiting = sidecar.stream(CHAT, named("a")).await;
        let list = held(&sidecar, 1).await;
        assert_eq!((list.len(), &list[0]["attempts"]), (1, &json!(attempt)));
        ids.push(list[0]["hold_id"].clone());
        let answer = waiting.read_response().await;
        if attempt < 3 {
            try_again(&answer, "approval_pending");
            let list = held(&sidecar, 0).await;
            assert_eq!((list.len(), &list[0]["waiting"]), (1, &json!(0)), "its client waits to retry");
        } else {
            denied(&answer);
            assert!(answer.text().contains("did not decide"), "{}", answer.text());
        }
    }
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    denied(&sidecar.post(CHAT, named("a")).await);
    assert_eq!((held(&sidecar, 0).await.len(), upstream.requests().len()), (0, 1));
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    let ends: Vec<_> = ["timeout", "timeout", "deny"].map(|end| (end.to_owned(), "sidecar".to_owned())).into();
    assert_eq!(releases(&audit), ends);
    assert_eq!(audit.refused_reasons(), ["approval_pending", "approval_pending", "budget_exceeded"]);
}

#[tokio::test]
async fn a_matched_retry_passes_after_a_raise() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, SHORT).await;
    try_again(&sidecar.post(CHAT, named("a")).await, "approval_pending");
    let asked = held(&sidecar, 0).await[0]["asked"].clone();
    assert_eq!(asked, "2", "the caller sees what to raise while nobody waits");
    change(&sidecar, "/caps", json!({"max_calls": 2})).await.expect(200);
    assert_eq!(held(&sidecar, 0).await.len(), 0, "nothing is left to decide");
    sidecar.post(CHAT, named("a")).await.expect(200);
    assert_eq!((sidecar.audit().of_kind("held").len(), held(&sidecar, 0).await.len()), (1, 0));
}

#[tokio::test]
async fn other_calls_pass_while_a_retry_is_awaited() {
    let upstream = Upstream::provider("hello").start().await;
    let flags = ["--max-tokens", "3000", "--on-cap", "ask", "--cap-wait", "0", "--max-concurrency", "2"];
    let sidecar = controlled(Sidecar::to(&upstream)).args(flags).args(SHORT).start().await;
    let mut large = named("large");
    large["n"] = json!(8);
    large["max_tokens"] = json!(4000);
    try_again(&sidecar.post(CHAT, large.clone()).await, "approval_pending");
    for _ in 0..3 {
        sidecar.post(CHAT, named("small")).await.expect(200);
    }
    assert_eq!(held(&sidecar, 0).await.len(), 1);
    change(&sidecar, "/caps", json!({"max_tokens": 99_000})).await.expect(200);
    sidecar.post(CHAT, large).await.expect(200);
    assert_eq!(held(&sidecar, 0).await.len(), 0);
}

#[tokio::test]
async fn a_client_is_told_later_at_once() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, LONG).await;
    for attempt in 1..=3 {
        let mut waiting = sidecar.stream(CHAT, named("a")).await;
        let list = held(&sidecar, 1).await;
        let decided = decide(&sidecar, &list[0], "later").await;
        if attempt < 3 {
            decided.expect(200);
            try_again(&waiting.read_response().await, "approval_pending");
        } else {
            assert_eq!(refused(&decided), (409, "last_attempt".to_owned()));
            decide(&sidecar, &list[0], "deny").await.expect(200);
            denied(&waiting.read_response().await);
        }
    }
}

#[tokio::test]
async fn a_ninth_call_is_told_at_once() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, LONG).await;
    let mut calls = JoinSet::new();
    for n in 0..8 {
        let mut raw = sidecar.connect().await;
        calls.spawn(async move { raw.post_json(CHAT, named(&n.to_string())).await });
    }
    let list = held(&sidecar, 8).await;
    assert_eq!(list.iter().map(|held| held["asked"].as_str().expect("a cap")).max(), Some("9"));
    try_again(&sidecar.post(CHAT, named("ninth")).await, "approval_pending");
    assert_eq!(sidecar.get("/health").await.expect(200).json()["status"], "ok");

    change(&sidecar, "/caps", json!({"max_calls": 4})).await.expect(200);
    for _ in 0..3 {
        calls.join_next().await.expect("one").expect("no panic").expect(200);
    }
    held(&sidecar, 5).await;
    change(&sidecar, "/caps", json!({"max_calls": 9})).await.expect(200);
    while let Some(answer) = calls.join_next().await {
        answer.expect("no panic").expect(200);
    }
    assert_eq!(upstream.requests().len(), 9);
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!((audit.of_kind("held").len(), audit.of_kind("released").len()), (8, 8));
}

#[tokio::test]
async fn what_is_left_belongs_to_held_calls() {
    let upstream = Upstream::provider("hello").start().await;
    let flags = ["--max-tokens", "3000", "--on-cap", "ask", "--cap-wait", "0"];
    let sidecar = controlled(Sidecar::to(&upstream)).args(flags).args(LONG).start().await;
    let mut large = named("large");
    large["n"] = json!(8);
    large["max_tokens"] = json!(4000);
    let mut large = sidecar.stream(CHAT, large).await;
    let list = held(&sidecar, 1).await;
    let mut small = sidecar.stream(CHAT, named("small")).await;
    held(&sidecar, 2).await;
    // The small call would fit, also after a raise, but the room belongs to the call that waits before it.
    change(&sidecar, "/caps", json!({"max_tokens": 3001})).await.expect(200);
    assert_eq!(held(&sidecar, 2).await.len(), 2);
    decide(&sidecar, &list[0], "deny").await.expect(200);
    denied(&large.read_response().await);
    small.read_response().await.expect(200);
    let audit = sidecar.audit();
    let mut ends = releases(&audit);
    ends.sort();
    let by_whom = [("approve", "sidecar"), ("deny", "alice")].map(|(end, by)| (end.to_owned(), by.to_owned()));
    assert_eq!(ends, by_whom);
    let asked: Vec<u64> = audit
        .of_kind("held")
        .iter()
        .map(|line| line["asked"].as_str().expect("a cap").parse().expect("tokens"))
        .collect();
    assert!(asked[0] < asked[1], "the second one asks for both: {asked:?}");
}

/// Bug: after the last attempt of one, nobody could decide on the other one.
#[tokio::test]
async fn calls_with_the_same_body_end_together() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, SHORT).await;
    for _ in 0..2 {
        let mut first = sidecar.stream(CHAT, named("a")).await;
        decide(&sidecar, &held(&sidecar, 1).await[0], "later").await.expect(200);
        try_again(&first.read_response().await, "approval_pending");
    }
    let mut last = sidecar.stream(CHAT, named("a")).await;
    held(&sidecar, 1).await;
    let mut other = sidecar.stream(CHAT, named("a")).await;
    held(&sidecar, 2).await;

    denied(&last.read_response().await);
    denied(&other.read_response().await);
    assert_eq!(held(&sidecar, 0).await.len(), 0);
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_hold() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = at_cap(&upstream, LONG).await;
    let waiting = sidecar.stream(CHAT, named("a")).await;
    held(&sidecar, 1).await;
    drop(waiting);
    let audit = sidecar.audit_with("released", 1).await;
    assert_eq!(releases(&audit), [("left".to_owned(), "client".to_owned())]);
    assert_eq!(held(&sidecar, 0).await.len(), 0);
    // The call that left does not use up the raise.
    change(&sidecar, "/caps", json!({"max_calls": 2})).await.expect(200);
    sidecar.post(CHAT, named("b")).await.expect(200);
    assert_eq!(upstream.requests().len(), 2);
}

#[tokio::test]
async fn a_stop_answers_held_calls_as_draining() {
    let upstream = Upstream::provider("hello").start().await;
    for by_deadline in [false, true] {
        let flags = ["--max-calls", "1", "--on-cap", "ask", "--drain", "20s"];
        let mut launch = controlled(Sidecar::to(&upstream)).args(flags).args(LONG);
        if by_deadline {
            launch = launch.args(["--deadline", "20", "--audit-sync", "off"]);
        }
        let sidecar = launch.start().await;
        sidecar.post(CHAT, call()).await.expect(200);
        let mut waiting = sidecar.stream(CHAT, named("a")).await;
        held(&sidecar, 1).await;
        if !by_deadline {
            sidecar.sigterm();
        }
        waiting.read_response().await.expect_refusal(503, "draining");
        assert_eq!(sidecar.wait().await.code, Some(0));
        let audit = sidecar.audit();
        assert_eq!(releases(&audit), [("draining".to_owned(), "sidecar".to_owned())]);
        assert_eq!(audit.close()["unknown"], 0);
    }
}

#[tokio::test]
async fn a_cut_leaves_no_hold_open() {
    let upstream = Upstream::provider("hello").start().await;
    let flags = ["--max-calls", "1", "--on-cap", "ask", "--drain", "0"];
    let sidecar = controlled(Sidecar::to(&upstream)).args(flags).args(LONG).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let _waiting = sidecar.stream(CHAT, named("a")).await;
    held(&sidecar, 1).await;
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!((releases(&audit).len(), audit.is_closed()), (1, true));
}

/// Returns the exit code and the output of the Python verifier for a file.
fn verified(path: &Path) -> (Option<i32>, String) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/contract/verify_audit.py");
    let output = Command::new("python3").arg(page).arg(path).output().expect("python3 is there");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[tokio::test]
async fn a_kill_leaves_a_hold_that_verifiers_name() {
    let dir = TempDir::new();
    let path = dir.join("a.jsonl");
    let upstream = Upstream::provider("hello").start().await;
    let flags = ["--max-calls", "1", "--on-cap", "ask"];
    let launch = || controlled(Sidecar::to(&upstream)).audit_path(&path).args(flags).args(LONG);
    let first = launch().start().await;
    first.post(CHAT, call()).await.expect(200);
    let _waiting = first.stream(CHAT, named("a")).await;
    let id = held(&first, 1).await[0]["hold_id"].as_str().expect("an id").to_owned();
    first.audit_with("held", 1).await;
    first.kill().await;
    let (code, text) = verified(&path);
    assert!(code == Some(3) && text.contains(&format!("open holds: {id}")), "{text}");

    let second = launch().start().await;
    let _waiting = second.stream(CHAT, named("a")).await;
    assert_ne!(held(&second, 1).await[0]["hold_id"], json!(id));
    change(&second, "/caps", json!({"max_calls": 2})).await.expect(200);
    second.audit_with("outcome", 2).await;
    assert_eq!(second.stop().await, 0);
    let (code, text) = verified(&path);
    assert!(code == Some(3) && text.contains(&id) && text.contains("2 calls"), "{text}");
}

#[tokio::test]
async fn a_full_disk_holds_no_call() {
    let dir = TempDir::new();
    let mount = records::Tmpfs::mount(&dir.join("audit"), "16k");
    let upstream = Upstream::provider("hello").start().await;
    let flags = ["--max-calls", "1", "--on-cap", "ask", "--hold", "1ms"];
    let sidecar = controlled(Sidecar::to(&upstream)).audit_path(mount.0.join("a.jsonl")).args(flags).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let mut statuses = Vec::new();
    for n in 0..200 {
        let answer = sidecar.post(CHAT, named(&n.to_string())).await;
        statuses.push(answer.reason().to_owned());
        if answer.reason() == "audit_unavailable" {
            break;
        }
    }
    assert_eq!(statuses.last().map(String::as_str), Some("audit_unavailable"));
    assert_eq!(sidecar.stop().await, 74);
    let audit = sidecar.audit();
    assert_eq!(audit.of_kind("held").len(), audit.of_kind("released").len(), "room for each release was reserved");
}

#[tokio::test]
async fn a_run_that_refuses_holds_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "1"]).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let answer = sidecar.post(CHAT, named("a")).await.expect_refusal(402, "budget_exceeded");
    assert_eq!(answer.header("x-should-retry"), None);
    assert_eq!(held(&sidecar, 0).await.len(), 0);
    assert_eq!(sidecar.audit().of_kind("held").len(), 0);
}

#[tokio::test]
async fn flags_of_holds_are_checked() {
    let upstream = Upstream::provider("hello").start().await;
    for (flags, code, said) in
        [(["--on-cap", "ask"], 64, "--control"), (["--hold", "291s"], 64, "300s"), (["--hold", "0"], 64, "more than 0")]
    {
        let failed = Sidecar::to(&upstream).args(flags).fail().await;
        assert_eq!((failed.code, failed.stderr.contains(said)), (code, true), "{flags:?}: {}", failed.stderr);
    }
    // A launcher checks flags before it knows the path of the socket.
    let checked = Sidecar::to(&upstream).args(["--on-cap", "ask"]).subcommand("check").finish().await;
    assert!(checked.code == 0 && checked.stdout.contains("--control"), "{}", checked.stdout);
}
