//! Rows of the daemon as the objects of its API: both sources of a command show the same.

use serde_json::Value;
use sluice_client::{ApiAgent, ApiSandbox, Event};
use sluice_contract::time::from_unix_micros;
use sluice_state::agents::Agent;
use sluice_state::events::LoggedEvent;
use sluice_state::ledger::usd;
use sluice_state::sandboxes::{Sandbox, SandboxVerdict};
use sluice_state::store::now_us;

/// Returns a run as an object of the API.
pub(super) fn object_of(sandbox: &Sandbox) -> ApiSandbox {
    let (failure, message) = sandbox.verdict.as_ref().map_or((None, None), SandboxVerdict::failure);
    ApiSandbox {
        sandbox_id: sandbox.key.run_id.to_string(),
        attempt: sandbox.key.attempt,
        name: sandbox.name.clone(),
        owner_id: sandbox.owner.clone(),
        agent_id: sandbox.agent_id.clone(),
        billing_account_id: sandbox.account.clone(),
        state: sandbox.state.as_str().to_owned(),
        desired_state: sandbox.desired_state.as_str().to_owned(),
        outcome: sandbox.verdict.as_ref().map(|verdict| verdict.outcome().to_owned()),
        failure_code: failure.map(str::to_owned),
        error_message: message.map(str::to_owned),
        labels: sandbox.labels.clone(),
        priority: sandbox.priority,
        max_cost_usd: sandbox.cap.map(|cap| usd(cap.into())),
        created_at: timestamp(sandbox.created_us),
        started_at: sandbox.started_us.map(timestamp),
        ended_at: sandbox.ended_us.map(timestamp),
        deadline_at: sandbox.ends_us(now_us()).map(timestamp),
        paused_at: sandbox.paused_us.map(timestamp),
    }
}

/// Returns an event as an object of the API.
pub(super) fn event_of(event: LoggedEvent) -> Event {
    Event {
        seq: event.seq,
        id: event.id,
        sandbox_id: event.sandbox_id,
        attempt: event.attempt,
        agent_id: event.agent_id,
        event_type: event.event_type,
        event_data: serde_json::from_str(&event.event_data).unwrap_or(Value::String(event.event_data)),
        source: event.source.as_str().to_owned(),
        created_at: timestamp(event.created_us),
    }
}

/// Returns an agent as an object of the API.
pub(super) fn agent_of(agent: Agent) -> ApiAgent {
    ApiAgent {
        state: agent.state.as_str().to_owned(),
        grants: serde_json::from_str(&agent.grants).unwrap_or_default(),
        metadata: serde_json::from_str(&agent.metadata).unwrap_or_default(),
        last_heartbeat: agent.last_heartbeat_us.map(timestamp),
        created_at: timestamp(agent.created_us),
        updated_at: timestamp(agent.updated_us),
        agent_id: agent.agent_id,
        owner_id: agent.owner,
        zone_id: agent.zone_id,
        name: agent.name,
        billing_account_id: agent.billing_account_id,
        allow_sandbox: agent.allow_sandbox,
        generation: agent.generation,
    }
}

/// Returns a time in UTC, as answers of the API have it.
pub(super) fn timestamp(us: i64) -> String {
    humantime::format_rfc3339_micros(from_unix_micros(us)).to_string()
}
