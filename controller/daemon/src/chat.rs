//! Chats with agents in sandboxes: a run, as a conversation sees it.
//!
//! A chat is an ordinary run. What it says is read from the two places where everything about a run is kept: the event log,
//! and the output of its program. So a chat that was cut off goes on from a cursor, also after a restart.
//! Effects are in `follow`, `abandoned` and `worker_upkeep`; all other files decide.

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
