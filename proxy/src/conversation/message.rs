//! Messages as they come, as calls carry them, and as records list them.
//!
//! Pure.

use sluice_contract::control::PendingMessage;
use sluice_contract::record::MessageDigests;

use super::anchor::PlacedAnchor;

/// Maximum number of ids of messages in the record of a call.
const IDS_MAX: usize = 64;

/// A message that is valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewMessage {
    /// Id of the message.
    pub id: Box<str>,
    /// Text of the message.
    pub content: Box<str>,
    /// Place at which an earlier sidecar added it.
    pub anchor: Option<PlacedAnchor>,
}

/// Messages of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CallInjection {
    /// Ids of all messages in the body.
    pub ids: Vec<Box<str>>,
    /// Ids of those that this call adds.
    pub placed: Vec<Box<str>>,
    /// Ids of those that have no place any more.
    pub lost: Vec<Box<str>>,
    /// Fingerprint of the body as it came.
    pub fingerprint: u64,
    /// Ranges of the bytes that were added, in the body that is sent, in their order.
    pub added: Vec<(u64, u64)>,
}

/// Bytes to add to a body, and the messages in them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InjectionPlan {
    /// The bytes, by their offset in the body.
    pub splices: Vec<(u64, String)>,
    /// The messages.
    pub injection: CallInjection,
}

/// Messages that a new list adds to those that wait, and that it withdraws.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ListChange {
    /// Messages that are new.
    pub added: Option<MessageDigests<'static>>,
    /// Messages that no longer wait.
    pub withdrawn: Option<MessageDigests<'static>>,
}

impl CallInjection {
    /// Returns true if the call has nothing to do with messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.lost.is_empty()
    }

    /// Returns the ids for the record of the call: the last ones, and the number of the others.
    #[must_use]
    pub fn listed(&self) -> Option<Vec<String>> {
        let left_out = self.ids.len().saturating_sub(IDS_MAX);
        let mut listed: Vec<_> = self.ids[left_out..].iter().map(ToString::to_string).collect();
        if left_out > 0 {
            listed.push(format!("+{left_out}"));
        }
        (!listed.is_empty()).then_some(listed)
    }
}

impl TryFrom<PendingMessage> for NewMessage {
    type Error = &'static str;

    /// Reads a message of the control socket. The error says what is wrong with its anchor.
    fn try_from(message: PendingMessage) -> Result<Self, &'static str> {
        let anchor = match &message.anchor {
            Some(anchor) => Some(PlacedAnchor::parse(anchor).ok_or("an anchor has hashes of 64 hex digits")?),
            None => None,
        };
        Ok(Self { id: message.message_id.into(), content: message.content.into(), anchor })
    }
}
