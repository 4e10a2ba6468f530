//! A teardown that takes longer than the run may take: the result of the program stays.

use sluice_testkit::engine::Hold;

use super::*;

/// Ends the time of each live run, and waits until the daemon has checked all of them: one that still works is ended by that.
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
