//! Messages to running agents.
//!
//! A message is delivered once: to the worker of an agent, which takes it and acknowledges it, or by the sidecar, which adds
//! it to a call. Interrupts and urgent messages come first, and each of the two groups is in the order in which they were
//! sent. Every change appends its event in the same transaction.

use sluice_contract::control::{Anchor, MessageType};

use crate::idempotency::IdempotencyKey;
use crate::random_id::random_id;

mod content;
mod conversation;
mod error;
mod injection;
mod queue;
mod row;
mod worker;

pub use content::{clean_content, intervention_prefix, intervention_text};
pub use conversation::StoredConversation;
pub use error::MessageError;
pub use injection::Injection;
pub(crate) use queue::add;
pub use queue::{MessageFilter, MessagePage};
pub(crate) use row::{find, report, set_state};
pub use worker::{TAKEN_BYTES_MAX, TakeMode};

/// Maximum number of characters of a message.
pub const CONTENT_MAX: usize = 10_000;
/// Maximum number of undelivered messages of a run.
pub const PENDING_MAX: u32 = 100;
/// Time for which a worker has a message before the message is leased again, in microseconds.
pub const LEASE_US: i64 = 60_000_000;
/// Maximum number of bytes of the messages that the sidecar has at once, unless a single one is larger.
pub const OFFERED_BYTES_MAX: usize = 32 << 10;

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageToSend {
    /// `msg-…` or `int-…`, of [`message_id`] or [`intervention_id`].
    pub id: String,
    /// Text. Control characters are removed, except for tabs and ends of lines.
    pub content: String,
    /// Kind.
    pub message_type: MessageType,
    /// True if it is delivered before messages that are not urgent. An interrupt is always urgent.
    pub urgent: bool,
    /// Time of its delivery.
    pub inject_mode: InjectMode,
    /// Kind of an intervention. The content gets a prefix with the kind.
    pub steering_type: Option<String>,
    /// Source of an intervention, as its sender states it.
    pub source: Option<String>,
    /// The principal that sends it, or the rule.
    pub sender: String,
    /// Reserved idempotency key of the request.
    pub idempotency: Option<IdempotencyKey>,
}

/// A message. Times are in microseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "described in MessageToSend")]
pub struct StoredMessage {
    /// Position in the order in which messages were sent.
    pub number: i64,
    pub id: String,
    pub content: String,
    pub message_type: MessageType,
    pub urgent: bool,
    pub inject_mode: InjectMode,
    pub steering_type: Option<String>,
    pub source: Option<String>,
    pub sender: String,
    /// Present state.
    pub state: MessageState,
    /// Position in the conversation, if the sidecar added it.
    pub anchor: Option<Anchor>,
    /// Time at which it was sent by its sender.
    pub created_us: i64,
    /// Time of its delivery.
    pub delivered_us: Option<i64>,
    /// For an interrupt that starts no turn: the next step.
    pub afterwards: Option<Afterwards>,
}

/// Step of a worker after an interrupt that starts no turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Afterwards {
    /// The worker waits for the next message.
    Wait,
    /// The worker ends.
    End,
}

impl Afterwards {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wait => "wait",
            Self::End => "end",
        }
    }

    /// Returns the value of a word.
    pub(crate) fn of(word: &str) -> Option<Self> {
        [Self::Wait, Self::End].into_iter().find(|one| one.as_str() == word)
    }
}

/// Time at which a message is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InjectMode {
    /// The sidecar adds it to the next call, even if the agent has a worker.
    Immediate,
    /// A worker takes it when it is ready for it; without a worker, the sidecar adds it to the next call.
    NextTurn,
}

/// State of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageState {
    /// Neither a worker nor the sidecar has it.
    Queued,
    /// A worker has it, and has not acknowledged it.
    Leased,
    /// The sidecar has it for the next call.
    Offered,
    /// A call with it was sent.
    Sent,
    /// A worker has acknowledged it, or a call with it was answered.
    Delivered,
    /// The sender has removed it before its delivery.
    Deleted,
    /// The run ended before its delivery, or its position in the conversation is lost.
    Lost,
}

impl InjectMode {
    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Immediate => "immediate",
            Self::NextTurn => "next_turn",
        }
    }

    /// Returns the mode of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        [Self::Immediate, Self::NextTurn].into_iter().find(|mode| mode.as_str() == word)
    }
}

impl MessageState {
    /// All states.
    pub const ALL: [Self; 7] =
        [Self::Queued, Self::Leased, Self::Offered, Self::Sent, Self::Delivered, Self::Deleted, Self::Lost];

    /// Returns the word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Leased => "leased",
            Self::Offered => "offered",
            Self::Sent => "sent",
            Self::Delivered => "delivered",
            Self::Deleted => "deleted",
            Self::Lost => "lost",
        }
    }

    /// Returns the state of a word.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Returns true if its sender can still remove it or put it before others.
    #[must_use]
    pub fn is_changeable(self) -> bool {
        matches!(self, Self::Queued | Self::Offered)
    }
}

/// Returns the word of a kind in the database and in output.
#[must_use]
pub fn type_word(kind: MessageType) -> &'static str {
    match kind {
        MessageType::UserMessage => "user_message",
        MessageType::Interrupt => "interrupt",
        MessageType::GuardianNudge => "guardian_nudge",
        MessageType::System => "system",
    }
}

/// Returns a new id of a message.
#[must_use]
pub fn message_id() -> String {
    random_id("msg-")
}

/// Returns a new id of an intervention.
#[must_use]
pub fn intervention_id() -> String {
    random_id("int-")
}

/// Returns the number of the first messages whose texts fit in this many bytes together; at least one, if there is one.
#[must_use]
pub fn fitting(messages: &[StoredMessage], bytes_max: usize) -> usize {
    let mut bytes = 0_usize;
    let fits = messages.iter().take_while(|message| {
        bytes = bytes.saturating_add(message.content.len());
        bytes <= bytes_max
    });
    fits.count().max(1).min(messages.len())
}

#[cfg(test)]
mod tests;
