//! Runs: creation, lists, details, cancellation.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use sluice_contract::RunKey;
use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::{
    Awaited, IllegalStep, Sandbox, SandboxActivity, SandboxCursor, SandboxError, SandboxFilter, SandboxState, WaitCause,
};
use sluice_state::store::now_us;
use utoipa::{OpenApi, ToSchema};

use super::names::check_text;
use super::paging::invalid_cursor;
use super::{Context, NoQuery, paging};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{PathNames, Query};
use crate::pause;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::runs::cancellation;

mod actions;
mod artifacts;
mod audit;
mod audit_record;
mod chat_run;
mod chat_turn;
mod create;
mod exec;
mod exec_control;
mod exec_frames;
mod exec_stream;
mod file_errors;
mod files;
mod logs;
pub(super) mod lookup;
mod new_run;
mod request;
mod requested_limits;
mod requested_repository;
mod resumed;
mod task;
mod transcript;
mod upload;
mod verification;
pub(super) mod view;
mod wait;

pub(super) use chat_run::create_chat;
pub(super) use chat_turn::ChatTurnRequest;
pub(super) use create::{sandbox_disabled, take_creation};
pub(super) use logs::record_removed;
use view::{SandboxDetailView, SandboxView};

#[derive(OpenApi)]
#[openapi(
    paths(
        list, show, cancel, create::create, wait::wait, actions::retry, actions::connect, actions::fail,
        actions::receipts, logs::logs, exec::start, exec_control::write, exec_control::resize, exec_control::cancel,
        files::list, files::read, upload::write, artifacts::list, artifacts::read, audit::audit,
        verification::verification, task::task, transcript::transcript
    ),
    components(schemas(logs::LogStream, wait::Until, WaitingFor))
)]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes", get(list).post(create::create))
        .route("/api/v1/sandboxes/{id}", get(show).delete(cancel))
        .route("/api/v1/sandboxes/{id}/wait", get(wait::wait))
        .route("/api/v1/sandboxes/{id}/retry", post(actions::retry))
        .route("/api/v1/sandboxes/{id}/connect", post(actions::connect))
        .route("/api/v1/sandboxes/{id}/fail", post(actions::fail))
        .route("/api/v1/sandboxes/{id}/logs", get(logs::logs))
        .route("/api/v1/sandboxes/{id}/receipts", get(actions::receipts))
        .route("/api/v1/sandboxes/{id}/exec", post(exec::start))
        .route("/api/v1/sandboxes/{id}/exec/{exec_id}", delete(exec_control::cancel))
        .route("/api/v1/sandboxes/{id}/exec/{exec_id}/stdin", post(exec_control::write))
        .route("/api/v1/sandboxes/{id}/exec/{exec_id}/resize", post(exec_control::resize))
        .route("/api/v1/sandboxes/{id}/files", get(files::list))
        .route("/api/v1/sandboxes/{id}/files/{*path}", get(files::read).put(upload::write))
        .route("/api/v1/sandboxes/{id}/artifacts", get(artifacts::list))
        .route("/api/v1/sandboxes/{id}/artifacts/{*name}", get(artifacts::read))
        .route("/api/v1/sandboxes/{id}/audit", get(audit::audit))
        .route("/api/v1/sandboxes/{id}/audit/verification", get(verification::verification))
        .route("/api/v1/sandboxes/{id}/task", get(task::task))
        .route("/api/v1/sandboxes/{id}/transcript", get(transcript::transcript))
}

/// Maximum number of characters of a search.
const SEARCH_MAX: usize = 200;

/// Selection of runs.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SandboxQuery {
    /// States, joined by commas.
    state: Option<String>,
    /// Only runs that wait for this: `approval` (a call waits for one) or `person` (an approval or a question is open).
    waiting_for: Option<WaitingFor>,
    /// Only runs of this agent.
    agent_id: Option<String>,
    /// `NAME=VALUE`: only runs with this label.
    label: Option<String>,
    /// A text that id, name, agent, project, account or a label as `NAME=VALUE` contains.
    q: Option<String>,
    /// Number of runs, 1 to 500.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Reason that a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WaitingFor {
    /// A call waits for an approval.
    Approval,
    /// An approval or a question is open.
    Person,
}

