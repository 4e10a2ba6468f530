//! Approvals of runs: created when a cap is nearly or fully used up, decided by people, applied at the sidecar.
//!
//! Only the daemon creates them, from the reports of a run's sidecar. `watcher` checks the caps of one attempt, `decision`
//! handles a person's decision, `apply` sends it to the sidecar, and `upkeep` closes approvals that were not decided in time.

mod apply;
mod decision;
mod near_cap;
mod raise_rule;
pub(crate) mod upkeep;
mod watcher;

pub(crate) use decision::{DecisionInput, decide};
pub(crate) use watcher::ApprovalWatcher;
