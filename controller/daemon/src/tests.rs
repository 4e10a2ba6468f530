//! The daemon over real sockets.

mod access;
mod agents;
mod api;
mod creation;
mod grants;
mod limits;
mod monitoring;
mod owners;
mod process;
mod sandboxes;
mod streams;
mod tls;
mod upkeep;
