//! Execution of runs: a sidecar beside a container, from the first directory to the last record.
//!
//! The only crate that talks to the Docker Engine. The life of a run: record → directories → sidecar beside container →
//! attach, start → (exit, cancellation, deadline) → stop → drain → tally of the audit file → removal → close. `plan` decides
//! each step from the record and the observed state; `resources` performs it; `drive` is the loop. After a crash, another
//! controller continues from the state that it finds: `adoption` decides if it resumes the run or takes it down.

pub mod admission;
pub mod adoption;
pub mod audit_follow;
pub mod blueprint;
pub mod bridge;
pub mod call_event;
pub mod capture;
pub mod daemon_run;
pub mod drive;
pub mod engine;
pub mod envelope;
pub mod event_log;
pub mod exchange;
pub mod exec;
mod execution;
pub mod file_roots;
pub mod forbidden_mounts;
pub mod forward;
pub mod freezer;
pub mod grant;
pub mod host;
pub mod input;
pub mod memory_pressure;
pub mod mount_rights;
pub mod observer;
pub mod one_shot;
pub mod outcome;
pub mod output_record;
pub mod plan;
pub mod project_access;
pub mod project_repository;
pub mod publication;
mod publication_error;
pub mod record;
pub mod removal;
pub mod report;
pub mod repository_retention;
pub mod resources;
pub mod run_clock;
pub mod run_clone;
pub mod run_image;
pub mod run_locks;
pub mod rundir;
pub mod sandbox_user;
pub mod sidecar;
pub mod sidecar_control;
pub mod sidecar_user;
pub mod signals;
pub mod spec;
pub mod step_error;
pub mod stop;
pub mod sweep;
pub mod terminal;
pub mod timings;
pub mod tty;
pub mod upstream;
pub mod verdict;
pub mod virtual_key;
pub mod workspace;
pub mod workspace_files;

#[cfg(test)]
mod test_engine;
