//! Facts of the conversation in one body.
//!
//! Pure.

use sluice_contract::Hash;

use super::anchor::PlacedAnchor;
use super::splice::Place;

/// Facts of the conversation in one body.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conversation {
    /// Hash of the first message of the user.
    pub first_user: Option<Hash>,
    /// Hash of the system prompt.
    pub system: Option<Hash>,
    /// True if the model has tools.
    pub has_tools: bool,
    /// True if the model has answered in it before.
    pub has_answer: bool,
    /// True if the answer must have a form that is given, as in a call that makes a title.
    pub is_structured: bool,
    /// Hash of the stored object that the request continues.
    pub continues: Option<Hash>,
    /// True if the model waits for a tool that the provider runs.
    pub has_open_call: bool,
    /// The last item, without messages of the system.
    pub last: Option<LastItem>,
    /// For each anchor that was given, its place in this conversation, and how sure it is: 0 by its chain, 1 by its
    /// item, 2 by its tool call.
    pub held: Vec<Option<(u8, Place)>>,
    /// Offset after the list of items.
    pub end: u64,
}

/// The last item of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastItem {
    /// The item as an anchor.
    pub anchor: PlacedAnchor,
    /// Place for messages after it; `None` if no message may follow it.
    pub place: Option<Place>,
}
