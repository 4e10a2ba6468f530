//! The daemon over real sockets.

mod access;
mod api;
mod limits;
mod process;
mod tls;
