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

#[tokio::test]
async fn a_run_is_cancelled_without_a_key() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("no-key");
    let live = sluice.run(["--quiet", "--run-id", &run, "--", "sleep", "600"]).spawn();
    sluice.started().await;
    let cancel = |run: &str| {
        sluice.command(["cancel", "--wait", run]).env("SLUICE_KEY_FILE", "/nonexist").env("SLUICE_TIMEOUT", "soon")
    };

    let cancelled = cancel(&run).finish().await.expect(0);

    assert_eq!((cancelled.stdout, cancelled.stderr), (format!("run {run}.0: over\n"), String::new()));
    live.finish().await.expect(130);
    let run = unique_run_id("no-key-orphan");
    let orphan = sluice.run(["--quiet", "--run-id", &run, "--", "sleep", "600"]).spawn();
    sluice.container_event("start", 2).await;
    orphan.kill().await;
    let taken_down = cancel(&run).finish().await.expect(0);
    assert!(taken_down.stdout.ends_with(": taken down\n"), "{}", taken_down.stdout);
    assert!(taken_down.stderr.contains("is left to the next sweep"), "{}", taken_down.stderr);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}
