//! Events as they happen. After a lost connection, the client reconnects and continues after the last event that it read.

use http::{HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::client::ApiClient;
use crate::error::ClientError;
use crate::line_stream::LineStream;
use crate::objects::{Event, StreamEnd};
use crate::request::ApiRequest;
use crate::retry::Retries;
use crate::sse::{SseFrame, SseReader};

/// Events to follow.
#[derive(Debug, Clone, Default)]
pub struct StreamSelection {
    /// Id of the run; all runs otherwise.
    pub sandbox: Option<String>,
    /// Types of the events, joined by commas; `None` for all types.
    pub types: Option<String>,
    /// Position after which the stream begins; `None` begins with new events.
    pub after: Option<i64>,
}

/// A part of a stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamItem {
    /// State of the watched objects, at the beginning.
    Snapshot(Value),
    /// An event.
    Event(Box<Event>),
    /// Events that were removed before they were read.
    Gap {
        /// The first removed position.
        from: i64,
        /// The last removed position.
        to: i64,
    },
    /// The run has ended, and so has the stream.
    End(StreamEnd),
}

/// A stream of events.
pub struct ApiEventStream<'a> {
    client: &'a ApiClient,
    selection: StreamSelection,
    connected: Option<(LineStream, SseReader)>,
    has_snapshot: bool,
    retries: Retries,
}

#[derive(Deserialize)]
struct Gap {
    from: i64,
    to: i64,
}

impl<'a> ApiEventStream<'a> {
    /// Makes a stream. Nothing is sent yet.
    #[must_use]
    pub fn new(client: &'a ApiClient, selection: StreamSelection) -> Self {
        Self { client, selection, connected: None, has_snapshot: false, retries: Retries::default() }
    }

    /// Returns the next part. After [`StreamItem::End`] there is none.
    ///
    /// # Errors
    /// A permanent [`ClientError`], or the last one, if no attempt succeeds within `without_connection`.
    pub async fn next(&mut self) -> Result<StreamItem, ClientError> {
        loop {
            let read = self.read().await;
            match read {
                Ok(Some(item)) => return Ok(item),
                Ok(None) => {}
                Err(error) => {
                    self.connected = None;
                    self.retries.wait(error, self.client.limits().without_connection).await?;
                }
            }
        }
    }

    /// Reads a frame; `None` for an event or a snapshot that was returned before.
    async fn read(&mut self) -> Result<Option<StreamItem>, ClientError> {
        let client = self.client;
        let limits = client.limits();
        let (lines, frames) = match &mut self.connected {
            Some(connected) => connected,
            connected => {
                let stream = client.open(self.selection.request()).await?;
                connected.insert((stream, SseReader::new(limits.line)))
            }
        };
        let frame = loop {
            let late = |_| lines_late(client);
            let line = timeout(limits.quiet, lines.next()).await.map_err(late)??;
            // A daemon that stops ends its streams.
            let stopped = || std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the stream has ended");
            let line = line.ok_or_else(|| lines.interrupted(stopped()))?;
            if let Some(frame) = frames.line(&line).map_err(|_| lines.too_long())? {
                break frame;
            }
        };
        self.retries.reset();
        let item = item(&frame).map_err(|error| lines.malformed(error))?;
        if let Some(position) = frame.id.as_deref().and_then(|id| id.parse().ok()) {
            let is_event = matches!(item, StreamItem::Event(_));
            if is_event && self.selection.after.is_some_and(|after| position <= after) {
                return Ok(None);
            }
            self.selection.after = self.selection.after.max(Some(position));
        }
        let is_repeated = matches!(item, StreamItem::Snapshot(_)) && std::mem::replace(&mut self.has_snapshot, true);
        Ok((!is_repeated).then_some(item))
    }
}

fn lines_late(client: &ApiClient) -> ClientError {
    ClientError::Late(client.server().to_owned(), "a stream of events".to_owned(), client.limits().quiet)
}

fn item(frame: &SseFrame) -> Result<StreamItem, serde_json::Error> {
    Ok(match frame.event.as_deref() {
        Some("snapshot") => StreamItem::Snapshot(serde_json::from_str(&frame.data)?),
        Some("gap") => {
            let Gap { from, to } = serde_json::from_str(&frame.data)?;
            StreamItem::Gap { from, to }
        }
        Some("end") => StreamItem::End(serde_json::from_str(&frame.data)?),
        _ => StreamItem::Event(Box::new(serde_json::from_str(&frame.data)?)),
    })
}

impl StreamSelection {
    fn request(&self) -> ApiRequest {
        let request = match &self.sandbox {
            Some(id) => ApiRequest::get(&["sandboxes", id, "stream"]),
            None => ApiRequest::get(&["events", "stream"]),
        };
        let request = request.query_of("types", self.types.as_deref());
        match self.after {
            Some(after) => request.header(HeaderName::from_static("last-event-id"), HeaderValue::from(after)),
            None => request,
        }
    }
}
