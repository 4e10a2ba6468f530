//! The output of a run, piece by piece.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tokio::time::timeout;

use crate::client::ApiClient;
use crate::error::ClientError;
use crate::line_stream::LineStream;
use crate::request::ApiRequest;
use crate::retry::Retries;

/// Output to read.
#[derive(Debug, Clone, Default)]
pub struct LogSelection {
    /// Id of the run.
    pub sandbox: String,
    /// `stdout` or `stderr`; both otherwise.
    pub stream: Option<&'static str>,
    /// True to continue until the run has ended.
    pub follow: bool,
    /// Position after which the output begins.
    pub after: u64,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ApiLogLine {
    /// Position after this piece.
    pub position: u64,
    /// `stdout` or `stderr`.
    pub stream: String,
    /// Time in UTC.
    #[serde(default)]
    pub ts: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    base64: Option<String>,
    /// Number of bytes that were not kept.
    #[serde(default)]
    pub missing: Option<u64>,
}

impl ApiLogLine {
    /// Returns the bytes.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let decoded = || BASE64_STANDARD.decode(self.base64.as_deref().unwrap_or_default()).unwrap_or_default();
        self.text.as_ref().map_or_else(decoded, |text| text.clone().into_bytes())
    }
}

/// The output of a run. While it follows the run, it reconnects after a lost connection.
pub struct ApiLogStream<'a> {
    client: &'a ApiClient,
    selection: LogSelection,
    connected: Option<LineStream>,
    retries: Retries,
}

impl<'a> ApiLogStream<'a> {
    /// Makes a stream. Nothing is sent yet.
    #[must_use]
    pub fn new(client: &'a ApiClient, selection: LogSelection) -> Self {
        Self { client, selection, connected: None, retries: Retries::default() }
    }

    /// Returns the next piece; `None` at the end: the attempt has ended, or a selection that does not follow has no
    /// more output.
    ///
    /// # Errors
    /// Same as [`crate::ApiEventStream::next`]; silence on an open connection is not a failed attempt. A request that
    /// does not follow is sent once.
    pub async fn next(&mut self) -> Result<Option<ApiLogLine>, ClientError> {
        loop {
            let error = match self.read().await {
                Ok(line) => {
                    self.retries.reset();
                    return Ok(line);
                }
                Err(error) => error,
            };
            let was_open = self.connected.take().is_some();
            if !self.selection.follow {
                return Err(error);
            }
            if was_open && matches!(error, ClientError::Late(..)) {
                // The daemon answered, and the program may write nothing for hours.
                self.retries.reset();
                continue;
            }
            self.retries.wait(error, self.client.limits().without_connection).await?;
        }
    }

    async fn read(&mut self) -> Result<Option<ApiLogLine>, ClientError> {
        let lines = match &mut self.connected {
            Some(lines) => lines,
            connected => connected.insert(self.client.open(self.selection.request()).await?),
        };
        // The program may write nothing for hours, so silence counts as a lost connection and causes a reconnection.
        let quiet = self.client.limits().quiet;
        let late = |_| ClientError::Late(self.client.server().to_owned(), "the output of a run".to_owned(), quiet);
        let Some(line) = timeout(quiet, lines.next()).await.map_err(late)?? else {
            self.connected = None;
            return Ok(None);
        };
        let line: ApiLogLine = lines.parse(&line)?;
        self.selection.after = line.position;
        Ok(Some(line))
    }
}

impl LogSelection {
    fn request(&self) -> ApiRequest {
        let request = ApiRequest::get(&["sandboxes", &self.sandbox, "logs"]).query_of("stream", self.stream);
        let request = if self.follow { request.query("follow", "true") } else { request };
        if self.after > 0 { request.query("after", &self.after.to_string()) } else { request }
    }
}
