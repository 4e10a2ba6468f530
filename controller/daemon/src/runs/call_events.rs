//! The calls of a run as events, from its audit file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::reader::Cursor;
use sluice_contract::text::error_chain;
use sluice_contract::time::unix_micros;
use sluice_contract::{Hash, RunKey};
use sluice_runs::audit_follow::{AuditFollower, FollowedEvents};
use sluice_runs::call_event::CallEvent;
use sluice_runs::verdict::ErrorCode;
use sluice_state::events::{EventQuota, EventSource, LoggedEvent, NewLoggedEvent};
use sluice_state::ledger::ImplausibleCost;
use sluice_state::sandboxes::{Sandbox, SandboxActivity, SandboxState, SandboxStep, SandboxVerdict};
use sluice_state::store::now_us;
use tokio::time::sleep;

use super::steps::take_step;
use crate::context::ApiContext;
use crate::live_run::LiveRun;
use crate::monitor::HeldCalls;

/// Time after which events that could not be written are written again.
const WRITE_AGAIN: Duration = Duration::from_secs(1);
/// Event of the start of a call.
pub(super) const STARTED: &str = "llm.call_started";
/// Event of a cost that cannot be true.
const IMPLAUSIBLE_COST: &str = "budget.implausible_cost";

/// Reports the calls of one attempt.
#[derive(Debug)]
pub(super) struct CallReporter {
    context: Arc<ApiContext>,
    run: Sandbox,
    follower: AuditFollower,
    live: Arc<LiveRun>,
    /// Its calls that wait for a person.
    held: HeldCalls,
    /// Events that were read, and are not known to be in the log.
    pending: Vec<NewLoggedEvent>,
    /// The first implausible cost, which ends the run. It is not cleared, because a decided run is not decided again.
    implausible: Option<ImplausibleCost>,
}

impl CallReporter {
    /// Starts at the beginning of the file: an event that is in the log already is not added again.
    pub(super) fn new(context: Arc<ApiContext>, run: Sandbox, live: Arc<LiveRun>) -> Self {
        let audit = context.layout.run(&run.key).audit;
        let (follower, held) = (AuditFollower::new(audit, Cursor::default()), context.monitor.held_calls());
        Self { context, run, follower, live, held, pending: Vec::new(), implausible: None }
    }

    /// Reports calls until it is dropped. Cancel-safe: lines stay until they are in the log, and an event that is in the
    /// log already is not added again.
    pub(super) async fn follow(&mut self) -> std::convert::Infallible {
        loop {
            self.write().await;
            match self.follower.next().await {
                Ok(new) => self.take(&new),
                Err(error) => {
                    self.context.monitor.count_audit_error();
                    (self.context.log)(&format!("run {}: no more events of calls: {error}", self.run.key));
                    return std::future::pending().await;
                }
            }
        }
    }

    /// Reports the remaining calls of a run that is over.
    pub(super) async fn finish(mut self) {
        self.write().await;
        while let Ok(Some(new)) = self.follower.read_new() {
            self.take(&new);
            self.write().await;
        }
    }

    /// Counts calls and refusals, and keeps events for the log.
    fn take(&mut self, FollowedEvents { events: calls, holds, implausible, refusals, .. }: &FollowedEvents) {
        holds.iter().for_each(|change| self.held.apply(*change));
        refusals.iter().for_each(|refused| self.context.monitor.count_refusal(refused));
        for call in calls {
            match call {
                CallEvent::Started(_) => self.live.begin_call(),
                CallEvent::Ended(_) | CallEvent::Lost(_) => {
                    self.live.end_call();
                    self.live.note_call_end(time_us(call).unwrap_or_default());
                }
            }
        }
        if !holds.is_empty() || !calls.is_empty() {
            self.live.notice_calls();
        }
        let now = now_us();
        // The time of the call: after a restart, the daemon reads old lines, which are not new work.
        let events = calls.iter().map(|call| event(&self.run, call, time_us(call).unwrap_or(now).min(now)));
        self.pending.extend(events);
        self.pending.extend(implausible.iter().map(|cost| implausible_event(&self.run, cost, now)));
        if self.implausible.is_none() {
            self.implausible = implausible.first().cloned();
        }
    }

    /// Writes the pending events. While the disk is full, it waits for room, and no further call is read.
    async fn write(&mut self) {
        let mut is_reported = false;
        while let Some(worked) = self.pending.last().map(|event| event.created_us) {
            let error = match self.context.store.append_events(self.pending.clone(), EventQuota::default()).await {
                Ok(appended) => {
                    let faults = appended.iter().filter_map(|event| event.as_ref().err());
                    faults.for_each(|fault| self.log(&format!("an event of a call is refused: {fault}")));
                    self.record_work(worked).await;
                    self.fail_implausible().await;
                    // The events are cleared last, so that a cancelled write is repeated.
                    return self.pending.clear();
                }
                Err(error) => error,
            };
            if !is_reported {
                self.log(&format!("events of calls are not in the log: {}", error_chain(&error)));
                is_reported = true;
            }
            if !error.is_retryable() {
                // The audit file has these calls: the follower of a restarted daemon adds the events.
                return self.pending.clear();
            }
            sleep(WRITE_AGAIN).await;
        }
    }

