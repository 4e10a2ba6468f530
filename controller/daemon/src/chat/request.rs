//! A request for an answer, in both of its forms.
//!
//! Pure. The OpenAI form has members that an agent in a sandbox cannot honour: those that change the meaning of the answer are
//! refused and named, and those that only tune a model are ignored and named in a header of the answer.

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use crate::api_error::ApiError;
#[allow(unused_imports, reason = "named in the document")]
use crate::identity::RunMetadata;

/// Agent of a request that names none.
pub(crate) const DEFAULT_AGENT: &str = "sandbox:agent";
/// Beginning of the model of an agent.
pub(crate) const MODEL_PREFIX: &str = "sandbox:";
/// Maximum number of characters of a name that a client gives.
const NAME_MAX: usize = 255;

/// Members of the OpenAI form that tune a model, which the agent chooses itself, and tools that a model may call but
/// does not have to: chat programs such as Open WebUI offer tools in each request.
const IGNORED: [&str; 22] = [
    "frequency_penalty", "functions", "logit_bias", "logprobs", "max_completion_tokens", "max_tokens",
    "parallel_tool_calls", "presence_penalty", "prompt_cache_key", "prompt_cache_retention", "reasoning_effort",
    "safety_identifier", "seed", "service_tier", "stop", "store", "temperature", "tool_choice", "tools",
    "top_logprobs", "top_p", "verbosity",
];
/// Members of the OpenAI form that do not apply to an agent, each with the reason.
const REFUSED: [(&str, &str); 5] = [
    ("function_call", "the agent has tools of its own, in its sandbox, and cannot call those of a client"),
    ("audio", "the agent answers with text alone"),
    ("prediction", "the agent takes no predicted answer"),
    ("web_search_options", "the sandbox of the agent has no network"),
    ("response_format", "the agent answers with text, and cannot be held to a format; say in a message what is needed"),
];
/// Members of `metadata` that runs take.
const METADATA: [&str; 8] =
    ["user_id", "session_id", "existing_trace_id", "trace_user_id", "tags", "mask_input", "mask_output", "request_id"];

/// A request for an answer.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ChatRequest {
    /// Name of an agent, of the configuration or of the registry.
    pub(crate) agent: String,
    /// Model for the agent.
    pub(crate) model: Option<String>,
    /// Messages: `role`, and `content` as text or as parts.
    pub(crate) messages: Vec<Value>,
    /// Metadata of the run.
    pub(crate) metadata: Map<String, Value>,
}

impl ChatRequest {
    /// Returns the client's name for its own user.
    pub(crate) fn end_user(&self) -> Option<&str> {
        self.metadata.get("user_id").and_then(Value::as_str)
    }

    /// Returns the client's name for the conversation.
    pub(crate) fn session_id(&self) -> Option<&str> {
        self.metadata.get("session_id").and_then(Value::as_str)
    }
}

/// A request for an answer as a stream of the events of a chat.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AgentChatRequest {
    /// An agent of `GET /ai/agents`; `sandbox:agent` by default.
    #[serde(rename = "agentId")]
    agent_id: Option<String>,
    /// The same, by its graph.
    #[serde(rename = "graphId")]
    graph_id: Option<String>,
    /// The same, by the NAME of `sandbox:NAME`.
    #[serde(rename = "graphName")]
    graph_name: Option<String>,
    /// A model of the agent.
    model: Option<String>,
    /// The conversation so far.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Value>,
    /// A word for the conversation, the same in each of its turns.
    session_id: Option<String>,
    /// Metadata of the run's calls, as in `POST /api/v1/sandboxes`.
    #[schema(value_type = Option<RunMetadata>)]
    metadata: Option<Map<String, Value>>,
}

impl AgentChatRequest {
    /// Checks the request.
    ///
    /// # Errors
    /// 400, with the name of the member.
    pub(crate) fn checked(self) -> Result<ChatRequest, ApiError> {
        let named: Vec<_> = [self.agent_id, self.graph_id, self.graph_name].into_iter().flatten().collect();
        let agent = match &named[..] {
            [] => DEFAULT_AGENT.to_owned(),
            [agent] => agent.clone(),
            _ => return Err(invalid("agentId", "name the agent by one of agentId, graphId and graphName")),
        };
        let mut metadata = checked_metadata(self.metadata.unwrap_or_default())?;
        if let Some(session_id) = self.session_id {
            set_name(&mut metadata, "session_id", session_id)?;
        }
        Ok(ChatRequest { agent, model: self.model, messages: messages(self.messages)?, metadata })
    }
}

