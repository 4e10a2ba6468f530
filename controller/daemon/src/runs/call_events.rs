//! The calls of a run as events, from its audit file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::reader::Cursor;
use sluice_contract::time::unix_micros;
use sluice_contract::{Hash, RunKey};
use sluice_runs::audit_follow::{AuditFollower, FollowedEvents};
use sluice_runs::call_event::CallEvent;
use sluice_state::events::{EventQuota, EventSource, NewLoggedEvent};
use sluice_state::sandboxes::{Sandbox, SandboxActivity};
use sluice_state::store::now_us;
use tokio::time::sleep;

use super::live_run::LiveRun;
use crate::context::ApiContext;

/// Reports the calls of one attempt.
#[derive(Debug)]
pub(super) struct CallReporter {
    context: Arc<ApiContext>,
    run: Sandbox,
    follower: AuditFollower,
    live: Arc<LiveRun>,
    /// Events of lines that were read, until they are in the log.
    unstored: Vec<NewLoggedEvent>,
}

/// Time between two tries to store events.
const RETRY_EVERY: Duration = Duration::from_secs(1);
/// Tries at the end of a run: a full disk must not keep it for ever.
const LAST_TRIES: usize = 30;

impl CallReporter {
    /// Starts at the beginning of the file: an event that is in the log already is not added again.
    pub(super) fn new(context: Arc<ApiContext>, run: Sandbox, live: Arc<LiveRun>) -> Self {
        let audit = context.layout.run(&run.key).audit;
        Self { context, run, follower: AuditFollower::new(audit, Cursor::default()), live, unstored: Vec::new() }
    }

    /// Reports calls until it is dropped. Cancel-safe: events stay until they are stored, and one that is in the log already is
    /// not added again.
    pub(super) async fn follow(&mut self) -> std::convert::Infallible {
        loop {
            if !self.store().await {
                sleep(RETRY_EVERY).await;
                continue;
            }
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

    /// Reports what is left of a run that is over.
    pub(super) async fn finish(mut self) {
        while let Ok(Some(new)) = self.follower.read_new() {
            self.take(&new);
        }
        for _ in 0..LAST_TRIES {
            if self.store().await {
                return;
            }
            sleep(RETRY_EVERY).await;
        }
    }

    /// Counts calls and refusals, and keeps events for the log.
    fn take(&mut self, FollowedEvents { events: calls, refusals, .. }: &FollowedEvents) {
        refusals.iter().for_each(|refused| self.context.monitor.count_refusal(refused));
        for call in calls {
            match call {
                CallEvent::Started(_) => self.live.begin_call(),
                CallEvent::Ended(_) | CallEvent::Lost(_) => self.live.end_call(),
            }
        }
        let now = now_us();
        // The time of the call: a daemon that is back reads old lines, which are no new work.
        let events = calls.iter().map(|call| event(&self.run, call, time_us(call).unwrap_or(now).min(now)));
        self.unstored.extend(events);
    }

    /// Stores the events that are kept, and that the run works. Returns whether none is left.
    async fn store(&mut self) -> bool {
        let Some(last) = self.unstored.last() else { return true };
        let worked = Some(last.created_us);
        let seen =
            SandboxActivity { key: self.run.key.clone(), work_us: worked, observed_work_us: worked, heartbeat: None };
        let appended = self.context.store.append_events(self.unstored.clone(), EventQuota::default()).await;
        match appended {
            Ok(results) => {
                for fault in results.into_iter().filter_map(Result::err) {
                    self.log(&fault);
                }
                self.unstored.clear();
                // The next call says it again.
                let _ = self.context.store.record_activity(vec![seen]).await;
                true
            }
            Err(error) => {
                self.log(&error);
                false
            }
        }
    }

    fn log(&self, error: &dyn std::error::Error) {
        (self.context.log)(&format!("run {}: an event of a call is not in the log: {error}", self.run.key));
    }
}

fn time_us(call: &CallEvent) -> Option<i64> {
    let ts = match call {
        CallEvent::Started(call) => &call.ts,
        CallEvent::Ended(call) => &call.ts,
        CallEvent::Lost(call) => &call.ts,
    };
    humantime::parse_rfc3339(ts).ok().and_then(unix_micros)
}

fn event(run: &Sandbox, call: &CallEvent, now_us: i64) -> NewLoggedEvent {
    let (event_type, call_id) = match call {
        CallEvent::Started(call) => ("llm.call_started", &call.call_id),
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

/// Returns the id of the event of a call: the same for each look at the same file.
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
