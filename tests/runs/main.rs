//! `sluice run` and the commands around it, on a real Docker Engine: one file a promise.

mod addresses;
mod agents;
mod audit;
mod bridge;
mod budgets;
mod cancel;
mod caps;
mod catalogue;
mod commands;
mod hardening;
mod hostile;
mod isolation;
mod ledger;
mod leftovers;
mod logs;
mod progress;
mod ps;
mod reconcile;
mod records;
mod recovery;
mod rerun;
mod results;
mod secrets;
mod settings;
mod virtual_keys;
mod workspace;
