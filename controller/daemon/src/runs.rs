//! The runs of the daemon: claimed from the queue, driven concurrently, adopted after a restart.
//!
//! `orchestrator` owns the tasks of all runs. A task drives one attempt: `attempt` prepares and drives it,
//! `call_events` reports its calls, `file_events` its changed files, `steps` records its life. `watchdog` decides
//! whether a run ends because of its time or its silence, and `retries` decides what follows a failure; both are pure.

mod after_attempt;
mod attempt;
mod call_events;
pub(crate) mod cancellation;
mod chat_workspace;
mod disk_keeper;
pub mod failure_text;
pub(crate) mod file_event;
mod file_events;
mod file_limits;
mod kept_commits;
mod last_look;
pub(crate) mod leftover_execs;
pub mod orchestrator;
mod receipts;
mod resumed;
pub mod retries;
mod run_signals;
pub mod service;
mod side_tasks;
mod steps;
mod stored_request_error;
pub(crate) mod sweeper;
mod talk;
pub mod watchdog;

#[cfg(test)]
pub(crate) mod test_run;
