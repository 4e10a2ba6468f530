//! A sidecar that is killed: a run without a log must not go on.

use nix::sys::signal::{Signal, kill};
use sluice_testkit::engine::{self, Hold};
use sluice_testkit::{CheckedAuditFile, PATIENCE, Sluice, Upstream};

use super::{kill_sidecar, sidecar};

#[tokio::test]
async fn a_run_whose_sidecar_was_killed_ends_at_once() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json", "--", "sleep", "600"]).spawn();
    let container = sluice.started().await;

    kill_sidecar(&sluice);

    // Bounded by the grace that the program gets, not by its timeout of two minutes.
    let ended = tokio::time::timeout(PATIENCE, live.finish()).await;
    let report = ended.expect("it ends before its timeout").expect(120).json();
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120));
    assert!(!report.audit.complete, "{:?}", report.audit);
    assert!(!engine::exists(&container).await);
    let audit = sluice.assert_nothing_left_but_unsealed_audit_files().await;
    assert_eq!(audit[0].kinds(), ["open"]);
}

#[tokio::test]
async fn a_sidecar_that_was_stopped_leaves_a_complete_log() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json", "--", "sleep", "600"]).spawn();
    sluice.started().await;
    let sidecar = nix::unistd::Pid::from_raw(sluice.processes()[0]);

    kill(sidecar, Signal::SIGTERM).expect("it lives");

    let report = live.finish().await.expect(120).json();
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120));
    assert!(report.audit.complete, "{:?}", report.audit);
    let message = report.message();
    assert!(
        message.contains("the sidecar ended before the run did") && message.contains("log is complete"),
        "{message}"
    );
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_sidecar_leaves_an_unknown_cost() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--json", "hello"]).spawn();
    upstream.received().await;

    kill_sidecar(&sluice);

    let report = live.finish().await.expect(120).json();
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120));
    let receipt = report.only_receipt();
    let told = (receipt.status.as_str(), receipt.result.as_deref(), receipt.cost_usd.as_deref());
    assert_eq!(told, ("unknown", None, None), "{receipt:?}");
    assert!(report.message().contains("1 call"), "{}", report.message());
    let audit = sluice.assert_nothing_left_but_unsealed_audit_files().await;
    assert_eq!(audit[0].open_calls(), std::slice::from_ref(&receipt.call_id));
}

#[tokio::test]
async fn a_sidecar_killed_before_the_start_fails_the_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let hold = Hold::request("/start");
    let live = sluice.run(["--json", "--", "sleep", "600"]).env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    hold.held().await;

    kill_sidecar(&sluice);
    hold.release();

    let report = live.finish().await.expect(120).json();
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120));
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn a_sidecar_closes_its_log_with_its_controller() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--json", "hello"]).spawn();
    upstream.received().await;

    // The sidecar waits for the answer for a second. It continues once the answer is there.
    let sidecar = sidecar(&sluice);
    kill(sidecar, Signal::SIGSTOP).expect("the sidecar lives");
    live.signal(Signal::SIGKILL);
    upstream.release();
    upstream.sent(1).await;
    kill(sidecar, Signal::SIGCONT).expect("the sidecar lives");
    live.finish().await.expect(-9);
    let [run] = &sluice.runs()[..] else { panic!("one run: {:?}", sluice.runs()) };
    let name = run.file_name().expect("a run directory has a name").to_string_lossy().into_owned();
    CheckedAuditFile::wait_for(sluice.state().join("audit").join(format!("{name}.jsonl")), "close", 1).await;
    sluice.command(["sweep"]).finish().await.expect(0);

    let audit = sluice.assert_nothing_left().await;
    let call = audit[0].only_call();
    assert_eq!(call.tokens(), Some((Some(10), Some(5), Some(15))), "{}", call.outcome);
}

/// Kills all processes of a run in the middle of a call.
async fn killed_with_its_sidecar(sluice: &Sluice, upstream: &Upstream) {
    let live = sluice.run(["--model", "m", "hello"]).spawn();
    upstream.received().await;
    kill_sidecar(sluice);
    live.kill().await.expect(-9);
}

#[tokio::test]
async fn a_sweep_reports_an_unclosed_log() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    killed_with_its_sidecar(&sluice, &upstream).await;

    let swept = sluice.command(["sweep", "--json"]).finish().await.expect(0).value();

    let told = swept["leftovers"][0]["audit"].as_str().unwrap_or_default();
    assert!(told.contains("no close") && told.contains("open calls"), "{swept}");
    let audit = sluice.assert_nothing_left_but_unsealed_audit_files().await;
    assert_eq!((audit.len(), audit[0].kinds()), (1, vec!["open", "intent"]));
}

#[tokio::test]
async fn the_next_run_reports_an_unclosed_log() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    killed_with_its_sidecar(&sluice, &upstream).await;

    let next = sluice.run(["--quiet", "--", "true"]).finish().await.expect(0);

    assert!(next.stderr.starts_with("sluice: run ") && next.stderr.lines().count() == 1, "{}", next.stderr);
    assert!(next.stderr.contains("was taken down") && next.stderr.contains("open calls"), "{}", next.stderr);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}
