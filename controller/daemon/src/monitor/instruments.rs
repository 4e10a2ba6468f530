//! The metrics: names, labels and numbers.
//!
//! Pure. Base units, no ids as labels, and each label has a bounded number of values.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use super::label_values::LabelValues;
use super::measurement::{Called, Measurement};

/// Name and value of labels.
type Labels<const N: usize> = [(&'static str, String); N];
type Seconds = Gauge<f64, AtomicU64>;

/// Bucket bounds in seconds for runs, their time in the queue, and the wait for approvals.
const LONG: [f64; 12] = [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 86400.0];
/// Bucket bounds in seconds for calls and the start of a sidecar.
const SHORT: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];

/// Numbers that are read at each read of the metrics.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Gauges {
    /// Number of runs in each state.
    pub(super) runs: Vec<(&'static str, u64)>,
    /// Seconds for which the first run that could begin now has waited.
    pub(super) queue_age: f64,
    /// Receipts without a cost.
    pub(super) open_receipts: u64,
    /// Seconds since the first call of these receipts.
    pub(super) open_receipt_age: f64,
    /// Open streams: events, output, downloads and programs.
    pub(super) sse_clients: usize,
    /// Seconds since the first event that is not counted yet.
    pub(super) event_lag: f64,
    /// Calls that wait for a person.
    pub(super) held_calls: u64,
}

/// All metrics.
pub(super) struct Instruments {
    registry: Registry,
    runs: RunMetrics,
    calls: CallMetrics,
    state: StateMetrics,
    approval_wait: Family<Labels<1>, Histogram>,
    audit_errors: Counter,
    implausible_costs: Counter,
    findings: Family<Labels<1>, Counter>,
    spans: Family<Labels<2>, Counter>,
}

/// Metrics of runs that have begun or ended.
struct RunMetrics {
    ends: Family<Labels<2>, Counter>,
    failure_codes: LabelValues,
    duration: Histogram,
    queue_wait: Histogram,
    sidecar_ready: Histogram,
}

/// Metrics of calls.
struct CallMetrics {
    ended: Family<Labels<2>, Counter>,
    tokens: Family<Labels<2>, Counter>,
    cost: Family<Labels<1>, Counter>,
    models: LabelValues,
    results: LabelValues,
    first_byte: Histogram,
    refusals: Family<Labels<1>, Counter>,
    reasons: LabelValues,
}

/// Metrics that are set when they are read.
struct StateMetrics {
    runs: Family<Labels<1>, Gauge>,
    queue_age: Seconds,
    open_receipts: Gauge,
    open_receipt_age: Seconds,
    sse_clients: Gauge,
    event_lag: Seconds,
    held_calls: Gauge,
}

impl fmt::Debug for Instruments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instruments").finish_non_exhaustive()
    }
}

/// Adds a metric to a registry, and returns it.
fn add<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register(name, help, metric.clone());
    metric
}

/// Adds a metric of seconds.
fn add_seconds<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

fn histogram(bounds: &[f64]) -> Histogram {
    Histogram::new(bounds.iter().copied())
}

impl RunMetrics {
    fn new(r: &mut Registry) -> Self {
        let (ready, long) = (histogram(&SHORT), || histogram(&LONG));
        let duration = "Time from the first claim of a run to its end, without its pauses and its waits for approvals";
        Self {
            ends: add(r, "run_ends", "Runs that have ended, by outcome and failure code", Family::default()),
            failure_codes: LabelValues::default(),
            duration: add_seconds(r, "run_duration", duration, long()),
            queue_wait: add_seconds(r, "queue_wait", "Time that an attempt was in the queue", long()),
            sidecar_ready: add_seconds(r, "sidecar_ready", "Time from the start of a sidecar to its answer", ready),
        }
    }
}

impl CallMetrics {
    fn new(r: &mut Registry) -> Self {
        let tokens = "Tokens of calls; cached_input and cache_write are in input, and reasoning is in output";
        let first_byte = "Time from the sending of a call to the head of its answer";
        Self {
            ended: add(r, "llm_calls", "Calls of models that have ended, by result", Family::default()),
            tokens: add(r, "llm_tokens", tokens, Family::default()),
            cost: add(r, "llm_cost_nanousd", "Cost of calls as their answers state it", Family::default()),
            models: LabelValues::default(),
            results: LabelValues::default(),
            first_byte: add_seconds(r, "llm_first_byte", first_byte, histogram(&SHORT)),
            refusals: add(r, "refusals", "Requests of sandboxes that sidecars have refused", Family::default()),
            reasons: LabelValues::default(),
        }
    }
}

impl StateMetrics {
    fn new(r: &mut Registry) -> Self {
        let (zero, open_age) = (Seconds::default, "Time since the first call whose cost is not known yet");
        let streams = "Open streams: events, output, downloads and programs";
        Self {
            runs: add(r, "runs", "Runs of the daemon in each state", Family::default()),
            queue_age: add_seconds(r, "queue_age", "Time for which the first run waits that could begin", zero()),
            open_receipts: add(r, "receipts_open", "Receipts whose cost is not known yet", Gauge::default()),
            open_receipt_age: add_seconds(r, "receipts_open_age", open_age, zero()),
            sse_clients: add(r, "sse_clients", streams, Gauge::default()),
            event_lag: add_seconds(r, "event_lag", "Age of the first event that is not counted yet", zero()),
            held_calls: add(r, "held_calls", "Calls that wait for a person", Gauge::default()),
        }
    }

