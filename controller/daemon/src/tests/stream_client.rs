//! A client of streams of events.

use std::time::Duration;

use serde_json::Value;
use sluice_state::events::{EventQuota, EventSource, NewLoggedEvent};
use sluice_state::store::now_us;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::test_daemon::TestDaemon;

/// A client of a stream.
pub(super) struct Client {
    stream: TcpStream,
    text: String,
}

/// A frame of a stream.
#[derive(Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) name: String,
    pub(super) id: Option<i64>,
    pub(super) data: Value,
}

impl Client {
    pub(super) async fn open(daemon: &TestDaemon, token: &str, path: &str, header: &str) -> Self {
        let stream = TcpStream::connect(daemon.address()).await.expect("it listens");
        Self::over(stream, daemon, token, path, header).await
    }

    /// Opens the stream over an existing connection.
    pub(super) async fn over(
        mut stream: TcpStream,
        daemon: &TestDaemon,
        token: &str,
        path: &str,
        header: &str,
    ) -> Self {
        let (host, token) = (daemon.address(), daemon.bearer(token));
        let text = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}\r\n{header}\r\n");
        stream.write_all(text.as_bytes()).await.expect("it reads");
        Self { stream, text: String::new() }
    }

    /// Reads until the text contains this part, and returns the text before it; `None` at the end of the stream.
    pub(super) async fn until(&mut self, part: &str) -> Option<String> {
        loop {
            if let Some((before, after)) = self.text.split_once(part) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.text = after;
                return Some(before);
            }
            let mut bytes = [0; 4096];
            let read = self.stream.read(&mut bytes);
            let count = timeout(Duration::from_secs(60), read).await.expect("it comes in time").unwrap_or_default();
            if count == 0 {
                return None;
            }
            self.text += std::str::from_utf8(&bytes[..count]).expect("it is text");
        }
    }

    pub(super) async fn status(&mut self) -> u16 {
        let head = self.until("\r\n\r\n").await.expect("an answer");
        head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
    }

    /// Returns the next frame other than a ping.
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        loop {
            let text = self.until("\n\n").await?;
            let (mut name, mut id, mut data) = ("message".to_owned(), None, None);
            // Lines of the transfer encoding are between frames.
            for line in text.lines() {
                match line.split_once(": ") {
                    Some(("event", value)) => value.clone_into(&mut name),
                    Some(("id", value)) => id = value.parse().ok(),
                    Some(("data", value)) => data = serde_json::from_str(value).ok(),
                    _ => {}
                }
            }
            if let Some(data) = data {
                return Some(Frame { name, id, data });
            }
        }
    }

    pub(super) async fn frames(&mut self, count: usize) -> Vec<Frame> {
        let mut frames = Vec::new();
        while frames.len() < count {
            frames.push(self.frame().await.expect("a frame"));
        }
        frames
    }
}

/// Appends an event of an agent, and returns its position.
pub(super) async fn append(daemon: &TestDaemon, owner: &str, run_id: &str, event_type: &str, data: &Value) -> i64 {
    let event = NewLoggedEvent::of_run(owner, run_id, event_type, data.to_string(), now_us());
    let event = NewLoggedEvent { source: EventSource::Agent, ..event };
    let appended = daemon.store().append_events(vec![event], EventQuota::default()).await.expect("it is writable");
    appended[0].as_ref().expect("it is right").seq
}
