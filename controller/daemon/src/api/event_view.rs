//! An event as answers show it.

use serde::Serialize;
use serde_json::Value;
use sluice_state::events::LoggedEvent;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::timestamp::timestamp;

/// An event.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct EventView {
    /// Position in the log.
    seq: i64,
    /// `evt_…`.
    id: String,
    sandbox_id: Option<String>,
    attempt: Option<u32>,
    agent_id: Option<String>,
    zone_id: Option<String>,
    event_type: String,
    /// Data of the reporter. Those of an agent are a claim.
    #[schema(value_type = Object)]
    event_data: Value,
    /// The reporter: `agent`, `worker` or `system`.
    source: &'static str,
    created_at: String,
}

impl EventView {
    /// Returns the view of an event.
    ///
    /// # Errors
    /// Its data is not valid JSON.
    pub(super) fn of(event: LoggedEvent) -> Result<Self, ApiError> {
        Ok(Self {
            seq: event.seq,
            id: event.id,
            sandbox_id: event.sandbox_id,
            attempt: event.attempt,
            agent_id: event.agent_id,
            zone_id: event.zone_id,
            event_type: event.event_type,
            event_data: serde_json::from_str(&event.event_data).map_err(|error| ApiError::internal(&error))?,
            source: event.source.as_str(),
            created_at: timestamp(event.created_us),
        })
    }

    /// Returns the views of all events of a list.
    ///
    /// # Errors
    /// The data of an event is not valid JSON.
    pub(super) fn all(events: Vec<LoggedEvent>) -> Result<Vec<Self>, ApiError> {
        events.into_iter().map(Self::of).collect()
    }

    /// Returns the position of the event in the log.
    pub(super) fn seq(&self) -> i64 {
        self.seq
    }
}
