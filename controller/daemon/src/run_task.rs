//! Task of a run, as the API and the relay return it.
//!
//! Pure.

use serde::Serialize;
use serde_json::Value;
use sluice_contract::RunKey;
use utoipa::ToSchema;

/// Task of a run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Task {
    sandbox_id: String,
    /// The text, if it was one message of the user.
    task: Option<String>,
    /// OpenAI messages, as the agent got them; empty for a program without messages.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
}

impl Task {
    /// Returns the task of a run.
    pub(crate) fn of(key: &RunKey, messages: Vec<Value>) -> Self {
        let task = match &messages[..] {
            [only] if only["role"] == "user" => only["content"].as_str().map(str::to_owned),
            _ => None,
        };
        Self { sandbox_id: key.run_id.to_string(), task, messages }
    }
}
