//! Export of runs and calls to OpenTelemetry: one trace for each run, one span for each call, and metrics of calls.
//!
//! Everything comes from the event log, after the calls: an exporter never delays a call. Data that a target does not take in
//! time is dropped and counted. Spans have names, numbers and ids, and no text of prompts and answers.

mod attributes;
pub(crate) mod exporter;
mod meters;
mod otlp;
mod queue;
mod run_facts;
mod spans;
mod target;

pub use target::{OtelKind, OtelTarget, Semconv, TargetFault, parse as parse_endpoint};

/// Maximum number of targets of one daemon.
pub const TARGETS_MAX: usize = 8;

#[cfg(test)]
mod tests;
