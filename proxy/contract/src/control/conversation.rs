//! Messages that the sidecar adds to the conversation of an agent, and the interruption of its calls.
//!
//! Pure.

use serde::{Deserialize, Serialize};

/// Path of the messages to add, for `PUT` with [`InjectMessages`].
pub const INJECT_PATH: &str = "/inject";
/// Path of the states of messages, for `GET` with the query `after=NUMBER`; answers with [`InjectedMessages`].
pub const INJECTED_PATH: &str = "/injected";
/// Path that ends the calls under way, for `POST` with [`Interrupt`].
pub const INTERRUPT_PATH: &str = "/interrupt";

/// Maximum length of the body of a request with messages.
pub const INJECT_BODY_MAX: usize = 4 << 20;
/// Maximum number of messages that wait at once.
pub const PENDING_MAX: usize = 100;
/// Maximum number of messages of a run that stay in its conversation.
pub const KEPT_MAX: usize = 1000;
/// Maximum number of bytes of all messages of a run.
pub const KEPT_BYTES_MAX: usize = 8 << 20;
/// Maximum length of a message, in characters.
pub const CONTENT_MAX: usize = 20_000;
/// Maximum number of bytes of messages that are new in one call; one message alone may be longer. The others wait for
/// the next call.
pub const INJECTED_BYTES_MAX: usize = 32 << 10;

/// Code of a refusal for more messages than the sidecar keeps.
pub const TOO_MANY_MESSAGES: &str = "too_many_messages";

/// Maximum number of entries in one [`InjectedMessages`].
pub const INJECTED_MAX: usize = 500;

/// All messages of the run that are not delivered yet, in the order of their delivery, and the messages that an earlier
/// sidecar added.
///
/// The list replaces the previous list. A message that is missing in it and was not sent yet is forgotten; one that was
/// sent stays in the conversation, and a second message with its id is ignored. So a sidecar that was started again can
/// be given its messages in several requests: those with an anchor stay.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectMessages {
    /// The messages.
    pub messages: Vec<PendingMessage>,
    /// Person or program that asks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// A message for the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PendingMessage {
    /// Id of the message.
    pub message_id: String,
    /// Text, as the agent gets it.
    pub content: String,
    /// Kind of the message.
    pub message_type: MessageType,
    /// Place at which an earlier sidecar of the attempt added it; left out for a message that was not added yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageType {
    /// From a person.
    UserMessage,
    /// From a person, who has also ended the call under way.
    Interrupt,
    /// From the rules of the operator.
    GuardianNudge,
    /// From the operator.
    System,
}

/// Place of a message in a conversation: after the item that it names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Anchor {
    /// SHA-256 over all items up to the anchor, in hex, without their marks of caches, thinking, ids and status.
    pub chain: String,
    /// SHA-256 of the anchor item alone, in hex.
    pub item: String,
    /// Id of the tool call that the anchor answers, if it answers one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// SHA-256 of the stored object that the request continued, in hex: the provider keeps a message that was added
    /// then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continues: Option<String>,
}

/// Steps of messages, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InjectedMessages {
    /// The entries after the number that was asked for; at most [`INJECTED_MAX`].
    pub entries: Vec<InjectedMessage>,
}

/// A step of one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InjectedMessage {
    /// Number of the entry, from 1, without a gap. A restarted sidecar begins anew, and again reports messages that are
    /// acknowledged or lost.
    pub number: u64,
    /// Id of the message.
    pub message_id: String,
    /// Status of the message.
    pub status: InjectionStatus,
    /// Id of the call that carried the message, or should have; left out while that call waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Place in the conversation; left out for a message that is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Anchor>,
}

/// Status of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InjectionStatus {
    /// A call with the message was sent; or the message was withdrawn while a call with it waited, and that call will
    /// send it. Until it is acknowledged, a later call can carry it again.
    Sent,
    /// A request with the message was answered with success.
    Acknowledged,
    /// The conversation continued without the item after which the message was added.
    Lost,
}

/// Request to end the calls under way. The agent gets an error for each, which it does not retry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interrupt {
    /// Person or program that asks.
    pub by: String,
    /// Reason.
    pub reason: String,
}
