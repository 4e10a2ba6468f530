//! `sluice run` and the commands around it, on a real Docker Engine: one file a promise.

mod addresses;
mod agents;
mod any_image;
mod audit;
mod bridge;
mod budgets;
mod caps;
mod catalogue;
mod commands;
mod hardening;
mod hostile;
mod isolation;
mod ledger;
mod leftovers;
mod messages;
mod reconcile;
mod recovery;
mod results;
mod secrets;
mod settings;
mod virtual_keys;
mod workspace;