    /// Ends a run with a cost that cannot be true. The cost is not posted to its account.
    async fn fail_implausible(&self) {
        let Some(cost) = &self.implausible else { return };
        let message = cost.describe();
        self.log(&message);
        let code = ErrorCode::ImplausibleCost.as_str().to_owned();
        let verdict = SandboxVerdict::Failed { code, message: Some(message) };
        let decide = |run: &Sandbox| {
            let is_live = run.key == self.run.key && run.state.is_active() && run.verdict.is_none();
            is_live.then(|| SandboxStep::Decide(verdict.clone()))
        };
        if let Err(error) = take_step(&self.context.store, &self.run.key.run_id, "a cost is implausible", decide).await
        {
            // The verdict at the end of the run is the same.
            self.log(&format!("it is not stopped: {}", error_chain(&error)));
        }
    }

    async fn record_work(&self, at_us: i64) {
        let key = self.run.key.clone();
        let seen = SandboxActivity { key, work_us: Some(at_us), observed_work_us: Some(at_us), heartbeat: None };
        if let Err(error) = self.context.store.record_activity(vec![seen]).await {
            self.log(&format!("its work is not recorded: {}", error_chain(&error)));
        }
        // An agent that calls a model is not done, whatever it said.
        if self.live.facts().is_some_and(|facts| facts.open_calls > 0) {
            let resume = |run: &Sandbox| {
                (run.state == SandboxState::Completing && run.verdict.is_none()).then_some(SandboxStep::Resume)
            };
            if let Err(error) = take_step(&self.context.store, &self.run.key.run_id, "a call began", resume).await {
                self.log(&format!("its state is not recorded: {}", error_chain(&error)));
            }
        }
    }

    fn log(&self, text: &str) {
        (self.context.log)(&format!("run {}: {text}", self.run.key));
    }
}

fn time_us(call: &CallEvent) -> Option<i64> {
    let ts = match call {
        CallEvent::Started(call) => &call.ts,
        CallEvent::Ended(call) => &call.ts,
        CallEvent::Lost(call) => &call.ts,
    };
    parse_us(ts)
}

fn parse_us(ts: &str) -> Option<i64> {
    humantime::parse_rfc3339(ts).ok().and_then(unix_micros)
}

/// Returns the time at which a call began, by the clock of its sidecar.
pub(super) fn began_us(call: &LoggedEvent) -> Option<i64> {
    let data: Value = serde_json::from_str(&call.event_data).ok()?;
    parse_us(data["ts"].as_str()?)
}

fn event(run: &Sandbox, call: &CallEvent, now_us: i64) -> NewLoggedEvent {
    let (event_type, call_id) = match call {
        CallEvent::Started(call) => (STARTED, &call.call_id),
        CallEvent::Ended(call) => ("llm.call", &call.call_id),
        CallEvent::Lost(call) => ("llm.call", &call.call_id),
    };
    let data: Value = serde_json::to_value(call).unwrap_or_else(|_| json!({ "call_id": call_id }));
    NewLoggedEvent {
        id: Some(event_id(&run.key, event_type, call_id)),
        attempt: Some(run.key.attempt),
        agent_id: Some(run.agent_id.clone()),
        source: EventSource::System,
        ..NewLoggedEvent::of_run(&run.owner, run.key.run_id.as_str(), event_type, data.to_string(), now_us)
    }
}

/// Returns the event of a cost that cannot be true. Webhooks and metrics report it.
fn implausible_event(run: &Sandbox, cost: &ImplausibleCost, now_us: i64) -> NewLoggedEvent {
    let ImplausibleCost { call_id, cost_usd, reserved_usd, plausible_usd } = cost;
    let data = json!({
        "call_id": call_id, "cost_usd": cost_usd, "plausible_usd": plausible_usd, "reserved_usd": reserved_usd,
    });
    NewLoggedEvent {
        id: Some(event_id(&run.key, IMPLAUSIBLE_COST, call_id)),
        attempt: Some(run.key.attempt),
        agent_id: Some(run.agent_id.clone()),
        source: EventSource::System,
        ..NewLoggedEvent::of_run(&run.owner, run.key.run_id.as_str(), IMPLAUSIBLE_COST, data.to_string(), now_us)
    }
}

/// Returns the id of the event of a call: the same for each read of the same file.
fn event_id(key: &RunKey, event_type: &str, call_id: &str) -> String {
    let hash = Hash::of(format!("{key}\0{event_type}\0{call_id}").as_bytes()).to_string();
    format!("evt_{}", &hash[..24])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_event_of_a_call_has_one_id() {
        let key: RunKey = "r1.0".parse().expect("a key");
        let id = event_id(&key, "llm.call", "c-1");
        assert_eq!(id, event_id(&key, "llm.call", "c-1"));
        assert!(id.starts_with("evt_") && id.len() == 28, "{id}");
        let others = [("r1.1", "llm.call", "c-1"), ("r1.0", "llm.call_started", "c-1"), ("r1.0", "llm.call", "c-2")];
        for (key, event_type, call_id) in others {
            assert_ne!(event_id(&key.parse().expect("a key"), event_type, call_id), id);
        }
    }
}
