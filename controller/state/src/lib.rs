//! The state of one controller: its directory, its database, its keys.
//!
//! The only crate that opens the database. Runs, receipts, budgets and virtual keys are rows; the rules of each table are
//! beside its queries.

mod append_log;
pub mod backup;
pub mod budget;
pub mod decisions;
pub mod file;
pub mod keys;
pub mod layout;
pub mod ledger;
pub mod live_usage;
pub mod lock;
pub mod no_connection;
pub mod operator;
pub mod over_cap;
pub mod process;
pub mod receipt;
pub mod records;
pub mod run;
pub mod spend_log_turns;
pub mod state_directory;
pub mod store;
pub mod virtual_keys;
pub mod witness;
