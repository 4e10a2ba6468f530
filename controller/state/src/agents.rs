//! Registered agents: identities that own runs, one live run each.
//!
//! The state of an agent changes by compare-and-swap alone. An agent is CONNECTED from the creation of a run until the
//! run has ended. A person can connect it earlier: the next run uses it, and if no run follows, the upkeep moves it to
//! IDLE.

mod error;
mod rows;
mod transition;

pub use error::AgentError;
pub use rows::{Heartbeat, Registered};
pub(crate) use rows::{connect, create_ephemeral, release};
pub use transition::{AgentState, AgentTransition, TransitionError, TransitionRequest, decide};

/// A registered agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agent {
    /// Owner of the agent and of its runs.
    pub owner: String,
    /// Id, unique for its owner.
    pub agent_id: String,
    /// Name for people.
    pub name: Option<String>,
    /// Zone of the agent.
    pub zone_id: Option<String>,
    /// Account that pays for its runs.
    pub billing_account_id: String,
    /// True if it may have runs.
    pub allow_sandbox: bool,
    /// Host directories that its runs may read, as JSON.
    pub grants: String,
    /// Present state.
    pub state: AgentState,
    /// Number of moves into CONNECTED.
    pub generation: u64,
    /// True if only an admin may end the suspension.
    pub suspended_by_admin: bool,
    /// Time of the last heartbeat, in microseconds since 1970.
    pub last_heartbeat_us: Option<i64>,
    /// Metadata of the owner, as JSON.
    pub metadata: String,
    /// True if it is removed at the end of its run.
    pub ephemeral: bool,
    /// Time of the registration, in microseconds since 1970.
    pub created_us: i64,
    /// Time of the last change, in microseconds since 1970.
    pub updated_us: i64,
}

/// An agent to register.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "described in Agent")]
pub struct NewAgent {
    pub owner: String,
    pub agent_id: String,
    pub name: Option<String>,
    pub zone_id: Option<String>,
    pub billing_account_id: String,
    pub allow_sandbox: bool,
    pub grants: String,
    pub metadata: String,
}

#[cfg(test)]
mod tests;
