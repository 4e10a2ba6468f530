//! What the upstream says reaches the client at once and byte for byte, however it says it, and its end
//! not before the outcome is written.

use serde_json::{Value, json};
use sluice_testkit::{Answer, AuditFile, Script, Sidecar, Upstream, sse_data};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

const CHAT: &str = "/v1/chat/completions";
/// Every route that streams, and the event type that ends its stream.
const ROUTES: [(&str, &str); 4] =
    [(CHAT, "[DONE]"), ("/v1/completions", "[DONE]"), ("/v1/responses", "response.completed"), ("/v1/messages", "message_stop")];

/// A streaming call to the route that asks for its usage, where that can be asked for.
fn call(path: &str) -> Value {
    let mut body = json!({"model": "m", "stream": true});
    match path {
        "/v1/responses" => body["input"] = json!("hi"),
        "/v1/completions" => body["prompt"] = json!("hi"),
        _ => body["messages"] = json!([]),
    }
    if path == "/v1/messages" {
        body["max_tokens"] = json!(9);
    }
    if path.ends_with("completions") {
        body["stream_options"] = json!({"include_usage": true});
    }
    body
}

fn without_usage(path: &str) -> Value {
    let mut body = call(path);
    body.as_object_mut().expect("an object").remove("stream_options");
    body
}

/// The provider's own stream for the route.
fn stream(path: &str, texts: &[&str]) -> Script {
    match path {
        "/v1/responses" => Script::responses_stream(texts),
        "/v1/completions" => Script::completion_stream(texts),
        "/v1/messages" => Script::messages_stream(texts),
        _ => Script::chat_stream(texts),
    }
}

/// A streaming call against a sidecar of its own, its whole answer and its audit file at that moment.
async fn ask(script: Script, path: &str, body: Value) -> (Answer, AuditFile) {
    let upstream = Upstream::answering(script).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let answer = sidecar.post(path, body).await;
    let audit = sidecar.audit_with("outcome", 1).await;
    (answer, audit)
}

#[tokio::test]
async fn each_event_arrives_before_the_next_one_is_sent() {
    for (path, ends) in ROUTES {
        for body in [call(path), without_usage(path)] {
            let upstream = Upstream::answering(stream(path, &["a", "b", "c"])).hold_each().start().await;
            let sidecar = Sidecar::to(&upstream).start().await;
            let mut client = sidecar.stream(path, &body).await;

            let mut events = Vec::new();
            upstream.step();
            while let Some(event) = client.read_event().await {
                events.push(sse_data(&event));
                // Usage that only the sidecar asked for is an event that never arrives.
                let next_is_hidden = path.ends_with("completions") && body["stream_options"].is_null() && events.len() == 4;
                (0..=usize::from(next_is_hidden)).for_each(|_| upstream.step());
            }
            let whole = |text: &&str| events.iter().any(|event| event.contains(&format!("{text:?}")));
            assert!(["a", "b", "c"].iter().all(whole), "{path}: {events:?}");
            assert!(events.last().is_some_and(|last| last.contains(ends)), "{path}: {events:?}");
        }
    }
}

