//! Caps that are raised: how many calls pass then, and what is refused.

use tokio::task::JoinSet;

use super::*;

/// Makes calls until one is refused for the budget, and returns the number of calls before it.
async fn carried(sidecar: &Sidecar) -> usize {
    for carried in 0..50 {
        let answer = sidecar.post(CHAT, call()).await;
        if answer.status == 402 {
            return carried;
        }
        answer.expect(200);
    }
    panic!("fifty calls, and no cap")
}

#[tokio::test]
async fn a_raised_cap_passes_as_many_calls_more() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "2"]).start().await;
    assert_eq!(carried(&sidecar).await, 2);

    let raised = change(&sidecar, "/caps", json!({"max_calls": 5})).await.expect(200).json();

    assert_eq!((&raised["caps"]["max_calls"], &raised["used"]["calls"]), (&json!(5), &json!(2)));
    assert_eq!(carried(&sidecar).await, 3);
}

#[tokio::test]
async fn calls_that_queue_at_a_cap_pass_exactly() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    // 1,000 tokens each and a little for the request: five fit, and the others wait for them to end.
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-tokens", "5900"]).start().await;
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let mut raw = sidecar.connect().await;
        calls.spawn(async move { raw.post_json(CHAT, call()).await });
    }
    upstream.held(5).await;

    for (tokens, open) in [(7900, 7), (8900, 8)] {
        change(&sidecar, "/caps", json!({"max_tokens": tokens})).await.expect(200);
        upstream.held(open).await;
        let state = state(&sidecar).await;
        assert_eq!(state["open_calls"], open, "{state}");
        let reserved = state["used"]["reserved_tokens"].as_u64().expect("a number");
        assert!(tokens - reserved < 1000, "no other call fits: {state}");
    }
    assert_eq!(upstream.requests().len(), 8);

    upstream.release();
    while let Some(answer) = calls.join_next().await {
        answer.expect("no call panics").expect(200);
    }
    assert_eq!(upstream.requests().len(), 12);
}

#[tokio::test]
async fn raises_at_the_same_time_leave_the_highest() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "1"]).start().await;
    let mut raises = JoinSet::new();
    for max_calls in 2..=20 {
        let mut raw = RawClient::connect(control_path(&sidecar)).await;
        let body = json!({"by": "alice", "reason": "a burst", "max_calls": max_calls});
        raises.spawn(async move { raw.post_json("/caps", body).await.status });
    }
    while let Some(status) = raises.join_next().await {
        assert!(matches!(status, Ok(200 | 409)), "{status:?}");
    }

    assert_eq!(state(&sidecar).await["caps"]["max_calls"], 20);
    assert_eq!(carried(&sidecar).await, 20);
    let audit = sidecar.audit();
    // Each record starts from the value of the record before it.
    let steps: Vec<_> = audit.of_kind("control").iter().map(|record| (&record["from"], &record["to"])).collect();
    assert!(steps.windows(2).all(|pair| pair[0].1 == pair[1].0), "{steps:?}");
}

#[tokio::test]
async fn what_is_no_raise_changes_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = controlled(Sidecar::to(&upstream)).args(["--max-calls", "5", "--deadline", "600"]);
    let sidecar = launch.start().await;
    let before = state(&sidecar).await["caps"].clone();
    for (members, status, code) in [
        (json!({"max_calls": 4}), 409, "not_raised"),
        (json!({"deadline_s": 599, "max_calls": 9}), 409, "not_raised"),
        (json!({"max_tokens": 9_000_000}), 409, "not_limited"),
        (json!({"max_cost_usd": "1"}), 409, "not_limited"),
        (json!({}), 422, "invalid_member"),
        (json!({"max_calls": 9, "max_concurrency": 1}), 422, "invalid_member"),
        (json!({"max_calls": "9"}), 422, "invalid_member"),
        (json!({"max_calls": 9, "by": ""}), 422, "invalid_member"),
    ] {
        let answer = change(&sidecar, "/caps", members.clone()).await;
        assert_eq!(refused(&answer), (status, code.to_owned()), "{members}");
    }
    // A repeated request is not an error.
    change(&sidecar, "/caps", json!({"max_calls": 5})).await.expect(200);

    assert_eq!(state(&sidecar).await["caps"], before);
    assert_eq!(sidecar.audit().of_kind("control").len(), 0);
}
