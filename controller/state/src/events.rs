//! The event log: events of runs and agents, in the order of commits.
//!
//! `seq` grows in the order in which events become visible: SQLite lets one transaction write at a time, and a number is
//! assigned inside it. So a reader that asks for events after the last `seq` that it has seen misses no event. Events that
//! retention removed ahead of a reader are reported to it as a gap.
//!
//! Events of agents are evicted by their own run's quota. All others are removed only by age, so that a sandbox
//! cannot push out the record of actions on it.

mod append;
mod call_data;
mod call_sums;
mod content;
mod list;
mod open_calls;
mod read;
mod retention;
mod running_tools;
mod select;

pub use append::AppendedEvent;
pub(crate) use append::{announce, append};
pub use call_data::{CallData, CallTimes, KnownCost};
pub use call_sums::CallSums;
pub use content::{
    EVENT_DATA_MAX, EVENT_TYPE_MAX, EventFault, JSON_DEPTH_MAX, JSON_MEMBERS_MAX, check_event_data, check_event_type,
};
pub use list::{Direction, EventPage, EventQuery, HeartbeatSummary, TOTAL_COUNT_MAX, Trajectory, TrajectoryQuery};
pub(crate) use read::newest;
pub use read::{EventBatch, EventGap};
pub use retention::{EventAges, EventQuota};
pub use select::{EventFilter, SEARCH_ROWS_MAX};

/// Type of the events that only show that an agent lives.
pub const HEARTBEAT: &str = "agent.heartbeat";

/// Reporter of an event. It follows from the credential, never from the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventSource {
    /// The program in the sandbox: a claim.
    Agent,
    /// A program that serves the sandbox from outside of the daemon.
    Worker,
    /// The daemon itself: an observation.
    System,
}

/// An event to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewLoggedEvent {
    /// `evt_…`, for an event that may be reported twice and is appended once; none for a new id.
    pub id: Option<String>,
    /// Owner of the run or of the agent.
    pub owner: String,
    /// The run, for an event of a run.
    pub sandbox_id: Option<String>,
    /// Attempt of the run.
    pub attempt: Option<u32>,
    /// The agent.
    pub agent_id: Option<String>,
    /// Zone of the agent.
    pub zone_id: Option<String>,
    /// Words joined by dots.
    pub event_type: String,
    /// The reporter.
    pub source: EventSource,
    /// One JSON value.
    pub event_data: String,
    /// The diff whose beginning is in the data.
    pub diff: Option<EventDiff>,
    /// Time in microseconds since 1970.
    pub created_us: i64,
}

/// The diff of an event, which is outside of its data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventDiff {
    /// The text.
    pub text: String,
    /// True if its end was cut off.
    pub truncated: bool,
}

/// Part of an event's diff that the log has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoredDiff {
    /// The diff.
    Kept(EventDiff),
    /// The quota of its run has removed it.
    Removed,
}

/// An event of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named and described in NewLoggedEvent")]
pub struct LoggedEvent {
    /// Position in the log.
    pub seq: i64,
    pub id: String,
    pub owner: String,
    pub sandbox_id: Option<String>,
    pub attempt: Option<u32>,
    pub agent_id: Option<String>,
    pub zone_id: Option<String>,
    pub event_type: String,
    pub source: EventSource,
    pub event_data: String,
    pub created_us: i64,
}

impl EventSource {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Worker => "worker",
            Self::System => "system",
        }
    }
}

impl NewLoggedEvent {
    /// Returns an event of the system about an owner's run.
    #[must_use]
    pub fn of_run(owner: &str, sandbox_id: &str, event_type: &str, event_data: String, created_us: i64) -> Self {
        Self {
            id: None,
            owner: owner.to_owned(),
            sandbox_id: Some(sandbox_id.to_owned()),
            attempt: None,
            agent_id: None,
            zone_id: None,
            event_type: event_type.to_owned(),
            source: EventSource::System,
            event_data,
            diff: None,
            created_us,
        }
    }

    /// Checks the content.
    ///
    /// # Errors
    /// [`EventFault`]
    pub fn check(&self) -> Result<(), EventFault> {
        check_event_type(&self.event_type)?;
        if self.source == EventSource::Agent && !is_type_of_agent(&self.event_type) {
            return Err(EventFault::ReservedType);
        }
        check_event_data(&self.event_data)
    }

    /// Returns true if the quota of its run may remove the event.
    fn is_evictable(&self) -> bool {
        self.source != EventSource::System && is_type_of_agent(&self.event_type)
    }

    /// Returns its size without its diff, plus an estimate for the row and its index entries.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        const ROW: usize = 200;
        (ROW + self.event_type.len() + self.event_data.len()) as u64
    }

    /// Returns the size of its diff.
    #[must_use]
    pub fn diff_bytes(&self) -> u64 {
        self.diff.as_ref().map_or(0, |diff| diff.text.len() as u64)
    }
}

fn is_type_of_agent(event_type: &str) -> bool {
    event_type.strip_prefix("agent.").is_some_and(|rest| !rest.is_empty())
}

#[cfg(test)]
mod tests;
