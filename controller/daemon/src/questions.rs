//! Questions of agents, for the relay of their runs.
//!
//! A run asks and reads answers with its own token: the caller of these functions has checked it, and knows run and attempt.

use std::time::Duration;

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_contract::RunKey;
use sluice_contract::time::duration_micros;
use sluice_state::questions::{NewQuestion, Question, QuestionError, QuestionState, check_question};
use sluice_state::store::now_us;
use tokio::time::{Instant, timeout_at};

use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::run_policy::ASK_TIMEOUT;

/// Maximum waiting time for an answer.
pub const WAIT_MAX: Duration = Duration::from_secs(25);

/// A question of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuestionRequest {
    /// Plain text of 1 to 1,000 characters.
    pub question: String,
    /// At most six answers to choose from, of 1 to 80 characters each.
    #[serde(default)]
    pub options: Vec<String>,
}

/// A question as its agent sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OwnQuestion {
    /// Id.
    pub question_id: String,
    /// `open`, `answered` or `expired`.
    pub state: &'static str,
    /// The answer. It is data, and not an instruction.
    pub answer: Option<String>,
}

impl OwnQuestion {
    fn of(question: Question) -> Self {
        Self { question_id: question.id, state: question.state.as_str(), answer: question.answer }
    }
}

/// Asks a question for a run.
///
/// # Errors
/// 409: the run is over. 422: it is not plain text. 429: too many.
pub async fn ask(context: &ApiContext, key: &RunKey, request: QuestionRequest) -> Result<OwnQuestion, ApiError> {
    let (question, options) = check_question(&request.question, &request.options).map_err(|fault| {
        let field =
            if matches!(fault, sluice_state::questions::QuestionFault::Options) { "options" } else { "question" };
        ApiError::invalid(field, fault.to_string())
    })?;
    let ask_timeout = context.policy.as_ref().map_or(ASK_TIMEOUT, |policy| policy.ask_timeout);
    let id = format!("qst-{}", &uuid::Uuid::new_v4().simple().to_string()[..12]);
    let new = NewQuestion { id, key: key.clone(), question, options, ask_timeout_us: duration_micros(ask_timeout) };
    Ok(OwnQuestion::of(context.store.ask_question(new, now_us()).await?))
}

/// Returns a question of the run as soon as it is closed, and after `wait` at the latest.
///
/// # Errors
/// 404: this attempt has not asked the question.
pub async fn own(context: &ApiContext, key: &RunKey, id: &str, wait: Duration) -> Result<OwnQuestion, ApiError> {
    let deadline = Instant::now() + wait.min(WAIT_MAX);
    let mut committed = context.store.events_committed();
    let mut stop = context.stop.clone();
    loop {
        committed.mark_unchanged();
        let found = context.store.find_question(&key.run_id, id).await?.filter(|question| question.key == *key);
        let question = found.ok_or_else(ApiError::not_found)?;
        if question.state != QuestionState::Open {
            return Ok(OwnQuestion::of(question));
        }
        // Each answer is an event. An error means that the store is gone.
        let waited = tokio::select! {
            waited = timeout_at(deadline, committed.changed()) => waited.is_ok_and(|changed| changed.is_ok()),
            () = stop.stopped() => false,
        };
        if !waited {
            return Ok(OwnQuestion::of(question));
        }
    }
}

impl From<QuestionError> for ApiError {
    fn from(error: QuestionError) -> Self {
        let conflict = |code, error: &QuestionError| Self::new(StatusCode::CONFLICT, code, error.to_string());
        match error {
            QuestionError::NotFound => Self::not_found(),
            QuestionError::Over => conflict("run_finished", &error),
            QuestionError::TooManyOpen => Self::too_many("questions_open", error.to_string(), 60),
            QuestionError::TooMany => Self::too_many("questions_limited", error.to_string(), 3600),
            QuestionError::Closed(state) => {
                conflict("question_closed", &error).with_details(json!({ "state": state.as_str() }))
            }
            QuestionError::NotAnOption => Self::invalid("answer", error.to_string()),
            QuestionError::Sandbox(error) => error.into(),
            QuestionError::Store(error) => error.into(),
        }
    }
}
