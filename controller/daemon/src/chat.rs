//! Chats with agents in sandboxes: presents a run as a conversation.
//!
//! A chat is an ordinary run. Its text is read from the two places that keep everything about a run: the event log, and
//! the output of its program. So a chat that was cut off continues from a cursor, also after a restart. Effects are in
//! `follow`, `abandoned` and `worker_upkeep`; all other files decide.

pub(crate) mod abandoned;
pub(crate) mod catalog;
pub(crate) mod completion;
pub(crate) mod cursor;
pub(crate) mod defang;
pub(crate) mod failure;
pub(crate) mod follow;
pub(crate) mod frames;
pub(crate) mod header_names;
pub(crate) mod prompt;
pub(crate) mod request;
mod stdout_text;
pub(crate) mod translation;
pub(crate) mod turn_watch;
pub(crate) mod worker_upkeep;
pub(crate) mod workers;
