//! The daemon over real sockets.

mod access;
mod agents;
mod api;
mod limits;
mod owners;
mod process;
mod sandboxes;
mod streams;
mod tls;
mod upkeep;
