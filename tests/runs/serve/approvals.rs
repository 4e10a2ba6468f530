//! Approvals on a real engine with a real sidecar: a call that waits at a cap is the one that is answered.

use sluice_testkit::controller::Daemon;
use sluice_testkit::engine;
use sluice_testkit::{PATIENCE, RawClient, poll};

use super::commands::{faults, ran};
use super::*;

/// Shell code of a call that waits for a person's decision, and retries when the sidecar says so.
pub(super) const PATIENT_CALL: &str = r#"curl -sf --retry 10 --retry-max-time 600 --json '{"model":"m","messages":[]}' $OPENAI_BASE_URL/chat/completions > /dev/null"#;

pub(super) fn asking(script: &str, limits: &Value) -> Value {
    json!({"argv": ["sh", "-c", script], "model": "m", "on_cap": "ask", "limits": limits})
}

/// Waits until a call of the run waits for an approval, and returns it.
pub(super) async fn held(daemon: &Daemon<'_>, id: &str) -> Value {
    let mut approvals = Value::Null;
    let is_held = poll(PATIENCE, async || {
        approvals = daemon.get(&format!("/api/v1/sandboxes/{id}/approvals")).await.expect(200).json();
        approvals["approvals"].as_array().is_some_and(|all| all.iter().any(|it| it["held_at"].is_string()))
    });
    assert!(is_held.await, "no call waits: {approvals}\n{}", daemon.process().stderr());
    let all = approvals["approvals"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|it| it["held_at"].is_string()).expect("it was there")
}

pub(super) async fn decide(daemon: &Daemon<'_>, id: &str, approval: &Value, decision: &str, status: u16) -> Value {
    let approval_id = approval["approval_id"].as_str().expect("an id");
    let path = format!("/api/v1/sandboxes/{id}/approvals/{approval_id}/decision");
    let body = json!({"decision": decision, "digest": approval["digest"], "reason": "a test"});
    daemon.request("POST", &path, &body).await.expect(status).json()
}

#[tokio::test]
async fn a_call_that_waits_is_answered_after_an_approval() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL} && {PATIENT_CALL} && echo both");
    let mut request = asking(&script, &json!({"max_calls": 1}));
    request["name"] = json!("nightly");
    let id = daemon.create(request).await;

    let approval = held(&daemon, &id).await;
    assert_eq!((&approval["cap"], &approval["old"]), (&json!("max_calls"), &json!("1")), "{approval}");
    assert_eq!(upstream.requests().len(), 1, "the second call waits in the sidecar");
    let id_of = approval["approval_id"].as_str().expect("an id").to_owned();
    let digest = approval["digest"].as_str().expect("a digest").to_owned();
    let stale = ["approve", &id, &id_of, "--yes", "--digest", &"0".repeat(64)];
    let refused = ran(&daemon, &stale, 1).await;
    assert!(refused.stderr.contains(&digest) && refused.stderr.contains(&"0".repeat(64)), "{}", refused.stderr);
    let low = ran(&daemon, &["approve", &id, &id_of, "--yes", "--raise-calls", "1"], 2).await;
    assert!(low.stderr.contains("above the present one, 1"), "{}", low.stderr);
    let words =
        ["approve", &id, &id_of, "--yes", "--digest", &digest[..8], "--raise-calls", "5", "--reason", "go", "--json"];
    let approved = ran(&daemon, &words, 0).await.value();

    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((&run["outcome"], upstream.requests().len()), (&json!("success"), 2), "{run}");
    assert_eq!(approved["approval"]["raised_to"], "5", "{approved}");
    let audited = ran(&daemon, &["audit", "approvals", "--run", &id, "--json"], 0).await.value();
    assert_eq!(audited["approvals"][0]["decision"], "approve", "{audited}");
    for named in ["nightly", &id[..8], &format!("{id}.0")] {
        let same = ran(&daemon, &["audit", "approvals", "--run", named, "--json"], 0).await.value();
        assert_eq!(same["approvals"], audited["approvals"], "{named}");
    }
    let unknown = ran(&daemon, &["audit", "approvals", "--run", "nope"], 2).await;
    assert!(unknown.stderr.contains("there is no run 'nope'"), "{}", unknown.stderr);
    let chain = std::fs::read_to_string(sluice.audit_path(&id)).expect("we are root");
    assert!(chain.contains(&digest) && chain.contains("\"kind\":\"held\""), "the run's own chain has the digest");
    let found = faults(&[("approve", approved), ("audit-approvals", audited)]).await;
    assert!(found.is_empty(), "{found:?}");
    sluice.command(["audit", "verify", &id]).finish().await.expect(0);
}

#[tokio::test]
async fn a_denied_call_fails_and_the_run_goes_on() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL} && ! {PATIENT_CALL} && ! {PATIENT_CALL} && echo denied");
    let id = daemon.create(asking(&script, &json!({"max_calls": 1}))).await;

    let approval = held(&daemon, &id).await;
    assert_eq!(decide(&daemon, &id, &approval, "deny", 200).await["decision"], "deny");
    decide(&daemon, &id, &approval, "approve", 409).await;

    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((&run["outcome"], upstream.requests().len()), (&json!("success"), 1), "{run}");
    let approvals = daemon.get(&format!("/api/v1/sandboxes/{id}/approvals")).await.expect(200).json();
    assert_eq!(approvals["approvals"].as_array().map(Vec::len), Some(1), "it is not asked again: {approvals}");
}

