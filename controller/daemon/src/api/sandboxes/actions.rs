//! Actions of people on a run: another attempt, the tables of its mounts, its end by failure; and its receipts.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_contract::Hash;
use sluice_state::control_log::ControlEntry;
use sluice_state::events::{EventQuota, NewLoggedEvent};
use sluice_state::idempotency::IdempotencyKey;
use sluice_state::ledger::Filter;
use sluice_state::process::Process;
use sluice_state::sandboxes::{
    IllegalStep, NextAttempt, Reopening, Sandbox, SandboxState, SandboxStep, SandboxVerdict,
};
use sluice_state::store::now_us;
use utoipa::ToSchema;

use super::create::{sandbox_disabled, take_creation};
use super::view::SandboxView;
use super::{lookup, record};
use crate::agent_accounts;
use crate::api::idempotent::{IdempotentRepeat, RequestKey, release};
use crate::api::names::check_text;
use crate::api::receipts::{PageQuery, Receipts, page};
use crate::api::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Puts a run that has ended without success into the queue again. It has no new cap.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/retry",
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key makes one attempt")
    ),
    responses(
        (status = 200, description = "The run with its next attempt", body = SandboxView),
        (status = 401, body = ErrorBody), (status = 402, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 429, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn retry(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
) -> Result<Json<SandboxView>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Create, &id).await?;
    let key = match key.reserve(&context, &principal, Hash::of(&[])).await? {
        IdempotentRepeat::Done(_) => return Ok(Json(SandboxView::of(sandbox))),
        IdempotentRepeat::New(key) => key,
    };
    match reopen(&context, &principal, sandbox, key.clone()).await {
        Ok(sandbox) => {
            context.work.notify_one();
            Ok(Json(SandboxView::of(sandbox)))
        }
        Err(error) => {
            release(&context, key).await;
            Err(error)
        }
    }
}

async fn reopen(
    context: &ApiContext,
    principal: &Principal,
    sandbox: Sandbox,
    idempotency: Option<IdempotencyKey>,
) -> Result<Sandbox, ApiError> {
    const OPERATION: &str = "sandbox.retry";
    let run_id = &sandbox.key.run_id;
    if !sandbox.state.is_ended() {
        return Err(illegal(&sandbox, SandboxStep::Reopen.name()));
    }
    agent_accounts::check(principal, &sandbox.account)?;
    let request = context.stored_request(run_id).await?;
    if !request.variables.is_empty() && context.variables.get(run_id).is_none() {
        let message = "the values of the run's variables are not kept after its end; create a new run with env";
        return Err(ApiError::new(StatusCode::CONFLICT, "variables_lost", message));
    }
    take_creation(&context.creations, &sandbox.owner)?;
    context.check_budget_log(&sandbox.account).await?;
    let queued_max = context.policy.as_ref().ok_or_else(sandbox_disabled)?.queued_max;
    let next = NextAttempt { daemon: Process::current()?, next_try_us: 0, reason: "retry".to_owned() };
    let reopening = Reopening { next, queued_max, idempotency };
    let entry = ControlEntry { before: Some(json!({ "attempt": sandbox.key.attempt })), ..ControlEntry::default() };
    let seq = record(context, principal, OPERATION, &sandbox, entry).await?;
    match context.store.reopen_sandbox(run_id, sandbox.generation, reopening, now_us()).await {
        Ok(sandbox) => Ok(sandbox),
        Err(error) => Err(context.record_failure(principal, OPERATION, seq, error.into()).await),
    }
}

fn illegal(sandbox: &Sandbox, step: &'static str) -> ApiError {
    sluice_state::sandboxes::SandboxError::from(IllegalStep { state: sandbox.state, step }).into()
}

/// Directories in the sandbox that are those of the host that its agent may read.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = MountTable)]
pub(super) struct MountTableView {
    mount_table: Vec<String>,
}

/// Reports that a client begins to work with a run, and returns the mount table of the run.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/connect",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = MountTableView), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 422, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn connect(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<MountTableView>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Control, &id).await?;
    if sandbox.state.is_ended() {
        return Err(illegal(&sandbox, "connect"));
    }
    let mount_table = context.stored_request(&sandbox.key.run_id).await?.mounts.targets();
    report_connection(&context, &principal, &sandbox, &mount_table).await?;
    Ok(Json(MountTableView { mount_table }))
}

