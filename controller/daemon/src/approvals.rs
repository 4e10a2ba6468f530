//! Approvals of runs: created when a cap is nearly or fully used up, or a branch waits for its publication; decided by
//! people; applied at the sidecar or at the forge.
//!
//! Only the daemon creates them. `watcher` checks the caps of one attempt, `decision` handles a person's decision,
//! `apply` sends it to LiteLLM and to the sidecar, and `upkeep` closes approvals that were not decided in time.
//! `crate::git` asks about publications, and carries out the approved ones.

mod apply;
mod decision;
mod near_cap;
mod raise_rule;
pub(crate) mod upkeep;
mod watcher;

pub(crate) use decision::{DecisionInput, decide};
pub(crate) use watcher::ApprovalWatcher;
