//! Every possible end of a run.

use super::*;

/// Answers the first call, and never the second.
fn one_answer() -> [Script; 2] {
    [Script::provider("hello"), Script::never()]
}

fn then(rest: &str) -> String {
    format!("{ASK} ask; {rest}")
}

#[tokio::test]
async fn a_failed_run_is_billed() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["--model", "m", "--", "sh", "-c", &then("exit 3")]).finish().await.expect(3);
    assert_eq!((total(&sluice).await, upstream.requests().len()), ((1, 0, NANOS), 1));
    assert_eq!(unsettled(&sluice).await, []);
}

#[tokio::test]
async fn a_run_out_of_memory_is_billed() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let script = then("exec node -e 'Buffer.alloc(200e6, 1)'");
    sluice.run(["--model", "m", "--memory", "64m", "--", "sh", "-c", &script]).finish().await.expect(137);
    assert_eq!((total(&sluice).await, upstream.requests().len()), ((1, 0, NANOS), 1));
}

#[tokio::test]
async fn a_cancelled_run_is_billed() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--", "sh", "-c", &then("echo asked; sleep 600")]).spawn();
    live.prints("asked\n").await;
    live.signal(Signal::SIGTERM);
    live.finish().await.expect(143);
    assert_eq!((total(&sluice).await, upstream.requests().len()), ((1, 0, NANOS), 1));
}

#[tokio::test]
async fn a_timed_out_run_bills_its_open_call() {
    let upstream = Upstream::queue(one_answer()).start().await;
    let sluice = Sluice::to(&upstream);
    let words = ["--model", "m", "--timeout", "20s", "--json", "--", "sh", "-c", &then("ask")];
    let report = sluice.run(words).finish().await.expect(124).json();
    assert_eq!((total(&sluice).await, upstream.requests().len()), ((2, 1, NANOS), 2));
    assert_eq!(statuses(&sluice).await, ["posted", "pending_cost"]);
    let reason = "the cost of 1 of its calls is not known".to_owned();
    assert_eq!(unsettled(&sluice).await, [(format!("{}.0", report.run_id), reason)]);
}

#[tokio::test]
async fn a_killed_sidecars_open_call_has_unknown_cost() {
    let upstream = Upstream::queue(one_answer()).start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--json", "--", "sh", "-c", &then("ask")]).spawn();
    upstream.received().await;
    upstream.received().await;
    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };

    kill(Pid::from_raw(sidecar), Signal::SIGKILL).expect("it lives");

    live.finish().await.expect(120);
    assert_eq!(total(&sluice).await, (2, 1, NANOS));
    assert_eq!(statuses(&sluice).await, ["posted", "unknown"]);
}

#[tokio::test]
async fn the_next_controller_bills_a_killed_ones_calls() {
    for by_sweep in [true, false] {
        let upstream = Upstream::queue(one_answer()).start().await;
        let sluice = Sluice::to(&upstream);
        let live = sluice.run(["--model", "m", "--", "sh", "-c", &then("ask")]).spawn();
        upstream.received().await;
        upstream.received().await;
        live.kill().await.expect(-9);

        let before = value(&sluice, &["receipts", "--json"]).await;
        assert_eq!(
            (&before["receipts"], &before["unsettled_runs"][0]["reason"]),
            (&json!([]), &json!("it is under way"))
        );
        if by_sweep {
            sluice.command(["sweep"]).finish().await.expect(0);
        } else {
            sluice.run(["-q", "--", "true"]).finish().await.expect(0);
        }

        assert_eq!((total(&sluice).await, upstream.requests().len()), ((2, 1, NANOS), 2));
        let statuses = statuses(&sluice).await;
        assert_eq!(statuses[0], "posted");
        assert!(["pending_cost", "unknown"].contains(&statuses[1].as_str()), "{statuses:?}");
    }
}

#[tokio::test]
async fn any_kill_leaves_one_receipt_per_call() {
    use std::time::Duration;
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    // A run takes about half a second; the moments are not chosen, and differ each time.
    for step in 4..14 {
        let words = ["--model", "m", "--", "sh", "-c", &then("ask")];
        let mut live = std::pin::pin!(sluice.run(words).spawn().finish());
        // The drop kills the command.
        let _ = tokio::time::timeout(Duration::from_millis(step * 70), &mut live).await;
    }

    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.command(["sweep"]).finish().await.expect(0);

    let (calls, open, nanos) = total(&sluice).await;
    let charged = upstream.requests().len() as u64 * NANOS;
    // Answered calls are billed or open; a call may also have been cut before its first byte.
    assert!(
        nanos <= charged && charged <= nanos + open * NANOS,
        "{calls} receipts, {open} open: {nanos}, not {charged}"
    );
    assert!(unsettled(&sluice).await.iter().all(|(_, reason)| reason.contains("not known")));
}

#[tokio::test]
async fn an_upstream_that_was_never_reached_is_not_paid() {
    let upstream = Upstream::answering(Script::reset()).start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["--model", "m", "--", "sh", "-c", &format!("{ASK} ask; true")]).finish().await.expect(0);
    let (calls, _, nanos) = total(&sluice).await;
    assert_eq!((calls, nanos), (1, 0));
}
