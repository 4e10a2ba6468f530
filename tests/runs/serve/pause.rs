//! Pauses on a real engine: a frozen container, stopped clocks, and daemons that are killed meanwhile.

use sluice_testkit::controller::Daemon;
use sluice_testkit::engine;
use sluice_testkit::{PATIENCE, poll};

use super::commands::{GO, detached, faults, ran};
use super::*;

/// Waits until the engine reports that the container of the run is frozen, or that it is not.
async fn is_frozen(sluice: &Sluice, frozen: bool) {
    let [container] = &sluice.containers().await[..] else { panic!("one run has one container") };
    let mut seen = Value::Null;
    let reached = poll(PATIENCE, async || {
        seen = engine::inspect(container).await["State"]["Paused"].clone();
        seen == frozen
    });
    assert!(reached.await, "paused is {seen}, and not {frozen}");
}

/// Waits until the API shows this state of the container.
async fn is_observed(daemon: &Daemon<'_>, id: &str, state: &str) -> Value {
    let mut run = Value::Null;
    let reached = poll(PATIENCE, async || {
        run = daemon.run(id).await;
        run["observed_state"] == state
    });
    assert!(reached.await, "no {state} in time: {run}");
    run
}

/// Waits until a run has been paused for this many seconds, by the clock of the daemon.
async fn has_been_paused(run: &Value, seconds: u64) {
    let since = humantime::parse_rfc3339(run["paused_at"].as_str().expect("it is paused")).expect("a time");
    assert!(poll(PATIENCE, async || since.elapsed().is_ok_and(|time| time.as_secs() >= seconds)).await);
}

async fn post(daemon: &Daemon<'_>, id: &str, step: &str, status: u16) -> Value {
    daemon.request("POST", &format!("/api/v1/sandboxes/{id}/{step}"), &Value::Null).await.expect(status).json()
}

#[tokio::test]
async fn a_paused_run_is_frozen_until_it_is_resumed() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell(&format!("{CALL}; {GO}; {CALL}; echo done"))).await;
    daemon.reaches(&id, "RUNNING").await;

    post(&daemon, &id, "pause", 200).await;
    let paused = is_observed(&daemon, &id, "paused").await;
    is_frozen(&sluice, true).await;
    post(&daemon, &id, "pause", 409).await;
    go(&sluice, &id);
    assert_eq!((&paused["desired_state"], &paused["waiting_for"]), (&json!("paused"), &json!("resume")), "{paused}");
    assert!(paused["paused_at"].is_string(), "{paused}");
    assert_eq!(daemon.run(&id).await["state"], "RUNNING");

    post(&daemon, &id, "resume", 200).await;
    let ended = daemon.reaches(&id, "COMPLETED").await;
    let events = daemon.events(&id).await;

    assert_eq!((&ended["outcome"], &ended["paused_at"]), (&json!("success"), &Value::Null), "{ended}");
    let kinds = types(&events);
    let at = |name: &str| kinds.iter().position(|kind| kind == name);
    assert!(at("run.paused").is_some() && at("run.paused") < at("run.resumed"), "{kinds:?}");
    assert!(ended["deadline_at"].as_str() > paused["deadline_at"].as_str(), "{ended} {paused}");
    let controlled = sluice.command(["audit", "verify", "control"]).finish().await.expect(0);
    assert!(controlled.stdout.contains("control"), "{}", controlled.stdout);
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_timeout_stands_still_in_a_pause() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &short_idle(&sluice)]).await;
    let mut request = shell(&format!("{GO}; echo done"));
    request["limits"] = json!({"timeout": "25s"});
    let id = daemon.create(request).await;
    daemon.reaches(&id, "RUNNING").await;
    post(&daemon, &id, "pause", 200).await;
    let paused = is_observed(&daemon, &id, "paused").await;

    // The pause is longer than the run's timeout and its idle time.
    has_been_paused(&paused, 27).await;
    assert_eq!(daemon.run(&id).await["state"], "RUNNING", "no clock has ended it");
    post(&daemon, &id, "resume", 200).await;
    go(&sluice, &id);

    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}");
}

/// Writes settings with an idle time of twenty seconds, and returns their path.
fn short_idle(sluice: &Sluice) -> String {
    sluice.file("idle.toml", "run_idle_timeout = \"20s\"\n")
}

#[tokio::test]
async fn a_daemon_killed_in_a_pause_leaves_it_paused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell(&format!("{GO}; echo done"))).await;
    daemon.reaches(&id, "RUNNING").await;
    post(&daemon, &id, "pause", 200).await;
    is_frozen(&sluice, true).await;
    daemon.kill().await;

    let daemon = sluice.serve().await;
    is_observed(&daemon, &id, "paused").await;
    is_frozen(&sluice, true).await;
    daemon.kill().await;
    let daemon = sluice.serve().await;
    post(&daemon, &id, "resume", 200).await;
    is_frozen(&sluice, false).await;
    go(&sluice, &id);

    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
    assert_eq!(sluice.containers().await, [""; 0]);
}

