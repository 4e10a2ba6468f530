//! The report of a run: as one JSON object, and in five lines.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sluice_contract::RunKey;
use sluice_contract::exhausted::Exhausted;
use sluice_contract::record::Usage;
use sluice_contract::text::sanitize;
use sluice_state::over_cap::OverCap;
use sluice_state::receipt::{Receipt, RunTotals};

use crate::capture::{Capture, Captured};
use crate::exchange::ExchangeReport;
use crate::timings::Timings;
use crate::verdict::{ErrorCode, Judgement};

/// The one object of `sluice run --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunReport {
    /// True without an error.
    pub ok: bool,
    /// Run.
    pub run_id: String,
    /// Attempt.
    pub attempt: u32,
    /// Answer of the program.
    pub content: String,
    /// Captured stdout.
    pub stdout: String,
    /// Captured stderr.
    pub stderr: String,
    /// Exit code of `sluice run`.
    pub exit_code: i32,
    /// A stable word; null when ok.
    pub error_code: Option<&'static str>,
    /// Error message with advice; null when ok.
    pub error_message: Option<String>,
    /// True if stdout or stderr was longer than the captured part.
    pub output_truncated: bool,
    /// Lengths and digests of the whole output.
    pub output: OutputStreams,
    /// True if the kernel killed a process of the run for lack of memory, including child processes. The engine reports it,
    /// and on a busy machine misses some that are killed just before the container ends.
    pub oom_seen: bool,
    /// True if all memory was used at the end, and evicted pages were read again and again.
    pub short_of_memory: bool,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Known cost in dollars; null when no cost is known.
    pub cost_usd: Option<String>,
    /// Number of requests that were not forwarded.
    pub refused: u64,
    /// Number of refused requests per reason.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// Budgets at LiteLLM that refused calls.
    pub litellm_budgets: Vec<Exhausted>,
    /// Caps that the run went over.
    pub over_caps: Vec<OverCap>,
    /// One receipt per call.
    pub receipts: Vec<Receipt>,
    /// Files that came out of the run.
    #[serde(flatten)]
    pub exchange: ExchangeReport,
    /// Audit file.
    pub audit: AuditFileSummary,
    /// Durations in milliseconds.
    pub timings: Timings,
}

/// Lengths and digests of both streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like them")]
pub struct OutputStreams {
    pub stdout: OutputStream,
    pub stderr: OutputStream,
}

/// Length and digest of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputStream {
    /// Length.
    pub bytes: u64,
    /// SHA-256 in hex.
    pub sha256: String,
    /// True if the report lacks a part of the stream.
    pub truncated: bool,
}

/// Summary of a run's audit file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditFileSummary {
    /// Path.
    pub file: String,
    /// Number of lines.
    pub lines: u64,
    /// True if it is closed, and every call in it has its outcome.
    pub complete: bool,
}

/// Parts of a report.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct ReportParts<'a> {
    pub key: &'a RunKey,
    pub judgement: Judgement,
    pub oom_seen: bool,
    pub short_of_memory: bool,
    pub output: (Captured, Captured),
    pub totals: RunTotals,
    pub exchange: ExchangeReport,
    pub audit_file: String,
    pub timings: Timings,
}

impl RunReport {
    /// Assembles a report.
    #[must_use]
    pub fn new(parts: ReportParts<'_>) -> Self {
        let ReportParts { key, judgement, oom_seen, short_of_memory, output: (out, err), totals, exchange, .. } = parts;
        let (audit_file, timings) = (parts.audit_file, parts.timings);
        let (error_code, error_message) = judgement.error.map(|(code, message)| (code.as_str(), message)).unzip();
        Self {
            ok: error_code.is_none(),
            run_id: key.run_id.to_string(),
            attempt: key.attempt,
            content: judgement.content,
            stdout: out.text(),
            stderr: err.text(),
            exit_code: judgement.exit_code,
            error_code,
            error_message,
            output_truncated: out.left_out() > 0 || err.left_out() > 0,
            output: OutputStreams { stdout: stream(out), stderr: stream(err) },
            oom_seen,
            short_of_memory,
            usage: totals.usage,
            cost_usd: totals.cost_usd,
            refused: totals.refused,
            refused_by_reason: totals.refused_by_reason,
            litellm_budgets: totals.litellm_budgets,
            over_caps: totals.over_caps,
            receipts: totals.receipts,
            exchange,
            audit: AuditFileSummary {
                file: audit_file,
                lines: totals.lines,
                complete: totals.fault.is_none() && totals.lines > 0,
            },
            timings,
        }
    }

