//! A teardown that takes longer than the run may take, or that fails for a while: the result of the program stays, and
//! nothing is left.

use sluice_testkit::engine::Hold;

use super::relay::RELAY;
use super::*;

/// Ends the time of each live run, and waits until the daemon has checked all runs: the check ends the run that still
/// works.
async fn time_is_over(sluice: &Sluice, daemon: &Daemon<'_>, working: &str) {
    sluice.sql("UPDATE sandboxes SET deadline_us = 1 WHERE ended_us IS NULL").await;
    assert_eq!(daemon.reaches(working, "FAILED").await["failure_code"], "timeout");
}

#[tokio::test]
async fn a_slow_teardown_changes_no_result() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let hold = Hold::request("DELETE /");
    let daemon = sluice.serve_with(["--docker-host", &hold.host()]).await;
    let id = daemon.create(shell("true")).await;
    hold.held().await;
    let working = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&working, "RUNNING").await;

    time_is_over(&sluice, &daemon, &working).await;
    hold.release();

    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}");
}

#[tokio::test]
async fn an_adopted_teardown_changes_no_result() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let hold = Hold::request("DELETE /");
    let daemon = sluice.serve_with(["--docker-host", &hold.host()]).await;
    let id = daemon.create(shell("true")).await;
    hold.held().await;
    daemon.kill().await;
    let again = Hold::request("DELETE /");
    sluice.sql("UPDATE sandboxes SET deadline_us = 1 WHERE ended_us IS NULL").await;

    let daemon = sluice.serve_with(["--docker-host", &again.host()]).await;
    again.held().await;
    let working = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&working, "RUNNING").await;
    time_is_over(&sluice, &daemon, &working).await;
    again.release();

    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}");
    hold.release();
}

/// Bug: an error of the engine in a teardown concluded the run as failed, and its hold and its container stayed.
#[tokio::test]
async fn a_teardown_waits_for_the_engine() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let engine = Hold::refused("DELETE /");
    let daemon = sluice.serve_with(["--docker-host", &engine.host()]).await;
    let id = daemon.create(shell("true")).await;
    engine.has_refused(8).await;
    engine.release();

    let run = daemon.ended(&id).await;
    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
    assert_eq!(sluice.containers().await, [""; 0]);
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

/// Bug: an error of the engine in an adoption concluded the run as failed, and its program went on without a daemon.
#[tokio::test]
async fn an_adoption_waits_for_the_engine() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let waits = "until [ -e go ]; do sleep 0.05; done; report agent.progress '{}'";
    let id = daemon.create(shell(&format!("{RELAY} {waits}"))).await;
    daemon.reaches(&id, "RUNNING").await;
    daemon.kill().await;
    let engine = Hold::refused(&format!("{id}.0/json"));
    let daemon = sluice.serve_with(["--docker-host", &engine.host()]).await;
    engine.has_refused(8).await;
    std::fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");
    engine.release();

    let run = daemon.ended(&id).await;
    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
    let said = daemon.get(&format!("/api/v1/sandboxes/{id}/logs")).await.expect(200).text();
    assert!(said.contains("agent.progress 200"), "the daemon looks after the run meanwhile: {said}");
    let events = types(&daemon.events(&id).await);
    assert_eq!(events.iter().filter(|kind| *kind == "workspace.watch").count(), 1, "{events:?}");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

/// Bug: a daemon that was killed between the last two records of a run ran it again.
#[tokio::test]
async fn a_result_that_was_not_recorded_is_found() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("echo once")).await;
    assert_eq!(daemon.ended(&id).await["outcome"], "success");
    daemon.stop().await;
    // This is the state after such a kill: the row of the attempt is closed, and has no result.
    sluice.sql("UPDATE runs SET error_code = NULL, exit_code = NULL").await;
    sluice.sql("UPDATE sandboxes SET state = 'RUNNING', outcome = NULL, ended_us = NULL").await;

    let daemon = sluice.serve().await;
    let run = daemon.ended(&id).await;
    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
}
