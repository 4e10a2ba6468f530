//! The client against servers that are slow, broken or hostile.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::*;

/// Reaction of a server to a connection, after the head of the request.
#[derive(Clone)]
enum Reply {
    /// Writes these bytes, and closes.
    Bytes(Vec<u8>),
    /// Writes these bytes, and then nothing more.
    Silence(Vec<u8>),
    /// Writes the first bytes, and then the others again and again.
    Endless(Vec<u8>, Vec<u8>),
}

/// A server with one reply for each connection, and the last reply for all further connections. It keeps the heads of
/// its requests.
struct TestServer {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestServer {
    async fn new(replies: Vec<Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            let mut count = 0;
            while let Ok((mut socket, _)) = listener.accept().await {
                let reply = replies[count.min(replies.len() - 1)].clone();
                count += 1;
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                        if socket.read_buf(&mut head).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    seen.lock().expect("no panic").push(String::from_utf8_lossy(&head).into_owned());
                    let (Reply::Bytes(bytes) | Reply::Silence(bytes) | Reply::Endless(bytes, _)) = &reply;
                    let _ = socket.write_all(bytes).await;
                    match &reply {
                        Reply::Bytes(_) => {}
                        Reply::Silence(_) => std::future::pending().await,
                        Reply::Endless(_, more) => while socket.write_all(more).await.is_ok() {},
                    }
                });
            }
        });
        Self { url, heads }
    }

    fn client(&self) -> ApiClient {
        let limits = ClientLimits {
            within: Duration::from_secs(5),
            answer: 1 << 20,
            line: 1 << 16,
            quiet: Duration::from_millis(300),
            without_connection: Duration::from_secs(1),
        };
        let token = ApiToken::new("slu_secret").ok();
        ApiClient::new(Server::new(&self.url, None, token).expect("an address")).with_limits(limits)
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("no panic").clone()
    }
}

