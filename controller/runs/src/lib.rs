//! The execution of runs: a sidecar beside a container, from the first directory to the last record.
//!
//! The only crate that talks to the Docker Engine. The life of a run: a record → directories → sidecar beside container →
//! attach, start → (exit, cancel, deadline) → stop → drain → tally the audit file → remove → close. `plan` decides each
//! step from the record and from what exists; `scene` performs it; `drive` is the loop. After a crash, another controller
//! does the same from what it finds.

pub mod blueprint;
pub mod drive;
pub mod engine;
pub mod envelope;
pub mod forward;
pub mod host;
pub mod input;
pub mod once;
pub mod output;
pub mod plan;
pub mod pressure;
pub mod progress;
pub mod removal;
pub mod report;
pub mod rundir;
pub mod scene;
pub mod sidecar;
pub mod sidecar_user;
pub mod signals;
pub mod sweep;
pub mod terminal;
pub mod tty;
pub mod upstream;
pub mod verdict;
pub mod virtual_key;
pub mod workspace;
