//! Task of a run, as the API and the relay return it.
//!
//! Pure.

use serde::Serialize;
use serde_json::Value;
use sluice_contract::RunKey;
use utoipa::ToSchema;

use crate::stored_request::{StoredRepository, StoredRequest};

/// Task of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Task {
    sandbox_id: String,
    /// The text, if it was one message of the user.
    task: Option<String>,
    /// OpenAI messages, as the agent got them; empty for a program without messages.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    /// Program and arguments, if the request named them in place of a graph's.
    argv: Option<Vec<String>>,
    /// Work on the repository of its project, as the request asked for it.
    repository: Option<TaskRepository>,
}

/// Work of a run on a repository.
#[derive(Debug, Serialize, ToSchema)]
struct TaskRepository {
    base: Option<String>,
    ticket: Option<String>,
    title: Option<String>,
    /// Type of the work, the first part of the branch.
    r#type: Option<String>,
    publish: String,
    pull_request: bool,
}

impl Task {
    /// Returns the task of a run.
    pub(crate) fn of(key: &RunKey, request: StoredRequest) -> Self {
        let messages = request.messages.unwrap_or_default();
        let task = match &messages[..] {
            [only] if only["role"] == "user" => only["content"].as_str().map(str::to_owned),
            _ => None,
        };
        let repository = request.repository.map(TaskRepository::of);
        Self { sandbox_id: key.run_id.to_string(), task, messages, argv: request.argv, repository }
    }
}

impl TaskRepository {
    fn of(stored: StoredRepository) -> Self {
        let StoredRepository { base, branch, ticket, title, publish, pull_request } = stored;
        let r#type = branch.split_once('/').map(|(prefix, _)| prefix.to_owned());
        Self { base, ticket, title, r#type, publish, pull_request }
    }
}