    /// Makes the report of a run that did not start, with an empty run id.
    #[must_use]
    pub fn not_started(code: ErrorCode, message: String, exit_code: i32) -> Self {
        let nothing = || Capture::new(0).finish();
        Self {
            ok: false,
            run_id: String::new(),
            attempt: 0,
            content: String::new(),
            stdout: String::new(),
            stderr: String::new(),
            exit_code,
            error_code: Some(code.as_str()),
            error_message: Some(message),
            output_truncated: false,
            output: OutputStreams { stdout: stream(nothing()), stderr: stream(nothing()) },
            oom_seen: false,
            short_of_memory: false,
            usage: Usage::default(),
            cost_usd: None,
            refused: 0,
            refused_by_reason: BTreeMap::new(),
            litellm_budgets: Vec::new(),
            over_caps: Vec::new(),
            receipts: Vec::new(),
            exchange: ExchangeReport::default(),
            audit: AuditFileSummary { file: String::new(), lines: 0, complete: false },
            timings: Timings::default(),
        }
    }

    /// Formats the receipt: five lines for people, and one for each cap that the run went over.
    #[must_use]
    pub fn receipt(&self) -> String {
        let open = self.receipts.iter().filter(|receipt| receipt.could_be_billed).count();
        let tokens = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let state = match (self.audit.lines, self.audit.complete) {
            (0, _) => "not written: the run did not start",
            (_, true) => "complete",
            (_, false) => "INCOMPLETE",
        };
        let cost = match (&self.cost_usd, open) {
            (None, 0) => "none".to_owned(),
            (Some(cost), 0) => format!("${cost}"),
            (None, open) => format!("not known yet, of {open} of {} calls", self.receipts.len()),
            (Some(cost), open) => format!("${cost}, and not known yet of {open} of {} calls", self.receipts.len()),
        };
        let how = match self.error_code {
            Some(code) => format!("{code}, exit code {}", self.exit_code),
            None if self.over_caps.is_empty() => "ok".to_owned(),
            None => "ok, and over its cap".to_owned(),
        };
        let over: String = self.over_caps.iter().map(|over| format!("over    {over}\n")).collect();
        format!(
            "run     {}.{}  {how}\n\
             time    {}\n\
             calls   {} ({}), {} tokens in{}, {} out\n\
             cost    {cost}\n\
             {over}\
             audit   {}  {} lines, {state}\n",
            self.run_id,
            self.attempt,
            self.times(),
            self.receipts.len(),
            refusals(self.refused, &self.refused_by_reason),
            tokens(self.usage.input),
            cached(self.usage),
            tokens(self.usage.output),
            self.audit.file,
            self.audit.lines,
        )
    }

    fn times(&self) -> String {
        let part = |name: &str, ms: Option<f64>| ms.map(|ms| format!("{name} {ms:.0} ms"));
        let times = self.timings;
        let parts: Vec<_> = [
            part("sidecar", times.sidecar_ready),
            part("create", times.container_create),
            part("start", times.container_start),
            part("run", times.run),
            part("teardown", times.teardown),
        ]
        .into_iter()
        .flatten()
        .collect();
        if parts.is_empty() { "it never started".to_owned() } else { parts.join(", ") }
    }
}

/// Formats the cached part of the input: ` (400 cached)`.
fn cached(usage: Usage) -> String {
    usage.cached_input.filter(|tokens| *tokens > 0).map_or_else(String::new, |tokens| format!(" ({tokens} cached)"))
}

/// Formats refusals, the most frequent reason first: `3 refused: tool_not_allowed ×2, model_not_allowed`.
fn refusals(refused: u64, by_reason: &BTreeMap<String, u64>) -> String {
    let mut reasons: Vec<_> = by_reason.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let named: Vec<_> = reasons
        .into_iter()
        .map(|(reason, count)| match count {
            1 => sanitize(reason),
            count => format!("{} ×{count}", sanitize(reason)),
        })
        .collect();
    if named.is_empty() { format!("{refused} refused") } else { format!("{refused} refused: {}", named.join(", ")) }
}

fn stream(captured: Captured) -> OutputStream {
    OutputStream { bytes: captured.bytes, truncated: captured.left_out() > 0, sha256: captured.sha256 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_input_is_named() {
        let with = |cached_input| cached(Usage { cached_input, ..Usage::default() });
        assert_eq!([with(None), with(Some(0)), with(Some(400))], ["", "", " (400 cached)"]);
    }

    #[test]
    fn refusals_are_listed_by_reason() {
        for (refused, reasons, expected) in [
            (0, &[][..], "0 refused"),
            (1, &[("budget_exceeded", 1)], "1 refused: budget_exceeded"),
            (
                4,
                &[("model_not_allowed", 1), ("route_not_allowed", 1), ("tool_not_allowed", 2)],
                "4 refused: tool_not_allowed ×2, model_not_allowed, route_not_allowed",
            ),
            // A sidecar writes 10,000 lines, and only counts the rest.
            (10_007, &[("rate_limited", 10_000)], "10007 refused: rate_limited ×10000"),
        ] {
            let reasons = reasons.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
            assert_eq!(refusals(refused, &reasons), expected);
        }
    }
}
