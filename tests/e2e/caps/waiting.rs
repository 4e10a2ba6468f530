//! A call for which open calls leave no room: it waits for them, for a while.

use sluice_testkit::{Sidecar, Upstream};

use super::{burst, declared, next};

/// Room for the reservation of one call of 1,000 tokens, and for the actual use of two such calls.
const ROOM: [&str; 2] = ["--max-tokens", "1500"];

#[tokio::test]
async fn a_call_waits_for_unused_reservations_of_open_calls() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sidecar = Sidecar::to(&upstream).args(ROOM).start().await;

    let mut calls = burst(sidecar.socket().into(), 2, &declared(1000)).await;
    upstream.held(1).await;
    assert_eq!(upstream.requests().len(), 1, "both would be more than the cap");
    upstream.release();

    for _ in 0..2 {
        next(&mut calls).await.expect(200);
    }
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!((audit.calls().len(), audit.refused_reasons().len()), (2, 0));
    // One is answered before the other one goes out.
    assert_eq!(audit.kinds(), ["open", "intent", "outcome", "intent", "outcome", "close"]);
}

#[tokio::test]
async fn a_call_that_can_never_fit_is_refused_immediately() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sidecar = Sidecar::to(&upstream).args(ROOM).args(["--cap-wait", "1h"]).start().await;
    let mut open = burst(sidecar.socket().into(), 1, &declared(1000)).await;
    upstream.held(1).await;

    let mut long = declared(1000);
    long["messages"] = serde_json::json!([{"role": "user", "content": "\u{e9}".repeat(2000)}]);
    sidecar.post(super::CHAT, long).await.expect_refusal(402, "budget_exceeded");

    upstream.release();
    next(&mut open).await.expect(200);
}

#[tokio::test]
async fn a_call_waits_at_most_its_limit() {
    for wait in ["0", "100ms"] {
        let upstream = Upstream::chat("hello").hold_head().start().await;
        let sidecar = Sidecar::to(&upstream).args(ROOM).args(["--cap-wait", wait]).start().await;

        let mut calls = burst(sidecar.socket().into(), 2, &declared(1000)).await;

        next(&mut calls).await.expect_refusal(402, "budget_exceeded");
        upstream.release();
        next(&mut calls).await.expect(200);
        assert_eq!(upstream.requests().len(), 1, "{wait}");
    }
}
