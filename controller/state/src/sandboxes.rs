//! Runs of the daemon: one row for all attempts of a run.
//!
//! Every change is a compare-and-swap on the row's generation, follows the edges of `lifecycle`, and appends its events in
//! the same transaction. Rows are never removed: an id stays used.

mod activity;
mod change;
mod choose;
mod claim;
mod clocks;
mod create;
mod error;
mod lifecycle;
mod list;
mod messages;
mod row;
mod wait_cause;
mod waiting;

pub use activity::SandboxActivity;
pub use change::{NextAttempt, Reopening};
pub use claim::{Claim, ClaimLimits, ClaimedSandbox, RETRY_WAIT_MAX_US};
pub(crate) use clocks::works;
pub use clocks::{ClockStop, STOPPED_MAX_US};
pub(crate) use create::{check_name, check_queue, insert, insert_dependencies};
pub use error::SandboxError;
pub use lifecycle::{DesiredState, IllegalStep, SandboxState, SandboxStep, SandboxVerdict, after_step};
pub use list::{Awaited, SandboxCursor, SandboxFilter, SandboxPage};
pub use row::Sandbox;
pub(crate) use row::{find, report, update};
pub use wait_cause::WaitCause;

#[cfg(test)]
mod tests;
