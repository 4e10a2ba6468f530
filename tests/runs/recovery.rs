//! A controller that is killed, and the one that comes after it.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::engine::{self, Hold};
use sluice_testkit::{Sluice, Upstream};

mod others;
mod records;
mod sidecar;

/// Runs until the test ends it.
const UNTIL_GO: [&str; 4] = ["--", "sh", "-c", "until [ -e /workspace/go ]; do sleep 0.01; done"];

/// Ends that program.
fn go(sluice: &Sluice) {
    let run = sluice.runs().pop().expect("the run has a directory");
    fs::write(run.join("work/go"), "").expect("the workspace is ours too");
}

/// Starts a run, kills its controller at this moment, and returns the run id.
async fn killed_at(sluice: &Sluice, hold: &Hold, program: &[&str]) -> String {
    let run_id = unique_run_id("killed");
    let words = ["--run-id", &run_id, "--timeout", "1s"];
    let live = sluice.run(words).args(program).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    hold.held().await;
    live.kill().await.expect(-9);
    run_id
}

/// Every moment of a kill: before a request to the engine, or after its answer.
fn moments() -> Vec<(&'static str, Hold, &'static [&'static str])> {
    const SHORT: &[&str] = &["--", "true"];
    const LONG: &[&str] = &["--", "sh", "-c", "trap '' TERM; while :; do sleep 60; done"];
    vec![
        ("before create", Hold::request("/containers/create"), SHORT),
        ("after create", Hold::answer("/containers/create"), SHORT),
        ("before attach", Hold::request("/attach"), SHORT),
        ("after attach", Hold::answer("/attach"), SHORT),
        ("before start", Hold::request("/start"), SHORT),
        ("after start", Hold::answer("/start"), LONG),
        ("after start of what has ended", Hold::answer("/start"), SHORT),
        ("before the first signal", Hold::request("/kill"), LONG),
        ("before SIGKILL", Hold::request("/kill?signal=SIGKILL"), LONG),
        ("after SIGKILL", Hold::answer("/kill?signal=SIGKILL"), LONG),
        ("before removal", Hold::request("DELETE /"), SHORT),
        ("after removal", Hold::answer("DELETE /"), SHORT),
    ]
}

#[tokio::test]
async fn a_sweep_removes_everything_of_a_killed_controller() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (moment, hold, program) in moments() {
        let run_id = killed_at(&sluice, &hold, program).await;
        let run = ("run".to_owned(), format!("{run_id}.0"));

        assert_eq!(sluice.leftovers().await, [run], "{moment}");
        let swept = sluice.command(["sweep"]).finish().await.expect(0);

        let removed = format!("{:<10} {:<32} removed", "run", format!("{run_id}.0"));
        // The sidecar starts at the same time as the creation, so its audit file may have no line yet.
        let unborn = format!("{removed}; the audit file is incomplete: 0 lines, 0 calls, $0, not signed, no close\n");
        let is_removed =
            swept.stdout == format!("{removed}\n") || moment.ends_with(" create") && swept.stdout == unborn;
        assert!(is_removed, "{moment}: {}", swept.stdout);
        sluice.assert_nothing_left().await;
    }
    let again = sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!(again.stdout, "nothing is left over\n");
}