/// A run of a list.
#[derive(Debug, Serialize, ToSchema)]
struct ListedSandbox {
    #[serde(flatten)]
    sandbox: SandboxView,
    /// Reason that the run waits: `turn`, `retry` or `dependencies` in the queue; `resume`, `approval` or `answer` while it works.
    waiting_for: Option<&'static str>,
    /// Reason of the last change of its state, if it waits for a retry.
    reason: Option<String>,
    /// True if its agent waits for the answer to a question.
    awaits_answer: bool,
}

impl ListedSandbox {
    fn of(sandbox: SandboxView, cause: Option<WaitCause>, awaits_answer: bool) -> Self {
        let Some(WaitCause { waiting_for, reason, error_message }) = cause else {
            return Self { sandbox, waiting_for: None, reason: None, awaits_answer };
        };
        let sandbox = sandbox.with_message(error_message);
        Self { sandbox, waiting_for: Some(waiting_for), reason, awaits_answer }
    }
}

/// A page of runs, newest first.
#[derive(Debug, Serialize, ToSchema)]
struct Sandboxes {
    sandboxes: Vec<ListedSandbox>,
    /// Number of selected runs in each state, also in those that `state` leaves out.
    counts: BTreeMap<&'static str, u64>,
    /// Number of selected runs with a call that waits for an approval, also of those that `state` and `waiting_for` leave out.
    awaiting_approval: u64,
    /// Number of selected runs with an open approval or question, also of those that `state` and `waiting_for` leave out.
    awaiting_person: u64,
    /// Cursor of the next page; null on the last one.
    next_cursor: Option<String>,
    /// True if more runs follow.
    has_more: bool,
}

/// Lists runs, newest first.
#[utoipa::path(
    get, path = "/api/v1/sandboxes", params(SandboxQuery),
    responses(
        (status = 200, body = Sandboxes), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    Query(query): Query<SandboxQuery>,
) -> Result<Json<Sandboxes>, ApiError> {
    let scope = principal.require(Operation::Read)?;
    let limit = paging::limit(query.limit, paging::LIST_MAX)?;
    if let Some(text) = &query.q {
        check_text("q", text, SEARCH_MAX)?;
    }
    let filter = SandboxFilter {
        owner: scope.owner().map(str::to_owned),
        states: query.state.as_deref().map_or(Ok(Vec::new()), states)?,
        agent_id: query.agent_id,
        label: query.label.as_deref().map(label).transpose()?,
        text: query.q,
        awaited: query.waiting_for.map(|waiting| match waiting {
            WaitingFor::Approval => Awaited::Approval,
            WaitingFor::Person => Awaited::Person,
        }),
    };
    let after = query.cursor.as_deref().map(parse_cursor).transpose()?;
    let page = context.store.list_sandboxes(filter, after, limit).await?;
    let asking = context.store.runs_with_questions(now_us()).await?;
    let mut causes = context.store.wait_causes(&page.sandboxes).await?;
    let listed = |run: Sandbox| {
        let awaits_answer = run.state == SandboxState::Running && asking.contains(run.key.run_id.as_str());
        let cause = causes.remove(&run.key);
        ListedSandbox::of(SandboxView::of(run), cause, awaits_answer)
    };
    let mut counts: BTreeMap<_, _> = SandboxState::ALL.map(|state| (state.as_str(), 0)).into();
    counts.extend(page.counts.into_iter().map(|(state, count)| (state.as_str(), count)));
    Ok(Json(Sandboxes {
        awaiting_approval: page.awaiting_approval,
        awaiting_person: page.awaiting_person,
        sandboxes: page.sandboxes.into_iter().map(listed).collect(),
        counts,
        has_more: page.next.is_some(),
        next_cursor: page.next.map(|next| format!("{}.{}", next.created_us, next.run_id)),
    }))
}

fn states(text: &str) -> Result<Vec<SandboxState>, ApiError> {
    let wrong = || {
        let message = "state is one of PENDING, CREATING, RUNNING, COMPLETING, COMPLETED, FAILED, or several of them, \
                       joined by commas";
        ApiError::invalid("state", message)
    };
    text.split(',').map(|word| SandboxState::of(word).ok_or_else(wrong)).collect()
}

fn label(text: &str) -> Result<(String, String), ApiError> {
    let (name, value) = text
        .split_once('=')
        .filter(|(name, _)| !name.is_empty())
        .ok_or_else(|| ApiError::invalid("label", "label is NAME=VALUE"))?;
    Ok((name.to_owned(), value.to_owned()))
}

