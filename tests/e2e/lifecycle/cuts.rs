//! Calls that are open at the end: the sidecar waits for them during the drain, then cuts them, each with its outcome.

use nix::sys::signal::Signal;
use serde_json::Value;
use sluice_testkit::upstream::{FullAcceptQueue, Script};
use sluice_testkit::{PATIENCE, RawClient, Sidecar, SidecarExit, Upstream};

use super::{BRIEF, CHAT, FOREVER, begin_to_stop, call, code, left_behind, stream};

/// Phases in which a call may be open at the end.
fn phases() -> Vec<(&'static str, Upstreams, Value)> {
    vec![
        ("before the head", Upstreams::Scripted(Script::never()), call()),
        ("in a stream", Upstreams::Scripted(Script::chat_stream(["a", "b"]).silent_after(1)), stream()),
        ("in a body", Upstreams::Scripted(Script::body(200, "application/json", "{}").silent_after(0)), call()),
        ("while connecting", Upstreams::FullAcceptQueue, call()),
    ]
}

enum Upstreams {
    Scripted(Script),
    FullAcceptQueue,
}

enum Guard {
    Scripted(Upstream),
    FullAcceptQueue(#[expect(dead_code, reason = "keeps its port")] FullAcceptQueue),
}

/// A sidecar with one call open in this phase, and the values that keep it there.
async fn in_phase(upstreams: Upstreams, body: Value, args: &[&str]) -> (Sidecar, RawClient, Guard) {
    let (launch, guard) = match upstreams {
        Upstreams::Scripted(script) => {
            let upstream = Upstream::answering(script).start().await;
            (Sidecar::to(&upstream), Guard::Scripted(upstream))
        }
        Upstreams::FullAcceptQueue => {
            let full = FullAcceptQueue::new().await;
            (Sidecar::to_url(&full.url()), Guard::FullAcceptQueue(full))
        }
    };
    let sidecar = launch.args(["--connect-timeout", "300s"]).args(args).start().await;
    let raw = sidecar.stream(CHAT, body).await;
    sidecar.audit_with("intent", 1).await;
    if let Guard::Scripted(upstream) = &guard {
        upstream.received().await;
    }
    (sidecar, raw, guard)
}

fn assert_cut(name: &str, sidecar: &Sidecar, exit: SidecarExit, reason: &str) {
    let audit = sidecar.audit();
    assert_eq!(audit.open_calls(), Vec::<String>::new(), "{name}: every call has its outcome");
    let cut = audit.only_call();
    assert_eq!((cut.result(), cut.end()), ("deadline", "cut_by_limit"), "{name}");
    assert_eq!(audit.close()["reason"], reason, "{name}");
    assert_eq!(exit, code(3), "{name}");
    assert_eq!(left_behind(sidecar), Vec::<String>::new(), "{name}");
}

#[tokio::test]
async fn calls_still_open_after_the_drain_are_cut() {
    for (name, upstream, body) in phases() {
        let (sidecar, _raw, _upstream) = in_phase(upstream, body, &BRIEF).await;

        sidecar.sigterm();

        let exit = sidecar.wait().await;
        assert_cut(name, &sidecar, exit, "sigterm");
    }
}

#[tokio::test]
async fn a_second_signal_cuts_at_once() {
    for (first, second) in [(Signal::SIGTERM, Signal::SIGTERM), (Signal::SIGTERM, Signal::SIGINT)] {
        for (name, upstream, body) in phases() {
            let (sidecar, _raw, _upstream) = in_phase(upstream, body, &FOREVER).await;

            begin_to_stop(&sidecar, first).await;
            sidecar.signal(second);

            let exit = sidecar.wait().await;
            assert_cut(name, &sidecar, exit, "sigterm");
        }
    }
}

#[tokio::test]
async fn the_deadline_ends_the_run_as_a_signal_does() {
    let idle = Sidecar::to_url("http://127.0.0.1:9").args(["--deadline", "50ms"]).start().await;
    assert_eq!(idle.wait().await, code(0));
    assert_eq!(idle.audit().close()["reason"], "deadline");

    let mut runs = tokio::task::JoinSet::new();
    for (name, upstream, body) in phases() {
        runs.spawn(async move {
            let args = ["--deadline", "20s", "--audit-sync", "off", BRIEF[0], BRIEF[1]];
            let (sidecar, _raw, _upstream) = in_phase(upstream, body, &args).await;
            let exit = sidecar.wait().await;
            assert_cut(name, &sidecar, exit, "deadline");
        });
    }
    while let Some(run) = runs.join_next().await {
        run.expect("the run ends as it should");
    }
}

#[tokio::test]
async fn a_drain_of_nothing_cuts_at_the_first_signal() {
    for (name, upstream, body) in phases() {
        let (sidecar, _raw, _upstream) = in_phase(upstream, body, &["--drain", "0s"]).await;
        sidecar.sigterm();
        let exit = sidecar.wait().await;
        assert_cut(name, &sidecar, exit, "sigterm");
    }
}

#[tokio::test]
async fn connections_without_a_call_do_not_delay_the_stop() {
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).args(FOREVER).start().await;
    let mut used = sidecar.connect().await;
    used.post_json(CHAT, call()).await.expect(200);
    let mut unused = sidecar.connect().await;
    let mut half = sidecar.connect().await;
    half.send("POST /v1/chat/completions HTTP/1.1\r\nhost: loc").await;
    let mut used_and_half = sidecar.connect().await;
    used_and_half.get("/health").await.expect(200);
    used_and_half.send("GET /he").await;

