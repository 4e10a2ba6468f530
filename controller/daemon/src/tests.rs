//! The daemon over real sockets.

mod access;
mod agents;
mod api;
mod document;
mod limits;
mod owners;
mod process;
mod roles;
mod sandboxes;
mod storm;
mod stream_client;
mod streams;
mod tls;
