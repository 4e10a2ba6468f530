//! The upstream's answer reaches the client at once and byte for byte in any framing, and its end comes only after the
//! outcome is written.

use serde_json::{Value, json};
use sluice_testkit::{CheckedAuditFile, ClientAnswer, Script, Sidecar, Upstream, sse_data};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

mod broken;
mod ends;

const CHAT: &str = "/v1/chat/completions";
/// Every route that streams, and the event type that ends its stream.
const ROUTES: [(&str, &str); 4] = [
    (CHAT, "[DONE]"),
    ("/v1/completions", "[DONE]"),
    ("/v1/responses", "response.completed"),
    ("/v1/messages", "message_stop"),
];

/// A streaming call to the route; it asks for usage where the route allows that.
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

/// Makes a call through a new sidecar, and returns the whole answer and the audit file after the outcome.
async fn ask(script: Script, path: &str, body: Value) -> (ClientAnswer, CheckedAuditFile) {
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
                let next_is_hidden =
                    path.ends_with("completions") && body["stream_options"].is_null() && events.len() == 4;
                (0..=usize::from(next_is_hidden)).for_each(|_| upstream.step());
            }
            let whole = |text: &&str| events.iter().any(|event| event.contains(&format!("{text:?}")));
            assert!(["a", "b", "c"].iter().all(whole), "{path}: {events:?}");
            assert!(events.last().is_some_and(|last| last.contains(ends)), "{path}: {events:?}");
        }
    }
}

/// Streams with everything that the format allows and that breaks some parsers.
fn odd_streams() -> Vec<(&'static str, String)> {
    let chunk = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]}).to_string();
    let long = chunk(&"x".repeat(1 << 20));
    vec![
        ("CR", format!("data: {}\r\rdata: [DONE]\r\r", chunk("a"))),
        ("CRLF", format!("data: {}\r\n\r\ndata: [DONE]\r\n\r\n", chunk("a"))),
        (
            "all kinds of line ends",
            format!("data: {}\r\n\rdata: {}\n\r\ndata: {}\r\r\ndata: [DONE]\n\n", chunk("a"), chunk("b"), chunk("c")),
        ),
        (
            "comments and pings",
            format!(": hello\n\n:\n\ndata: {}\n: in between\n\nevent: ping\n\n: bye\n\ndata: [DONE]\n\n", chunk("a")),
        ),
        ("other fields", format!("id: 7\nretry: 10\nevent: x\ndata:{}\nfoo: bar\nbaz\n\ndata:[DONE]\n\n", chunk("a"))),
        (
            "data in many lines",
            "data: {\"choices\":\ndata: [{\"delta\":\ndata:  {\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n".to_owned(),
        ),
        ("many bytes a character", format!("data: {}\n\ndata: [DONE]\n\n", chunk("é € 𝄞 🧑‍🚀 \u{feff}\u{2028}"))),
        ("no end", format!("data: {}\n\ndata: {}", chunk("a"), chunk("b"))),
        ("no blank line at the end", format!("data: {}\n\ndata: [DONE]\n", chunk("a"))),
        (
            "something behind the end",
            format!("data: {}\n\ndata: [DONE]\n\n: late\n\ndata: {}\n\n", chunk("a"), chunk("b")),
        ),
        ("no stream of events at all", "{\"a\": [1, 2,\n\n\n 3]}\u{0}\u{1}".to_owned()),
        ("empty", String::new()),
        (
            "an event of 1 MiB",
            format!("data: {}\n\ndata: {long}\n\ndata: {}\n\ndata: [DONE]\n\n", chunk("a"), chunk("b")),
        ),
    ]
}

