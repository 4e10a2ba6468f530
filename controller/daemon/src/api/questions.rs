//! Questions of agents to people. Texts of questions are an agent's: a claim, never a text of Sluice.

use std::sync::Arc;

use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sluice_contract::Hash;
use sluice_state::control_log::ControlEntry;
use sluice_state::questions::Question;
use sluice_state::store::now_us;
use utoipa::{OpenApi, ToSchema};

use super::idempotent::{IdempotentRepeat, RequestKey, complete, release};
use super::sandboxes::lookup;
use super::{Context, NoQuery};
use crate::api_error::{ApiError, ErrorBody};
use crate::context::ApiContext;
use crate::extract::{JsonBody, PathNames, Query};
use crate::permission::Operation;
use crate::principal::Principal;
use crate::timestamp::{timestamp, timestamp_of};

#[derive(OpenApi)]
#[openapi(paths(list, answer))]
pub(super) struct Doc;

pub(super) fn routes() -> Router<Arc<ApiContext>> {
    Router::new()
        .route("/api/v1/sandboxes/{id}/questions", get(list))
        .route("/api/v1/sandboxes/{id}/questions/{question_id}/answer", post(answer))
}

/// Maximum length of an answer in characters.
const ANSWER_MAX: usize = 1000;

/// Questions of a run's agent, oldest first.
#[derive(Debug, Serialize, ToSchema)]
struct Questions {
    questions: Vec<QuestionView>,
}

/// A question of an agent. Its texts are written in the sandbox, without control characters and hidden ones.
#[derive(Debug, Serialize, ToSchema)]
struct QuestionView {
    question_id: String,
    sandbox_id: String,
    attempt: u32,
    /// Text of the agent.
    question: String,
    /// Answers to choose from, texts of the agent; empty for a free text.
    options: Vec<String>,
    /// `open`, `answered` or `expired`.
    state: &'static str,
    created_at: String,
    /// Time at which it closes without an answer.
    expires_at: String,
    answer: Option<String>,
    answered_by: Option<String>,
    answered_at: Option<String>,
}

impl QuestionView {
    fn of(question: Question) -> Self {
        Self {
            question_id: question.id,
            sandbox_id: question.key.run_id.to_string(),
            attempt: question.key.attempt,
            question: question.question,
            options: question.options,
            state: question.state.as_str(),
            created_at: timestamp(question.created_us),
            expires_at: timestamp(question.expires_us),
            answer: question.answer,
            answered_by: question.answered_by,
            answered_at: timestamp_of(question.answered_us),
        }
    }
}

/// Lists what the agent of a run asks.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/questions",
    params(("id" = String, Path, description = "Id, or a name of the own owner")),
    responses(
        (status = 200, body = Questions), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
async fn list(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(NoQuery {}): Query<NoQuery>,
) -> Result<Json<Questions>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let questions = context.store.questions_of(&sandbox.key.run_id).await?;
    Ok(Json(Questions { questions: questions.into_iter().map(QuestionView::of).collect() }))
}

/// An answer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct QuestionAnswer {
    /// One of the options as it is, or a text of 1 to 1,000 characters where there are none.
    #[schema(min_length = 1, max_length = 1000)]
    answer: String,
}

/// Answers a question. The answer is data for the agent, and changes nothing else. The first one stays.
#[utoipa::path(
    post, path = "/api/v1/sandboxes/{id}/questions/{question_id}/answer", request_body = QuestionAnswer,
    params(
        ("id" = String, Path, description = "Id, or a name of the own owner"),
        ("question_id" = String, Path, description = "Id of the question"),
        ("Idempotency-Key" = Option<String>, Header, description = "1 to 255 characters: the same key answers once")
    ),
    responses(
        (status = 200, description = "The question with its answer", body = QuestionView),
        (status = 400, body = ErrorBody), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody), (status = 413, body = ErrorBody),
        (status = 415, body = ErrorBody), (status = 422, body = ErrorBody), (status = 429, body = ErrorBody),
        (status = 503, body = ErrorBody)
    )
)]
async fn answer(
    State(context): Context,
    principal: Principal,
    PathNames([id, question_id]): PathNames<2>,
    Query(NoQuery {}): Query<NoQuery>,
    key: RequestKey,
    body: JsonBody<QuestionAnswer>,
) -> Result<Json<QuestionView>, ApiError> {
    let sandbox = lookup::named(&context, &principal, Operation::Decide, &id).await?;
    let found = context.store.find_question(&sandbox.key.run_id, &question_id).await?;
    let found = found.ok_or_else(ApiError::not_found)?;
    let text = &body.value.answer;
    let is_text = (1..=ANSWER_MAX).contains(&text.chars().count())
        && !text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t'));
    if !is_text {
        let message = "an answer is 1 to 1,000 characters, without control characters";
        return Err(ApiError::invalid("answer", message));
    }
    let answered = answer_once(&context, &principal, (&sandbox.owner, &found), key, (text, body.digest)).await?;
    Ok(Json(QuestionView::of(answered)))
}

