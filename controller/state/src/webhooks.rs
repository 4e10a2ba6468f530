//! The outbox of webhooks: progress in the event log, messages that wait, and messages that were given up.
//!
//! Each webhook has a position and messages of its own, so none delays another. A message is written in the transaction that
//! moves the position: neither exists without the other, and a killed daemon sends a message again under the same id.

mod commands;
mod messages;
mod positions;

pub use commands::{MessageChoice, WebhookRow};
pub use messages::{NewWebhookMessage, WebhookMessage};

/// Maximum number of messages that wait, for all webhooks together.
pub const OUTBOX_MAX: u32 = 10_000;
/// Maximum number of messages that were given up, for all webhooks together.
pub const DEAD_MAX: u32 = 1_000;

/// Maximum wait before a further try, in microseconds.
pub const WAIT_MAX_US: i64 = 180 * 60 * 1_000_000;

/// Result of a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextTry {
    /// The message is tried again, not before this time in microseconds since 1970.
    At(i64),
    /// The message is given up.
    Never,
}

#[cfg(test)]
mod tests;
