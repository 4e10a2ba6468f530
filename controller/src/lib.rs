//! The Sluice controller: the command line, its settings, preflight and reconciliation.
//!
//! Runs themselves are in `sluice-runs`, rows in `sluice-state`, LiteLLM's API in `sluice-litellm`.

pub mod agent_catalogue;
pub mod cli;
mod git_home;
pub mod harden;
pub mod preflight;
pub mod reconcile;
pub mod settings;
