//! A raw client on the sidecar's socket: it sends any bytes, and accepts only headers that may reach an agent.

use std::io;
use std::path::Path;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::http1::{Body, first_event, take_head};
use crate::wait::PATIENCE;

mod answer;
mod payload;

pub use answer::{ClientAnswer, Head};
use answer::{check_headers, parse_head};
pub use payload::RequestPayload;

/// The response headers that may reach an agent; any other fails the test that reads it.
pub const ALLOWED: [&str; 26] = [
    "content-type",
    "content-length",
    "transfer-encoding",
    "connection",
    "date",
    "retry-after",
    "x-litellm-call-id",
    "x-litellm-response-cost",
    "x-sluice-reason",
    "x-sluice-max-tokens",
    "x-should-retry",
    "allow",
    "upgrade",
    "x-request-id",
    "request-id",
    "x-sluice-dropped",
    "x-ratelimit-remaining-requests",
    "x-ratelimit-remaining-tokens",
    "x-ratelimit-reset-requests",
    "x-ratelimit-reset-tokens",
    "x-ratelimit-remaining-input-tokens",
    "x-ratelimit-remaining-output-tokens",
    "anthropic-ratelimit-requests-remaining",
    "anthropic-ratelimit-requests-reset",
    "anthropic-ratelimit-input-tokens-remaining",
    "anthropic-ratelimit-input-tokens-reset",
];

/// One connection to a unix socket.
///
/// Each wait is bounded by [`PATIENCE`] and then panics with the bytes read so far.
#[derive(Debug)]
pub struct RawClient {
    stream: UnixStream,
    allowed: Vec<String>,
    any_header: bool,
    method: String,
    /// Bytes that were read, and not yet parsed.
    buffer: BytesMut,
    /// The current response: its head until `read_response` takes it, and the rest of its body.
    head: Option<Head>,
    body: Option<Body>,
    /// Bytes of the body that were decoded, and not yet returned.
    decoded: Vec<u8>,
    /// True when the current body has been read to its end.
    ended: bool,
    end: Option<End>,
    /// The first bytes read, for panics.
    transcript: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum End {
    Closed,
    Reset,
}

enum More {
    Yes,
    Ended { complete: bool },
}

impl RawClient {
    /// Connects; panics on failure.
    pub async fn connect(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let connected = Self::try_connect(path).await;
        connected.unwrap_or_else(|error| panic!("cannot connect to {}: {error}", path.display()))
    }

    /// Connects.
    pub async fn try_connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let stream = UnixStream::connect(path).await?;
        Ok(Self {
            stream,
            allowed: ALLOWED.map(str::to_owned).to_vec(),
            any_header: false,
            method: String::new(),
            buffer: BytesMut::new(),
            head: None,
            body: None,
            decoded: Vec::new(),
            ended: false,
            end: None,
            transcript: Vec::new(),
        })
    }