/// Streams with everything that the format allows and somebody's parser trips over.
fn odd_streams() -> Vec<(&'static str, String)> {
    let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();
    let long = chunk(&"x".repeat(1 << 20));
    vec![
        ("CR", format!("data: {}\r\rdata: [DONE]\r\r", chunk("a"))),
        ("CRLF", format!("data: {}\r\n\r\ndata: [DONE]\r\n\r\n", chunk("a"))),
        ("all kinds of line ends", format!("data: {}\r\n\rdata: {}\n\r\ndata: {}\r\r\ndata: [DONE]\n\n", chunk("a"), chunk("b"), chunk("c"))),
        ("comments and pings", format!(": hello\n\n:\n\ndata: {}\n: in between\n\nevent: ping\n\n: bye\n\ndata: [DONE]\n\n", chunk("a"))),
        ("other fields", format!("id: 7\nretry: 10\nevent: x\ndata:{}\nfoo: bar\nbaz\n\ndata:[DONE]\n\n", chunk("a"))),
        ("data in many lines", "data: {\"choices\":\ndata: [{\"delta\":\ndata:  {\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n".to_owned()),
        ("many bytes a character", format!("data: {}\n\ndata: [DONE]\n\n", chunk("é € 𝄞 🧑‍🚀 \u{feff}\u{2028}"))),
        ("no end", format!("data: {}\n\ndata: {}", chunk("a"), chunk("b"))),
        ("no blank line at the end", format!("data: {}\n\ndata: [DONE]\n", chunk("a"))),
        ("something behind the end", format!("data: {}\n\ndata: [DONE]\n\n: late\n\ndata: {}\n\n", chunk("a"), chunk("b"))),
        ("no stream of events at all", "{\"a\": [1, 2,\n\n\n 3]}\u{0}\u{1}".to_owned()),
        ("empty", String::new()),
        ("an event of 1 MiB", format!("data: {}\n\ndata: {long}\n\ndata: {}\n\ndata: [DONE]\n\n", chunk("a"), chunk("b"))),
    ]
}

#[tokio::test]
async fn bytes_pass_untouched_however_they_are_framed_and_cut() {
    let streams = odd_streams();
    let sizes = |sent: &str| if sent.len() > 1 << 20 { vec![30_000, 65_537] } else { vec![1, 2, 3, 7, 64, 50_000] };
    let scripts = streams.iter().flat_map(|(_, sent)| {
        let script = Script::body(200, "text/event-stream", sent.clone());
        sizes(sent).into_iter().map(move |size| {
            let script = script.clone().in_pieces(size);
            if size % 2 == 0 { script.odd_chunks() } else { script.chunked() }
        })
    });
    let scripts: Vec<Script> = scripts.collect();
    for (path, _) in ROUTES {
        let upstream = Upstream::queue(scripts.clone()).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
        let mut client = sidecar.connect().await;
        for (name, sent) in &streams {
            for size in sizes(sent) {
                let body = if size % 3 == 0 { without_usage(path) } else { call(path) };
                let answer = client.post_json(path, body).await.expect(200);
                let start: String = answer.text().chars().take(300).collect();
                assert!(answer.body == sent.as_bytes(), "{path}, {name} in pieces of {size}: {start}");
            }
        }
    }
}

