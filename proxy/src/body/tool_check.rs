//! The check that the agent itself runs a tool: its type, its name, and the words that decide.
//!
//! Pure.

use crate::json::{JsonScalar, StrPrefix};
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};
use crate::text::clip;

/// Runner of a tool of one type, in the Chat, Responses and Messages APIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ToolRunner {
    /// The agent: the model only names it.
    Agent,
    /// The agent, if this member says so.
    AgentIf(&'static str),
}

/// Tool types that the agent runs. Every other one is run by the provider or the gateway, or is unknown.
/// From the API references of OpenAI (Responses, Chat) and Anthropic (Messages), November 2026.
const TYPES: &[(&str, ToolRunner)] = &[
    ("function", ToolRunner::Agent),
    ("custom", ToolRunner::Agent),
    // Responses: a group of functions, each checked by itself.
    ("namespace", ToolRunner::Agent),
    // Responses: the agent searches its own tools if `execution` is `client`; otherwise OpenAI searches.
    ("tool_search", ToolRunner::AgentIf("execution")),
    // Responses: a shell on the agent's machine, or in OpenAI's container.
    ("local_shell", ToolRunner::Agent),
    ("shell", ToolRunner::AgentIf("environment")),
    ("apply_patch", ToolRunner::Agent),
    ("computer", ToolRunner::Agent),
    ("computer_use_preview", ToolRunner::Agent),
    // Messages: Anthropic knows their schemas, and the agent runs them.
    ("bash_20241022", ToolRunner::Agent),
    ("bash_20250124", ToolRunner::Agent),
    ("text_editor_20241022", ToolRunner::Agent),
    ("text_editor_20250124", ToolRunner::Agent),
    ("text_editor_20250429", ToolRunner::Agent),
    ("text_editor_20250728", ToolRunner::Agent),
    ("memory_20250818", ToolRunner::Agent),
    ("computer_20241022", ToolRunner::Agent),
    ("computer_20250124", ToolRunner::Agent),
    ("computer_20251124", ToolRunner::Agent),
];

/// Facts of one tool so far.
#[derive(Debug, Default)]
pub(super) struct ToolCheck {
    /// Name of the current member.
    at: &'static str,
    /// Type of the tool, if it has one.
    kind: Option<String>,
    /// Words by which another program would run it.
    foreign: Option<String>,
    /// Members that say that the agent runs it.
    confirmed: Vec<&'static str>,
    /// True if it has a member that only tools of agents have.
    shaped: bool,
    /// True if it describes its arguments.
    described: bool,
    /// True if it describes them as a tool of the Messages API does.
    has_input_schema: bool,
    /// Its name, if that begins like the one of a search. The name inside a `function` is not the tool's own.
    search_name: Option<String>,
}

impl ToolCheck {
    /// Takes the name of a member that is known.
    pub(super) fn begin(&mut self, name: &'static str) {
        self.at = name;
        self.shaped |= matches!(name, "function" | "input_schema" | "name");
        self.described |= matches!(name, "function" | "input_schema" | "parameters" | "custom" | "format");
        self.has_input_schema |= name == "input_schema";
        // Parsers keep the last of two.
        self.confirmed.retain(|confirmed| *confirmed != name);
    }

    /// Takes the name.
    pub(super) fn name(&mut self, name: StrPrefix<'_>) {
        if plain(name).starts_with("websearch") {
            self.search_name = Some(name.as_str().to_owned());
        }
    }

    /// Returns true if the current value is the tool's type.
    pub(super) fn is_at_type(&self) -> bool {
        self.at == "type"
    }

    /// Takes the type.
    pub(super) fn kind(&mut self, kind: StrPrefix<'_>) -> Result<(), Refusal> {
        if !kind.complete || self.kind.is_some() {
            return Err(refused("a tool has one type, of at most 768 bytes"));
        }
        self.kind = Some(kind.as_str().to_owned());
        Ok(())
    }

    /// Takes a word that decides who runs the tool.
    pub(super) fn word(&mut self, is_agent: bool, value: JsonScalar<'_>) {
        if is_agent {
            self.confirmed.push(self.at);
        } else if let JsonScalar::String(word) = value {
            self.foreign = Some(format!("a tool with '{}' in its '{}'", clip(word.as_str(), 64), self.at));
        }
    }

    /// Returns true if its provider knows it by its type.
    pub(super) fn is_typed(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| !matches!(kind.as_str(), "function" | "custom"))
    }

    /// Returns true if the operator has opened its type.
    pub(super) fn is_opened(&self, allowed: &[String]) -> bool {
        self.kind.as_ref().is_some_and(|kind| allowed.contains(kind))
    }

    /// Ends the tool, and refuses it unless the agent runs it.
    pub(super) fn finish(&self, format: ApiFormat, allowed: &[String]) -> Result<(), Refusal> {
        if self.is_opened(allowed) {
            return Ok(());
        }
        if let Some(name) = self.search_name.as_ref().filter(|name| self.is_replaced(format, name)) {
            return Err(refused(
                "the gateway would put the provider's web search in the place of this tool; give it another name",
            )
            .tool(self.kind.as_ref().unwrap_or(name)));
        }
        let Some(kind) = &self.kind else {
            return if self.shaped { Ok(()) } else { Err(refused("a tool needs a type")) };
        };
        let runner = TYPES.iter().find(|(name, _)| name == kind).map(|(_, runner)| *runner);
        let why = match (runner, &self.foreign) {
            (None, _) => format!("tools of type '{}' run", clip(kind, 64)),
            (Some(_), Some(foreign)) => format!("{foreign} runs"),
            (Some(ToolRunner::AgentIf(member)), None) if !self.confirmed.contains(&member) => {
                format!("a tool of type '{kind}' without '{member}' for the agent runs")
            }
            (Some(ToolRunner::Agent | ToolRunner::AgentIf(_)), None) => return Ok(()),
        };
        Err(refused(&format!("{why} outside the sandbox")).tool(kind))
    }

    /// Returns true if LiteLLM may replace a tool of this name with a search: for a model of OpenAI's with one by the
    /// provider, and with `websearch_interception` with one of its own, which tests `name`, `type` and `input_schema`.
    fn is_replaced(&self, format: ApiFormat, name: &str) -> bool {
        match format {
            ApiFormat::Messages => name == "web_search" || !self.has_input_schema,
            ApiFormat::Responses | ApiFormat::Compact | ApiFormat::InputTokens => !self.described,
            _ => {
                (name == "web_search" && self.kind.is_some())
                    || (name == "WebSearch" && !self.has_input_schema)
                    || !self.described
            }
        }
    }
}

/// Refuses the name of a tool that LiteLLM runs itself, in any spelling that it may take for one.
pub(super) fn check_name(name: StrPrefix<'_>) -> Result<(), Refusal> {
    let plain = plain(name);
    // Its guardrails Headroom and Compresr answer the other two.
    if plain.starts_with("litellm") || matches!(plain.as_str(), "headroomretrieve" | "compresrretrieve") {
        let message =
            format!("the gateway itself runs the tool '{}'; give your tool another name", clip(name.as_str(), 64));
        return Err(Refusal::new(Reason::ToolNotAllowed, message).param("tools").tool(name.as_str()));
    }
    Ok(())
}

/// Returns the letters and digits of a name, in lower case.
fn plain(name: StrPrefix<'_>) -> String {
    name.as_str().chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

pub(super) fn refused(what: &str) -> Refusal {
    Refusal::new(
        Reason::ToolNotAllowed,
        format!("{what}; use tools that the agent runs, or ask the operator for --allow-tool"),
    )
    .param("tools")
}