    sidecar.sigterm();

    for raw in [&mut used, &mut unused, &mut half, &mut used_and_half] {
        raw.expect_closed().await;
    }
    assert_eq!(sidecar.wait().await, code(0));
    assert!(sidecar.audit().is_closed());
}

#[tokio::test]
async fn a_slow_reader_gets_its_whole_answer() {
    let event = format!("{{\"x\":\"{}\"}}", "y".repeat(8 * 1024));
    let upstream = Upstream::answering(Script::flood(&event, 1024)).start().await;
    let sidecar = Sidecar::to(&upstream).args(FOREVER).start().await;
    let mut slow = sidecar.stream(CHAT, stream()).await;
    slow.read_head().await;
    let sent = upstream.stalled().await;
    assert!(sent < 8 * 1024 * 1024, "the client does not read, so the upstream must wait");

    begin_to_stop(&sidecar, Signal::SIGTERM).await;
    let answer = slow.read_response().await;

    assert!(answer.complete);
    assert_eq!(answer.data().len(), 1024);
    assert_eq!(sidecar.wait().await, code(0));
    // No event ended the stream, but the sidecar did not cut it either.
    assert_eq!(sidecar.audit().only_call().result(), "upstream_error");
}

#[tokio::test]
async fn a_stop_finishes_a_partly_written_answer() {
    // Each size is more than the kernel buffers for a client that does not read yet (180 to 241 KB, depending on the
    // size of the pieces), by at most the 64 KiB that the sidecar buffers.
    for size in [242_000, 245_000] {
        let upstream = Upstream::answering(Script::body(200, "text/plain", vec![b'x'; size])).start().await;
        let sidecar = Sidecar::to(&upstream).args(FOREVER).start().await;
        let mut slow = sidecar.stream(CHAT, call()).await;
        sidecar.audit_with("outcome", 1).await;

        begin_to_stop(&sidecar, Signal::SIGTERM).await;
        // The old connection has been notified by the time a new one is answered.
        sidecar.get("/health").await.expect(503);
        let answer = slow.read_response().await;

        assert_eq!((answer.body.len(), answer.complete), (size, true));
        assert_eq!(sidecar.wait().await, code(0));
    }
}

#[tokio::test]
async fn a_stop_finishes_a_half_closed_clients_answer() {
    for size in [242_000, 245_000] {
        let upstream = Upstream::answering(Script::body(200, "text/plain", vec![b'x'; size])).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let mut slow = sidecar.stream(CHAT, call()).await;
        slow.shutdown_write().await;
        sidecar.audit_with("outcome", 1).await;
        sidecar.get("/health").await.expect(200);

        let answer = slow.read_response().await;

        assert_eq!((answer.body.len(), answer.complete), (size, true));
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_is_eventually_cut() {
    let event = format!("{{\"x\":\"{}\"}}", "y".repeat(8 * 1024));
    let upstream = Upstream::answering(Script::flood(&event, 1024)).start().await;
    let sidecar = Sidecar::to(&upstream).args(BRIEF).start().await;
    let mut unread = sidecar.stream(CHAT, stream()).await;
    unread.read_head().await;

    sidecar.sigterm();

    let exit = sidecar.wait().await;
    assert_cut("a client that does not read", &sidecar, exit, "sigterm");
}

/// Drops the client, and waits until the sidecar has closed its end of the connection.
async fn leave(sidecar: &Sidecar, leaver: RawClient) {
    let open = sidecar.fds();
    drop(leaver);
    let noticed = async {
        while sidecar.fds() >= open {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, noticed).await.expect("the sidecar notices");
}

#[tokio::test]
async fn a_stop_waits_for_a_departed_clients_answer() {
    let upstream = Upstream::chat_stream(["a", "b"]).hold_after(1).start().await;
    let sidecar = Sidecar::to(&upstream).args(FOREVER).start().await;
    let mut leaver = sidecar.stream(CHAT, stream()).await;
    leaver.read_event().await;
    leave(&sidecar, leaver).await;

    begin_to_stop(&sidecar, Signal::SIGTERM).await;
    upstream.release();

    assert_eq!(sidecar.wait().await, code(0));
    let call = sidecar.audit().only_call();
    assert_eq!((call.result(), call.end()), ("client_abort", "cut_by_client"));
    assert_eq!(call.outcome["drained"], true);
    assert_eq!(call.tokens(), Some((Some(10), Some(5), Some(15))));
    assert!(sidecar.audit().is_closed());
}

#[tokio::test]
async fn a_departed_clients_answer_is_cut_after_the_drain() {
    for (drain, signals) in [(BRIEF, 1), (FOREVER, 2)] {
        let upstream = Upstream::chat_stream(["a", "b"]).silent_after(1).start().await;
        let sidecar = Sidecar::to(&upstream).args(drain).start().await;
        let mut leaver = sidecar.stream(CHAT, stream()).await;
        leaver.read_event().await;
        leave(&sidecar, leaver).await;

        begin_to_stop(&sidecar, Signal::SIGTERM).await;
        for _ in 1..signals {
            sidecar.sigterm();
        }

        let exit = sidecar.wait().await;
        assert_cut("behind a client that has left", &sidecar, exit, "sigterm");
    }
}
