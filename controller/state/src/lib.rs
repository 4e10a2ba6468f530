//! The state of one controller: its directory, its database, its keys.
//!
//! This is the only crate that opens the database. Runs, receipts, budgets, virtual keys and the daemon's data are
//! rows; the rules of each table are beside its queries.

pub mod agents;
mod append_log;
pub mod approvals;
pub mod audit_tail;
pub mod backup;
pub mod budget;
pub mod chats;
pub mod control_log;
pub mod creation;
pub mod daemon_lock;
pub mod decisions;
pub mod events;
pub mod figures;
pub mod file;
pub mod git_runs;
pub mod idempotency;
pub mod keys;
pub mod layout;
pub mod ledger;
pub mod live_usage;
pub mod lock;
pub mod messages;
pub mod no_connection;
pub mod operator;
pub mod over_cap;
pub mod process;
pub mod questions;
mod random_id;
pub mod receipt;
pub mod record_retention;
pub mod records;
pub mod run;
pub mod run_tokens;
pub mod sandboxes;
mod signed_line;
pub mod spend_log_turns;
pub mod state_directory;
pub mod store;
#[cfg(test)]
mod test_sandbox;
pub mod tokens;
pub mod virtual_keys;
pub mod webhooks;
pub mod witness;
