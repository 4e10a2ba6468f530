//! Output of a run, as it is stored and while it is written.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use http::header::{ACCEPT, CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use serde::Deserialize;
use sluice_contract::RunKey;
use sluice_state::records::{OutputReader, RecordedStream};
use sluice_state::sandboxes::Sandbox;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use utoipa::ToSchema;

use super::lookup;
use crate::api::admission::admit_stream;
use crate::api::output_lines::OutputForm;
use crate::api::{Context, output_lines};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::stream_count::CountedStream;

/// Time between two checks for more output.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of bytes of output in one read.
const READ_AT_ONCE: usize = 256 << 10;

/// Selection of output.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct LogQuery {
    /// Only this stream.
    stream: Option<LogStream>,
    /// `position` of the last line that the client has.
    #[serde(default)]
    after: u64,
    /// Goes on until the run has ended.
    #[serde(default)]
    follow: bool,
    /// An attempt; the newest that has begun by default.
    attempt: Option<u32>,
}

/// A stream of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum LogStream {
    Stdout,
    Stderr,
}

/// Returns the output of a run, one JSON object in a line: `{position, stream, offset, ts, text}`, with `base64` in place of
/// `text` for bytes that are not UTF-8, and `missing` for bytes that were not kept. With `Accept: text/plain`, the bytes alone.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/logs",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"), LogQuery,
        ("Accept" = Option<String>, Header, description = "text/plain for the bytes alone")
    ),
    responses(
        (status = 200, body = String, content_type = "application/octet-stream"), (status = 401, body = ErrorBody),
        (status = 403, body = ErrorBody), (status = 404, body = ErrorBody), (status = 410, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn logs(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<LogQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::ReadContent, &id).await?;
    let key = attempt(&context, &run, query.attempt)?;
    let counted = admit_stream(&context, &principal)?;
    let (form, extension) = match asks_for_text(&headers) {
        true => (OutputForm::Bytes, "txt"),
        false => (OutputForm::Lines, "ndjson"),
    };
    let name = format!("attachment; filename=\"{key}.{extension}\"");
    let only = query.stream.map(|stream| match stream {
        LogStream::Stdout => RecordedStream::Stdout,
        LogStream::Stderr => RecordedStream::Stderr,
    });
    let reader = context.layout.records().of(&key).output(query.after);
    let checked = Instant::now();
    let output = Output {
        context,
        principal,
        key,
        only,
        form,
        follow: query.follow,
        reader: Some(reader),
        checked,
        _counted: counted,
    };
    let lines = stream::unfold(Some(output), async |output| {
        let mut output = output?;
        match output.next().await {
            Ok(lines) => lines.map(|lines| (Ok(lines), Some(output))),
            Err(cut) => Some((Err(cut), None)),
        }
    });
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_DISPOSITION, name)];
    Ok((headers, Body::from_stream(lines)).into_response())
}

/// Returns whether a client asks for text. The answer is a download in each case, so no browser renders sandbox output.
fn asks_for_text(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).is_some_and(|accept| accept == "text/plain")
}

/// Returns the requested attempt: by default the present one, or the previous one while the present one waits.
pub(super) fn attempt(context: &ApiContext, run: &Sandbox, asked: Option<u32>) -> Result<RunKey, ApiError> {
    let RunKey { run_id, attempt } = &run.key;
    let of = |attempt| RunKey { run_id: run_id.clone(), attempt };
    let has_record = |key: &RunKey| context.layout.records().of(key).exists();
    let key = match asked {
        Some(asked) if asked > *attempt => return Err(ApiError::not_found()),
        Some(asked) => of(asked),
        None if *attempt > 0 && !has_record(&run.key) && !run.state.is_ended() => of(attempt - 1),
        None => run.key.clone(),
    };
    // The program of the present attempt may never have begun.
    let had_output = key.attempt < *attempt || run.started_us.is_some();
    if had_output && !has_record(&key) {
        return Err(record_removed());
    }
    Ok(key)
}

/// Returns the error of a run whose record was removed.
pub(in crate::api) fn record_removed() -> ApiError {
    let message = "there is no record of this attempt: its time is over, or it never began";
    ApiError::new(StatusCode::GONE, "record_removed", message)
}

/// Reason why a response ends before the output. The client sees an incomplete response, and not one that seems complete.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("the daemon stops")]
    Stop,
    #[error("the token is not valid any more")]
    Token,
    #[error("the output cannot be read")]
    Unreadable,
}

/// A reader of a run's output.
struct Output {
    context: Arc<ApiContext>,
    principal: Principal,
    key: RunKey,
    only: Option<RecordedStream>,
    form: OutputForm,
    follow: bool,
    /// None after an error.
    reader: Option<OutputReader>,
    /// Time at which the principal was last checked.
    checked: Instant,
    _counted: CountedStream,
}

impl Output {
    /// Returns the next lines; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Cut> {
        let mut stop = self.context.stop.clone();
        loop {
            self.check_principal().await?;
            // The state is read before the output, so that all output of a finished run is included.
            let is_over = !self.follow || self.is_over().await?;
            let lines = self.read().await?;
            if !lines.is_empty() {
                return Ok(Some(lines));
            }
            if is_over {
                return Ok(None);
            }
            tokio::select! {
                () = stop.stopped() => return Err(Cut::Stop),
                () = sleep(LOOK_EVERY) => {}
            }
        }
    }

    async fn check_principal(&mut self) -> Result<(), Cut> {
        if self.checked.elapsed() < self.context.limits.stream_check {
            return Ok(());
        }
        self.checked = Instant::now();
        let is_current = self.context.access.is_current(&self.principal).await.map_err(|_| Cut::Unreadable)?;
        if is_current { Ok(()) } else { Err(Cut::Token) }
    }

    /// Returns whether the output is complete.
    async fn is_over(&self) -> Result<bool, Cut> {
        let run = self.context.store.find_sandbox(None, &self.key.run_id).await.map_err(|_| Cut::Unreadable)?;
        let run = run.ok_or(Cut::Unreadable)?;
        Ok(run.state.is_ended() || run.key != self.key)
    }

    /// Reads the available output; empty if there is none.
    async fn read(&mut self) -> Result<Bytes, Cut> {
        let mut reader = self.reader.take().ok_or(Cut::Unreadable)?;
        let (only, form) = (self.only, self.form);
        let read = spawn_blocking(move || {
            let mut lines = Vec::new();
            while lines.len() < READ_AT_ONCE {
                match reader.next_piece() {
                    Ok(Some(piece)) => lines.extend(output_lines::shown(piece, only, form)),
                    Ok(None) => break,
                    Err(error) => return (Err(error), None),
                }
            }
            (Ok(lines), Some(reader))
        });
        match read.await.map_err(|_| Cut::Unreadable)? {
            (Ok(lines), reader) => {
                self.reader = reader;
                Ok(lines.into())
            }
            (Err(error), _) => {
                (self.context.log)(&format!("run {}: its output cannot be read: {error}", self.key));
                Err(Cut::Unreadable)
            }
        }
    }
}
