//! Metrics of calls, named by the conventions for generative AI.
//!
//! Pure. All values are sums since the start of the exporter. Models come from sandboxes, so the number of series is
//! bounded.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::otlp::{attributes, nanos};
use super::spans::EndedCall;
use super::target::Semconv;

/// Maximum number of series of one metric; further models are `other`.
const SERIES_MAX: usize = 200;
/// Bucket bounds in seconds, as the conventions advise.
const SECONDS: [f64; 14] = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
/// Bucket bounds in tokens, as the conventions 1.41 advise.
const TOKENS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0,
    67_108_864.0,
];
/// Temporality of OTLP for sums since the start, instead of sums since the last request.
const CUMULATIVE: i32 = 2;

/// Names of the counters of tokens, in the order of [`Series::tokens`].
const COUNTERS: [&str; 5] = [
    "gen_ai.client.inference.usage.input_tokens",
    "gen_ai.client.inference.usage.output_tokens",
    "gen_ai.client.inference.usage.cache_read.input_tokens",
    "gen_ai.client.inference.usage.cache_write.input_tokens",
    "gen_ai.client.inference.usage.reasoning.output_tokens",
];

/// Metrics of all calls.
#[derive(Debug)]
pub(super) struct Meters {
    semconv: Semconv,
    start_us: i64,
    series: BTreeMap<Labels, Series>,
    is_changed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Labels {
    operation: &'static str,
    provider: &'static str,
    model: String,
    error: Option<String>,
}

#[derive(Debug)]
struct Series {
    duration: Histogram,
    first_chunk: Histogram,
    input: Histogram,
    output: Histogram,
    tokens: [u64; 5],
    cost: f64,
}

#[derive(Debug)]
struct Histogram {
    bounds: &'static [f64],
    counts: Vec<u64>,
    sum: f64,
}

impl Meters {
    /// Starts with sums of 0.
    pub(super) fn new(semconv: Semconv, start_us: i64) -> Self {
        Self { semconv, start_us, series: BTreeMap::new(), is_changed: false }
    }

    /// Counts a call.
    pub(super) fn count(&mut self, call: &EndedCall) {
        let labels = Labels {
            operation: call.operation,
            provider: call.provider,
            model: call.model.clone().unwrap_or_default(),
            error: call.error.clone(),
        };
        let is_known = self.series.contains_key(&labels) || self.series.len() < SERIES_MAX;
        let labels = if is_known { labels } else { Labels { model: "other".to_owned(), error: None, ..labels } };
        let series = self.series.entry(labels).or_default();
        series.duration.record(call.end_us.saturating_sub(call.start_us).max(0) as f64 / 1e6);
        if let Some(first) = call.first_chunk_us.filter(|_| call.is_stream) {
            series.first_chunk.record(first as f64 / 1e6);
        }
        let usage = &call.usage;
        let tokens = [usage.input, usage.output, usage.cached_input, usage.cache_write, usage.reasoning];
        series.tokens.iter_mut().zip(tokens).for_each(|(sum, tokens)| *sum += tokens.unwrap_or(0));
        usage.input.iter().for_each(|tokens| series.input.record(*tokens as f64));
        usage.output.iter().for_each(|tokens| series.output.record(*tokens as f64));
        series.cost += call.cost.unwrap_or(0.0);
        self.is_changed = true;
    }

    /// Returns whether a call was counted since the metrics were last sent.
    pub(super) fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Notes that the metrics were sent.
    pub(super) fn sent(&mut self) {
        self.is_changed = false;
    }

