//! A file as an answer: stored and never shown by a browser, in parts on request, read while the client takes it.

use std::io;
use std::sync::Arc;

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;
use sluice_runs::workspace_files::OpenFile;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use super::admission::admit_stream;
use super::attachment::attachment;
use super::byte_range::{FilePart, file_part};
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::principal::Principal;
use crate::stream_count::CountedStream;

/// Maximum number of bytes in one response.
pub(super) const PART_MAX: u64 = 64 << 20;
/// Maximum number of bytes in one read.
const CHUNK: usize = 256 << 10;

/// Returns the response with a file, or with the range that the headers request.
///
/// # Errors
/// 416, 422 for a whole file that is longer than one answer, 429.
pub(super) fn download(
    context: &Arc<ApiContext>,
    principal: Principal,
    headers: &HeaderMap,
    name: &[u8],
    file: OpenFile,
) -> Result<Response, ApiError> {
    let size = file.size;
    let (status, start, len) = match file_part(headers, size, PART_MAX) {
        FilePart::Whole if size > PART_MAX => return Err(range_needed(size)),
        FilePart::Whole => (StatusCode::OK, 0, size),
        FilePart::Range { start, len } => (StatusCode::PARTIAL_CONTENT, start, len),
        FilePart::Missing => {
            let error =
                ApiError::new(StatusCode::RANGE_NOT_SATISFIABLE, "no_such_range", "the file ends before the range")
                    .with_details(json!({ "size": size }));
            return Ok(([(CONTENT_RANGE, format!("bytes */{size}"))], error).into_response());
        }
    };
    let counted = admit_stream(context, &principal)?;
    let reader = DownloadReader {
        context: Arc::clone(context),
        principal,
        file: Arc::new(file),
        at: start,
        end: start + len,
        checked: Instant::now(),
        _counted: counted,
    };
    let body = Body::from_stream(stream::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        match reader.next().await {
            Ok(None) => None,
            Ok(Some(bytes)) => Some((Ok(bytes), Some(reader))),
            // The client sees that bytes are missing.
            Err(error) => Some((Err(error), None)),
        }
    }));
    let mut response = (status, body).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, attachment(name));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(len));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if status == StatusCode::PARTIAL_CONTENT {
        let range = format!("bytes {start}-{}/{size}", start + len - 1);
        headers.insert(CONTENT_RANGE, HeaderValue::from_str(&range).map_err(|error| ApiError::internal(&error))?);
    }
    Ok(response)
}

fn range_needed(size: u64) -> ApiError {
    let message = format!("the file has {size} bytes, and one answer at most {PART_MAX}; ask for parts with Range");
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "range_needed", message).with_details(json!({ "size": size }))
}

/// Reads a part of a file that may change meanwhile.
struct DownloadReader {
    context: Arc<ApiContext>,
    principal: Principal,
    file: Arc<OpenFile>,
    at: u64,
    end: u64,
    /// Time at which the principal was last checked.
    checked: Instant,
    _counted: CountedStream,
}

impl DownloadReader {
    /// Returns the next bytes; `None` at the end.
    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if self.at == self.end {
            return Ok(None);
        }
        if self.checked.elapsed() >= self.context.limits.stream_check {
            self.checked = Instant::now();
            let is_current = self.context.access.is_current(&self.principal).await.unwrap_or(false);
            if !is_current || self.context.stop.is_stopped() {
                return Err(io::ErrorKind::ConnectionAborted.into());
            }
        }
        let left = usize::try_from(self.end - self.at).unwrap_or(CHUNK).min(CHUNK);
        let (file, at) = (Arc::clone(&self.file), self.at);
        let read = spawn_blocking(move || {
            let mut buffer = vec![0; left];
            let len = file.read_at(&mut buffer, at)?;
            buffer.truncate(len);
            io::Result::Ok(buffer)
        });
        let bytes = read.await.map_err(io::Error::other)??;
        if bytes.is_empty() {
            // The file is shorter by now.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.at += bytes.len() as u64;
        Ok(Some(bytes.into()))
    }
}
