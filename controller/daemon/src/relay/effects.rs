//! Effects of the events of a run. All events are claims: an agent can claim that it lives, that it works and that it is
//! done or has failed. Only its exit code decides whether it has succeeded.

use serde_json::{Map, Value};
use sluice_state::agents::Heartbeat;
use sluice_state::events::HEARTBEAT;
use sluice_state::sandboxes::{Sandbox, SandboxActivity, SandboxState, SandboxStep, SandboxVerdict};

use crate::api_error::ApiError;
use crate::context::ApiContext;

/// Events that do not count as work.
const NO_WORK: [&str; 9] = [
    HEARTBEAT, "agent.started", "agent.error", "agent.stream_error", "agent.waiting", "agent.shutdown",
    "agent.interrupted", "agent.completed", "agent.failed",
];
/// Members of the result of an agent.
const RESULT: [&str; 6] = ["success", "turns", "cost_usd", "session_id", "stop_reason", "output"];
/// Maximum length of a heartbeat's status in characters.
const STATUS_MAX: usize = 100;

/// A step that follows from an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventEffect {
    /// The agent lives.
    Lives,
    /// The agent works.
    Works,
    /// The agent says that it is done.
    Done,
    /// The agent says that it has failed.
    Failed,
}

/// Applies the effects of a run's events.
///
/// # Errors
/// Errors of the database.
pub(super) async fn apply(
    context: &ApiContext,
    sandbox: &Sandbox,
    event_type: &str,
    data: &Value,
    now_us: i64,
) -> Result<(), ApiError> {
    let effect = effect(event_type, data);
    if event_type == HEARTBEAT {
        let status = data["status"].as_str().map(|status| status.chars().take(STATUS_MAX).collect());
        context.conversations.add(seen(sandbox, None, Some((now_us, status))));
        let (owner, agent_id) = (sandbox.owner.clone(), sandbox.agent_id.clone());
        context.heartbeats.add(Heartbeat { owner, agent_id, time_us: now_us });
    }
    if effect == EventEffect::Works {
        context.conversations.add(seen(sandbox, Some(now_us), None));
    }
    if effect == EventEffect::Done {
        context.store.record_agent_result(&sandbox.key, result(data).to_string()).await?;
    }
    let reason = match effect {
        EventEffect::Lives | EventEffect::Works => "the agent works",
        EventEffect::Done => "the agent says that it is done",
        EventEffect::Failed => "agent_failed",
    };
    // Most events change nothing, and a read is cheaper than a write.
    if step(sandbox, effect).is_none() {
        return Ok(());
    }
    let take = async || {
        let key = sandbox.key.clone();
        let choose = move |run: &Sandbox| if run.key == key { step(run, effect) } else { None };
        context.store.step_sandbox_by(&sandbox.key.run_id, reason, choose, now_us).await
    };
    let run = take().await?;
    // If an agent is done before the start of its program is recorded, that start was the first step, and the
    // completion is the second.
    if step(&run, effect).is_some() {
        take().await?;
    }
    if effect == EventEffect::Failed {
        context.work.notify_one();
    }
    Ok(())
}

fn effect(event_type: &str, data: &Value) -> EventEffect {
    match event_type {
        "agent.completed" => EventEffect::Done,
        "agent.failed" => EventEffect::Failed,
        "agent.error" if data["fatal"] == Value::Bool(true) => EventEffect::Failed,
        other if NO_WORK.contains(&other) => EventEffect::Lives,
        _ => EventEffect::Works,
    }
}

/// Returns the step of a run in its present state.
fn step(run: &Sandbox, effect: EventEffect) -> Option<SandboxStep> {
    if run.verdict.is_some() {
        return None;
    }
    match (effect, run.state) {
        (EventEffect::Failed, state) if state.is_active() => {
            let message = Some("the agent reported that it failed; its events say why".to_owned());
            Some(SandboxStep::Decide(SandboxVerdict::Failed { code: "agent_failed".to_owned(), message }))
        }
        (_, SandboxState::Creating) => Some(SandboxStep::Start),
        (EventEffect::Done, SandboxState::Running) => Some(SandboxStep::Complete),
        (EventEffect::Works, SandboxState::Completing) => Some(SandboxStep::Resume),
        _ => None,
    }
}

fn seen(sandbox: &Sandbox, work_us: Option<i64>, heartbeat: Option<(i64, Option<String>)>) -> SandboxActivity {
    SandboxActivity { key: sandbox.key.clone(), work_us, observed_work_us: None, heartbeat }
}

/// Returns the part of a completion's data that is kept.
fn result(data: &Value) -> Value {
    let mut kept: Map<_, _> = data.as_object().cloned().unwrap_or_default();
    kept.retain(|name, _| RESULT.contains(&name.as_str()));
    Value::Object(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_life_work_or_an_end() {
        for (event_type, data, expected) in [
            ("agent.heartbeat", json!({}), EventEffect::Lives),
            ("agent.started", json!({}), EventEffect::Lives),
            ("agent.error", json!({ "fatal": "true" }), EventEffect::Lives),
            ("agent.error", json!({ "fatal": true }), EventEffect::Failed),
            ("agent.failed", json!(null), EventEffect::Failed),
            ("agent.completed", json!({}), EventEffect::Done),
            ("agent.waiting", json!({}), EventEffect::Lives),
            ("agent.tool_use", json!({}), EventEffect::Works),
            ("agent.progress", json!([]), EventEffect::Works),
        ] {
            assert_eq!(effect(event_type, &data), expected, "{event_type} {data}");
        }
    }

    #[test]
    fn a_result_has_its_own_members_alone() {
        let data = json!({ "success": true, "turns": 3, "prompt": "secret", "output": { "a": 1 } });
        assert_eq!(result(&data), json!({ "success": true, "turns": 3, "output": { "a": 1 } }));
        assert_eq!(result(&json!("done")), json!({}));
    }
}
