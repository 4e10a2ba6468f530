//! Programs that a client starts in a live sandbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Deserialize;
use serde_json::json;
use sluice_contract::{Hash, units};
use sluice_runs::blueprint::WORKSPACE;
use sluice_runs::engine::EngineError;
use sluice_runs::exec::{self, ExecEnd, ExecError, ExecRefused, ExecRequest, RunningExec};
use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::Sandbox;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use utoipa::ToSchema;

use super::create::sandbox_disabled;
use super::exec_frames::stop_word;
use super::exec_stream::ExecStream;
use super::{check_thawed, lookup, note_work, record};
use crate::api::admission::admit_stream;
use crate::api::attachment::attachment;
use crate::api::quantity::Quantity;
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::execs::{ExecLimit, ExecSlot};
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Name of the operation in the control log.
const OPERATION: &str = "sandbox.exec";
/// Name of the operation that records the end of the program.
const END: &str = "sandbox.exec_end";

/// A program for a sandbox.
// No Debug: values of variables may be secrets.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewExec {
    /// Program and arguments; at most 64 KiB.
    argv: Vec<String>,
    /// Environment variables beside those of the sandbox. Their values are neither stored nor logged.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Working directory below `/workspace`; that itself by default.
    cwd: Option<String>,
    /// Longest time, such as `30s`; 600 s by default, at most 3,600 s.
    timeout: Option<Quantity>,
    /// Gives the program a terminal; then all of its output is stdout.
    #[serde(default)]
    tty: bool,
}

impl NewExec {
    fn checked(self) -> Result<ExecRequest, ApiError> {
        let timeout = self.timeout.map(|timeout| timeout.read("timeout", units::time)).transpose()?;
        let request = ExecRequest {
            argv: self.argv,
            env: self.env,
            cwd: self.cwd.unwrap_or_else(|| WORKSPACE.to_owned()),
            timeout: timeout.unwrap_or(ExecRequest::DEFAULT_TIMEOUT),
            tty: self.tty,
        };
        request.check().map_err(|refused| refuse(&refused))?;
        Ok(request)
    }
}

fn refuse(refused: &ExecRefused) -> ApiError {
    let field = match refused {
        ExecRefused::NoProgram => "argv".to_owned(),
        ExecRefused::TooLong(field) | ExecRefused::Nul(field) => (*field).to_owned(),
        ExecRefused::Variable(name, _) => {
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "reserved_variable", refused.to_string());
            return error.with_details(json!({ "field": format!("env.{name}") }));
        }
        ExecRefused::Directory(_) => "cwd".to_owned(),
        ExecRefused::Timeout => "timeout".to_owned(),
    };
    ApiError::invalid(&field, refused.to_string())
}

