//! `POST …/questions` and `GET …/questions/{id}`: questions of the agent to a person, and the answers.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::{Path, State};
use http::StatusCode;
use serde::Deserialize;

use super::RelayCaller;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::conversations::Counted;
use crate::extract::{JsonBody, Query};
use crate::questions::{self, OwnQuestion, QuestionRequest, WAIT_MAX};

/// Query of a request that waits for an answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerQuery {
    wait: Option<u64>,
}

/// Asks a question for the run.
pub(super) async fn ask(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
    body: JsonBody<QuestionRequest>,
) -> Result<(StatusCode, Json<OwnQuestion>), ApiError> {
    let asked = questions::ask(&context, &caller.key, body.value).await?;
    Ok((StatusCode::CREATED, Json(asked)))
}

/// Gives the agent the answer to its question; waits for it if there is none.
pub(super) async fn own(
    State(context): State<Arc<ApiContext>>,
    caller: RelayCaller,
    Path((_, id)): Path<(String, String)>,
    Query(query): Query<AnswerQuery>,
) -> Result<Json<OwnQuestion>, ApiError> {
    let wait = Duration::from_secs(query.wait.unwrap_or_default());
    if wait > WAIT_MAX {
        return Err(ApiError::invalid("wait", format!("wait is 0 to {} seconds", WAIT_MAX.as_secs())));
    }
    caller.count(&context, Counted::Poll)?;
    Ok(Json(questions::own(&context, &caller.key, &id, wait).await?))
}