    /// Accepts these response headers too.
    #[must_use]
    pub fn allowing<N: AsRef<str>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.allowed.extend(names.into_iter().map(|name| name.as_ref().to_ascii_lowercase()));
        self
    }

    /// Accepts any response header: only for peers other than the sidecar.
    #[must_use]
    pub fn allowing_any(mut self) -> Self {
        self.any_header = true;
        self
    }

    /// Writes the bytes. A peer that has already closed is not an error: it may have answered early.
    pub async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        match self.try_send(bytes).await {
            Err(error) if !matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset) => {
                panic!("cannot send: {error}")
            }
            _ => {}
        }
    }

    /// Writes the bytes.
    pub async fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> io::Result<()> {
        if self.ended {
            (self.head, self.body, self.ended) = (None, None, false);
        }
        let sent = tokio::time::timeout(PATIENCE, self.stream.write_all(bytes.as_ref())).await;
        sent.unwrap_or_else(|_| panic!("the peer did not read for {PATIENCE:?}"))
    }

    /// Writes the bytes one by one, and lets other tasks run in between.
    pub async fn send_slowly(&mut self, bytes: impl AsRef<[u8]>) {
        for byte in bytes.as_ref().chunks(1) {
            self.send(byte).await;
            tokio::task::yield_now().await;
        }
    }

    /// Writes a request with `host`, and `content-length` if there is a body, before `headers`.
    pub async fn send_request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl RequestPayload,
    ) {
        let body = body.into_bytes();
        let mut message = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n");
        if !body.is_empty() {
            message.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        for (name, value) in headers {
            message.push_str(&format!("{name}: {value}\r\n"));
        }
        message.push_str("\r\n");
        method.clone_into(&mut self.method);
        let mut message = message.into_bytes();
        message.extend_from_slice(&body);
        self.send(message).await;
    }

    /// Half-closes: sends no more.
    pub async fn shutdown_write(&mut self) {
        // An error means that the peer closed first.
        let _ = self.stream.shutdown().await;
    }

    /// Sends a request and reads the whole answer.
    pub async fn request(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl RequestPayload,
    ) -> ClientAnswer {
        self.send_request(method, path, headers, body).await;
        self.read_response().await
    }

    /// `GET`.
    pub async fn get(&mut self, path: &str) -> ClientAnswer {
        self.request("GET", path, &[], ()).await
    }

    /// `POST` of JSON, with its content type.
    pub async fn post_json(&mut self, path: &str, body: impl RequestPayload) -> ClientAnswer {
        self.request("POST", path, &[("content-type", "application/json")], body).await
    }

    /// Returns the whole response, or the rest of a response after its head was read.
    pub async fn read_response(&mut self) -> ClientAnswer {
        let head = match self.head.take() {
            Some(head) => head,
            None => {
                self.read_head().await;
                self.head.take().expect("read_head keeps the head")
            }
        };
        let reading = tokio::time::timeout(PATIENCE, async {
            loop {
                if let More::Ended { complete } = self.more().await {
                    break complete;
                }
            }
        });
        let Ok(complete) = reading.await else { self.give_up("a whole response") };
        (self.body, self.ended) = (None, false);
        ClientAnswer { head, body: std::mem::take(&mut self.decoded), complete }
    }

    /// Reads the head of the next final response; interim statuses are in [`Head::interim`].
    pub async fn read_head(&mut self) -> Head {
        let mut interim = Vec::new();
        let mut head = loop {
            let head = self.read_any_head().await;
            if head.status >= 200 || head.status == 101 {
                break head;
            }
            interim.push(head.status);
        };
        head.interim = interim;
        let body = match self.method.as_str() {
            "HEAD" => Ok(Body::Length(0)),
            _ => Body::of_response(head.status, &head.headers),
        };
        self.body = Some(body.unwrap_or_else(|fault| panic!("{fault}")));
        self.decoded.clear();
        self.head = Some(head.clone());
        head
    }

    /// Reads one interim response, and returns its status, such as 100.
    pub async fn read_interim(&mut self) -> u16 {
        let head = self.read_any_head().await;
        assert!(head.status < 200, "an interim response was due, came {}", head.status);
        head.status
    }

    /// Returns the text of the next SSE event, without its blank line; `None` at the end of the body.
    ///
    /// Reads the head first if necessary. A rest without a blank line at the end is an event too.
    pub async fn read_event(&mut self) -> Option<String> {
        self.need_head().await;
        loop {
            if let Some((text, length)) = first_event(&self.decoded) {
                let text = String::from_utf8_lossy(text).into_owned();
                self.decoded.drain(..length);
                return Some(text);
            }
            if !self.more_in_time("an event").await {
                let rest = String::from_utf8_lossy(&std::mem::take(&mut self.decoded)).into_owned();
                return (!rest.is_empty()).then_some(rest);
            }
        }
    }

    /// Returns the bytes of the body that have arrived, at least one; `None` at its end.
    pub async fn read_some(&mut self) -> Option<Vec<u8>> {
        self.need_head().await;
        loop {
            if !self.decoded.is_empty() {
                return Some(std::mem::take(&mut self.decoded));
            }
            if !self.more_in_time("some of the body").await {
                return None;
            }
        }
    }

    /// Waits for the other side to close, and fails if it sends anything before.
    pub async fn expect_closed(&mut self) {
        let waiting = tokio::time::timeout(PATIENCE, async {
            while self.end.is_none() && self.buffer.is_empty() {
                self.pull().await;
            }
        });
        if waiting.await.is_err() {
            self.give_up("the connection to close");
        }
        assert!(self.buffer.is_empty(), "came before the close: {}", String::from_utf8_lossy(&self.buffer));
    }

    async fn need_head(&mut self) {
        if self.body.is_none() {
            self.read_head().await;
        }
    }

    async fn read_any_head(&mut self) -> Head {
        loop {
            match take_head(&mut self.buffer) {
                Err(fault) => panic!("malformed response head: {fault}"),
                Ok(Some(lines)) => {
                    let head = parse_head(lines);
                    if !self.any_header {
                        check_headers(&head, &self.allowed);
                    }
                    return head;
                }
                Ok(None) => {}
            }
            if let Some(end) = self.end {
                panic!("no response head before the end ({end:?}): {}", self.seen());
            }
            if tokio::time::timeout(PATIENCE, self.pull()).await.is_err() {
                self.give_up("a response head");
            }
        }
    }

    /// Returns false at the end of the body.
    async fn more_in_time(&mut self, what: &str) -> bool {
        match tokio::time::timeout(PATIENCE, self.more()).await {
            Ok(More::Yes) => true,
            Ok(More::Ended { .. }) => {
                self.ended = true;
                false
            }
            Err(_) => self.give_up(what),
        }
    }

    /// Decodes the buffered bytes, or reads more and decodes them.
    async fn more(&mut self) -> More {
        let before = self.decoded.len();
        loop {
            let Some(body) = &mut self.body else {
                return More::Ended { complete: true };
            };
            match body.take(&mut self.buffer, &mut self.decoded) {
                Err(fault) => panic!("malformed response body: {fault}"),
                Ok(true) if self.decoded.len() == before => return More::Ended { complete: true },
                Ok(_) if self.decoded.len() > before => return More::Yes,
                Ok(_) => {}
            }
            match self.end {
                None => self.pull().await,
                Some(end) => {
                    let complete = matches!((&self.body, end), (Some(Body::UntilClose), End::Closed));
                    return More::Ended { complete };
                }
            }
        }
    }

    async fn pull(&mut self) {
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(0) => self.end = Some(End::Closed),
            Ok(count) => {
                let new = &self.buffer[self.buffer.len() - count..];
                let room = 16_384_usize.saturating_sub(self.transcript.len());
                self.transcript.extend_from_slice(&new[..count.min(room)]);
            }
            // A unix socket that was closed with unread bytes reports ECONNRESET.
            Err(_) => self.end = Some(End::Reset),
        }
    }

    fn seen(&self) -> String {
        format!("read so far: {:?}", String::from_utf8_lossy(&self.transcript))
    }

    fn give_up(&self, what: &str) -> ! {
        panic!("waited {PATIENCE:?} for {what}; {}", self.seen())
    }
}

#[cfg(test)]
mod tests;
