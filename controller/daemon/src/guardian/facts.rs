//! Facts of an event for the rules: which tool call or error it is, as a hash, and no text of an agent.
//!
//! Pure.

use serde_json::Value;
use sluice_contract::{Hash, Usd};
use sluice_runs::blueprint::WORKSPACE;
use sluice_state::events::{EventSource, HEARTBEAT, LoggedEvent};

/// Fact that an event reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fact {
    /// The agent uses a tool: the hash of tool and input.
    ToolUse(Hash),
    /// Something failed: the hash of the error.
    Error(Hash),
    /// A call begins.
    CallStarted,
    /// A call has ended: its cost in nano-USD, and the hash of its error.
    CallEnded {
        /// Cost in nano-USD; 0 if it is unknown.
        nano_usd: i64,
        /// Error of the call, if it failed.
        error: Option<Hash>,
    },
    /// The host has seen a changed file which is not the agent's own state.
    FileChanged,
    /// Something else happened.
    Other,
}

/// Events of agents that say that a tool is used.
const TOOL_USE: &str = "agent.tool_use";
/// Events of agents that have the result of a tool.
const TOOL_RESULTS: [&str; 3] = ["agent.tool_result", "agent.user_tool_result", "agent.tool_completed"];
/// Events of agents about errors.
const ERRORS: [&str; 3] = ["agent.error", "agent.stream_error", "agent.failed"];

/// Results of calls that failed at the upstream.
const FAILURES: [&str; 3] = ["upstream_error", "timeout", "unknown"];

/// Returns the fact in an event; `None` if the event shows no activity of a run.
pub(super) fn fact(event: &LoggedEvent) -> Option<Fact> {
    let is_of_run = event.event_type.starts_with("agent.") || event.event_type.starts_with("llm.");
    if !is_of_run || event.event_type == HEARTBEAT {
        return None;
    }
    let data = || serde_json::from_str(&event.event_data).unwrap_or(Value::Null);
    Some(match (event.event_type.as_str(), event.source) {
        ("llm.call_started", _) => Fact::CallStarted,
        ("llm.call", _) => call_ended(&data()),
        ("agent.file_edited", EventSource::System) => file_edited(&data()),
        (TOOL_USE, _) => tool_use(&data()).map_or(Fact::Other, Fact::ToolUse),
        (name, _) if TOOL_RESULTS.contains(&name) => failed_result(&data()).map_or(Fact::Other, Fact::Error),
        (name, _) if ERRORS.contains(&name) => Fact::Error(error(&data())),
        _ => Fact::Other,
    })
}

/// The home directory of a run is its workspace, so agents keep sessions, logs and databases there, in names that begin
/// with a dot. These files change even if the agent changes no file of its task.
fn file_edited(data: &Value) -> Fact {
    let path = data["file_path"].as_str().unwrap_or_default();
    let is_state = path.strip_prefix(WORKSPACE).is_some_and(|rest| rest.starts_with("/."));
    if is_state { Fact::Other } else { Fact::FileChanged }
}

fn call_ended(data: &Value) -> Fact {
    let usd = data["cost"]["known"]["usd"].as_str().and_then(|usd| Usd::parse(usd).ok());
    let nano_usd = usd.map_or(0, |usd| usd.to_nanos());
    let is_failed = FAILURES.iter().any(|result| data["result"] == *result);
    let error = is_failed.then(|| hash([&data["status"], &data["result"]]));
    Fact::CallEnded { nano_usd, error }
}

/// Returns the hash of a call of a tool; `None` without a tool.
fn tool_use(data: &Value) -> Option<Hash> {
    let tool = first(data, &["tool_name", "toolName", "name", "tool"])?;
    let input = first(data, &["tool_input", "input", "args", "arguments", "parameters"]).unwrap_or(&Value::Null);
    Some(hash([tool, input]))
}

fn failed_result(data: &Value) -> Option<Hash> {
    let is_error = ["is_error", "isError", "error"].iter().any(|name| is_true(&data[*name]));
    is_error.then(|| error(data))
}

fn is_true(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn error(data: &Value) -> Hash {
    let kind = first(data, &["error_type", "code", "tool_name", "toolName", "name"]).unwrap_or(&Value::Null);
    let text = first(data, &["error_message", "message", "error", "result", "content", "output"]);
    hash([kind, text.unwrap_or(&Value::Null)])
}

fn first<'a>(data: &'a Value, names: &[&str]) -> Option<&'a Value> {
    names.iter().filter_map(|name| data.get(name)).find(|value| !value.is_null())
}

fn hash<const N: usize>(parts: [&Value; N]) -> Hash {
    let texts = parts.map(ToString::to_string);
    Hash::of(texts.join("\0").as_bytes())
}
