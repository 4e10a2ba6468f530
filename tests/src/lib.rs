//! The test kit of Sluice: both ends of a call, and access to everything in between.
//!
//! A test is on both sides of the real `sluice-proxy` binary: [`Upstream`] plays the provider
//! and sends any bytes, [`RawClient`] plays the agent and accepts only the headers that may reach it,
//! [`Sidecar`] is the process between them, [`CheckedAuditFile`] its audit file. [`Sluice`] is the whole
//! controller with its own state directory, [`engine`] shows its containers.
//! Waits are bounded and end on an event where one exists: a signal, the end of a stream, a change of shared state.
//! Where none exists (the state of another process), the kit polls ([`poll`]); it never waits for a fixed time instead.
//! Everything that a test started is removed when the test ends, also when it panics.

mod board;
mod leash;
mod scratch;
mod wait;

pub mod agent_provider;
pub mod audit;
pub mod browser;
pub mod client;
pub mod controller;
pub mod engine;
pub mod forge;
pub mod http1;
pub mod litellm;
pub mod otlp;
pub mod prometheus;
pub mod schemas;
pub mod sdk;
pub mod sidecar;
pub mod spenddb;
pub mod spendlog;
pub mod tls;
pub mod upstream;
pub mod webui;

pub use audit::{CheckedAuditFile, RecordedCall};
pub use client::{ClientAnswer, Head, RawClient, RequestPayload};
pub use controller::Sluice;
pub use forge::Forge;
pub use http1::sse_data;
pub use scratch::{TempDir, write_private, write_script};
pub use sidecar::{FailedStart, Launch, Sidecar, SidecarExit};
pub use upstream::{ClosedPort, FullAcceptQueue, Gate, ReceivedRequest, Script, Step, Upstream};
pub use wait::{PATIENCE, poll};
