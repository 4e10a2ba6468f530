//! What agents and SDKs see through Sluice is what they see without it.
//!
//! `make test` runs what is not ignored; `make test-agents` runs the rest, too.

mod agents;
mod commands;
mod long;
mod members;
