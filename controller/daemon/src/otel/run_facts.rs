//! Facts about a run that each of its spans has.
//!
//! Pure.

use serde_json::Value;
use sluice_contract::Hash;
use sluice_state::sandboxes::Sandbox;

use super::target::OtelKind;
use crate::identity::{RunIdentity, RunMetadata, span_id};
use crate::stored_request::StoredRequest;

/// Facts about a run that each of its spans has.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct RunFacts {
    pub(super) run_id: String,
    pub(super) account: String,
    pub(super) graph_id: String,
    /// Name of the trace and of the agent.
    pub(super) agent_name: String,
    /// Trace of the run, or the trace that the caller named.
    pub(super) trace_id: String,
    /// Span of the caller.
    pub(super) parent_id: Option<String>,
    /// Time of the creation.
    pub(super) created_us: i64,
    pub(super) metadata: RunMetadata,
    /// Metadata of the trace.
    pub(super) trace_metadata: Value,
}

impl RunFacts {
    /// Collects the facts.
    pub(super) fn new(run: &Sandbox, request: StoredRequest) -> Self {
        let identity = RunIdentity {
            key: &run.key,
            account: &run.account,
            graph_id: &request.graph_id,
            agent: (!run.agent_ephemeral).then_some(run.agent_id.as_str()),
            name: run.name.as_deref(),
            traceparent: request.traceparent.as_ref(),
        };
        Self {
            run_id: run.key.run_id.to_string(),
            account: run.account.clone(),
            graph_id: request.graph_id.clone(),
            agent_name: identity.trace_name().to_owned(),
            trace_id: identity.trace_id(),
            parent_id: request.traceparent.as_ref().map(|parent| parent.span_id.clone()),
            created_us: run.created_us,
            trace_metadata: request.metadata.of_trace(&identity),
            metadata: request.metadata,
        }
    }

    /// Returns the id of the trace at a kind of target: at Langfuse, the id of the existing trace, if the caller named
    /// one.
    pub(super) fn trace_at(&self, kind: OtelKind) -> String {
        match &self.metadata.existing_trace_id {
            Some(existing) if kind == OtelKind::Langfuse => langfuse_trace(existing),
            _ => self.trace_id.clone(),
        }
    }

    /// Returns the parent of the run's span at a kind of target. In an existing trace of Langfuse it has none: the
    /// caller's span is in another trace.
    pub(super) fn parent_at(&self, kind: OtelKind) -> Option<&str> {
        let is_elsewhere = kind == OtelKind::Langfuse && self.metadata.existing_trace_id.is_some();
        self.parent_id.as_deref().filter(|_| !is_elsewhere)
    }

    /// Returns the id of the run's span.
    pub(super) fn span_id(&self) -> String {
        span_id("run", &self.run_id)
    }

    /// Returns the conversation: the session of the caller, otherwise the run.
    pub(super) fn conversation(&self) -> &str {
        self.metadata.session_id.as_deref().unwrap_or(&self.run_id)
    }
}

/// Returns the id of the trace that Langfuse's own SDKs derive from a name.
fn langfuse_trace(name: &str) -> String {
    let digits = name.to_ascii_lowercase().replace('-', "");
    let is_id = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_id && digits.bytes().any(|byte| byte != b'0') {
        return digits;
    }
    Hash::of(name.as_bytes()).to_hex()[..32].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_traces_become_ids_as_in_langfuse() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        assert_eq!(langfuse_trace(id), id);
        assert_eq!(langfuse_trace("4BF92F35-77B3-4DA6-A3CE-929D0E0E4736"), id);
        // The first half of the SHA-256 of the name.
        assert_eq!(langfuse_trace("abc"), "ba7816bf8f01cfea414140de5dae2223");
    }
}