/// A request in the OpenAI form.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CompletionRequest {
    /// The chat.
    pub(crate) chat: ChatRequest,
    /// `model` as it was sent; the answer names it.
    pub(crate) model: String,
    /// True if the answer is streamed.
    pub(crate) is_stream: bool,
    /// True for a stream whose last chunk has the usage.
    pub(crate) has_usage: bool,
    /// Members that have no effect.
    pub(crate) ignored: Vec<String>,
}

impl CompletionRequest {
    /// Reads the members of a body.
    ///
    /// # Errors
    /// 400, with the name of the member.
    pub(crate) fn of(mut body: Map<String, Value>) -> Result<Self, ApiError> {
        body.retain(|_, value| !value.is_null());
        let model = match body.remove("model") {
            Some(Value::String(model)) => model,
            _ => return Err(invalid("model", "model names an agent; GET /v1/models lists them")),
        };
        let (agent, inner) = match model.split_once('@') {
            Some((agent, inner)) => (agent.to_owned(), Some(inner.to_owned())),
            None => (model.clone(), None),
        };
        let Some(Value::Array(said)) = body.remove("messages") else {
            return Err(invalid("messages", "messages is a list of messages, each with a role and a content"));
        };
        let mut request = Self { model, ..Self::default() };
        request.is_stream = flag(&mut body, "stream")?.unwrap_or(false);
        match body.remove("stream_options") {
            None => {}
            Some(Value::Object(mut options)) => {
                request.has_usage = flag(&mut options, "include_usage")?.unwrap_or(false);
            }
            Some(_) => return Err(invalid("stream_options", "stream_options is an object")),
        }
        match body.remove("n") {
            None => {}
            Some(n) if n == 1 => {}
            Some(_) => {
                return Err(unsupported("n", "a chat is one run with one answer; send n = 1, or several requests"));
            }
        }
        refuse_unsupported(&mut body)?;
        let mut metadata = request.metadata(&mut body)?;
        for (member, name) in [("user", "user_id"), ("session_id", "session_id")] {
            match body.remove(member) {
                None => {}
                Some(Value::String(text)) => set_name(&mut metadata, name, text)?,
                Some(_) => return Err(invalid(member, &format!("{member} is a text"))),
            }
        }
        for (name, value) in body {
            if !IGNORED.contains(&name.as_str()) {
                return Err(unsupported(&name, "there is no such parameter; leave it out"));
            }
            if !value.as_array().is_some_and(Vec::is_empty) {
                request.ignored.push(name);
            }
        }
        request.chat = ChatRequest { agent, model: inner, messages: messages(said)?, metadata };
        Ok(request)
    }

    /// Takes the members of `metadata` that runs know. Clients may send others.
    fn metadata(&mut self, body: &mut Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
        let metadata = match body.remove("metadata") {
            None => Map::new(),
            Some(Value::Object(metadata)) => checked_metadata(metadata)?,
            Some(_) => return Err(invalid("metadata", "metadata is an object")),
        };
        let (known, other): (Map<_, _>, Map<_, _>) =
            metadata.into_iter().partition(|(name, _)| METADATA.contains(&name.as_str()));
        self.ignored.extend(other.into_iter().map(|(name, _)| format!("metadata.{name}")));
        Ok(known)
    }
}

/// Removes members without a value, and checks those that choose a session: a request for a live worker is not checked
/// any further.
fn checked_metadata(mut metadata: Map<String, Value>) -> Result<Map<String, Value>, ApiError> {
    metadata.retain(|_, value| !value.is_null());
    for name in ["user_id", "session_id"] {
        if metadata.get(name).is_some_and(|value| !value.is_string()) {
            return Err(invalid(&format!("metadata.{name}"), &format!("{name} is a text")));
        }
    }
    Ok(metadata)
}

