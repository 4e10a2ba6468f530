//! The daemon over real sockets.

mod access;
mod agents;
mod api;
mod approvals;
mod artifacts;
mod creation;
mod document;
mod exec;
mod fake_sidecar;
mod files;
mod grants;
mod limits;
mod monitoring;
mod owners;
mod pauses;
mod process;
mod questions;
mod roles;
mod sandboxes;
mod storm;
mod stream_client;
mod streams;
mod tls;
mod upkeep;
