//! What a run came to, as data and in five lines.

use std::collections::BTreeMap;

use serde::Serialize;
use sluice_contract::RunKey;
use sluice_contract::exhausted::Exhausted;
use sluice_contract::record::Usage;
use sluice_contract::text::sanitize;
use sluice_state::ledger::ReceiptStatus;
use sluice_state::receipt::{Receipt, RunTotals};

use crate::output::Captured;
use crate::scene::Timings;
use crate::verdict::Judgement;

/// The one object of `sluice run --json`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Whether there is no error.
    pub ok: bool,
    /// The run.
    pub run_id: String,
    /// Which start of it.
    pub attempt: u32,
    /// The answer.
    pub content: String,
    /// What the program wrote, as far as it was kept.
    pub stdout: String,
    /// The same of stderr.
    pub stderr: String,
    /// What `sluice run` ends with.
    pub exit_code: i32,
    /// One stable word; null when ok.
    pub error_code: Option<&'static str>,
    /// What happened and what to do; null when ok.
    pub error_message: Option<String>,
    /// Whether stdout or stderr was longer than is kept.
    pub output_truncated: bool,
    /// Lengths and digests of all that was written.
    pub output: OutputStreams,
    /// Whether the kernel killed something for want of memory, be it a child.
    pub oom_seen: bool,
    /// Whether all of its memory was used at the end, and it read the same pages again and again.
    pub short_of_memory: bool,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Dollars that are known; null when none are.
    pub cost_usd: Option<String>,
    /// Requests that were not forwarded.
    pub refused: u64,
    /// How many of them each reason has.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// The budgets at LiteLLM that refused calls.
    pub litellm_budgets: Vec<Exhausted>,
    /// One for each call.
    pub receipts: Vec<Receipt>,
    /// The audit file.
    pub audit: AuditReport,
    /// Milliseconds.
    pub timings: Timings,
}

/// Both streams.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[allow(missing_docs, reason = "named like them")]
pub struct OutputStreams {
    pub stdout: OutputStream,
    pub stderr: OutputStream,
}

/// One stream, whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OutputStream {
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256, in hex.
    pub sha256: String,
    /// Whether some of it is not in the result.
    pub truncated: bool,
}

/// The audit file of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuditReport {
    /// Where it is.
    pub file: String,
    /// Its lines.
    pub lines: u64,
    /// Whether it is closed, and every call in it has its outcome.
    pub complete: bool,
}

/// All that goes into a report.
#[derive(Debug)]
#[allow(missing_docs, reason = "named like their types")]
pub struct ReportParts<'a> {
    pub key: &'a RunKey,
    pub judgement: Judgement,
    pub oom_seen: bool,
    pub short_of_memory: bool,
    pub written: (Captured, Captured),
    pub tally: RunTotals,
    pub audit_file: String,
    pub timings: Timings,
}

impl Report {
    /// Puts it together.
    #[must_use]
    pub fn new(parts: ReportParts<'_>) -> Self {
        let ReportParts { key, judgement, oom_seen, short_of_memory, written: (out, err), tally, audit_file, timings } =
            parts;
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
            usage: tally.usage,
            cost_usd: tally.cost_usd,
            refused: tally.refused,
            refused_by_reason: tally.refused_by_reason,
            litellm_budgets: tally.litellm_budgets,
            receipts: tally.receipts,
            audit: AuditReport {
                file: audit_file,
                lines: tally.lines,
                complete: tally.fault.is_none() && tally.lines > 0,
            },
            timings,
        }
    }

    /// Five lines for people.
    #[must_use]
    pub fn receipt(&self) -> String {
        let count = |status: ReceiptStatus| self.receipts.iter().filter(|receipt| receipt.status == status).count();
        let tokens = |count: Option<u64>| count.map_or("-".to_owned(), |count| count.to_string());
        let state = match (self.audit.lines, self.audit.complete) {
            (0, _) => "not written: the run did not start",
            (_, true) => "complete",
            (_, false) => "INCOMPLETE",
        };
        let cost = match (&self.cost_usd, count(ReceiptStatus::PendingCost) + count(ReceiptStatus::Unknown)) {
            (None, 0) => "none".to_owned(),
            (Some(cost), 0) => format!("${cost}"),
            (None, open) => format!("not known yet, of {open} of {} calls", self.receipts.len()),
            (Some(cost), open) => format!("${cost}, and not known yet of {open} of {} calls", self.receipts.len()),
        };
        let how = self.error_code.map_or("ok".to_owned(), |code| format!("{code}, exit code {}", self.exit_code));
        format!(
            "run     {}.{}  {how}\n\
             time    {}\n\
             calls   {} ({}), {} tokens in{}, {} out\n\
             cost    {cost}\n\
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

/// How much of the input a prompt cache had: ` (400 cached)`.
fn cached(usage: Usage) -> String {
    usage.cached_input.filter(|tokens| *tokens > 0).map_or_else(String::new, |tokens| format!(" ({tokens} cached)"))
}

/// `3 refused: tool_not_allowed ×2, model_not_allowed`, the most frequent reason first.
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
    fn input_says_how_much_of_it_a_cache_had() {
        let with = |cached_input| cached(Usage { cached_input, ..Usage::default() });
        assert_eq!([with(None), with(Some(0)), with(Some(400))], ["", "", " (400 cached)"]);
    }

    #[test]
    fn refusals_are_told_by_reason() {
        for (refused, reasons, expected) in [
            (0, &[][..], "0 refused"),
            (1, &[("budget_exceeded", 1)], "1 refused: budget_exceeded"),
            (
                4,
                &[("model_not_allowed", 1), ("route_not_allowed", 1), ("tool_not_allowed", 2)],
                "4 refused: tool_not_allowed ×2, model_not_allowed, route_not_allowed",
            ),
            // A sidecar writes 10,000 lines, and counts the rest.
            (10_007, &[("rate_limited", 10_000)], "10007 refused: rate_limited ×10000"),
        ] {
            let reasons = reasons.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect();
            assert_eq!(refusals(refused, &reasons), expected);
        }
    }
}
