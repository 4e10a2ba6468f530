//! The Sluice controller: takes a run from request to receipt, beside a Docker Engine.
//!
//! The life of a run: a record → directories → sidecar beside container → attach, start → (exit, cancel, deadline) →
//! stop → drain → tally the audit file → remove → close. `plan` decides each step from the record and from what is seen;
//! `scene` does it; `drive` is the loop. A controller that comes back after a crash does the same from what it finds.

pub mod agents;
pub mod blueprint;
pub mod budget;
pub mod cli;
pub mod drive;
pub mod engine;
pub mod envelope;
pub mod exhausted;
pub mod forward;
pub mod harden;
pub mod host;
pub mod input;
pub mod keys;
pub mod layout;
pub mod ledger;
pub mod litellm;
pub mod once;
pub mod output;
pub mod plan;
pub mod preflight;
pub mod pressure;
pub mod prices;
pub mod process;
pub mod progress;
pub mod receipt;
pub mod reconcile;
pub mod removal;
pub mod report;
pub mod run;
pub mod rundir;
pub mod scene;
pub mod secret;
pub mod settings;
pub mod sidecar;
pub mod sidecar_user;
pub mod signals;
pub mod store;
pub mod sweep;
pub mod terminal;
pub mod tty;
pub mod upstream;
pub mod verdict;
pub mod virtual_key;
pub mod witness;
pub mod workspace;
