//! Translates the events of a run into the events of a chat.
//!
//! Pure: a state machine. Its order is a property: results follow their call and come once, nothing follows `done`, and
//! an error comes right before it. The text has one source, the first one that had text when it was read: the program's
//! stdout, or the events of a worker. Text of the other source is left out.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_runs::verdict::Contract;
use sluice_state::events::EVENT_DATA_MAX;

use super::defang::Defang;
use super::failure::ChatFailure;
use super::stdout_text::StdoutText;
use crate::chat_settings::RemoteContent;

/// Maximum number of tool calls that wait for a result. An agent could report any number of them.
const OPEN_TOOLS_MAX: usize = 1000;

/// Something that a chat client sees.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ChatEvent {
    /// A part of the answer.
    Text(String),
    /// The agent calls one of its own tools.
    ToolStart { id: String, name: String, args: Value },
    /// A tool of the agent has ended.
    ToolResult { id: String, result: Value, is_error: bool },
    /// Phase of the run.
    Status { phase: &'static str, label: Option<String> },
    /// The chat has failed. `Done` follows.
    Failed(ChatFailure),
    /// The last event of a chat.
    Done { reason: &'static str },
}

/// An event of the log, as far as a chat depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TurnEvent<'a> {
    pub(crate) event_type: &'a str,
    pub(crate) data: &'a Value,
    /// True if Sluice itself reports it, and not the agent.
    pub(crate) is_system: bool,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ChatEnd {
    Success,
    Cancelled,
    /// The program failed, with its failure code.
    Failed(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TextSource {
    Stdout,
    Events,
}

/// The state of a chat.
#[derive(Debug)]
pub(crate) struct Translation {
    stdout: StdoutText,
    source: Option<TextSource>,
    defang: Option<Defang>,
    /// Text of a message that came in parts, before the whole message. `None` if it is longer than a whole message can be.
    partial: Option<String>,
    /// True if a message is complete: the next one begins a new paragraph.
    is_paragraph_due: bool,
    /// Ids of calls of tools without a result, as the client sees them.
    open_tools: BTreeSet<String>,
    /// Status of the last call of a model; none before the first.
    last_call: Option<Option<u16>>,
    is_done: bool,
}

impl Translation {
    /// Begins a chat. `has_stdout` is false for a later turn of a worker: stdout belongs to the whole run.
    pub(crate) fn new(contract: Contract, remote: RemoteContent, has_stdout: bool) -> Self {
        Self {
            stdout: StdoutText::new(contract),
            source: (!has_stdout).then_some(TextSource::Events),
            defang: (remote == RemoteContent::Defang).then(Defang::default),
            partial: Some(String::new()),
            is_paragraph_due: false,
            open_tools: BTreeSet::new(),
            last_call: None,
            is_done: false,
        }
    }

    /// Returns whether stdout can be a part of the answer.
    pub(crate) fn reads_stdout(&self) -> bool {
        self.source != Some(TextSource::Events)
    }

    /// Takes bytes of stdout.
    pub(crate) fn stdout(&mut self, bytes: &[u8]) -> Option<ChatEvent> {
        if self.is_done || !self.reads_stdout() {
            return None;
        }
        let text = self.stdout.push(bytes);
        self.text(TextSource::Stdout, &text)
    }

    /// Takes an event of the log. It gives at most one event of the chat.
    pub(crate) fn event(&mut self, event: TurnEvent<'_>) -> Option<ChatEvent> {
        if self.is_done {
            return None;
        }
        let data = event.data;
        // Only the main conversation: the text of a subagent is not part of the answer.
        let is_own = !data["parent_tool_use_id"].is_string();
        match event.event_type {
            "sandbox.created" if event.is_system => phase("PENDING"),
            "run.state_changed" if event.is_system => phase(data["to"].as_str()?),
            "llm.call" if event.is_system => {
                self.last_call = Some(data["status"].as_u64().and_then(|status| u16::try_from(status).ok()));
                None
            }
            "approval.requested" if event.is_system => {
                Some(ChatEvent::Status { phase: "waiting", label: Some("an approval is needed".to_owned()) })
            }
            "agent.thinking" if is_own => Some(ChatEvent::Status { phase: "thinking", label: None }),
            "agent.message" if is_own && data["partial"] == true => {
                let text = data["text"].as_str()?;
                let due = self.paragraph();
                self.partial = self.partial.take().map(|said| said + text).filter(|said| said.len() <= EVENT_DATA_MAX);
                self.text(TextSource::Events, &format!("{due}{text}"))
            }
            "agent.assistant_message" if is_own => {
                let text = data["text"].as_str()?;
                let said = self.partial.replace(String::new());
                let text = match said.as_deref().and_then(|said| text.strip_prefix(said)) {
                    Some(more) if said.as_deref() == Some("") => format!("{}{more}", self.paragraph()),
                    Some(more) => more.to_owned(),
                    // The whole message does not continue its parts: it was cut because it was too large.
                    None => String::new(),
                };
                let told = self.text(TextSource::Events, &text);
                self.is_paragraph_due |= self.source == Some(TextSource::Events);
                told
            }
            "agent.tool_use" if is_own => self.tool_start(data),
            "agent.tool_result" if is_own => self.tool_result(data),
            _ => None,
        }
    }

    /// Returns the rest of the text, once the run is over.
    pub(crate) fn last_text(&mut self) -> Option<ChatEvent> {
        if self.is_done {
            return None;
        }
        let rest = if self.reads_stdout() { self.stdout.finish() } else { String::new() };
        let safe = match &mut self.defang {
            Some(defang) => defang.push(&rest) + &defang.finish(),
            None => rest,
        };
        (!safe.is_empty()).then_some(ChatEvent::Text(safe))
    }

    /// Returns the last events, once the run is over and its text is complete.
    pub(crate) fn end(&mut self, end: &ChatEnd) -> Vec<ChatEvent> {
        if std::mem::replace(&mut self.is_done, true) {
            return Vec::new();
        }
        let failure = match end {
            ChatEnd::Success => return vec![ChatEvent::Done { reason: "stop" }],
            ChatEnd::Cancelled => ChatFailure::cancelled(),
            ChatEnd::Failed(code) => {
                let of_call = if code == "container_failed" { self.last_call } else { None };
                of_call.and_then(ChatFailure::of_last_call).unwrap_or_else(|| ChatFailure::of_code(code))
            }
        };
        vec![ChatEvent::Failed(failure), ChatEvent::Done { reason: "error" }]
    }

    fn text(&mut self, source: TextSource, text: &str) -> Option<ChatEvent> {
        if text.is_empty() || *self.source.get_or_insert(source) != source {
            return None;
        }
        let safe = self.defang.as_mut().map_or_else(|| text.to_owned(), |defang| defang.push(text));
        (!safe.is_empty()).then_some(ChatEvent::Text(safe))
    }

    fn paragraph(&mut self) -> &'static str {
        if std::mem::take(&mut self.is_paragraph_due) { "\n\n" } else { "" }
    }

    fn tool_start(&mut self, data: &Value) -> Option<ChatEvent> {
        let (id, name) = (self.safe_name(data["id"].as_str()?), self.safe_name(data["name"].as_str()?));
        if self.open_tools.len() >= OPEN_TOOLS_MAX || !self.open_tools.insert(id.clone()) {
            return None;
        }
        Some(ChatEvent::ToolStart { id, name, args: self.safe(&data["input"]) })
    }

    fn tool_result(&mut self, data: &Value) -> Option<ChatEvent> {
        let id = self.safe_name(data["tool_use_id"].as_str()?);
        self.open_tools.remove(&id).then(|| ChatEvent::ToolResult {
            id,
            result: self.safe(&data["content"]),
            is_error: data["is_error"] == true,
        })
    }

    /// Returns the id or the name of a tool in a form that loads nothing in a client. A call and its result keep the
    /// same id.
    fn safe_name(&self, name: &str) -> String {
        if self.defang.is_some() { Defang::name(name) } else { name.to_owned() }
    }

    /// Returns a value whose texts load nothing in a client that renders them as Markdown.
    fn safe(&self, value: &Value) -> Value {
        if self.defang.is_some() { defanged(value) } else { value.clone() }
    }
}

fn defanged(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let mut defang = Defang::default();
            Value::String(defang.push(text) + &defang.finish())
        }
        Value::Array(items) => items.iter().map(defanged).collect(),
        Value::Object(members) => members.iter().map(|(name, value)| (Defang::name(name), defanged(value))).collect(),
        other => other.clone(),
    }
}

/// Returns the phase of a run's state, for people who wait.
fn phase(state: &str) -> Option<ChatEvent> {
    let phase = match state {
        "PENDING" => "queued",
        "CREATING" => "starting",
        "RUNNING" => "running",
        "COMPLETING" => "finishing",
        _ => return None,
    };
    Some(ChatEvent::Status { phase, label: None })
}

#[cfg(test)]
mod tests;