fn parse_cursor(text: &str) -> Result<SandboxCursor, ApiError> {
    let (created, run_id) = text.split_once('.').ok_or_else(invalid_cursor)?;
    Ok(SandboxCursor {
        created_us: created.parse().map_err(|_| invalid_cursor())?,
        run_id: run_id.parse().map_err(|_| invalid_cursor())?,
    })
}

/// Shows a run.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}", params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = SandboxDetailView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn show(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<SandboxDetailView>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    Ok(Json(view::detail(&context, sandbox).await?))
}

/// Cancels a run. Its record stays.
#[utoipa::path(
    delete, path = "/api/v1/sandboxes/{id}", params(("id" = String, Path, description = "The whole id; no name")),
    responses(
        (status = 202, description = "The run was live, and ends", body = SandboxView),
        (status = 200, description = "The run has ended before", body = SandboxView),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 409, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
async fn cancel(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Response, ApiError> {
    let sandbox = lookup::identified(&context, &principal, Operation::Control, &id).await?;
    if sandbox.state.is_ended() {
        return Ok(Json(SandboxView::of(sandbox)).into_response());
    }
    let sandbox = recorded_cancel(&context, &principal, &sandbox).await?;
    Ok((StatusCode::ACCEPTED, Json(SandboxView::of(sandbox))).into_response())
}

/// Records the cancellation of a run, and cancels the run.
async fn recorded_cancel(context: &ApiContext, principal: &Principal, sandbox: &Sandbox) -> Result<Sandbox, ApiError> {
    const OPERATION: &str = "sandbox.cancel";
    let seq = record(context, principal, OPERATION, sandbox, ControlEntry::default()).await?;
    match cancellation::cancel(context, &sandbox.key.run_id).await {
        Ok(sandbox) => Ok(sandbox),
        Err(error) => Err(context.record_failure(principal, OPERATION, seq, error.into()).await),
    }
}

/// Records an operation on a run before it takes effect, and returns the number of its line.
pub(super) async fn record(
    context: &ApiContext,
    principal: &Principal,
    operation: &str,
    sandbox: &Sandbox,
    entry: ControlEntry,
) -> Result<u64, ApiError> {
    let entry = ControlEntry {
        operation: operation.to_owned(),
        object: Some(sandbox.key.run_id.to_string()),
        owner: Some(sandbox.owner.clone()),
        ..entry
    };
    context.record(principal, entry).await
}

/// Checks that a run is working, which means that its container and its workspace exist.
///
/// # Errors
/// 409
pub(super) fn check_live(run: &Sandbox, operation: &'static str) -> Result<(), ApiError> {
    let works = matches!(run.state, SandboxState::Running | SandboxState::Completing) && run.verdict.is_none();
    if works { Ok(()) } else { Err(not_live(run, operation)) }
}

/// Checks that a run is working, and that its container is not frozen: a frozen container starts no program.
///
/// # Errors
/// 409
fn check_thawed(run: &Sandbox, operation: &'static str) -> Result<(), ApiError> {
    check_live(run, operation)?;
    match (run.clocks_stopped_us, run.paused_us) {
        (None, _) => Ok(()),
        (Some(_), Some(_)) => Err(pause::paused(run, operation)),
        (Some(_), None) => Err(held(run, operation)),
    }
}

/// Returns the error of an operation on a run that is frozen while one of its calls waits for an approval.
fn held(run: &Sandbox, operation: &str) -> ApiError {
    let message = format!(
        "the run waits for an approval and cannot take {operation}; sluice approvals {} lists what waits",
        run.key.run_id
    );
    ApiError::invalid_state(run, message)
}

/// Returns the error of an operation on a run that does not work.
fn not_live(run: &Sandbox, operation: &'static str) -> ApiError {
    SandboxError::from(IllegalStep { state: run.state, step: operation }).into()
}

/// Records that something works in a run now: it is not idle.
pub(super) async fn note_work(context: &ApiContext, key: &RunKey) {
    let now = now_us();
    let seen = SandboxActivity { key: key.clone(), work_us: Some(now), observed_work_us: Some(now), heartbeat: None };
    if context.store.record_activity(vec![seen]).await.is_err() {
        (context.log)(&format!("run {key}: its work is not recorded, so that it may end as idle"));
    }
}