/// Answers a question; a repeated request returns the question as it is now.
async fn answer_once(
    context: &ApiContext,
    principal: &Principal,
    (owner, question): (&str, &Question),
    key: RequestKey,
    (text, request): (&str, Hash),
) -> Result<Question, ApiError> {
    let key = match key.reserve(context, principal, request).await? {
        IdempotentRepeat::Done(_) => {
            // The question was read before the key was reserved: the first request may have answered it since then.
            let present = context.store.find_question(&question.key.run_id, &question.id).await?;
            return present.ok_or_else(ApiError::not_found);
        }
        IdempotentRepeat::New(key) => key,
    };
    match record_and_answer(context, principal, (owner, question), text, request).await {
        Ok(answered) => {
            complete(context, key, &answered.id).await;
            Ok(answered)
        }
        Err(error) => {
            release(context, key).await;
            Err(error)
        }
    }
}

async fn record_and_answer(
    context: &ApiContext,
    principal: &Principal,
    (owner, question): (&str, &Question),
    text: &str,
    request: Hash,
) -> Result<Question, ApiError> {
    const OPERATION: &str = "question.answer";
    let run_id = &question.key.run_id;
    let entry = ControlEntry {
        operation: OPERATION.to_owned(),
        object: Some(format!("{run_id}/{}", question.id)),
        owner: Some(owner.to_owned()),
        request: Some(request),
        // The control log keeps only a digest of the text that a person writes to an agent.
        after: Some(json!({ "length": text.chars().count(), "sha256": Hash::of(text.as_bytes()).to_string() })),
        ..ControlEntry::default()
    };
    let seq = context.record(principal, entry).await?;
    match context.store.answer_question(run_id, &question.id, text, &principal.id, now_us()).await {
        Ok(question) => Ok(question),
        Err(error) => Err(context.record_failure(principal, OPERATION, seq, error.into()).await),
    }
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts;
    use http::Request;
    use sluice_contract::RunKey;

    use super::*;
    use crate::principal::Role;
    use crate::questions::{QuestionRequest, ask};
    use crate::test_daemon::TestDaemon;

    #[tokio::test]
    async fn a_repeated_answer_returns_the_present_question() {
        let daemon = TestDaemon::with_runs().await;
        let (id, _) = daemon.working_run().await;
        let context = &daemon.running.context;
        let key: RunKey = format!("{id}.0").parse().expect("a key");
        let request = QuestionRequest { question: "go on?".to_owned(), options: Vec::new() };
        let asked = ask(context, &key, request).await.expect("it works");
        let found = context.store.find_question(&key.run_id, &asked.question_id).await.expect("it is readable");
        // Both requests have read the question while it was open.
        let open = found.expect("it was asked");
        let principal = Principal::for_tests(Role::Owner, "alice", &["acct-1"]);
        let answer = async || {
            let path = format!("/api/v1/sandboxes/{id}/questions/{}/answer", open.id);
            let request = Request::post(path).header("idempotency-key", "one").body(()).expect("a request");
            let key = RequestKey::from_request_parts(&mut request.into_parts().0, context).await.expect("a key");
            answer_once(context, &principal, ("alice", &open), key, ("yes", Hash::of(b"yes"))).await
        };

        let (first, second) = (answer().await.expect("it is open"), answer().await.expect("it is a repetition"));

        assert_eq!((first.state.as_str(), first.answer.as_deref()), ("answered", Some("yes")));
        assert_eq!(second, first);
    }
}
