//! Tools: only those that the agent itself runs.
//!
//! `mcp`, `web_search`, `code_interpreter` and their like make the provider or the gateway call out. A
//! tool is known by its `type`, or, without one, by members that only an agent's own tool has: Gemini
//! takes `{"googleSearch":{}}`.

use crate::json::{Container, Scalar, Text};
use crate::refusal::{Reason, Refusal};

/// Members of a tool that the agent runs, in the three public APIs.
const OWN_MEMBERS: &[&str] = &[
    "type", "function", "name", "description", "parameters", "strict", "input_schema", "cache_control", "custom",
    "format", "defer_loading", "input_examples", "allowed_callers", "eager_input_streaming",
];

/// Follows the `tools` of one body: array at depth 1, tools at 2, their members at 3.
#[derive(Debug, Default)]
pub(super) struct Tools {
    at_type: bool,
    typed: bool,
    shaped: bool,
    /// Every type given so far stands in `--allow-tool`.
    allowed: bool,
    foreign: Option<String>,
}

impl Tools {
    pub(super) fn key(&mut self, depth: usize, key: Text<'_>) {
        if depth != 3 {
            return;
        }
        self.at_type = key.whole() == Some(b"type");
        self.shaped |= matches!(key.whole(), Some(b"function" | b"input_schema" | b"name"));
        if !OWN_MEMBERS.iter().any(|own| own.as_bytes() == key.head) {
            self.foreign.get_or_insert_with(|| key.as_str().to_owned());
        }
    }

    pub(super) fn open(&mut self, depth: usize, kind: Container) -> Result<(), Refusal> {
        match (depth, kind) {
            (2, Container::Object) => *self = Self::default(),
            (2, Container::Array) => return Err(refused("a tool is an object")),
            (3, _) if self.at_type => return Err(refused("a tool's type is a string")),
            _ => {}
        }
        Ok(())
    }

    pub(super) fn scalar(&mut self, depth: usize, value: Scalar<'_>, allowed: &[String]) -> Result<(), Refusal> {
        match (depth, value) {
            (2, _) => Err(refused("a tool is an object")),
            (3, Scalar::String(kind)) if self.at_type => {
                let known = matches!(kind.whole(), Some(b"function" | b"custom"));
                let named = kind.whole().is_some_and(|kind| allowed.iter().any(|allowed| allowed.as_bytes() == kind));
                if !known && !named {
                    return Err(refused(&format!(
                        "tools of type '{}' run outside the sandbox",
                        crate::refusal::clip(kind.as_str(), 64)
                    )));
                }
                self.allowed = named && (self.allowed || !self.typed);
                self.typed = true;
                Ok(())
            }
            (3, _) if self.at_type => Err(refused("a tool's type is a string")),
            _ => Ok(()),
        }
    }

    pub(super) fn close(&mut self, depth: usize) -> Result<(), Refusal> {
        if depth != 2 || self.allowed {
            return Ok(());
        }
        if let Some(foreign) = &self.foreign {
            return Err(refused(&format!(
                "a tool with '{}' runs outside the sandbox",
                crate::refusal::clip(foreign, 64)
            )));
        }
        if self.typed || self.shaped { Ok(()) } else { Err(refused("a tool needs a type")) }
    }
}

fn refused(what: &str) -> Refusal {
    Refusal::new(
        Reason::ToolNotAllowed,
        format!("{what}; use 'function' or 'custom', or ask the operator for --allow-tool"),
    )
    .param("tools")
}
