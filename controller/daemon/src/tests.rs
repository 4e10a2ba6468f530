//! The daemon over real sockets.

mod access;
mod agents;
mod api;
mod artifacts;
mod creation;
mod document;
mod exec;
mod files;
mod grants;
mod limits;
mod messages;
mod monitoring;
mod owners;
mod process;
mod relay;
mod roles;
mod sandboxes;
mod sessions;
mod storm;
mod stream_client;
mod streams;
mod tls;
mod upkeep;