fn answer(status: &str, body: &str) -> Reply {
    Reply::Bytes(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

/// The beginning of an answer that ends with its connection.
fn stream(body: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\n\r\n{body}").into_bytes()
}

/// An answer in one chunk, with its end.
fn whole(body: &str) -> Reply {
    Reply::Bytes(
        format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len())
            .into_bytes(),
    )
}

/// The beginning of an answer in chunks that breaks off.
fn cut(body: &str) -> Reply {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    Reply::Bytes(format!("{head}{:x}\r\n{body}\r\n", body.len()).into_bytes())
}

fn request() -> ApiRequest {
    ApiRequest::get(&["sandboxes", "r_1"])
}

fn event(seq: i64) -> String {
    let event = json!({
        "seq": seq, "id": format!("evt_{seq}"), "sandbox_id": "r_1", "attempt": 0, "agent_id": "a",
        "event_type": "agent.progress", "event_data": {"n": seq}, "source": "agent", "created_at": "2026-11-20T00:00:00Z",
        "of_a_later_version": true
    });
    format!("id: {seq}\ndata: {event}\n\n")
}

const SNAPSHOT: &str = "id: 0\nevent: snapshot\ndata: {\"seq\":0}\n\n";
const END: &str = "event: end\ndata: {\"state\":\"FAILED\",\"failure_code\":\"timeout\",\"exit_code\":124}\n\n";

#[tokio::test]
async fn a_request_has_its_token_and_host() {
    let server = TestServer::new(vec![answer("200 OK", r#"{"a":1}"#)]).await;
    let found: Value = server.client().send(ApiRequest::post(&["x"]).json(&json!({"b": 2}))).await.expect("an object");
    assert_eq!(found, json!({"a": 1}));
    let head = server.heads().remove(0).to_lowercase();
    let host = server.url.trim_start_matches("http://");
    for line in
        ["post /api/v1/x http/1.1", "authorization: bearer slu_secret", "content-length: 7", &format!("host: {host}")]
    {
        assert!(head.contains(line), "{head}");
    }
}

#[tokio::test]
async fn failures_are_told_apart_and_never_followed() {
    let redirect =
        Reply::Bytes(b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n".to_vec());
    let refused = r#"{"error":{"code":"not_found","message":"there is no such object"}}"#;
    for (reply, expected) in [
        (answer("404 Not Found", refused), "there is no such object"),
        (answer("500 Oops", "<html>slu_secret</html>"), "with status 500"),
        (redirect, "with status 302"),
        (answer("200 OK", "[1]"), "not one of this API"),
        (answer("200 OK", r#"{"sandbox_id":7}"#), "not one of this API"),
        (Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec()), "broke off"),
        (Reply::Bytes(b"SSH-2.0-OpenSSH\r\n".to_vec()), "broke off"),
        (Reply::Bytes(Vec::new()), "broke off"),
    ] {
        let server = TestServer::new(vec![reply]).await;
        let error = server.client().send::<ApiSandbox>(request()).await.expect_err(expected);
        assert!(error.to_string().contains(expected) && !error.to_string().contains("secret"), "{error}");
        assert_eq!(server.heads().len(), 1);
    }
    let gone = Server::new("http://127.0.0.1:1", None, None).expect("an address");
    let error = ApiClient::new(gone).send::<Value>(request()).await.expect_err("nothing listens");
    assert!(matches!(error, ClientError::Unreachable(..)) && error.may_pass(), "{error}");
}

/// Bug: a daemon that was killed while `sluice wait` looked for its run ended the command.
#[tokio::test]
async fn an_answer_that_breaks_off_is_requested_again() {
    let broken = Reply::Bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec());
    let busy = answer("503 Busy", r#"{"error":{"code":"stopping","message":"the daemon stops"}}"#);
    let server = TestServer::new(vec![broken, busy.clone(), answer("200 OK", r#"{"a":1}"#)]).await;
    let found: Value = server.client().send_until_whole(request()).await.expect("the third answer is whole");
    assert_eq!((found, server.heads().len()), (json!({"a": 1}), 3));

    let server = TestServer::new(vec![busy]).await;
    let error = server.client().send_until_whole::<Value>(request()).await.expect_err("a whole answer");
    assert_eq!((error.failure().map(|failure| failure.status), server.heads().len()), (Some(503), 1));
}

#[tokio::test]
async fn answers_without_an_end_are_cut() {
    let endless = Reply::Endless(stream(""), vec![b'x'; 4096]);
    let server = TestServer::new(vec![endless]).await;
    let error = server.client().bytes(request()).await.expect_err("it has no end");
    assert!(matches!(error, ClientError::TooLong(.., 1_048_576)), "{error}");
    let error = server.client().open(request()).await.expect("a head").next().await.expect_err("its line has no end");
    assert!(matches!(error, ClientError::TooLong(..)), "{error}");
    let endless_head = Reply::Endless(b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'y'; 9000]);
    let server = TestServer::new(vec![endless_head]).await;
    let error = server.client().bytes(request()).await.expect_err("its head has no end");
    assert!(matches!(error, ClientError::Interrupted(..)), "{error}");
}

#[tokio::test]
async fn a_silent_server_is_left_in_time() {
    let limits = ClientLimits { within: Duration::from_millis(200), ..ClientLimits::default() };
    for bytes in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{"] {
        let server = TestServer::new(vec![Reply::Silence(bytes.to_vec())]).await;
        let error = server.client().with_limits(limits).bytes(request()).await.expect_err("it is silent");
        assert!(matches!(error, ClientError::Late(..)), "{error}");
    }
}

#[tokio::test]
async fn a_stream_goes_on_after_its_last_event() {
    let first = cut(&format!("{SNAPSHOT}{}{}: ping\n\nid: 3\ndata: {{", event(1), event(2)));
    let quiet = Reply::Silence(stream(SNAPSHOT));
    let busy = answer("503 Busy", r#"{"error":{"code":"stopping","message":"the daemon stops"}}"#);
    let last =
        format!("{SNAPSHOT}{}{}event: gap\ndata: {{\"from\":4,\"to\":8}}\n\n{}{END}", event(2), event(3), event(9));
    let server = TestServer::new(vec![first, quiet, busy, Reply::Bytes(stream(&last))]).await;
    let client = server.client();
    let selection =
        StreamSelection { sandbox: Some("r_1".to_owned()), types: Some("agent.*".to_owned()), after: Some(0) };
    let mut events = ApiEventStream::new(&client, selection);
    let mut seen = Vec::new();
    loop {
        match events.next().await.expect("it goes on") {
            StreamItem::Snapshot(_) => seen.push("snapshot".to_owned()),
            StreamItem::Event(event) => seen.push(event.seq.to_string()),
            StreamItem::Gap { from, to } => seen.push(format!("{from}-{to}")),
            StreamItem::End(end) => {
                assert_eq!((end.failure_code.as_deref(), end.exit_code), (Some("timeout"), Some(124)));
                break;
            }
        }
    }
    assert_eq!(seen, ["snapshot", "1", "2", "3", "4-8", "9"]);
    let positions: Vec<_> = server
        .heads()
        .iter()
        .map(|head| head.lines().find_map(|line| line.strip_prefix("last-event-id: ")).map(str::to_owned))
        .collect();
    assert_eq!(positions, ["0", "2", "2", "2"].map(|position| Some(position.to_owned())));
}

#[tokio::test]
async fn a_stream_ends_with_a_lasting_error() {
    let refused = answer("401 No", r#"{"error":{"code":"unauthorized","message":"a valid token is needed"}}"#);
    let server = TestServer::new(vec![cut(SNAPSHOT), refused]).await;
    let client = server.client();
    let mut events = ApiEventStream::new(&client, StreamSelection::default());
    assert!(matches!(events.next().await, Ok(StreamItem::Snapshot(_))));
    let error = events.next().await.expect_err("the token was revoked");
    assert_eq!(error.failure().map(|failure| failure.code.as_str()), Some("unauthorized"));
    let wrong = TestServer::new(vec![Reply::Bytes(stream("data: [1]\n\n"))]).await;
    let client = wrong.client();
    let error = ApiEventStream::new(&client, StreamSelection::default()).next().await.expect_err("it is no event");
    assert!(matches!(error, ClientError::Malformed(..)), "{error}");
    let gone = TestServer::new(vec![Reply::Bytes(Vec::new())]).await;
    let client = gone.client();
    let error = ApiEventStream::new(&client, StreamSelection::default()).next().await.expect_err("it is given up");
    assert!(matches!(error, ClientError::Interrupted(..)), "{error}");
}

#[tokio::test]
async fn output_goes_on_where_it_broke_off() {
    let line = |position: u64, content: &str| {
        format!("{{\"position\":{position},\"stream\":\"stdout\",\"offset\":0,{content}}}\n")
    };
    let first = cut(&format!("{}{{\"posi", line(5, r#""ts":"t","text":"a\n""#)));
    let second = whole(&format!("{}{}", line(9, r#""base64":"/wA=""#), line(12, r#""missing":7"#)));
    let server = TestServer::new(vec![first, second]).await;
    let client = server.client();
    let selection = LogSelection { sandbox: "r_1".to_owned(), follow: true, ..LogSelection::default() };
    let mut logs = ApiLogStream::new(&client, selection);
    let mut seen = Vec::new();
    while let Some(line) = logs.next().await.expect("it goes on") {
        seen.push((line.bytes(), line.missing));
    }
    assert_eq!(seen, [(b"a\n".to_vec(), None), (vec![0xff, 0], None), (Vec::new(), Some(7))]);
    let second = server.heads().remove(1);
    assert!(second.starts_with("GET /api/v1/sandboxes/r_1/logs?follow=true&after=5 "), "{second}");
}

/// Bug: output of a program that wrote nothing for half an hour was no longer followed.
#[tokio::test]
async fn silence_on_an_open_connection_is_no_failure() {
    let line = "{\"position\":5,\"stream\":\"stdout\",\"text\":\"a\\n\"}\n";
    let server = TestServer::new(vec![Reply::Silence(stream("")), whole(line)]).await;
    // The first failed attempt ends the stream.
    let limits = ClientLimits {
        within: Duration::from_secs(5),
        quiet: Duration::from_millis(100),
        without_connection: Duration::ZERO,
        ..ClientLimits::default()
    };
    let client = server.client().with_limits(limits);
    let selection = LogSelection { sandbox: "r_1".to_owned(), follow: true, ..LogSelection::default() };
    let line = ApiLogStream::new(&client, selection.clone()).next().await.expect("it goes on").expect("a line");
    assert_eq!((line.bytes(), line.position), (b"a\n".to_vec(), 5));

    let silent = TestServer::new(vec![Reply::Silence(Vec::new())]).await;
    let client = silent.client().with_limits(ClientLimits { within: Duration::from_millis(100), ..limits });
    let error = ApiLogStream::new(&client, selection).next().await.expect_err("it has no head");
    assert!(matches!(error, ClientError::Late(..)), "{error}");
}