#[tokio::test]
async fn a_request_outlives_a_killed_daemon() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell(&format!("{GO}; echo done"))).await;
    daemon.reaches(&id, "RUNNING").await;

    post(&daemon, &id, "pause", 200).await;
    daemon.kill().await;
    let daemon = sluice.serve().await;
    is_frozen(&sluice, true).await;
    post(&daemon, &id, "resume", 200).await;
    daemon.kill().await;
    let daemon = sluice.serve().await;
    is_frozen(&sluice, false).await;
    go(&sluice, &id);

    assert_eq!(daemon.reaches(&id, "COMPLETED").await["outcome"], "success");
}

#[tokio::test]
async fn a_paused_run_is_cancelled() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", "stop_grace = \"30s\"\n");
    let daemon = sluice.serve().await;
    let script = "trap 'echo ended; exit 0' TERM; echo begun; while :; do sleep 0.05; done";
    let id = daemon.create(shell(script)).await;
    daemon.reaches(&id, "RUNNING").await;
    // Before that, its entrypoint runs, which has no trap.
    daemon.logged(&id, 1).await;
    post(&daemon, &id, "pause", 200).await;
    is_frozen(&sluice, true).await;

    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);

    let run = daemon.reaches(&id, "COMPLETED").await;
    assert_eq!(run["outcome"], "cancelled", "{run}");
    let logged = daemon.get(&format!("/api/v1/sandboxes/{id}/logs")).await.expect(200).text();
    assert!(logged.contains("ended"), "it was thawed, and asked to end: {logged}");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_frozen_run_of_a_dead_daemon_is_swept() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    post(&daemon, &id, "pause", 200).await;
    is_frozen(&sluice, true).await;
    daemon.kill().await;

    sluice.command(["sweep", "--daemon-runs"]).finish().await.expect(0);

    assert_eq!(sluice.containers().await, [""; 0]);
}

/// Shell function that reports an event from inside a run, over the relay.
const REPORT: &str = r#"report() { curl -sf --json '{"event_type":"'$1'","event_data":{"id":"t1"}}' http://localhost:8080/api/v1/sandboxes/$RUN_ID/events > /dev/null; }"#;

#[tokio::test]
async fn a_tool_that_works_keeps_the_container_running() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let used = "while [ ! -e used ]; do sleep 0.05; done";
    let script = format!("{REPORT}; report agent.tool_use; {used}; report agent.tool_result; {GO}; echo done");
    let id = daemon.create(shell(&script)).await;
    daemon.reaches(&id, "RUNNING").await;
    let is_used = poll(PATIENCE, async || types(&daemon.events(&id).await).iter().any(|kind| kind == "agent.tool_use"));
    assert!(is_used.await, "the use of the tool is reported");

    post(&daemon, &id, "pause", 200).await;
    let paused = is_observed(&daemon, &id, "paused").await;
    has_been_paused(&paused, 4).await;
    is_frozen(&sluice, false).await;
    touch(&sluice, &id, "used");

    is_frozen(&sluice, true).await;
    post(&daemon, &id, "resume", 200).await;
    go(&sluice, &id);
    assert_eq!(daemon.reaches(&id, "COMPLETED").await["outcome"], "success");
}

#[tokio::test]
async fn commands_pause_and_resume() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = detached(&daemon, &["--name", "nightly", "--", "sh", "-c", &format!("{GO}; echo done")]).await;
    daemon.reaches(&id, "RUNNING").await;

    let paused = ran(&daemon, &["pause", "nightly", "--json"], 0).await.value();
    is_frozen(&sluice, true).await;
    let again = ran(&daemon, &["pause", "nightly"], 1).await;
    assert!(again.stderr.contains("is paused") && again.stderr.contains("sluice resume"), "{}", again.stderr);
    is_observed(&daemon, &id, "paused").await;
    let refused = ran(&daemon, &["exec", "nightly", "--", "true"], 125).await;
    assert!(refused.stderr.contains("sluice resume"), "{}", refused.stderr);
    let live = ran(&daemon, &["retry", "nightly"], 1).await;
    assert!(live.stderr.contains("cannot take the step retry"), "{}", live.stderr);
    for command in ["ps", "top"] {
        let shown = ran(&daemon, &[command], 0).await.stdout;
        assert!(shown.contains("RUNNING (paused)"), "{command}: {shown}");
    }
    let shown = ran(&daemon, &["ps", "--json"], 0).await.value();
    let top = ran(&daemon, &["top", "--json"], 0).await.value();
    assert!(shown["runs"][0]["paused_at"].is_string(), "{shown}");
    let asked = ran(&daemon, &["approvals", "nightly", "--json"], 0).await.value();
    let questions = ran(&daemon, &["answer", "nightly", "--json"], 0).await.value();
    let audited = ran(&daemon, &["audit", "approvals", "--json"], 0).await.value();
    let resumed = ran(&daemon, &["resume", "nightly", "--json"], 0).await.value();
    go(&sluice, &id);

    assert_eq!(paused["desired_state"], "paused", "{paused}");
    let objects = [
        ("pause", paused),
        ("ps", shown),
        ("top", top),
        ("approvals", asked),
        ("answer", questions),
        ("audit-approvals", audited),
        ("resume", resumed),
    ];
    let found = faults(&objects).await;
    assert!(found.is_empty(), "{found:?}");
    ran(&daemon, &["approve", "nightly", "apr-000000000000", "--yes"], 2).await;
    ran(&daemon, &["wait", "nightly"], 0).await;
}
