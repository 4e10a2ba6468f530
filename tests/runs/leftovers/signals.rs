//! Runs that a signal ends: SIGINT, SIGTERM and SIGHUP.

use nix::sys::signal::{Signal, kill};
use sluice_testkit::{Sluice, Upstream};

use super::STUBBORN;
use crate::recovery::sidecar;

#[tokio::test]
async fn a_signal_ends_the_run_in_order() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let mut count = 0;
    for (signal, code) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143), (Signal::SIGHUP, 129)] {
        for words in [&["--", "sleep", "600"][..], &STUBBORN] {
            count += 1;
            let live = sluice.run(["--json"]).args(words).spawn();
            sluice.container_event("start", count).await;

            // Like a terminal, send the signal to the whole foreground group.
            live.signal_group(signal);

            let report = live.finish().await.expect(code).json();
            assert_eq!(report.verdict(), (false, Some("cancelled"), code), "{signal} {words:?}");
            assert_eq!(sluice.assert_nothing_left().await.len(), count);
        }
    }
}

#[tokio::test]
async fn more_signals_end_it_no_less_in_order() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json"]).args(STUBBORN).spawn();
    sluice.started().await;

    live.signal_group(Signal::SIGINT);
    live.signal_group(Signal::SIGINT);
    sluice.container_event("kill", 1).await;
    live.signal_group(Signal::SIGTERM);

    assert_eq!(live.finish().await.expect(130).json().verdict(), (false, Some("cancelled"), 130));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancelled_runs_log_has_its_open_call() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--json", "hello"]).spawn();
    upstream.received().await;

    // The sidecar waits for the answer for a second. It continues once the answer is there.
    let sidecar = sidecar(&sluice);
    kill(sidecar, Signal::SIGSTOP).expect("the sidecar lives");
    live.signal_group(Signal::SIGINT);
    upstream.release();
    upstream.sent(1).await;
    kill(sidecar, Signal::SIGCONT).expect("the sidecar lives");

    let report = live.finish().await.expect(130).json();
    assert_eq!(report.verdict(), (false, Some("cancelled"), 130));
    // The cost is the same as of a call that its client left.
    let receipt = report.only_receipt();
    assert_eq!((receipt.status.as_str(), receipt.usage.and_then(|usage| usage.total)), ("posted", Some(15)));
    assert_eq!(report.cost_usd, receipt.cost_usd);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_signal_at_any_moment_leaves_nothing() {
    let upstream = Upstream::never().start().await;
    for moment in ["create", "attach", "start", "die", "destroy"] {
        let sluice = Sluice::to(&upstream);
        let live = sluice.run(["--json", "--", "true"]).spawn();
        sluice.container_event(moment, 1).await;

        live.signal_group(Signal::SIGINT);

        // The signal may have come too late to have an effect.
        let ran = live.finish().await;
        match ran.code {
            0 => assert_eq!(ran.json().verdict(), (true, None, 0), "{moment}"),
            130 => assert_eq!(ran.json().verdict(), (false, Some("cancelled"), 130), "{moment}"),
            // After the removal of the container, the process may have no signal handlers left.
            -2 => assert_eq!(moment, "destroy", "{}", ran.stdout),
            code => panic!("{moment}: exit code {code}: {}", ran.stderr),
        }
        sluice.assert_nothing_left().await;
    }
}
