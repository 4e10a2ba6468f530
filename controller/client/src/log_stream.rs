//! The output of a run, piece by piece.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tokio::time::timeout;

use crate::client::ApiClient;
use crate::error::ClientError;
use crate::line_stream::LineStream;
use crate::objects::ApiSandbox;
use crate::request::ApiRequest;
use crate::retry::Retries;

/// Output to read.
#[derive(Debug, Clone, Default)]
pub struct LogSelection {
    /// Id of the run.
    pub sandbox: String,
    /// `stdout` or `stderr`; both otherwise.
    pub stream: Option<&'static str>,
    /// Attempt of the run; by default the present one, or the previous one while the present one waits.
    pub attempt: Option<u32>,
    /// True to continue until the attempt has ended.
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
    /// Moves to the present attempt of a run that is followed: each attempt has output of its own. The first attempt that is
    /// shown is the previous one while the present one waits.
    pub fn follow_attempt(&mut self, run: &ApiSandbox) {
        let waits = run.state == "PENDING";
        let attempt = if self.attempt.is_none() && waits { run.attempt.saturating_sub(1) } else { run.attempt };
        if self.attempt.replace(attempt).is_some_and(|shown| shown != attempt) {
            self.after = 0;
        }
    }

    fn request(&self) -> ApiRequest {
        let request = ApiRequest::get(&["sandboxes", &self.sandbox, "logs"]).query_of("stream", self.stream);
        let request = if self.follow { request.query("follow", "true") } else { request };
        let request = request.query_of("attempt", self.attempt.map(|attempt| attempt.to_string()).as_deref());
        if self.after > 0 { request.query("after", &self.after.to_string()) } else { request }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Bug: the output of a retried attempt began after as many pieces as the attempt before had.
    #[test]
    fn each_attempt_is_followed_from_its_beginning() {
        let run = |attempt: u32, started_at: Option<&str>| -> ApiSandbox {
            let run = json!({
                "sandbox_id": "r_1", "attempt": attempt, "owner_id": "o", "agent_id": "a", "billing_account_id": "b",
                "state": if started_at.is_some() { "RUNNING" } else { "PENDING" }, "desired_state": "RUNNING",
                "labels": {}, "priority": 0, "created_at": "", "started_at": started_at,
            });
            serde_json::from_value(run).expect("a run")
        };
        let mut selection = LogSelection { after: 5, ..LogSelection::default() };
        for (present, expected) in [
            (run(1, None), (Some(0), 5)),
            (run(1, None), (Some(1), 0)),
            (run(1, Some("")), (Some(1), 5)),
            (run(3, None), (Some(3), 0)),
        ] {
            selection.follow_attempt(&present);
            assert_eq!((selection.attempt, selection.after), expected, "{present:?}");
            selection.after = 5;
        }
    }
}