    /// Returns all metrics.
    pub(super) fn to_json(&self, now_us: i64) -> Vec<Value> {
        let prefix = match self.semconv {
            Semconv::Current => "gen_ai.client.inference",
            Semconv::V1_41 => "gen_ai.client.operation",
        };
        let times = json!({ "startTimeUnixNano": nanos(self.start_us), "timeUnixNano": nanos(now_us) });
        let histogram = |name: &str, unit, of: fn(&Series) -> &Histogram| {
            let points = self.series.iter().filter_map(|(labels, series)| of(series).point(labels, &times, None));
            json!({ "name": name, "unit": unit, "histogram": { "aggregationTemporality": CUMULATIVE,
                "dataPoints": points.collect::<Vec<_>>() } })
        };
        let mut metrics = vec![
            histogram(&format!("{prefix}.duration"), "s", |series| &series.duration),
            histogram(&format!("{prefix}.time_to_first_chunk"), "s", |series| &series.first_chunk),
            self.sum("sluice.cost.usd", "{USD}", &times, |series| json!({ "asDouble": series.cost })),
        ];
        match self.semconv {
            Semconv::Current => metrics.extend(COUNTERS.iter().enumerate().map(|(at, name)| {
                self.sum(name, "{token}", &times, |series| json!({ "asInt": series.tokens[at].to_string() }))
            })),
            Semconv::V1_41 => metrics.push(self.token_usage(&times)),
        }
        metrics
    }

    fn sum(&self, name: &str, unit: &str, times: &Value, value: impl Fn(&Series) -> Value) -> Value {
        let points = self.series.iter().map(|(labels, series)| {
            let mut point = value(series);
            merge(&mut point, times);
            point["attributes"] = labels.to_json(None).into();
            point
        });
        json!({ "name": name, "unit": unit, "sum": { "aggregationTemporality": CUMULATIVE, "isMonotonic": true,
            "dataPoints": points.collect::<Vec<_>>() } })
    }

    /// Returns the histogram of tokens that later conventions do not have.
    fn token_usage(&self, times: &Value) -> Value {
        let points = self.series.iter().flat_map(|(labels, series)| {
            let both = [("input", &series.input), ("output", &series.output)];
            both.map(|(kind, histogram)| histogram.point(labels, times, Some(kind)))
        });
        json!({ "name": "gen_ai.client.token.usage", "unit": "{token}", "histogram": {
            "aggregationTemporality": CUMULATIVE, "dataPoints": points.flatten().collect::<Vec<_>>() } })
    }
}

impl Labels {
    fn to_json(&self, token_type: Option<&str>) -> Vec<Value> {
        let all = [
            ("gen_ai.operation.name", Some(json!(self.operation))),
            ("gen_ai.provider.name", Some(json!(self.provider))),
            ("gen_ai.request.model", (!self.model.is_empty()).then(|| json!(self.model))),
            ("error.type", self.error.as_ref().map(|error| json!(error))),
            ("gen_ai.token.type", token_type.map(|kind| json!(kind))),
        ];
        attributes(all.iter().filter_map(|(name, value)| Some((*name, value.as_ref()?))))
    }
}

impl Default for Series {
    fn default() -> Self {
        let (seconds, tokens) = (|| Histogram::new(&SECONDS), || Histogram::new(&TOKENS));
        Self {
            duration: seconds(),
            first_chunk: seconds(),
            input: tokens(),
            output: tokens(),
            tokens: [0; 5],
            cost: 0.0,
        }
    }
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    fn record(&mut self, value: f64) {
        // Bounds are inclusive.
        let at = self.bounds.partition_point(|bound| *bound < value);
        self.counts[at] += 1;
        self.sum += value;
    }

    /// Returns the data point; none without a value.
    fn point(&self, labels: &Labels, times: &Value, token_type: Option<&str>) -> Option<Value> {
        let count: u64 = self.counts.iter().sum();
        let mut point = json!({
            "attributes": labels.to_json(token_type),
            "count": count.to_string(),
            "sum": self.sum,
            "bucketCounts": self.counts.iter().map(u64::to_string).collect::<Vec<_>>(),
            "explicitBounds": self.bounds,
        });
        merge(&mut point, times);
        (count > 0).then_some(point)
    }
}

fn merge(point: &mut Value, times: &Value) {
    for (name, value) in times.as_object().into_iter().flatten() {
        point[name] = value.clone();
    }
}
