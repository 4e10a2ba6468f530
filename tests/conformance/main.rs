//! Agents and SDKs see the same through Sluice as without it.
//!
//! `make test` runs the tests that are not ignored; `make test-agents` runs all.

mod agents;
mod commands;
mod long;
mod members;
mod messages;
