use super::RawClient;
use crate::{Script, Step, TempDir, Upstream};

async fn answered(script: Script) -> (Upstream, RawClient) {
    let upstream = Upstream::answering(script).start_unix().await;
    let mut raw = RawClient::connect(upstream.socket()).await.allowing_any();
    raw.send_request("GET", "/", &[], ()).await;
    (upstream, raw)
}

#[tokio::test]
async fn every_framing_gives_the_same_body() {
    let plain = || Script::body(200, "text/plain", "0123456789");
    for (name, script) in [
        ("length", plain()),
        ("chunked", plain().chunked()),
        ("odd chunks", plain().odd_chunks()),
        ("one byte a chunk", plain().in_pieces(1).odd_chunks()),
        ("until close", plain().until_close()),
        ("slow head", plain().head_byte_by_byte()),
        ("one burst", plain().in_pieces(3).chunked().in_a_burst()),
        ("huge headers", plain().huge_headers(50, 1000)),
        ("interim", plain().after_interim(103).after_interim(102)),
    ] {
        let (_upstream, mut raw) = answered(script).await;
        let answer = raw.read_response().await;
        assert_eq!((answer.status, answer.text().as_str(), answer.complete), (200, "0123456789", true), "{name}");
        assert_eq!(answer.interim, if name == "interim" { vec![103, 102] } else { vec![] });
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_not_complete() {
    let plain = || Script::body(200, "text/plain", "0123456789").in_pieces(5);
    for (name, script, body) in [
        ("short of its length", plain().cut_after(1), "01234"),
        ("a length too long", plain().content_length(11).then_close(), "0123456789"),
        ("without its last chunk", plain().chunked().cut_after(1), "01234"),
        ("only a head", plain().cut_after(0), ""),
        ("reset", plain().chunked().reset_after(1), "01234"),
    ] {
        let (_upstream, mut raw) = answered(script).await;
        let answer = raw.read_response().await;
        assert_eq!((answer.text().as_str(), answer.complete), (body, false), "{name}");
    }
}

#[tokio::test]
async fn events_are_read_singly_on_one_connection() {
    let (_upstream, mut raw) = answered(Script::sse(["a", "b"])).await;

    assert_eq!(raw.read_event().await.as_deref(), Some("data: a"));
    assert_eq!(raw.read_event().await.as_deref(), Some("data: b"));
    assert_eq!(raw.read_event().await, None);
    assert_eq!(raw.get("/").await.expect(200).data(), ["a", "b"]);
}

#[tokio::test]
async fn the_rest_of_a_response_can_be_read_whole() {
    let (_upstream, mut raw) = answered(Script::sse(["a", "b", "c"])).await;

    assert_eq!(raw.read_head().await.header("content-type"), Some("text/event-stream"));
    assert_eq!(raw.read_event().await.as_deref(), Some("data: a"));
    let rest = raw.read_response().await;
    assert_eq!((rest.data(), rest.complete), (vec!["b".to_owned(), "c".to_owned()], true));
}

#[tokio::test]
async fn a_forbidden_answer_header_fails_the_test() {
    for (header, allowed) in [("x-litellm-key-spend", false), ("X-LiteLLM-Call-Id", true), ("x-passed", true)] {
        let upstream = Upstream::answering(Script::body(200, "a/b", "").header(header, "1")).start_unix().await;
        let mut raw = RawClient::connect(upstream.socket()).await.allowing(["X-Passed"]);
        let read = tokio::spawn(async move { raw.get("/").await }).await;
        let panicked = read.err().map(|error| *error.into_panic().downcast::<String>().expect("a formatted panic"));
        let named = panicked.as_ref().is_some_and(|text| text.contains("`x-litellm-key-spend: 1` must not reach"));
        assert_eq!((panicked.is_none(), named), (allowed, !allowed), "{header}: {panicked:?}");
    }
}

#[tokio::test]
async fn interim_responses_can_be_waited_for() {
    let (_upstream, mut raw) = answered(Script::body(200, "a/b", "x").after_interim(100)).await;
    assert_eq!(raw.read_interim().await, 100);
    assert_eq!(raw.read_response().await.text(), "x");
}

#[tokio::test]
async fn a_close_and_a_missing_socket_are_reported() {
    let (_upstream, mut raw) = answered(Script::steps([Step::Close])).await;
    raw.expect_closed().await;
    let dir = TempDir::new();
    assert!(RawClient::try_connect(dir.join("none")).await.is_err());
}