    fn set(&self, gauges: &Gauges) {
        for (state, count) in &gauges.runs {
            self.runs.get_or_create(&[("state", (*state).to_owned())]).set(count.cast_signed());
        }
        self.queue_age.set(gauges.queue_age);
        self.open_receipts.set(gauges.open_receipts.cast_signed());
        self.open_receipt_age.set(gauges.open_receipt_age);
        self.sse_clients.set(i64::try_from(gauges.sse_clients).unwrap_or(i64::MAX));
        self.event_lag.set(gauges.event_lag);
        self.held_calls.set(gauges.held_calls.cast_signed());
    }
}

impl Instruments {
    /// Returns metrics of a daemon of this version, with counters of 0.
    pub(super) fn new(version: &'static str) -> Self {
        let mut registry = Registry::with_prefix("sluice");
        registry.register("build", "Version of the daemon", Info::new([("version", version)]));
        let audit = "Lines of audit logs that could not be written or read, and runs that failed by them";
        let implausible = "Calls whose answers stated a cost that cannot be true";
        let wait = "Time from the request for an approval, or from the first call that waited for it, to its decision";
        let approval_wait = Family::new_with_constructor((|| histogram(&LONG)) as fn() -> Histogram);
        let findings = "Findings of the daemon's looks at the spend log, by class; an open receipt counts in each look";
        Self {
            runs: RunMetrics::new(&mut registry),
            calls: CallMetrics::new(&mut registry),
            state: StateMetrics::new(&mut registry),
            approval_wait: add_seconds(&mut registry, "approval_wait", wait, approval_wait),
            audit_errors: add(&mut registry, "audit_errors", audit, Counter::default()),
            implausible_costs: add(&mut registry, "implausible_costs", implausible, Counter::default()),
            findings: add(&mut registry, "reconcile_findings", findings, Family::default()),
            spans: add(&mut registry, "otel_spans", "Spans for targets of OpenTelemetry, by result", Family::default()),
            registry,
        }
    }

    /// Counts a measurement.
    pub(super) fn count(&mut self, measurement: &Measurement) {
        match measurement {
            Measurement::Claimed { waited } => self.runs.queue_wait.observe(*waited),
            Measurement::Ended { outcome, failure_code, took } => {
                let code = self.runs.failure_codes.of(failure_code.as_deref());
                let labels = [("outcome", outcome.clone()), ("failure_code", code)];
                self.runs.ends.get_or_create(&labels).inc();
                took.iter().for_each(|took| self.runs.duration.observe(*took));
                if failure_code.as_deref() == Some("audit_failed") {
                    self.count_audit_error();
                }
            }
            Measurement::Decided { decision, waited } => {
                self.approval_wait.get_or_create(&[("decision", (*decision).to_owned())]).observe(*waited);
            }
            Measurement::ImplausibleCost => {
                self.implausible_costs.inc();
            }
            Measurement::Called(called) => self.calls.count(called),
        }
    }

    /// Counts a request that a sidecar has refused.
    pub(super) fn count_refusal(&mut self, reason: &str) {
        let reason = self.calls.reasons.of(Some(reason));
        self.calls.refusals.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts findings of a reconciliation.
    pub(super) fn count_findings(&mut self, class: &'static str, number: u64) {
        self.findings.get_or_create(&[("class", class.to_owned())]).inc_by(number);
    }

    /// Counts spans of a target of OpenTelemetry.
    pub(super) fn count_spans(&mut self, target: &str, result: &'static str, number: u64) {
        let labels = [("target", target.to_owned()), ("result", result.to_owned())];
        self.spans.get_or_create(&labels).inc_by(number);
    }

    /// Counts an error of an audit log.
    pub(super) fn count_audit_error(&mut self) {
        self.audit_errors.inc();
    }

    /// Records the seconds until a sidecar was ready.
    pub(super) fn record_sidecar_ready(&mut self, seconds: f64) {
        self.runs.sidecar_ready.observe(seconds);
    }

    /// Returns all metrics as text.
    ///
    /// # Errors
    /// Never: the text grows in memory.
    pub(super) fn text(&mut self, gauges: &Gauges) -> Result<String, fmt::Error> {
        self.state.set(gauges);
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}

impl CallMetrics {
    fn count(&mut self, called: &Called) {
        let model = self.models.of(called.model.as_deref());
        let result = self.results.of(Some(called.result.as_deref().unwrap_or("lost")));
        self.ended.get_or_create(&[("model", model.clone()), ("result", result)]).inc();
        let usage = &called.usage;
        for (kind, tokens) in [
            ("input", usage.input),
            ("cached_input", usage.cached_input),
            ("cache_write", usage.cache_write),
            ("output", usage.output),
            ("reasoning", usage.reasoning),
        ] {
            if let Some(tokens) = tokens {
                let labels = [("model", model.clone()), ("kind", kind.to_owned())];
                self.tokens.get_or_create(&labels).inc_by(tokens);
            }
        }
        if called.nano_usd > 0 {
            self.cost.get_or_create(&[("model", model)]).inc_by(called.nano_usd);
        }
        called.first_byte.iter().for_each(|seconds| self.first_byte.observe(*seconds));
    }
}

#[cfg(test)]
mod tests;
