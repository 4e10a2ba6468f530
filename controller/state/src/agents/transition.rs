//! States of an agent, and the moves between them.
//!
//! Pure.

use std::fmt;

/// State of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AgentState {
    /// Registered; it was never CONNECTED or SUSPENDED.
    Unknown,
    /// The agent has a live run, or a person has connected it, and a run may follow.
    Connected,
    /// The agent has no live run.
    Idle,
    /// The agent gets no new run.
    Suspended,
}

/// A request to move an agent, with the state that the caller has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransitionRequest {
    /// State to reach.
    pub target: AgentState,
    /// State that the caller has seen; none for any.
    pub observed: Option<AgentState>,
    /// Generation that the caller has seen; none for any.
    pub expected_generation: Option<u64>,
    /// True if a person or a token requests it; false for the creation and the end of a run.
    pub is_explicit: bool,
    /// True if an admin requests it.
    pub by_admin: bool,
}

/// The values of an agent that a move changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentTransition {
    /// State.
    pub state: AgentState,
    /// Number of moves into CONNECTED.
    pub generation: u64,
    /// True if only an admin may end the suspension.
    pub suspended_by_admin: bool,
}

/// A move that is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TransitionError {
    /// The move does not exist, or the agent is not in the state that the caller has seen.
    #[error("an agent that is {from} cannot become {to}; read its state, and ask for a move that is possible")]
    InvalidTransition {
        /// Present state.
        from: AgentState,
        /// Requested state.
        to: AgentState,
    },
    /// The agent has changed since the caller has seen it.
    #[error("the agent has changed: its generation is {found}; read it, and decide anew")]
    StaleGeneration {
        /// Present generation.
        found: u64,
    },
    /// An admin has suspended the agent.
    #[error("an admin has suspended the agent; ask an admin to end the suspension")]
    AdminOnly,
}

impl AgentState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Unknown, Self::Connected, Self::Idle, Self::Suspended];

    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "UNKNOWN",
            Self::Connected => "CONNECTED",
            Self::Idle => "IDLE",
            Self::Suspended => "SUSPENDED",
        }
    }

    /// Returns the state of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Returns true if an agent may move from this state to `target`.
    fn leads_to(self, target: Self, is_explicit: bool) -> bool {
        match (self, target) {
            (Self::Unknown | Self::Idle, Self::Connected)
            | (Self::Connected, Self::Idle)
            | (Self::Unknown | Self::Connected | Self::Idle, Self::Suspended) => true,
            (Self::Suspended, Self::Connected) => is_explicit,
            // A run takes an agent that a person has connected. The caller checks that the agent has no other run.
            (Self::Connected, Self::Connected) => !is_explicit,
            _ => false,
        }
    }
}

impl fmt::Display for AgentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Returns the agent after the requested move.
///
/// # Errors
/// [`TransitionError`]; then the agent stays as it is.
pub fn decide(agent: AgentTransition, request: TransitionRequest) -> Result<AgentTransition, TransitionError> {
    let (from, to) = (agent.state, request.target);
    if request.expected_generation.is_some_and(|expected| expected != agent.generation) {
        return Err(TransitionError::StaleGeneration { found: agent.generation });
    }
    if request.observed.is_some_and(|observed| observed != from) || !from.leads_to(to, request.is_explicit) {
        return Err(TransitionError::InvalidTransition { from, to });
    }
    if from == AgentState::Suspended && agent.suspended_by_admin && !request.by_admin {
        return Err(TransitionError::AdminOnly);
    }
    Ok(AgentTransition {
        state: to,
        generation: agent.generation + u64::from(to == AgentState::Connected && from != to),
        suspended_by_admin: to == AgentState::Suspended && request.by_admin,
    })
}

#[cfg(test)]
mod tests {
    use super::AgentState::{Connected, Idle, Suspended, Unknown};
    use super::*;

    fn request(target: AgentState) -> TransitionRequest {
        TransitionRequest { target, observed: None, expected_generation: None, is_explicit: true, by_admin: false }
    }

    fn agent(state: AgentState) -> AgentTransition {
        AgentTransition { state, generation: 7, suspended_by_admin: false }
    }

    #[test]
    fn only_these_moves_are_possible() {
        let possible = [
            (Unknown, Connected),
            (Unknown, Suspended),
            (Connected, Idle),
            (Connected, Suspended),
            (Idle, Connected),
            (Idle, Suspended),
            (Suspended, Connected),
        ];
        for from in AgentState::ALL {
            for to in AgentState::ALL {
                let moved = decide(agent(from), request(to));
                if possible.contains(&(from, to)) {
                    let generation = if to == Connected { 8 } else { 7 };
                    assert_eq!(moved, Ok(AgentTransition { generation, ..agent(to) }), "{from} {to}");
                } else {
                    assert_eq!(moved, Err(TransitionError::InvalidTransition { from, to }), "{from} {to}");
                }
            }
        }
    }

    #[test]
    fn a_run_does_not_end_a_suspension() {
        let implicit = TransitionRequest { is_explicit: false, ..request(Connected) };
        assert!(decide(agent(Suspended), implicit).is_err());
        assert!(decide(agent(Idle), implicit).is_ok());
    }

    /// Bug: after the end of a suspension, a run was refused until the upkeep had moved the agent to IDLE.
    #[test]
    fn a_run_takes_an_agent_that_is_connected() {
        let implicit = TransitionRequest { is_explicit: false, ..request(Connected) };
        assert_eq!(decide(agent(Connected), implicit), Ok(agent(Connected)), "it is no further move");
    }

    #[test]
    fn only_an_admin_ends_an_admins_suspension() {
        let by_admin = |target| TransitionRequest { by_admin: true, ..request(target) };
        let suspended = decide(agent(Idle), by_admin(Suspended)).expect("it is possible");
        assert!(suspended.suspended_by_admin);
        assert_eq!(decide(suspended, request(Connected)), Err(TransitionError::AdminOnly));
        let lifted = decide(suspended, by_admin(Connected)).expect("it is possible");
        assert!(!lifted.suspended_by_admin);
        let own = decide(agent(Idle), request(Suspended)).expect("it is possible");
        assert!(decide(own, request(Connected)).is_ok());
    }

    #[test]
    fn what_the_caller_has_seen_must_hold() {
        let stale = TransitionRequest { expected_generation: Some(6), ..request(Connected) };
        assert_eq!(decide(agent(Idle), stale), Err(TransitionError::StaleGeneration { found: 7 }));
        let other = TransitionRequest { observed: Some(Unknown), ..request(Connected) };
        assert!(matches!(decide(agent(Idle), other), Err(TransitionError::InvalidTransition { .. })));
        let seen = TransitionRequest { expected_generation: Some(7), observed: Some(Idle), ..request(Connected) };
        assert!(decide(agent(Idle), seen).is_ok());
    }

    #[test]
    fn states_are_read_as_written() {
        for state in AgentState::ALL {
            assert_eq!(AgentState::of(state.as_str()), Some(state));
        }
        assert_eq!(AgentState::of("idle"), None);
    }
}