#[tokio::test]
async fn the_next_run_removes_a_killed_controllers_leftovers() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // A selection is enough: recovery uses the same plan at every moment.
    for (moment, hold, program) in moments().into_iter().step_by(3) {
        killed_at(&sluice, &hold, program).await;

        let next = sluice.run(["--json", "--", "true"]).finish().await.expect(0);

        assert_eq!(next.json().verdict(), (true, None, 0), "{moment}");
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn whenever_the_controller_is_killed_everything_is_found() {
    use std::time::Duration;
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // A run takes about half a second; the moments are not chosen, and differ each time.
    for step in 0..12 {
        let mut live = std::pin::pin!(sluice.run(["--", "true"]).spawn().finish());
        let moment = Duration::from_millis(step * 60);
        // The drop kills the command.
        let _ = tokio::time::timeout(moment, &mut live).await;
    }

    sluice.command(["sweep"]).finish().await.expect(0);

    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_next_sweep_continues_a_killed_one() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    killed_at(&sluice, &Hold::answer("/start"), &["--", "sleep", "600"]).await;
    for hold in [Hold::request("/kill"), Hold::request("DELETE /"), Hold::answer("DELETE /")] {
        let sweep = sluice.command(["sweep"]).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
        hold.held().await;
        sweep.kill().await.expect(-9);
        assert_eq!(sluice.leftovers().await.len(), 1);
    }

    sluice.command(["sweep"]).finish().await.expect(0);

    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn two_sweeps_at_once_do_not_disturb_each_other() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for _ in 0..2 {
        killed_at(&sluice, &Hold::answer("/start"), &["--", "sleep", "600"]).await;
    }

    let sweep = || sluice.command(["sweep", "--json"]).finish();
    let (one, two, three) = tokio::join!(sweep(), sweep(), sluice.run(["--json", "--", "true"]).finish());

    one.expect(0);
    two.expect(0);
    three.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_late_create_after_the_sweep_makes_nothing() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for request in ["/containers/create", "/start"] {
        let hold = Hold::request(request);
        killed_at(&sluice, &hold, &["--", "true"]).await;
        sluice.command(["sweep"]).finish().await.expect(0);
        sluice.assert_nothing_left().await;

        // The request was in transit when its sender was killed.
        hold.release();
        hold.answered().await;

        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn unrecorded_directories_and_containers_are_swept() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    let label = sluice.label().await;
    let name = unique_run_id("stray");
    engine::lines(["create", "--name", &name, "--label", &label, "sluice-runtime:latest"]).await;
    fs::create_dir_all(sluice.state().join("runs/lost.0").join("work/deep")).expect("the state directory is ours too");

    let found = sluice.leftovers().await;
    sluice.command(["sweep"]).finish().await.expect(0);

    assert_eq!(found, [("container".to_owned(), name), ("directory".to_owned(), "lost.0".to_owned())]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_without_its_directory_is_torn_down() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    killed_at(&sluice, &Hold::answer("/start"), &["--", "sleep", "600"]).await;
    fs::remove_dir_all(&sluice.runs()[0]).expect("it is ours too");

    sluice.command(["sweep"]).finish().await.expect(0);

    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_lost_engines_container_is_swept_later() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let hold = Hold::request("/nothing");
    let words = ["--timeout", "20s", "--json", "--", "sleep", "600"];
    let live = sluice.run(words).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    let container = sluice.started().await;
    // The engine reports a start before it answers the request.
    let running = async || sluice.sql("SELECT phase FROM runs").await == "[[\"running\"]]";
    crate::audit::eventually("the run is recorded as running", running).await;

    drop(hold);

    let report = live.finish().await.expect(124).json();
    assert_eq!(report.verdict(), (false, Some("timeout"), 124));
    assert!(report.message().contains("sluice sweep removes it"), "{}", report.message());
    assert!(report.audit.complete, "{:?}", report.audit);
    assert!(engine::exists(&container).await);
    assert_eq!(sluice.leftovers().await, [("run".to_owned(), format!("{}.0", report.run_id))]);
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.assert_nothing_left().await;
}

/// Bug: the container stayed until a sweep, since the run did not know of it.
#[tokio::test]
async fn a_container_whose_creation_had_no_answer_is_removed() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let hold = Hold::answer("/containers/create");
    let live = sluice.run(["--", "true"]).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    hold.held().await;

    hold.cut();

    live.finish().await.expect(125);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn output_cut_off_by_the_engine_is_reported() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let hold = Hold::answer("/attach");
    hold.release();
    // The program goes on for a while: an immediate end could be confused with the end of its output.
    let script = format!("echo before; {}; sleep 15; echo after", UNTIL_GO[3]);
    let live = sluice.run(["--", "sh", "-c", &script]).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    live.prints("before\n").await;

    hold.cut();
    go(&sluice);

    let ran = live.finish().await.expect(125);
    assert_eq!(ran.stdout, "before\n");
    assert!(ran.stderr.contains("sluice: internal: ") && ran.stderr.contains("output"), "{}", ran.stderr);
    sluice.assert_nothing_left().await;
}

/// Returns the process that holds the state directory's sockets: the sidecar.
pub(crate) fn sidecar(sluice: &Sluice) -> Pid {
    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };
    Pid::from_raw(sidecar)
}

fn kill_sidecar(sluice: &Sluice) {
    kill(sidecar(sluice), Signal::SIGKILL).expect("the sidecar lives");
}
