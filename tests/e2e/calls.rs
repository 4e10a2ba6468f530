//! One call, from end to end.

use serde_json::json;
use sluice_testkit::{Sidecar, Upstream};

#[tokio::test]
async fn a_call_is_answered_and_written_down() {
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;

    let answer = sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": []})).await.expect(200);

    assert_eq!(answer.json()["choices"][0]["message"]["content"], "hello");
    assert_eq!(upstream.only_request().json(), json!({"user": "acct-1", "model": "m", "messages": []}));
    assert_eq!(sidecar.stop().await, 0);
    let call = sidecar.audit().only_call();
    assert_eq!(
        (call.result(), call.tokens(), call.cost()),
        ("ok", Some((Some(10), Some(5), Some(15))), Some("0.0000054"))
    );
    assert!(sidecar.audit().is_closed());
}

#[tokio::test]
async fn a_stream_passes_by_event_and_keeps_its_usage() {
    let upstream = Upstream::chat_stream(["a", "b"]).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;

    let answer =
        sidecar.post("/v1/chat/completions", json!({"model": "m", "messages": [], "stream": true})).await.expect(200);

    assert!(!answer.text().contains("usage"), "{}", answer.text());
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    sidecar.stop().await;
    let call = sidecar.audit().only_call();
    assert_eq!(
        (call.tokens(), call.cost(), call.cost_source()),
        (Some((Some(10), Some(5), Some(15))), Some("0.0000054"), "chunk")
    );
}