/// Refuses members that would change the meaning of the answer, unless they state the default.
fn refuse_unsupported(body: &mut Map<String, Value>) -> Result<(), ApiError> {
    for (name, reason) in REFUSED {
        let Some(value) = body.remove(name) else { continue };
        let is_empty = value.as_array().is_some_and(Vec::is_empty);
        let is_usual = (name == "response_format" && value["type"] == "text")
            || (name == "function_call" && (value == "none" || value == "auto"));
        if !is_empty && !is_usual {
            return Err(unsupported(name, reason));
        }
    }
    match body.remove("modalities") {
        Some(modalities) if modalities != json!(["text"]) => {
            Err(unsupported("modalities", "the agent answers with text alone"))
        }
        _ if body.get("logprobs") == Some(&Value::Bool(true)) => {
            Err(unsupported("logprobs", "the answer of an agent has no probabilities"))
        }
        _ if body.get("tool_choice").is_some_and(|choice| choice != "none" && choice != "auto") => {
            Err(unsupported("tool_choice", "the agent has tools of its own, and cannot be made to call one"))
        }
        _ if body.get("stop").is_some_and(|stop| !stop.as_array().is_some_and(Vec::is_empty)) => {
            Err(unsupported("stop", "the answer of an agent is not cut at a text"))
        }
        _ => Ok(()),
    }
}

fn flag(body: &mut Map<String, Value>, name: &str) -> Result<Option<bool>, ApiError> {
    match body.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(_) => Err(invalid(name, &format!("{name} is true or false"))),
    }
}

/// Sets a member of the metadata, unless it already has a value.
///
/// # Errors
/// 400, with the name of the member.
pub(super) fn set_name(metadata: &mut Map<String, Value>, name: &str, text: String) -> Result<(), ApiError> {
    if text.is_empty() || text.chars().count() > NAME_MAX || text.contains(char::is_control) {
        return Err(invalid(name, &format!("{name} is 1 to {NAME_MAX} characters, without control characters")));
    }
    metadata.entry(name).or_insert(Value::String(text));
    Ok(())
}

/// Returns the messages, reduced to the parts that an agent reads.
fn messages(messages: Vec<Value>) -> Result<Vec<Value>, ApiError> {
    if messages.is_empty() {
        return Err(invalid("messages", "there is no message; send at least one of the user"));
    }
    messages.into_iter().enumerate().map(|(at, message)| checked_message(at, message)).collect()
}

fn checked_message(at: usize, mut message: Value) -> Result<Value, ApiError> {
    let field = |name: &str| format!("messages[{at}].{name}");
    let role = match message["role"].as_str() {
        Some("system" | "developer") => "system",
        Some("user") => "user",
        Some("assistant") => "assistant",
        Some("tool" | "function") => {
            return Err(unsupported(
                &field("role"),
                "the agent calls no tools of a client, so there are no results of them",
            ));
        }
        _ => return Err(invalid(&field("role"), "a role is system, developer, user or assistant")),
    };
    if message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty()) {
        return Err(unsupported(&field("tool_calls"), "the agent calls no tools of a client"));
    }
    let content = match message["content"].take() {
        Value::Null if role == "assistant" => Value::String(String::new()),
        text @ Value::String(_) => text,
        Value::Array(parts) => {
            Value::Array(parts.into_iter().map(|part| checked_part(&field("content"), part)).collect::<Result<_, _>>()?)
        }
        _ => return Err(invalid(&field("content"), "content is a text, or a list of parts")),
    };
    Ok(json!({ "role": role, "content": content }))
}

fn checked_part(field: &str, mut part: Value) -> Result<Value, ApiError> {
    match part["type"].as_str() {
        Some("text") if part["text"].is_string() => Ok(json!({ "type": "text", "text": part["text"].take() })),
        // An agent's request to its model must not contain a URL.
        Some("image_url") if part["image_url"]["url"].as_str().is_some_and(|url| url.starts_with("data:")) => {
            Ok(json!({ "type": "image_url", "image_url": part["image_url"].take() }))
        }
        _ => Err(unsupported(field, "the parts of a content are texts, and images as data: URLs")),
    }
}

/// Returns the error of a member that has a wrong value.
pub(crate) fn invalid(field: &str, message: &str) -> ApiError {
    ApiError::new(StatusCode::BAD_REQUEST, "invalid_request", message).with_details(json!({ "field": field }))
}

fn unsupported(field: &str, message: &str) -> ApiError {
    let message = format!("{field}: {message}");
    ApiError::new(StatusCode::BAD_REQUEST, "unsupported_parameter", message).with_details(json!({ "field": field }))
}

/// Returns the model that names an agent.
pub(crate) fn model_name(agent: &str) -> String {
    if agent.starts_with(MODEL_PREFIX) { agent.to_owned() } else { format!("{MODEL_PREFIX}{agent}") }
}

#[cfg(test)]
mod tests;
