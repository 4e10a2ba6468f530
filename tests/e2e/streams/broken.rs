//! Answers that are errors, or that break off, at every place where they can.

use serde_json::{Value, json};
use sluice_testkit::{Script, Sidecar, Upstream, sse_data};

use super::{CHAT, ROUTES, ask, call, stream};

#[tokio::test]
async fn an_error_under_a_200_is_an_error() {
    let message =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}\n\n";
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"x\"}}}\n\n";
    for (path, script, last, end) in [
        (CHAT, Script::chat_stream_failing(["a"]), "[DONE]", "complete"),
        // LiteLLM ends such a stream in order, and without the event that ends it otherwise.
        ("/v1/messages", Script::sse([message]), "overloaded_error", "cut_by_upstream"),
        ("/v1/responses", Script::sse([failed]), "response.failed", "complete"),
        (CHAT, Script::json(200, json!({"error": {"message": "no"}})), "no", "complete"),
    ] {
        let (answer, audit) = ask(script, path, call(path)).await;
        let (text, call) = (answer.expect(200).text(), audit.only_call());
        assert!(text.contains(last), "{path}: {text}");
        assert_eq!((call.result(), call.end(), call.status()), ("upstream_error", end, Some(200)), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_cut_stream_is_cut_for_the_client() {
    for (path, _) in ROUTES {
        for script in [stream(path, &["a", "b"]).cut_after(2), stream(path, &["a", "b"]).reset_after(2)] {
            let upstream = Upstream::answering(script).start().await;
            let sidecar = Sidecar::to(&upstream).start().await;
            let answer = sidecar.post(path, call(path)).await;

            // A reset may overtake bytes that were sent before it.
            let events = answer.events();
            assert!((answer.status, answer.complete) == (200, false), "{path}: {}", answer.text());
            assert!(
                !answer.text().contains("[DONE]") && !answer.text().contains("stop\""),
                "{path}: a fake end: {}",
                answer.text()
            );
            let errors = events.iter().filter(|event| event.contains("event: error")).count();
            let has_errors = usize::from(!path.ends_with("completions"));
            assert_eq!(errors, has_errors, "{path}: {}", answer.text());
            if has_errors == 1 {
                let error: Value = serde_json::from_str(&sse_data(events.last().expect("the error"))).expect("JSON");
                assert_eq!(error["type"], "error", "{path}");
            }
            let audit = sidecar.audit();
            assert_eq!(
                (audit.only_call().result(), audit.only_call().end()),
                ("upstream_error", "cut_by_upstream"),
                "{path}"
            );
        }
    }
}

#[tokio::test]
async fn a_cut_stream_keeps_everything_before_the_cut() {
    for (path, _) in ROUTES {
        let upstream = Upstream::answering(stream(path, &["a", "b"]).cut_after(2)).hold_after(2).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let mut client = sidecar.stream(path, call(path)).await;
        let first = [client.read_event().await, client.read_event().await];
        assert!(first.iter().all(Option::is_some), "{path}: {first:?}");
        upstream.release();
        assert!(!client.read_response().await.complete, "{path}");

        let (answer, _) = ask(stream(path, &["a", "b"]).cut_after(2).in_a_burst(), path, call(path)).await;
        assert_eq!(answer.events()[..2].iter().cloned().map(Some).collect::<Vec<_>>(), first, "{path}");
    }
}

#[tokio::test]
async fn an_upstream_without_answer_is_an_unknown_502() {
    let chat = || Script::chat("hi");
    for (name, script) in [
        ("closed", Script::close()),
        ("reset", Script::reset()),
        ("cut in the status line", chat().cut_head(7)),
        ("cut in the head", chat().cut_head(60)),
        ("garbage", Script::raw("\x00\x01 no http at all\r\n\r\n")),
        ("a TLS alert", Script::raw(&b"\x15\x03\x01\x00\x02\x02\x46"[..])),
        ("two lengths", Script::raw("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{} ")),
        ("HTTP/2", Script::raw("HTTP/2 200\r\n\r\n")),
        ("only interim answers", Script::raw("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\n\r\n")),
    ] {
        let (answer, audit) = ask(script, CHAT, call(CHAT)).await;
        assert_eq!((answer.status, answer.reason()), (502, "upstream_closed"), "{name}: {}", answer.text());
        let call = audit.only_call();
        assert_eq!((call.result(), call.end(), call.status()), ("unknown", "cut_by_upstream", None), "{name}");
        assert_eq!((call.tokens(), call.cost()), (None, None), "{name}: unknown is null");
    }
}

#[tokio::test]
async fn an_answer_shorter_than_its_length_is_cut() {
    for path in [CHAT, "/v1/messages"] {
        let upstream =
            Upstream::answering(Script::body(200, "application/json", "{\"a\":1}").content_length(9).then_close())
                .start()
                .await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let answer = sidecar.post(path, call(path)).await;
        assert_eq!((answer.status, answer.complete), (200, false), "{path}: {}", answer.text());
        let audit = sidecar.audit();
        assert_eq!(
            (audit.only_call().result(), audit.only_call().end()),
            ("upstream_error", "cut_by_upstream"),
            "{path}"
        );
    }
}

#[tokio::test]
async fn an_empty_answer_of_the_upstream_stays_its_own() {
    for status in [200, 204, 400, 413, 429, 431, 500] {
        let upstream = Upstream::answering(Script::body(status, "text/plain", "")).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let answer = sidecar.post(CHAT, call(CHAT)).await;
        assert_eq!((answer.status, answer.reason(), answer.body.len()), (status, "", 0));
        let (audit, result) = (sidecar.audit(), if status < 400 { "ok" } else { "upstream_error" });
        let call = audit.only_call();
        assert_eq!((call.status(), call.result(), call.end()), (Some(status.into()), result, "complete"), "{status}");
    }
}
