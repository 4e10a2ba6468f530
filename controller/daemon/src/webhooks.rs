//! Webhooks: signed notices of events to addresses that an admin has set.
//!
//! A notice has ids, a type, a state and a link, and no text of an agent or a user. Each webhook reads the event log at its
//! own position into an outbox of its own, so that neither a failing webhook nor a message that its receiver refuses delays
//! another. Deliveries may repeat, under the same id, and may come out of order.

pub(crate) mod consumer;
mod message;
mod schedule;
mod secret;
mod sender;
mod target;

use std::path::PathBuf;

pub use crate::outbound::DeliveryFault;
pub use message::{TEST_TYPE, test_message};
pub use secret::{WebhookSecret, WebhookSecretError};
pub use sender::send;
pub use target::{TargetError, WebhookTarget};

/// Maximum number of webhooks of one daemon.
pub const WEBHOOKS_MAX: usize = 32;
/// Types of events of a webhook that names none.
pub const DEFAULT_TYPES: [&str; 6] = ["run.*", "sandbox.*", "question.*", "approval.*", "budget.*", "guardian.*"];

/// A webhook of the settings.
#[derive(Debug, Clone)]
pub struct Webhook {
    /// Name.
    pub name: String,
    /// Target address of its notices.
    pub target: WebhookTarget,
    /// Secrets that sign its notices: one, or the old and the new one during a rotation.
    pub secrets: Vec<WebhookSecret>,
    /// Types of events; a type that ends in `.*` selects all with this prefix.
    pub types: Vec<String>,
    /// Owners of events; none for all.
    pub owners: Vec<String>,
    /// File with the certificates to trust, in place of the system's.
    pub ca: Option<PathBuf>,
    /// True if it may connect to addresses outside the public internet.
    pub allow_private: bool,
}

#[cfg(test)]
mod tests;
