//! A server that answers by a script, and tests that apply to all forges.

use std::future::ready;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use sluice_upstream::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::api::{ANSWER_MAX, Authorization, ForgeClient};
use super::{Forge, ForgeError, ForgeToken, MergeRequest, NewPullRequest, Pause, RuntimePause, merge};

pub(super) const TOKEN: &str = "ghp-secret-0123456789";

/// A request that the server got.
#[derive(Debug)]
pub(super) struct SeenRequest {
    /// Method and target.
    pub(super) line: String,
    pub(super) head: String,
    pub(super) body: Value,
}

/// A server that answers one request on each connection, in the order of its script.
pub(super) struct Scripted {
    pub(super) url: String,
    answers: usize,
    seen: Arc<Mutex<Vec<SeenRequest>>>,
    served: JoinHandle<()>,
}

impl Scripted {
    /// Starts the server. An empty answer closes the connection.
    pub(super) async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let (seen, count) = (Arc::new(Mutex::new(Vec::new())), answers.len());
        let noted = Arc::clone(&seen);
        let served = tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a client connects");
                let request = request(&mut stream).await;
                noted.lock().expect("nobody panics").push(request);
                // A client may close the connection before the end of a long answer.
                let _ = stream.write_all(answer.as_bytes()).await;
            }
        });
        Self { url, answers: count, seen, served }
    }

    /// Returns all requests. There must have been one for each answer of the script.
    pub(super) async fn seen(self) -> Vec<SeenRequest> {
        self.served.abort();
        let ended = self.served.await;
        assert!(ended.is_ok() || ended.is_err_and(|error| error.is_cancelled()), "the server panicked");
        let seen = std::mem::take(&mut *self.seen.lock().expect("nobody panics"));
        assert_eq!(seen.len(), self.answers, "requests: {seen:?}");
        seen
    }

    /// Returns method and target of all requests.
    pub(super) async fn lines(self) -> Vec<String> {
        self.seen().await.into_iter().map(|seen| seen.line).collect()
    }
}

async fn request(stream: &mut TcpStream) -> SeenRequest {
    let mut bytes = Vec::new();
    loop {
        let mut part = vec![0; 8192];
        let read = stream.read(&mut part).await.expect("it can be read");
        bytes.extend_from_slice(&part[..read]);
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            if body.len() >= length {
                let line = head.lines().next().expect("there is a line").trim_end_matches(" HTTP/1.1").to_owned();
                return SeenRequest {
                    line,
                    head: head.to_owned(),
                    body: serde_json::from_str(body).unwrap_or(Value::Null),
                };
            }
        }
        assert!(read > 0, "the request is incomplete: {text}");
    }
}

/// Returns an answer with JSON.
pub(super) fn answer(status: u16, body: &Value) -> String {
    raw(status, "", &body.to_string())
}

/// Returns an answer with these further headers.
pub(super) fn raw(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

/// Does not wait, and records the times.
#[derive(Debug, Default)]
pub(super) struct Counted(Mutex<Vec<u64>>);

impl Counted {
    pub(super) fn seconds(&self) -> Vec<u64> {
        self.0.lock().expect("nobody panics").clone()
    }
}

impl Pause for Counted {
    fn pause(&self, time: Duration) -> impl Future<Output = ()> + Send {
        self.0.lock().expect("nobody panics").push(time.as_secs());
        ready(())
    }
}

pub(super) fn token() -> ForgeToken {
    ForgeToken::new(TOKEN).expect("it is a token")
}

async fn asked(url: &str) -> Result<(), ForgeError> {
    let client = ForgeClient::new(&Upstream::at(url), &[])?;
    let authorization = Authorization { scheme: "Bearer", token: token() };
    let sent = client.send(&authorization, Method::GET, "/repos/o/r?secret=1", None).await?;
    sent.success().map(drop)
}

#[tokio::test]
async fn an_error_shows_neither_token_nor_control_characters() {
    let hostile =
        json!({"message": format!("\u{1b}[2J{TOKEN}\u{202e}"), "errors": [{"message": "x".repeat(5000)}, "y"]});
    let limited = "x-ratelimit-remaining: 0\r\nretry-after: 7\r\n";
    for (answer, expected, is_retryable) in [
        (answer(401, &hostile), "Denied", false),
        (answer(403, &hostile), "Denied", false),
        (answer(404, &hostile), "NotFound", false),
        (answer(422, &hostile), "Refused", false),
        (answer(502, &hostile), "Failed", true),
        (raw(502, "", &format!("<html>{TOKEN}\u{1b}")), "Failed", true),
        (raw(403, limited, "{}"), "RateLimited(\"GET /repos/o/r\", Some(7s))", true),
        (raw(429, "", "{}"), "RateLimited(\"GET /repos/o/r\", None)", true),
        (raw(302, "location: http://evil/\r\n", ""), "Redirected", false),
        (raw(200, "", &"x".repeat(ANSWER_MAX + 1)), "TooLong", false),
        (raw(200, &format!("x: {}\r\n", "x".repeat(300_000)), ""), "Interrupted", true),
        ("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".into(), "Interrupted", true),
        ("not HTTP at all\r\n\r\n".into(), "Interrupted", true),
        (String::new(), "Interrupted", true),
    ] {
        let server = Scripted::start(vec![answer]).await;
        let error = asked(&server.url).await.expect_err(expected);
        let text = format!("{error:?} {} {error}", sluice_contract::text::error_chain(&error));
        assert!(text.starts_with(expected) && error.to_string().contains("GET /repos/o/r"), "{expected}: {text}");
        assert!(!text.contains("secret") && !text.contains(['\u{1b}', '\u{202e}']) && text.len() < 3000, "{text}");
        assert_eq!(error.is_retryable(), is_retryable, "{text}");
        server.seen().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_forge_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    assert!(matches!(asked(&url).await, Err(ForgeError::Late(..))));
    drop(listener);
    assert!(matches!(asked(&url).await, Err(ForgeError::Unreachable(..))));
}

#[tokio::test]
async fn an_address_with_a_password_is_not_repeated() {
    for url in ["http://me:pw-secret@host", "ftp://pw-secret@host", "https://host/?k=secret"] {
        let text = format!("{:?}", asked(url).await.expect_err(url));
        assert!(text.starts_with("Address") && !text.contains("secret"), "{text}");
    }
}

/// The daemon does both in tasks that move between threads.
#[test]
fn publishing_and_merging_can_change_threads() {
    fn is_send<T: Send>(_: impl FnOnce(&'static Forge, &'static NewPullRequest<'static>) -> T) {}
    fn is_send_too<T: Send>(_: impl FnOnce(&'static Forge, &'static MergeRequest<'static>) -> T) {}
    is_send(|forge, new| forge.publish(new, &RuntimePause));
    is_send_too(|forge, request| merge(forge, 1, request, &RuntimePause));
}
