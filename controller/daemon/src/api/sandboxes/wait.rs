//! Waiting for the state of a run.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::Deserialize;
use sluice_contract::units;
use sluice_state::sandboxes::SandboxState;
use tokio::time::{Instant, sleep, sleep_until};
use utoipa::ToSchema;

use super::lookup;
use super::view::{SandboxDetailView, detail};
use crate::api::Context;
use crate::api_error::{ApiError, ErrorBody};
use crate::extract::{PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;

/// Maximum waiting time, and the default.
const WAIT_MAX: Duration = Duration::from_secs(300);
const WAIT: Duration = Duration::from_secs(60);
/// Time in which events are collected.
const PAUSE: Duration = Duration::from_millis(100);

/// State to wait for.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// State to wait for; a later one is enough.
    #[serde(default)]
    until: Until,
    /// Longest wait, such as `30s`; at most 300 s.
    timeout: Option<String>,
}

/// State to wait for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(super) enum Until {
    /// The agent works.
    Running,
    /// The work is over.
    Completing,
    /// The run has ended.
    #[default]
    Ended,
}

impl Until {
    fn is_reached(self, state: SandboxState) -> bool {
        match self {
            Self::Running => !matches!(state, SandboxState::Pending | SandboxState::Creating),
            Self::Completing => state == SandboxState::Completing || state.is_ended(),
            Self::Ended => state.is_ended(),
        }
    }
}

/// Waits until a run has a state.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/wait",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), WaitQuery),
    responses(
        (status = 200, description = "The run has reached the state", body = SandboxDetailView),
        (status = 204, description = "It has not reached it in time"),
        (status = 401, body = ErrorBody), (status = 403, body = ErrorBody), (status = 404, body = ErrorBody),
        (status = 422, body = ErrorBody), (status = 429, body = ErrorBody)
    )
)]
pub(super) async fn wait(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<WaitQuery>,
) -> Result<Response, ApiError> {
    let mut committed = context.store.events_committed();
    let mut sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let time = query.timeout.as_deref().map_or(Ok(WAIT), units::time).ok().filter(|time| *time <= WAIT_MAX);
    let time = time.ok_or_else(|| ApiError::invalid("timeout", "timeout is a time of at most 300s, such as 30s"))?;
    let deadline = Instant::now() + time;
    let _counted = context.waits.admit(&principal.id).ok_or_else(|| {
        ApiError::too_many("too_many_waits", "too many requests wait for runs; wait for some of them to end", 5)
    })?;
    let mut stop = context.stop.clone();
    loop {
        if query.until.is_reached(sandbox.state) {
            return Ok(Json(detail(&context, sandbox).await?).into_response());
        }
        let timed_out = StatusCode::NO_CONTENT.into_response();
        tokio::select! {
            () = stop.stopped() => return Ok(timed_out),
            () = sleep_until(deadline) => return Ok(timed_out),
            changed = committed.changed() => {
                if changed.is_err() {
                    return Ok(timed_out);
                }
                sleep(PAUSE).await;
            }
            () = sleep(context.limits.stream_check) => {}
        }
        if !context.access.is_current(&principal).await? {
            return Err(ApiError::unauthorized());
        }
        // The name may belong to another run by now.
        sandbox = lookup::identified(&context, &principal, Operation::Read, sandbox.key.run_id.as_str()).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_state_is_enough() {
        let reached =
            |until: Until| SandboxState::ALL.into_iter().filter(move |state| until.is_reached(*state)).count();
        assert_eq!([Until::Running, Until::Completing, Until::Ended].map(reached), [4, 3, 2]);
    }
}
