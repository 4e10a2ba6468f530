//! Measurements of the daemon itself: counters since its start.
//!
//! Counters of runs and calls come from the event log alone: `follower` reads committed events, `measurement` maps an event
//! to its counters, and `instruments` has the numbers. `scrape` adds figures from the database at the time of the request.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use sluice_runs::call_event::RefusedRequest;
use sluice_runs::timings::Timings;

pub(crate) mod engine_probe;
pub(crate) mod follower;
mod held_calls;
mod host_report;
mod instruments;
mod label_values;
mod measurement;
mod read_position;
mod scrape;
pub(crate) mod upstream_probe;

pub(crate) use held_calls::HeldCalls;
pub use host_report::HostCheck;
pub(crate) use read_position::ReadPosition;
pub(crate) use scrape::{METRICS_TYPE, Scrape, age};

use host_report::HostReport;
use instruments::Instruments;
use measurement::Measurement;

/// Clients that may read the metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetricsReaders {
    /// Admins, and tokens of the role `metrics`.
    WithRole,
    /// Everyone who reaches the daemon.
    Everyone,
}

/// Measurements of the daemon about itself.
#[derive(Debug)]
pub struct Monitor {
    /// Clients that may read the metrics.
    pub(crate) readers: MetricsReaders,
    /// Position up to which the event log is counted.
    pub(crate) read: ReadPosition,
    /// The last scrape.
    pub(crate) scrape: Scrape,
    /// Facts about the host.
    pub(crate) host: HostReport,
    started: Instant,
    /// Time of the start, in the format of times in audit files.
    started_at: String,
    /// Number of calls that wait for a person.
    held: Arc<AtomicU64>,
    instruments: Mutex<Instruments>,
}

/// Counts the findings of the reconciliations in a daemon's process.
#[derive(Debug, Clone)]
pub struct FindingCounter(pub(crate) Arc<Monitor>);

impl FindingCounter {
    /// Counts findings of a class. A class without findings is counted as 0, so that its first one is an increase.
    pub fn count(&self, class: &'static str, number: u64) {
        self.0.count_findings(class, number);
    }
}

impl Monitor {
    /// Starts with counters of 0. Events up to the position `read` are not counted.
    #[must_use]
    pub(crate) fn new(readers: MetricsReaders, checks: Vec<HostCheck>, read: i64) -> Self {
        Self {
            readers,
            read: ReadPosition::new(read),
            scrape: Scrape::default(),
            host: HostReport::of(checks),
            started: Instant::now(),
            started_at: humantime::format_rfc3339_micros(SystemTime::now()).to_string(),
            held: Arc::default(),
            instruments: Mutex::new(Instruments::new(env!("CARGO_PKG_VERSION"))),
        }
    }

    /// Returns the time of the start.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// Returns a counter of the calls of one run that wait for a person, at 0.
    pub(crate) fn held_calls(&self) -> HeldCalls {
        HeldCalls::of(&self.held)
    }

    /// Returns the number of calls that wait for a person.
    fn held(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Counts an error of an audit log: a failed write, or a wrong line.
    pub(crate) fn count_audit_error(&self) {
        self.lock().count_audit_error();
    }

    /// Counts spans of a target of OpenTelemetry: `sent`, `dropped` or `refused`. A result without spans is counted as 0.
    pub(crate) fn count_spans(&self, target: &str, result: &'static str, number: u64) {
        self.lock().count_spans(target, result, number);
    }

    /// Counts findings of a reconciliation.
    fn count_findings(&self, class: &'static str, number: u64) {
        self.lock().count_findings(class, number);
    }

    /// Counts a request of a sandbox that its sidecar has refused. A refusal before the start of this daemon does not
    /// count: an earlier daemon may have counted it.
    pub(crate) fn count_refusal(&self, refused: &RefusedRequest) {
        if refused.ts >= self.started_at {
            self.lock().count_refusal(&refused.reason);
        }
    }

    /// Records the durations of a run that this daemon has driven from its start.
    pub(crate) fn record_timings(&self, timings: &Timings) {
        if let Some(ms) = timings.sidecar_ready {
            self.lock().record_sidecar_ready(ms / 1e3);
        }
    }

    fn count(&self, measurement: &Measurement) {
        self.lock().count(measurement);
    }

    fn lock(&self) -> MutexGuard<'_, Instruments> {
        // Nothing panics while it is held.
        self.instruments.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
