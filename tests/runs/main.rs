//! `sluice run` and the commands around it, on a real Docker Engine: one file a promise.

mod addresses;
mod agents;
mod audit;
mod backup;
mod bridge;
mod budgets;
mod caps;
mod catalogue;
mod commands;
mod files;
mod hardening;
mod hostile;
mod isolation;
mod ledger;
mod leftovers;
mod patch;
mod reconcile;
mod recovery;
mod repo;
mod results;
mod secrets;
mod settings;
mod state_directory;
mod virtual_keys;
mod workspace;
