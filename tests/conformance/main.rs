//! Agents and SDKs see the same through Sluice as without it.
//!
//! `make test` runs the tests that are not ignored; `make test-agents` runs all.

mod agents;
mod clients;
mod commands;
mod held;
mod long;
mod members;
mod messages;
mod publishing;
mod sandboxes;
