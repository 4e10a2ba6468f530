//! Durations of the phases of a run.

use std::time::Instant;

use serde::{Deserialize, Serialize};

/// Durations of the phases of a run, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Timings {
    /// Time from the spawn of the sidecar to its health answer.
    pub sidecar_ready: Option<f64>,
    /// Time of the creation of the container, in parallel with the sidecar.
    pub container_create: Option<f64>,
    /// Time from attaching to the start of the program.
    pub container_start: Option<f64>,
    /// Time from the start of the program to its end.
    pub run: Option<f64>,
    /// Time from the end of the program to the removal of all resources.
    pub teardown: Option<f64>,
}

/// Returns the milliseconds since then, rounded to microseconds.
#[must_use]
pub fn ms_since(start: Instant) -> f64 {
    (start.elapsed().as_secs_f64() * 1e6).round() / 1e3
}
