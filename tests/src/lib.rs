//! The test kit of Sluice: both ends of a call, and everything in between to look at.
//!
//! A test stands on both sides of the real `sluice-proxy` binary: [`Upstream`] plays the provider
//! and sends any bytes, [`RawClient`] plays the agent and accepts only the headers that may reach it,
//! [`Sidecar`] is the process between them, [`CheckedAuditFile`] what it wrote down. [`Sluice`] is the whole
//! controller with a state directory of its own, [`engine`] an outsider's look at its containers.
//! Nothing here sleeps: waiting is for a signal, for the end of a stream, or bounded and then loud.
//! What a test started is gone when it ends, also when it panics.

mod board;
mod leash;
mod scratch;
mod wait;

pub mod agent_provider;
pub mod audit;
pub mod client;
pub mod controller;
pub mod engine;
pub mod litellm;
pub mod sdk;
pub mod sidecar;
pub mod spenddb;
pub mod spendlog;
pub mod tls;
pub mod upstream;
pub mod wire;

pub use audit::{CheckedAuditFile, RecordedCall};
pub use client::{ClientAnswer, Head, RawClient, RequestPayload};
pub use controller::Sluice;
pub use scratch::{TempDir, write_private, write_script};
pub use sidecar::{FailedStart, Launch, Sidecar, SidecarExit};
pub use upstream::{ClosedPort, FullAcceptQueue, Gate, ReceivedRequest, Script, Step, Upstream};
pub use wait::{PATIENCE, poll};
pub use wire::sse_data;
