//! Attributes of spans, by the kind of a target and its version of the conventions.
//!
//! Pure.

use serde_json::{Value, json};

use super::otlp::{Span, SpanKind};
use super::run_facts::RunFacts;
use super::spans::{EndedCall, EndedRun};
use super::target::{OtelKind, OtelTarget, Semconv};
use crate::identity::span_id;

/// Attributes of one span. An attribute without a value is left out.
#[derive(Debug, Default)]
struct Attributes(Vec<(String, Value)>);

impl Attributes {
    fn set(&mut self, name: &str, value: impl Into<Value>) {
        let value = value.into();
        if !value.is_null() {
            self.0.push((name.to_owned(), value));
        }
    }
}

/// Returns the span of a call.
pub(super) fn call_span(target: &OtelTarget, run: &RunFacts, call: &EndedCall) -> Span {
    let mut all = Attributes::default();
    all.set("gen_ai.operation.name", call.operation);
    all.set("gen_ai.provider.name", call.provider);
    all.set("gen_ai.request.model", call.model.clone());
    all.set("gen_ai.response.model", call.model_served.clone());
    all.set("gen_ai.response.id", call.response_id.clone());
    if call.is_stream {
        all.set("gen_ai.request.stream", true);
        all.set("gen_ai.response.time_to_first_chunk", call.first_chunk_us.map(seconds));
    }
    let usage = &call.usage;
    let cache_write = match target.semconv {
        Semconv::Current => "gen_ai.usage.cache_write.input_tokens",
        Semconv::V1_41 => "gen_ai.usage.cache_creation.input_tokens",
    };
    all.set("gen_ai.usage.input_tokens", usage.input);
    all.set("gen_ai.usage.output_tokens", usage.output);
    all.set("gen_ai.usage.cache_read.input_tokens", usage.cached_input);
    all.set(cache_write, usage.cache_write);
    all.set("gen_ai.usage.reasoning.output_tokens", usage.reasoning);
    all.set("error.type", call.error.clone());
    all.set("sluice.call_id", call.call_id.as_str());
    all.set("sluice.attempt", call.attempt);
    all.set("sluice.cost.usd", call.cost);
    all.set("sluice.cost.source", call.cost_source.clone());
    all.set("sluice.cache_hit", call.is_cache_hit);
    of_run(&mut all, run);
    if target.kind == OtelKind::Langfuse {
        langfuse_trace(&mut all, run);
        all.set("langfuse.generation.name", run.graph_id.as_str());
        langfuse_generation(&mut all, call);
    }
    let name = match (target.kind, &call.model) {
        // Langfuse shows it as the name of the generation. LiteLLM's callbacks send the same one.
        (OtelKind::Langfuse, _) => run.graph_id.clone(),
        (OtelKind::Otlp, Some(model)) => format!("{} {model}", call.operation),
        (OtelKind::Otlp, None) => call.operation.to_owned(),
    };
    Span {
        trace_id: run.trace_at(target.kind),
        span_id: span_id("call", &call.call_id),
        parent_id: Some(run.span_id()),
        name,
        kind: SpanKind::Client,
        start_us: call.start_us,
        end_us: call.end_us,
        error: call.error.clone(),
        attributes: all.0,
    }
}

/// Returns the span of a run that has ended.
pub(super) fn run_span(target: &OtelTarget, run: &RunFacts, ended: &EndedRun, end_us: i64) -> Span {
    let mut all = Attributes::default();
    all.set("gen_ai.operation.name", "invoke_agent");
    all.set("gen_ai.provider.name", "sluice");
    all.set("error.type", ended.failure_code.clone());
    all.set("sluice.outcome", ended.outcome.clone());
    of_run(&mut all, run);
    if target.kind == OtelKind::Langfuse {
        langfuse_trace(&mut all, run);
        all.set("langfuse.observation.type", "agent");
        langfuse_level(&mut all, ended.failure_code.as_deref());
    }
    Span {
        trace_id: run.trace_at(target.kind),
        span_id: run.span_id(),
        parent_id: run.parent_at(target.kind).map(str::to_owned),
        name: format!("invoke_agent {}", run.agent_name),
        kind: SpanKind::Internal,
        start_us: run.created_us,
        end_us,
        error: ended.failure_code.clone(),
        attributes: all.0,
    }
}

fn of_run(all: &mut Attributes, run: &RunFacts) {
    all.set("gen_ai.agent.name", run.agent_name.as_str());
    all.set("gen_ai.conversation.id", run.conversation());
    all.set("user.id", run.metadata.trace_user());
    all.set("session.id", run.metadata.session_id.clone());
    all.set("sluice.run_id", run.run_id.as_str());
    all.set("sluice.graph_id", run.graph_id.as_str());
    all.set("sluice.billing_account_id", run.account.as_str());
    all.set("sluice.request_id", run.metadata.request_id.clone());
    if !run.metadata.tags.is_empty() {
        all.set("sluice.tags", json!(run.metadata.tags));
    }
}

/// Sets the attributes of the trace. Langfuse needs them on each span: a view of spans has no trace to look them up in.
/// A trace that the caller has begun keeps its name and its metadata.
fn langfuse_trace(all: &mut Attributes, run: &RunFacts) {
    all.set("langfuse.user.id", run.metadata.trace_user());
    all.set("langfuse.session.id", run.metadata.session_id.clone());
    if !run.metadata.tags.is_empty() {
        all.set("langfuse.trace.tags", json!(run.metadata.tags));
    }
    if run.metadata.existing_trace_id.is_some() {
        return;
    }
    all.set("langfuse.trace.name", run.agent_name.as_str());
    for (name, value) in run.trace_metadata.as_object().into_iter().flatten() {
        all.set(&format!("langfuse.trace.metadata.{name}"), value.clone());
    }
}

fn langfuse_generation(all: &mut Attributes, call: &EndedCall) {
    all.set("langfuse.observation.type", if call.operation == "embeddings" { "embedding" } else { "generation" });
    all.set("langfuse.observation.model.name", call.model_served.clone().or_else(|| call.model.clone()));
    langfuse_level(all, call.error.as_deref());
    let usage = &call.usage;
    if usage.any() {
        let cached = usage.cached_input.unwrap_or(0);
        let details = json!({
            // Langfuse counts tokens that are read from a cache separately.
            "input": usage.input.map(|input| input.saturating_sub(cached)),
            "output": usage.output,
            "total": usage.total,
            "cache_read_input_tokens": usage.cached_input.unwrap_or(0),
            "cache_creation_input_tokens": usage.cache_write.unwrap_or(0),
        });
        all.set("langfuse.observation.usage_details", details.to_string());
    }
    if let Some(cost) = call.cost {
        all.set("langfuse.observation.cost_details", json!({ "total": cost }).to_string());
    }
    if let Some(first) = call.first_chunk_us.filter(|_| call.is_stream) {
        let at_us = call.start_us.saturating_add(i64::try_from(first).unwrap_or(0));
        let at = crate::timestamp::timestamp(at_us);
        all.set("langfuse.observation.completion_start_time", json!(at).to_string());
    }
}

fn langfuse_level(all: &mut Attributes, error: Option<&str>) {
    all.set("langfuse.observation.level", if error.is_some() { "ERROR" } else { "DEFAULT" });
    all.set("langfuse.observation.status_message", error);
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
