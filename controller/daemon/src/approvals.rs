//! Approvals of runs: made when a cap is nearly or wholly used up, decided by people, carried out at the sidecar.
//!
//! Only the daemon makes them, from what the sidecar of a run reports. `watcher` looks at the caps of one attempt, `decision`
//! takes what a person decides, `apply` tells the sidecar, and `upkeep` closes what nobody decided.

mod apply;
mod decision;
mod near_cap;
mod raise_rule;
pub(crate) mod upkeep;
mod watcher;

pub(crate) use decision::{DecisionInput, decide};
pub(crate) use watcher::ApprovalWatcher;
