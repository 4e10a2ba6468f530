//! Events of the log as spans.
//!
//! Pure. Only events of the system count: events of an agent are claims.

use std::collections::HashMap;

use serde::Deserialize;
use sluice_contract::Usd;
use sluice_contract::record::Usage;
use sluice_contract::time::unix_micros;
use sluice_state::events::{CallData, LoggedEvent};

/// Types of the events that become spans.
pub(super) const TYPES: [&str; 3] = [STARTED, ENDED, STOPPED];
pub(super) const STOPPED: &str = "sandbox.stopped";
const STARTED: &str = "llm.call_started";
const ENDED: &str = "llm.call";
/// Maximum number of open calls whose start is kept.
const STARTS_MAX: usize = 10_000;

/// A call that has ended.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct EndedCall {
    pub(super) call_id: String,
    pub(super) attempt: Option<u32>,
    /// `chat`, `text_completion`, `embeddings`, or `generate_content`.
    pub(super) operation: &'static str,
    /// Provider whose API format the call uses.
    pub(super) provider: &'static str,
    pub(super) is_stream: bool,
    pub(super) model: Option<String>,
    pub(super) model_served: Option<String>,
    pub(super) response_id: Option<String>,
    /// Word for a failure: the status of the answer, or the result.
    pub(super) error: Option<String>,
    pub(super) usage: Usage,
    /// Dollars.
    pub(super) cost: Option<f64>,
    pub(super) cost_source: Option<String>,
    pub(super) is_cache_hit: bool,
    pub(super) start_us: i64,
    pub(super) end_us: i64,
    /// Microseconds to the first event with output.
    pub(super) first_chunk_us: Option<u64>,
}

/// The end of a run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct EndedRun {
    pub(super) outcome: Option<String>,
    pub(super) failure_code: Option<String>,
}

/// Starts of calls, until their ends arrive.
#[derive(Debug, Default)]
pub(super) struct OpenCalls(HashMap<String, StartedCall>);

#[derive(Debug, Deserialize)]
struct StartedCall {
    call_id: String,
    path: String,
    #[serde(default)]
    stream: bool,
    /// Run of the call.
    #[serde(skip)]
    run: Option<String>,
}

impl OpenCalls {
    /// Returns the call that an event ends, and stores one that it starts.
    pub(super) fn take(&mut self, event: &LoggedEvent) -> Option<EndedCall> {
        match event.event_type.as_str() {
            STARTED if self.0.len() < STARTS_MAX => {
                let mut started: StartedCall = serde_json::from_str(&event.event_data).ok()?;
                started.run.clone_from(&event.sandbox_id);
                self.0.insert(started.call_id.clone(), started);
                None
            }
            ENDED => {
                let data = CallData::read(&event.event_data)?;
                let started = self.0.remove(data.call_id.as_ref()?);
                ended(event, data, started.as_ref())
            }
            _ => None,
        }
    }

    /// Forgets the calls of a run that is over: a killed sidecar reports no end for them.
    pub(super) fn forget(&mut self, run: Option<&String>) {
        self.0.retain(|_, started| started.run.as_ref() != run);
    }
}

fn ended(event: &LoggedEvent, data: CallData, started: Option<&StartedCall>) -> Option<EndedCall> {
    let end_us = humantime::parse_rfc3339(data.ts.as_ref()?).ok().and_then(unix_micros).unwrap_or(event.created_us);
    let path = started.map_or("", |started| started.path.as_str());
    let (operation, provider) = operation_of(path);
    let (known, times) = (data.known_cost().cloned(), data.timing_us.unwrap_or_default());
    Some(EndedCall {
        call_id: data.call_id?,
        attempt: event.attempt,
        operation,
        provider,
        is_stream: started.is_some_and(|started| started.stream),
        model: data.model,
        model_served: data.model_served,
        response_id: data.response_id,
        error: error_of(data.result.as_deref(), data.status),
        // The Messages API leaves cached tokens out of its input; the conventions and Langfuse count them in.
        usage: data.usage.unwrap_or_default().inclusive(),
        cost: known.as_ref().and_then(|known| Usd::parse(&known.usd).ok()).map(|usd| usd.to_nanos() as f64 / 1e9),
        cost_source: known.and_then(|known| known.source),
        is_cache_hit: data.cache_hit,
        start_us: end_us.saturating_sub(i64::try_from(times.total).unwrap_or(0)),
        end_us,
        first_chunk_us: times.first_token,
    })
}

/// Returns the operation of a path, and the provider whose format the API uses.
fn operation_of(path: &str) -> (&'static str, &'static str) {
    match path {
        path if path.ends_with("/embeddings") => ("embeddings", "openai"),
        path if path.contains("/messages") => ("chat", "anthropic"),
        path if path.ends_with("/chat/completions") => ("chat", "openai"),
        path if path.ends_with("/completions") => ("text_completion", "openai"),
        path if path.contains("/images/") || path.contains("/audio/") => ("generate_content", "openai"),
        _ => ("chat", "openai"),
    }
}

/// Returns the word for a failure, if the call is one.
fn error_of(result: Option<&str>, status: Option<u16>) -> Option<String> {
    match (result, status) {
        (Some("ok"), None | Some(..400)) => None,
        (_, Some(status @ 400..)) => Some(status.to_string()),
        (Some(word), _) => Some(word.to_owned()),
        (None, _) => Some("lost".to_owned()),
    }
}