/// Records that a client begins to work with a run, and appends the event of it.
async fn report_connection(
    context: &ApiContext,
    principal: &Principal,
    sandbox: &Sandbox,
    mount_table: &[String],
) -> Result<(), ApiError> {
    const OPERATION: &str = "sandbox.connect";
    let seq = record(context, principal, OPERATION, sandbox, ControlEntry::default()).await?;
    let run_id = sandbox.key.run_id.as_str();
    let data = json!({ "mount_paths": mount_table }).to_string();
    let event = NewLoggedEvent {
        attempt: Some(sandbox.key.attempt),
        agent_id: Some(sandbox.agent_id.clone()),
        ..NewLoggedEvent::of_run(&sandbox.owner, run_id, "sandbox.connected", data, now_us())
    };
    match append(context, event).await {
        Ok(()) => Ok(()),
        Err(error) => Err(context.record_failure(principal, OPERATION, seq, error).await),
    }
}

async fn append(context: &ApiContext, event: NewLoggedEvent) -> Result<(), ApiError> {
    for appended in context.store.append_events(vec![event], EventQuota::default()).await? {
        appended.map_err(|fault| ApiError::internal(&fault))?;
    }
    Ok(())
}

/// Reason for which a run fails.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Failure {
    /// Reason, for people: 1 to 1,000 characters.
    #[schema(min_length = 1, max_length = 1000)]
    reason: String,
}

/// Ends a live run as failed, with the failure code `agent_failed`.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/fail", request_body = Failure,
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 202, description = "The run ends", body = SandboxView),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 415, body = ErrorBody), (status = 422, body = ErrorBody), (status = 503, body = ErrorBody)
    )
)]
pub(super) async fn fail(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
    body: JsonBody<Failure>,
) -> Result<Response, ApiError> {
    const OPERATION: &str = "sandbox.fail";
    let sandbox = lookup::named(&context, &principal, Operation::Control, &id).await?;
    check_text("reason", &body.value.reason, 1000)?;
    if sandbox.state.is_ended() {
        return Err(illegal(&sandbox, "fail"));
    }
    let entry =
        ControlEntry { request: Some(body.digest), reason: Some(body.value.reason.clone()), ..ControlEntry::default() };
    let seq = record(&context, &principal, OPERATION, &sandbox, entry).await?;
    let verdict = SandboxVerdict::Failed { code: "agent_failed".to_owned(), message: Some(body.value.reason) };
    let step = match sandbox.state {
        SandboxState::Pending => SandboxStep::Drop(verdict),
        _ => SandboxStep::Decide(verdict),
    };
    let run_id = &sandbox.key.run_id;
    match context.store.step_sandbox(run_id, sandbox.generation, step, "failed by its owner", now_us()).await {
        Ok(sandbox) => {
            if sandbox.state.is_ended() {
                context.variables.forget(&sandbox.key.run_id);
            }
            context.work.notify_one();
            Ok((StatusCode::ACCEPTED, Json(SandboxView::of(sandbox))).into_response())
        }
        Err(error) => Err(context.record_failure(&principal, OPERATION, seq, error.into()).await),
    }
}

/// Lists the receipts of a run's calls.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/receipts",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), PageQuery),
    responses(
        (status = 200, body = Receipts), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn receipts(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Receipts>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let filter = Filter { run_id: Some(sandbox.key.run_id.to_string()), ..Filter::default() };
    page(&context, filter, query).await.map(Json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::sandboxes::recorded_cancel;
    use crate::principal::Role;
    use crate::runs::test_run::running;
    use crate::test_daemon::TestDaemon;

    /// Returns the results of an operation in the control log.
    fn results(daemon: &TestDaemon, operation: &str) -> Vec<String> {
        let of_operation = daemon.control_log().into_iter().filter(|line| line.operation == operation);
        of_operation.map(|line| line.result).collect()
    }

    /// Bug: the control log had a cancellation that failed as accepted.
    #[tokio::test]
    async fn a_cancellation_that_fails_is_recorded_as_failed() {
        let daemon = TestDaemon::start().await;
        let alice = Principal::for_tests(Role::Owner, "alice", &["acct-1"]);
        // The database does not have this run.
        let failed = recorded_cancel(&daemon.running.context, &alice, &running()).await;
        assert_eq!(failed.map_err(|error| error.code()), Err("not_found"));
        assert_eq!(results(&daemon, "sandbox.cancel"), ["accepted", "not_found"]);
    }

    /// Bug: the control log had a connection whose event was lost as accepted.
    #[tokio::test]
    async fn a_connection_that_fails_is_recorded_as_failed() {
        let daemon = TestDaemon::start().await;
        let alice = Principal::for_tests(Role::Owner, "alice", &["acct-1"]);
        // No event takes that much data.
        let mounts = ["x".repeat(200_000)];
        let failed = report_connection(&daemon.running.context, &alice, &running(), &mounts).await;
        assert_eq!(failed.map_err(|error| error.code()), Err("internal"));
        assert_eq!(results(&daemon, "sandbox.connect"), ["accepted", "internal"]);
    }
}
