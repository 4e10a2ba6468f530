//! Runs in the table that no wake-up has announced.

use super::*;

#[tokio::test]
async fn a_committed_run_needs_no_wake_up() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let blocker = daemon.create(shell("while [ ! -e go ]; do sleep 0.05; done")).await;
    let waiting = |name: &str| json!({"argv": ["true"], "model": "m", "name": name, "depends_on": [blocker]});
    let (now, later, last) = (
        daemon.create(waiting("now")).await,
        daemon.create(waiting("later")).await,
        daemon.create(waiting("last")).await,
    );
    daemon.reaches(&blocker, "RUNNING").await;

    // Another process makes the run ready: this daemon gets no wake-up.
    let ready = |id: &str| format!("DELETE FROM sandbox_dependencies WHERE run_id = '{id}'");
    sluice.sql(&ready(&now)).await;
    daemon.reaches(&now, "COMPLETED").await;
    // A daemon that is killed after its commit sends no wake-up.
    daemon.kill().await;
    sluice.sql(&ready(&later)).await;
    // The run that the last one waits for ends while no daemon runs.
    go(&sluice, &blocker);

    let daemon = sluice.serve().await;
    for id in [&later, &blocker, &last] {
        let run = daemon.ended(id).await;
        assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
    }
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}
