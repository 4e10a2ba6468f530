//! The lines of an answer, as they come.

use std::io;

use crate::connection::AnswerBody;
use crate::error::ClientError;
use crate::line_splitter::{LineSplitter, LongLine};

/// The lines of an answer.
pub struct LineStream {
    body: AnswerBody,
    lines: LineSplitter,
    longest: usize,
    server: String,
    request: String,
}

impl LineStream {
    pub(crate) fn new(body: AnswerBody, longest: usize, server: String, request: String) -> Self {
        Self { body, lines: LineSplitter::new(longest), longest, server, request }
    }

    /// Returns the next line without its end; `None` at the end of the answer. Nothing is lost if the future is dropped.
    ///
    /// # Errors
    /// [`ClientError::Interrupted`], also for an answer that ends within a line; [`ClientError::TooLong`].
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, ClientError> {
        loop {
            if let Some(line) = self.lines.pop() {
                return Ok(Some(line));
            }
            let piece = self.body.next().await.map_err(|error| self.interrupted(error))?;
            let Some(piece) = piece else {
                let is_whole = !self.lines.is_inside();
                let cut = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer ends within a line");
                return if is_whole { Ok(None) } else { Err(self.interrupted(cut())) };
            };
            let pushed = self.lines.push(&piece);
            pushed.map_err(|LongLine| self.too_long())?;
        }
    }

    pub(crate) fn interrupted(&self, error: io::Error) -> ClientError {
        ClientError::Interrupted(self.server.clone(), self.request.clone(), error)
    }

    pub(crate) fn too_long(&self) -> ClientError {
        ClientError::TooLong(self.server.clone(), self.request.clone(), self.longest)
    }

    pub(crate) fn malformed(&self, error: serde_json::Error) -> ClientError {
        ClientError::Malformed(self.server.clone(), self.request.clone(), error)
    }

    /// Parses a line as JSON.
    ///
    /// # Errors
    /// [`ClientError::Malformed`].
    pub fn parse<T: serde::de::DeserializeOwned>(&self, line: &[u8]) -> Result<T, ClientError> {
        serde_json::from_slice(line).map_err(|error| self.malformed(error))
    }
}
