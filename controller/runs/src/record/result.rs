//! The recorded result of a run.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sluice_contract::record::Usage;
use sluice_state::ledger::ReceiptStatus;

use super::SCHEMA;
use crate::exchange::PatchReport;
use crate::report::{AuditFileSummary, OutputStreams, RunReport};
use crate::timings::Timings;

/// Result of a run, without its output and its receipts, which are elsewhere.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultRecord {
    /// Version of the members.
    pub schema: u32,
    /// Time of the end (RFC 3339).
    pub time: String,
    /// True without an error.
    pub ok: bool,
    /// Exit code of `sluice run`.
    pub exit_code: i32,
    /// A stable word; null when ok.
    pub error_code: Option<String>,
    /// Error message with advice; null when ok.
    pub error_message: Option<String>,
    /// Number of calls.
    pub calls: u64,
    /// Number of calls of unknown cost.
    pub unknown_costs: u64,
    /// Number of requests that were not forwarded.
    pub refused: u64,
    /// Number of refused requests per reason.
    pub refused_by_reason: BTreeMap<String, u64>,
    /// Tokens of all calls.
    pub usage: Usage,
    /// Known cost in dollars; null when no cost is known.
    pub cost_usd: Option<String>,
    /// Lengths and digests of the whole output; null if no controller saw it.
    pub output: Option<OutputStreams>,
    /// True if the engine reported that the kernel killed a process of the run for lack of memory.
    pub oom_seen: bool,
    /// True if the program was short of memory at the end.
    pub short_of_memory: bool,
    /// File of `--patch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<PatchReport>,
    /// Audit file.
    pub audit: AuditFileSummary,
    /// Durations in milliseconds.
    pub timings: Timings,
    /// Remarks for people.
    pub notes: Vec<String>,
}

impl ResultRecord {
    /// Returns the result of a reported run that ended now.
    #[must_use]
    pub fn of(report: &RunReport, notes: &[String]) -> Self {
        let is_unknown = |status| matches!(status, ReceiptStatus::PendingCost | ReceiptStatus::Unknown);
        Self {
            schema: SCHEMA,
            time: humantime::format_rfc3339_millis(SystemTime::now()).to_string(),
            ok: report.ok,
            exit_code: report.exit_code,
            error_code: report.error_code.map(str::to_owned),
            error_message: report.error_message.clone(),
            calls: report.receipts.len() as u64,
            unknown_costs: report.receipts.iter().filter(|receipt| is_unknown(receipt.status)).count() as u64,
            refused: report.refused,
            refused_by_reason: report.refused_by_reason.clone(),
            usage: report.usage,
            cost_usd: report.cost_usd.clone(),
            output: Some(report.output.clone()),
            oom_seen: report.oom_seen,
            short_of_memory: report.short_of_memory,
            patch: report.exchange.patch.clone(),
            audit: report.audit.clone(),
            timings: report.timings,
            notes: notes.to_vec(),
        }
    }
}