/// Starts a program in a live run, as the run's own user, and returns its output while it comes: one JSON object in a line.
///
/// The first line is `{exec_id}`, the lines of output are `{stream, offset, text}`, with `base64` in place of `text` for bytes
/// that are not UTF-8, and the last line is `{exit_code, stopped, bytes, truncated}`. A client that hangs up ends the program.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/exec", request_body = NewExec,
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = String, content_type = "application/octet-stream"), (status = 400, body = ErrorBody),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 413, body = ErrorBody), (status = 415, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn start(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<NewExec>,
) -> Result<Response, ApiError> {
    let run = lookup::named(&context, &principal, Operation::Execute, &id).await?;
    let request = body.value.checked()?;
    check_thawed(&run, "exec")?;
    let host = Arc::clone(context.execs.host().ok_or_else(sandbox_disabled)?);
    let counted = admit_stream(&context, &principal)?;
    let kept = context.execs.keep_output().map_err(limited)?;
    let slot = context.execs.admit(&run.key.run_id).map_err(limited)?;
    let seq = record(&context, &principal, OPERATION, &run, entry(&slot.exec_id, &request)).await?;
    let has_terminal = request.tty;
    let RunningExec { control, output, end } = match exec::start(&host, &run.key, request).await {
        Ok(running) => running,
        Err(error) => return Err(context.record_failure(&principal, OPERATION, seq, failed(&run, error)).await),
    };
    slot.fill(control.clone(), has_terminal);
    let exec_id = slot.exec_id.clone();
    let (sender, ended) = oneshot::channel();
    let stream = ExecStream::new(&exec_id, output, ended, control.clone(), (counted, kept));
    let watched = WatchedExec { context, principal, run, slot, seq };
    tokio::spawn(async move {
        let end = watched.watch(end, || control.cancel()).await;
        // The client may have gone.
        let _ = sender.send(end);
    });
    let mut response = stream.into_body().into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(CONTENT_DISPOSITION, attachment(format!("{exec_id}.ndjson").as_bytes()));
    Ok(response)
}

/// Returns the control log entry of a request. It has no values of variables, and only a digest of the arguments.
fn entry(exec_id: &str, request: &ExecRequest) -> ControlEntry {
    let argv = serde_json::to_vec(&request.argv).unwrap_or_default();
    let after = json!({
        "argv_sha256": Hash::of(&argv).to_string(),
        "cwd": request.cwd,
        "env_names": request.env.keys().collect::<Vec<_>>(),
        "exec_id": exec_id,
        "timeout_s": request.timeout.as_secs(),
        "tty": request.tty,
    });
    ControlEntry { after: Some(after), ..ControlEntry::default() }
}

fn limited(limit: ExecLimit) -> ApiError {
    let (code, message) = match limit {
        ExecLimit::Closed => {
            let message = "the daemon starts or stops; try again in a moment";
            return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, "not_ready", message);
        }
        ExecLimit::OfRun => ("too_many_execs", "this sandbox runs 4 programs of clients; wait for one, or cancel one"),
        ExecLimit::OfAll => {
            ("too_many_execs", "the daemon runs as many programs of clients as it may; try again later")
        }
    };
    ApiError::too_many(code, message, 5)
}

fn failed(run: &Sandbox, error: ExecError) -> ApiError {
    match error {
        ExecError::Refused(refused) => refuse(&refused),
        ExecError::NotRunning(_) | ExecError::User(_) => super::not_live(run, "exec"),
        // The engine's message may name its host.
        ExecError::Engine(EngineError::Refused(_)) => {
            let message =
                "the program cannot be started; check that argv[0] is a program in the image, and that cwd exists";
            ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "exec_failed", message)
        }
        ExecError::Engine(error) => ApiError::internal(&error),
    }
}

/// A program, from its start until the control log has a line about its end.
struct WatchedExec {
    context: Arc<ApiContext>,
    principal: Principal,
    run: Sandbox,
    slot: ExecSlot,
    /// Number of the line about its start.
    seq: u64,
}

impl WatchedExec {
    /// Waits for the end, and records it. Until then the run counts as working, and the program is cancelled when its
    /// principal loses its access.
    async fn watch(self, mut end: JoinHandle<ExecEnd>, cancel: impl Fn()) -> ExecEnd {
        let mut ticks = interval(self.context.limits.stream_check);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            tokio::select! {
                ended = &mut end => break ended.unwrap_or(UNKNOWN_END),
                _ = ticks.tick() => {
                    note_work(&self.context, &self.run.key).await;
                    if !self.context.access.is_current(&self.principal).await.unwrap_or(false) {
                        cancel();
                    }
                }
            }
        };
        note_work(&self.context, &self.run.key).await;
        if self.record(&end).await.is_err() {
            (self.context.log)(&format!("run {}: the end of a program is not in the control log", self.run.key));
        }
        end
    }

    async fn record(&self, end: &ExecEnd) -> Result<u64, ApiError> {
        let after = json!({
            "bytes": end.bytes.iter().sum::<u64>(),
            "exec_id": self.slot.exec_id,
            "exit_code": end.exit_code,
            "line": self.seq,
        });
        let entry = ControlEntry {
            operation: END.to_owned(),
            object: Some(self.run.key.run_id.to_string()),
            owner: Some(self.run.owner.clone()),
            after: Some(after),
            ..ControlEntry::default()
        };
        self.context.record_end(&self.principal, entry, end.stopped.map_or("ended", stop_word)).await
    }
}

/// The end of a program about which this daemon knows nothing more.
const UNKNOWN_END: ExecEnd = ExecEnd { exit_code: None, stopped: None, bytes: [0, 0], truncated: true };
