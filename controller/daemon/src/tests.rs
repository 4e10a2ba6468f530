//! The daemon over real sockets.

mod access;
mod agents;
mod api;
mod artifacts;
mod exec;
mod files;
mod limits;
mod owners;
mod process;
mod sandboxes;
mod streams;
mod tls;