#[tokio::test]
async fn bytes_pass_unchanged_in_any_framing_and_split() {
    let streams = odd_streams();
    let sizes = |sent: &str| {
        if sent.len() > 1 << 20 { vec![30_000, 65_537] } else { vec![1, 2, 3, 7, 64, 50_000] }
    };
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
async fn upstream_extensions_and_trailers_stop_at_the_sidecar() {
    let upstream = Upstream::answering(Script::chat_stream(["a", "b"]).odd_chunks()).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut stream = UnixStream::connect(sidecar.socket()).await.expect("the sidecar listens");
    let body = call(CHAT).to_string();
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: x\r\nte: trailers\r\nconnection: close, te\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.expect("the sidecar reads");
    let mut all = String::new();
    stream.read_to_string(&mut all).await.expect("and closes in order");

    assert!(all.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), "{all}");
    assert!(!all.contains("trailer") && !all.contains(";ext"), "{all}");
}

#[tokio::test]
async fn usage_is_hidden_only_from_clients_without_request() {
    for path in [CHAT, "/v1/completions"] {
        let plain = without_usage(path);
        let mut refused = plain.clone();
        refused["stream_options"] = json!({"include_usage": false});
        for (body, events) in [(plain, 4), (refused, 4), (call(path), 5)] {
            let (answer, audit) = ask(stream(path, &["a", "b"]), path, body).await;
            assert_eq!(
                (answer.events().len(), answer.text().contains("\"usage\"")),
                (events, events == 5),
                "{}",
                answer.text()
            );
            assert_eq!(audit.only_call().tokens(), Some((Some(10), Some(5), Some(15))));
        }
    }
}

#[tokio::test]
async fn hiding_usage_leaves_everything_else_as_it_was() {
    let usage = json!({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15});
    let output = json!([{"index": 0, "delta": {"content": "hi"}}]);
    for (event, left) in [
        (format!(r#"{{"usage":{usage},"choices":{output}}}"#), Some(json!({"choices": output}))),
        (format!(r#"{{"choices":{output},"usage":{usage}}}"#), Some(json!({"choices": output}))),
        (format!(r#"{{"id":"a","usage":{usage},"choices":{output}}}"#), Some(json!({"id": "a", "choices": output}))),
        (format!(r#"{{"error":{{"message":"boom"}},"usage":{usage}}}"#), Some(json!({"error": {"message": "boom"}}))),
        (format!(r#"{{"choices":[],"usage":{usage}}}"#), None),
    ] {
        let sent = format!("data: {event}\n\ndata: [DONE]\n\n");
        let whole = Script::body(200, "text/event-stream", sent);
        for script in
            [whole.clone(), whole.clone().chunked(), whole.clone().in_pieces(1).chunked(), whole.until_close()]
        {
            let (answer, audit) = ask(script, CHAT, without_usage(CHAT)).await;
            let mut data = answer.expect(200).data();
            assert_eq!(data.pop().as_deref(), Some("[DONE]"), "{event}");
            let parsed =
                |text: String| serde_json::from_str::<Value>(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let mut data: Vec<Value> = data.into_iter().map(parsed).collect();
            // An error may keep the members beside it.
            data.iter_mut().filter(|one| one["error"].is_object()).for_each(|one| one["usage"] = Value::Null);
            let left = left.clone().map(|mut left| {
                if left["error"].is_object() {
                    left["usage"] = Value::Null;
                }
                left
            });
            assert_eq!(data, Vec::from_iter(left), "{event}");
            assert_eq!(audit.only_call().tokens(), Some((Some(10), Some(5), Some(15))), "{event}");
        }
    }
}

#[tokio::test]
async fn interim_upstream_answers_do_not_reach_the_client() {
    for statuses in [vec![100], vec![102], vec![103], vec![100, 103, 102]] {
        let script = statuses.iter().fold(Script::chat("hi"), |script, status| script.after_interim(*status));
        let (answer, audit) = ask(script, CHAT, json!({"model": "m", "messages": []})).await;
        assert_eq!(answer.interim, [] as [u16; 0]);
        assert_eq!(answer.expect(200).json()["choices"][0]["message"]["content"], "hi");
        assert_eq!(audit.only_call().result(), "ok");
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

#[tokio::test]
async fn the_times_of_a_stream_are_in_order() {
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
