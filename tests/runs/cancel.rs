//! `sluice cancel`: ends a run from another terminal.

use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{Sluice, Upstream};

#[tokio::test]
async fn a_prefix_of_its_id_cancels_a_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("cancel");
    let live = sluice.run(["--json", "--run-id", &run, "--", "sleep", "600"]).spawn();
    sluice.started().await;

    let cancelled = sluice.command(["cancel", "--wait", &run[..run.len() - 1]]).finish().await.expect(0);

    assert_eq!(cancelled.stdout, format!("run {run}.0: over\n"));
    assert_eq!(live.finish().await.expect(130).json().verdict(), (false, Some("cancelled"), 130));
    let again = sluice.command(["cancel", &run]).finish().await.expect(1);
    assert!(again.stderr.contains("is over already"), "{}", again.stderr);
    let unknown = sluice.command(["cancel", "no-such-run"]).finish().await.expect(2);
    assert!(unknown.stderr.contains("there is no run"), "{}", unknown.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_second_cancel_kills_a_stubborn_program() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("stubborn");
    let shell = "trap 'echo ignored' TERM INT; echo started; while :; do sleep 0.1; done";
    let words = ["--quiet", "--run-id", &run, "--stop-grace", "10m", "--timeout", "30m", "--", "sh", "-c", shell];
    let live = sluice.run(words).spawn();
    live.prints("started").await;

    sluice.command(["cancel", &run]).finish().await.expect(0);
    live.prints("ignored").await;
    assert!(live.is_running());
    sluice.command(["cancel", &run]).finish().await.expect(0);

    live.finish().await.expect(130);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_of_a_killed_controller_is_taken_down() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("orphan");
    let live = sluice.run(["--quiet", "--run-id", &run, "--", "sleep", "600"]).spawn();
    sluice.started().await;
    live.kill().await;

    let cancelled = sluice.command(["cancel", &run]).finish().await.expect(0);

    assert_eq!(cancelled.stdout, format!("run {run}.0: taken down\n"));
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}
