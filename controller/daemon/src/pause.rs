//! Pauses: a run stands still while its owner wants it, or while a call of it waits for an approval.
//!
//! `request` records what is wanted. One `keeper` for each live attempt brings its sidecar, its container and its clocks to
//! that, step by step; `rules` decides each step from what is observed. So a daemon that was killed in a pause goes on where it
//! was, from the row of the run and the state of its container.

mod keeper;
mod request;
mod rules;

pub(crate) use keeper::PauseKeeper;
pub use request::{Requester, pause, resume};
