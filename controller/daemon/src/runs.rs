//! The runs of the daemon: claimed from the queue, driven beside each other, adopted after a restart.
//!
//! `orchestrator` owns the tasks of all runs and nothing else of them. A task drives one attempt: `attempt` prepares and
//! drives it, `call_events` reports its calls, `file_events` its changed files, `steps` records its life. What ends a run
//! for its time or its silence is decided in `watchdog`, and what follows a failure in `retries`; both are pure.

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
mod last_look;
pub(crate) mod leftover_execs;
pub(crate) mod live_run;
pub mod orchestrator;
mod receipts;
mod refusal;
mod resumed;
pub mod retries;
mod run_signals;
pub mod service;
mod side_tasks;
mod steps;
pub(crate) mod sweeper;
mod talk;
pub mod watchdog;

pub(crate) use refusal::Refusal;

#[cfg(test)]
pub(crate) mod test_run;
