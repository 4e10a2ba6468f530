//! What a run waits for, and the event of its last change of state.

use serde_json::Value;
use sluice_contract::RunId;

use super::{DesiredState, Sandbox, SandboxError, SandboxState, SandboxVerdict};
use crate::events::{EventFilter, EventQuery};
use crate::store::{Store, StoreError, now_us};

/// Type of the event of a change of state.
pub(super) const STATE_CHANGED: &str = "run.state_changed";

impl Store {
    /// Returns the thing that a run waits for: `turn`, `retry` or `dependencies` in the queue; `resume`, `approval` or
    /// `answer` while it works. `depends_on` are its dependencies.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn waiting_for(
        &self,
        sandbox: &Sandbox,
        depends_on: &[String],
    ) -> Result<Option<&'static str>, SandboxError> {
        if sandbox.state.is_active() && sandbox.verdict.is_none() {
            return self.working_for(sandbox).await;
        }
        if sandbox.state != SandboxState::Pending {
            return Ok(None);
        }
        if sandbox.next_try_us > now_us() {
            return Ok(Some("retry"));
        }
        for id in depends_on {
            let Ok(id) = id.parse() else { continue };
            let other = self.find_sandbox(None, &id).await?;
            if other.is_none_or(|other| other.verdict != Some(SandboxVerdict::Success) || !other.state.is_ended()) {
                return Ok(Some("dependencies"));
            }
        }
        Ok(Some("turn"))
    }

    /// Returns the thing that a working run waits for.
    async fn working_for(&self, sandbox: &Sandbox) -> Result<Option<&'static str>, SandboxError> {
        if sandbox.desired_state == DesiredState::Paused {
            return Ok(Some("resume"));
        }
        if self.is_on_hold(&sandbox.key).await? {
            return Ok(Some("approval"));
        }
        let asking = self.runs_with_questions(now_us()).await?;
        Ok(asking.contains(sandbox.key.run_id.as_str()).then_some("answer"))
    }

    /// Returns the data of the last change of a run's state: `from`, `to` and `reason`, and the `error_message` of the
    /// attempt before if the change is the beginning of another one. Null for a run without a change.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn last_state_change(&self, run_id: &RunId) -> Result<Value, StoreError> {
        let filter = EventFilter {
            sandbox_id: Some(run_id.to_string()),
            types: vec![STATE_CHANGED.to_owned()],
            ..EventFilter::default()
        };
        let page = self.list_events(EventQuery { filter, limit: 1, ..EventQuery::default() }).await?;
        let data = page.events.first().and_then(|event| serde_json::from_str(&event.event_data).ok());
        Ok(data.unwrap_or_default())
    }
}
