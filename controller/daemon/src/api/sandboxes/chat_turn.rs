//! A turn of a chat, as the request for a run.
//!
//! Pure.

use std::time::Duration;

use serde_json::{Map, Value};
use sluice_contract::{Hash, RunKey};
use sluice_state::chats::NewChat;

use crate::identity::RequestOrigin;

/// A turn of a chat.
#[derive(Debug)]
pub(in crate::api) struct ChatTurnRequest {
    /// The registered agent, if one was chosen.
    pub(in crate::api) agent_id: Option<String>,
    pub(in crate::api) graph_id: String,
    pub(in crate::api) model: Option<String>,
    pub(in crate::api) messages: Vec<Value>,
    /// Metadata of its calls.
    pub(in crate::api) metadata: Map<String, Value>,
    pub(in crate::api) chat: NewChat,
    /// Attempt whose workspace the turn begins with.
    pub(in crate::api) workspace_from: Option<RunKey>,
    /// Time for which the worker of the run waits for the next turn, if it gets the later turns.
    pub(in crate::api) stay: Option<Duration>,
    /// Hash of the request.
    pub(in crate::api) digest: Hash,
    /// Headers with the origin of the request.
    pub(in crate::api) origin: RequestOrigin,
}