#[tokio::test]
async fn extensions_and_trailers_of_the_upstream_end_at_the_sidecar() {
    let upstream = Upstream::answering(Script::chat_stream(["a", "b"]).odd_chunks()).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut stream = UnixStream::connect(sidecar.socket()).await.expect("the sidecar listens");
    let body = call(CHAT).to_string();
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: close, te\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((head + &body).as_bytes()).await.expect("the sidecar reads");
    let mut all = String::new();
    stream.read_to_string(&mut all).await.expect("and closes in order");

    assert!(all.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{all}");
    assert!(!all.contains("trailer") && !all.contains(";ext"), "{all}");
}

#[tokio::test]
async fn usage_is_hidden_from_those_alone_who_did_not_ask_for_it() {
    for path in [CHAT, "/v1/completions"] {
        let plain = without_usage(path);
        let mut refused = plain.clone();
        refused["stream_options"] = json!({"include_usage": false});
        for (body, events) in [(plain, 4), (refused, 4), (call(path), 5)] {
            let (answer, audit) = ask(stream(path, &["a", "b"]), path, body).await;
            assert_eq!((answer.events().len(), answer.text().contains("\"usage\"")), (events, events == 5), "{}", answer.text());
            assert_eq!(audit.only_call().tokens(), Some((Some(10), Some(5), Some(15))));
        }
    }
}

#[tokio::test]
async fn an_error_under_a_200_is_an_error() {
    let message = "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no\"}}\n\n";
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"id\":\"r\",\"status\":\"failed\",\"error\":{\"code\":\"x\"}}}\n\n";
    for (path, script, last) in [
        (CHAT, Script::chat_stream_failing(["a"]), "[DONE]"),
        ("/v1/messages", Script::sse([message]), "overloaded_error"),
        ("/v1/responses", Script::sse([failed]), "response.failed"),
        (CHAT, Script::json(200, json!({"error": {"message": "no"}})), "no"),
    ] {
        let (answer, audit) = ask(script, path, call(path)).await;
        let (text, call) = (answer.expect(200).text(), audit.only_call());
        assert!(text.contains(last), "{path}: {text}");
        assert_eq!((call.result(), call.end(), call.status()), ("upstream_error", "complete", Some(200)), "{path}: {text}");
    }
}

#[tokio::test]
async fn a_stream_that_is_cut_is_cut_for_the_client_too() {
    for (path, _) in ROUTES {
        for script in [stream(path, &["a", "b"]).cut_after(2), stream(path, &["a", "b"]).reset_after(2)] {
            let upstream = Upstream::answering(script).start().await;
            let sidecar = Sidecar::to(&upstream).start().await;
            let answer = sidecar.post(path, call(path)).await;

            // A reset may overtake what was sent before it.
            let events = answer.events();
            assert!((answer.status, answer.complete) == (200, false), "{path}: {}", answer.text());
            assert!(!answer.text().contains("[DONE]") && !answer.text().contains("stop\""), "{path}: a fake end: {}", answer.text());
            let errors = events.iter().filter(|event| event.contains("event: error")).count();
            let has_errors = usize::from(!path.ends_with("completions"));
            assert_eq!(errors, has_errors, "{path}: {}", answer.text());
            if has_errors == 1 {
                let error: Value = serde_json::from_str(&sse_data(events.last().expect("the error"))).expect("JSON");
                assert_eq!(error["type"], "error", "{path}");
            }
            let audit = sidecar.audit();
            assert_eq!((audit.only_call().result(), audit.only_call().end()), ("upstream_error", "cut_by_upstream"), "{path}");
        }
    }
}

#[tokio::test]
async fn a_cut_stream_loses_nothing_that_came_before_the_cut() {
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
async fn an_upstream_that_breaks_off_before_its_answer_is_a_502_and_its_outcome_unknown() {
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
async fn interim_answers_of_the_upstream_do_not_reach_the_client() {
    for statuses in [vec![100], vec![102], vec![103], vec![100, 103, 102]] {
        let script = statuses.iter().fold(Script::chat("hi"), |script, status| script.after_interim(*status));
        let (answer, audit) = ask(script, CHAT, json!({"model": "m", "messages": []})).await;
        assert_eq!(answer.interim, [] as [u16; 0]);
        assert_eq!(answer.expect(200).json()["choices"][0]["message"]["content"], "hi");
        assert_eq!(audit.only_call().result(), "ok");
    }
}

#[tokio::test]
async fn an_answer_shorter_than_its_length_is_cut() {
    for path in [CHAT, "/v1/messages"] {
        let upstream = Upstream::answering(Script::body(200, "application/json", "{\"a\":1}").content_length(9).then_close()).start().await;
        let sidecar = Sidecar::to(&upstream).start().await;
        let answer = sidecar.post(path, call(path)).await;
        assert_eq!((answer.status, answer.complete), (200, false), "{path}: {}", answer.text());
        let audit = sidecar.audit();
        assert_eq!((audit.only_call().result(), audit.only_call().end()), ("upstream_error", "cut_by_upstream"), "{path}");
    }
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_is_whole() {
    let unary = json!({"model": "m", "messages": []});
    for (script, body, held) in [
        (Script::chat("hi").until_close(), unary.clone(), "\"hi\""),
        (Script::chat("hi").chunked(), unary, "\"hi\""),
        (Script::chat_stream(["hi"]).until_close(), call(CHAT), "data: [DONE]\n\n"),
        (Script::body(200, "text/event-stream", "data: [DONE]\n\n"), call(CHAT), "data: [DONE]\n\n"),
    ] {
        let (answer, audit) = ask(script, CHAT, body).await;
        let text = answer.expect(200).text();
        assert!(text.contains(held), "{text}");
        assert_eq!((audit.only_call().result(), audit.only_call().end()), ("ok", "complete"));
    }
}

/// Every way in which a client can see that an answer is over.
fn endings() -> Vec<(&'static str, &'static str, Script, Value)> {
    let unary = || json!({"model": "m", "messages": []});
    let mut all: Vec<_> = ROUTES.iter().map(|(path, ends)| (*path, *ends, stream(path, &["a"]), without_usage(path))).collect();
    all.extend([
        (CHAT, "", Script::chat("a"), unary()),
        (CHAT, "", Script::chat("a").in_pieces(10), unary()),
        (CHAT, "", Script::chat("a").in_pieces(10).chunked(), unary()),
        (CHAT, "", Script::chat("a").until_close(), unary()),
        (CHAT, "", Script::error(400, "no"), unary()),
        (CHAT, "", Script::error(401, "no"), unary()),
        (CHAT, "", Script::close(), unary()),
        ("/v1/embeddings", "", Script::embeddings(), json!({"model": "m", "input": "a"})),
    ]);
    all
}

/// Reads until the event that ends the stream, or the last byte.
async fn to_the_end(sidecar: &Sidecar, path: &str, ends: &str, body: &Value) {
    let mut client = sidecar.stream(path, body).await;
    if ends.is_empty() {
        client.read_response().await;
        return;
    }
    loop {
        let event = client.read_event().await.unwrap_or_else(|| panic!("{path} ended without {ends}"));
        if event.contains(ends) {
            return;
        }
    }
}

#[tokio::test]
async fn who_sees_the_end_of_an_answer_finds_its_outcome_in_the_file() {
    for (path, ends, script, body) in endings() {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "call"]).start().await;
        for number in 1..=10 {
            to_the_end(&sidecar, path, ends, &body).await;
            assert_eq!(sidecar.audit().outcomes().len(), number, "{path} {ends} {body}");
        }
    }
}

#[tokio::test]
async fn who_sees_the_end_of_an_answer_finds_its_outcome_even_if_the_sidecar_is_killed_then() {
    for round in 0..3 {
        for (path, ends, script, body) in endings() {
            let upstream = Upstream::answering(script).start().await;
            let sidecar = Sidecar::to(&upstream).start().await;
            to_the_end(&sidecar, path, ends, &body).await;
            sidecar.kill().await;
            let (audit, torn) = AuditFile::read_torn(sidecar.audit_path());
            assert_eq!((audit.calls().len(), audit.open_calls().len(), torn.len()), (1, 0, 0), "{path} {ends} {body}, round {round}");
        }
    }
}

#[tokio::test]
async fn the_times_of_a_stream_are_told_in_their_order() {
    let upstream = Upstream::answering(Script::chat_stream(["a", "b"])).hold_each().start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.stream(CHAT, call(CHAT)).await;
    upstream.step();
    while client.read_event().await.is_some() {
        upstream.step();
    }

    let timing = sidecar.audit().only_call().outcome["timing_us"].clone();
    let us = |name: &str| timing[name].as_u64().unwrap_or_else(|| panic!("no {name}: {timing}"));
    for name in ["queue", "connect", "own"] {
        assert!(us(name) <= us("total"), "{name}: {timing}");
    }
    assert!(us("ttfb") <= us("first_token") && us("first_token") <= us("total"), "{timing}");
    assert!(us("longest_gap") > 0 && us("longest_gap") <= us("total"), "{timing}");

    let (_, audit) = ask(Script::chat_stream(["a"]).in_a_burst(), CHAT, call(CHAT)).await;
    let burst = &audit.only_call().outcome["timing_us"];
    assert!(burst["first_token"].is_u64() && burst["longest_gap"].is_u64(), "{burst}");
}
