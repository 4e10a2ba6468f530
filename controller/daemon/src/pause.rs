//! Pauses: a run is stopped while its owner wants that, or while one of its calls waits for an approval.
//!
//! `request` records the wanted state. One `keeper` for each live attempt brings its sidecar, its container and its clocks to
//! that state, step by step; `rules` decides each step from the observed state. So after a kill during a pause, a new daemon
//! continues from the row of the run and the state of its container.

mod keeper;
mod request;
mod rules;

pub(crate) use keeper::PauseKeeper;
pub(crate) use request::paused;
pub use request::{Requester, pause, resume};