#[tokio::test]
async fn an_approval_outlives_a_killed_daemon() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL} && {PATIENT_CALL} && echo both");
    let id = daemon.create(asking(&script, &json!({"max_calls": 1}))).await;
    let approval = held(&daemon, &id).await;
    daemon.kill().await;

    let daemon = sluice.serve().await;
    let again = held(&daemon, &id).await;
    assert_eq!(again["approval_id"], approval["approval_id"], "a restart asks nothing twice");
    decide(&daemon, &id, &approval, "approve", 200).await;

    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((&run["outcome"], upstream.requests().len()), (&json!("success"), 2), "{run}");
}

/// Sends a request to the control socket of a run's sidecar, as its daemon does.
async fn control(sluice: &Sluice, id: &str, method: &str, path: &str, body: &Value) -> Value {
    let socket = sluice.state().join("runs").join(format!("{id}.0")).join("conf/control.sock");
    let mut client = RawClient::connect(socket).await.allowing_any();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    client.request(method, path, &[], body).await.expect(200).json()
}

#[tokio::test]
async fn a_client_that_comes_again_is_frozen_until_then() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL} && {PATIENT_CALL} && echo both");
    let id = daemon.create(asking(&script, &json!({"max_calls": 1}))).await;
    let approval = held(&daemon, &id).await;
    let [container] = &sluice.containers().await[..] else { panic!("one run has one container") };
    let is_frozen = async || engine::inspect(container).await["State"]["Paused"] == true;
    assert!(!is_frozen().await, "never while a call waits");

    // The sidecar does this by itself after 240 s.
    let later = json!({"decision": "later", "by": "a test", "reason": "a person thinks"});
    let frozen = async || {
        // The client comes again after some seconds, which can be before the daemon looks.
        let waiting = control(&sluice, &id, "GET", "/held", &Value::Null).await;
        if let Some(call) = waiting.as_array().into_iter().flatten().find(|call| call["waiting"].as_u64() > Some(0)) {
            let hold = call["hold_id"].as_str().expect("an id");
            control(&sluice, &id, "POST", &format!("/held/{hold}"), &later).await;
        }
        is_frozen().await
    };
    assert!(poll(PATIENCE, frozen).await, "{}", daemon.process().stderr());
    assert_eq!(daemon.run(&id).await["observed_state"], "held");
    decide(&daemon, &id, &approval, "approve", 200).await;

    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((&run["outcome"], upstream.requests().len()), (&json!("success"), 2), "{run}");
}

#[tokio::test]
async fn a_run_is_not_frozen_while_a_call_waits() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL} && {PATIENT_CALL} && echo both");
    let mut request = asking(&script, &json!({"max_calls": 1}));
    request["ttl_minutes"] = json!(1);
    let id = daemon.create(request).await;
    let approval = held(&daemon, &id).await;
    let [container] = &sluice.containers().await[..] else { panic!("one run has one container") };
    assert_eq!(engine::inspect(container).await["State"]["Paused"], false, "never while a call waits");
    assert_eq!(daemon.run(&id).await["waiting_for"], "approval");

    let run = decide(&daemon, &id, &approval, "cancel", 200).await;
    assert_eq!(run["decision"], "cancel", "{run}");
    assert_eq!(daemon.reaches(&id, "COMPLETED").await["outcome"], "cancelled");
}

/// Puts a database without rows in place of the state directory's own, as after the loss of a disk.
async fn lose_database(sluice: &Sluice, upstream: &Upstream) {
    let other = Sluice::to(upstream);
    other.command(["sweep"]).finish().await.expect(0);
    let new = other.dir().join("new.db").display().to_string();
    other.command(["ledger", "backup", &new]).finish().await.expect(0);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(sluice.state().join(format!("sluice.db{end}")));
    }
    std::fs::copy(new, sluice.state().join("sluice.db")).expect("it is ours");
}

/// The number of the line of the only decision in the control log.
fn decision_seq(sluice: &Sluice) -> u64 {
    let log = std::fs::read_to_string(sluice.state().join("audit/control.jsonl")).expect("it has lines");
    let mut lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is an object"));
    let line = lines.find(|line| line["operation"] == "approval.decide").expect("it is recorded");
    line["seq"].as_u64().expect("a number")
}

#[tokio::test]
async fn decisions_that_only_the_log_has_are_reported() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL} && {PATIENT_CALL} && echo both");
    let id = daemon.create(asking(&script, &json!({"max_calls": 1}))).await;
    let approval = held(&daemon, &id).await;
    decide(&daemon, &id, &approval, "approve", 200).await;
    daemon.reaches(&id, "COMPLETED").await;
    daemon.stop().await;
    let audited = async |flags: &[&str], code| {
        sluice.command(["audit", "approvals", "--json"]).args(flags).finish().await.expect(code).value()
    };
    // Remove the audit file, as happens after its retention time.
    std::fs::remove_file(sluice.audit_path(&id)).expect("it is ours");
    for flags in [&[][..], &["--run", &id], &["--since", "2100-01-01"], &["--account", "other"]] {
        assert_eq!(audited(flags, 0).await["ok"], true, "{flags:?}");
    }

    lose_database(&sluice, &upstream).await;

    let lost = format!("that the database does not have: seq {}", decision_seq(&sluice));
    for (flags, words) in [
        (&[][..], "decisions that"),
        (&["--since", "1h"], "decisions that"),
        // The database does not say who pays for the run.
        (&["--account", "other"], "decisions that"),
        (&["--run", &id], "decisions about this run that"),
    ] {
        let told = audited(flags, 1).await["error_message"].as_str().unwrap_or_default().to_owned();
        assert!(told.contains(words) && told.ends_with(&lost), "{flags:?}: {told}");
    }
    assert_eq!(audited(&["--since", "2100-01-01"], 0).await["approvals"], json!([]));
}
