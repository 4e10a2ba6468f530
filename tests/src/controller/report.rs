//! The one object of `sluice run --json`, as its users know it: a member more or less fails the test that reads it.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The report of a run.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct RunReport {
    pub ok: bool,
    pub run_id: String,
    pub attempt: u32,
    pub content: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    #[serde(deserialize_with = "required")]
    pub error_code: Option<String>,
    #[serde(deserialize_with = "required")]
    pub error_message: Option<String>,
    pub output_truncated: bool,
    pub output: ReportStreams,
    pub oom_seen: bool,
    pub short_of_memory: bool,
    pub usage: ReportUsage,
    #[serde(deserialize_with = "required")]
    pub cost_usd: Option<String>,
    pub refused: u64,
    pub refused_by_reason: BTreeMap<String, u64>,
    pub litellm_budgets: Vec<serde_json::Value>,
    pub over_caps: Vec<serde_json::Value>,
    pub receipts: Vec<ReportReceipt>,
    pub repo: Option<serde_json::Value>,
    pub git: Option<serde_json::Value>,
    pub patch: Option<serde_json::Value>,
    pub out: Option<serde_json::Value>,
    pub workspace: Option<String>,
    pub audit: ReportAudit,
    pub timings: ReportTimings,
}

/// Both streams.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct ReportStreams {
    pub stdout: ReportStream,
    pub stderr: ReportStream,
}

/// One stream.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct ReportStream {
    pub bytes: u64,
    pub sha256: String,
    pub truncated: bool,
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct ReportUsage {
    #[serde(deserialize_with = "required")]
    pub input: Option<u64>,
    #[serde(deserialize_with = "required")]
    pub output: Option<u64>,
    #[serde(deserialize_with = "required")]
    pub total: Option<u64>,
    #[serde(deserialize_with = "required")]
    pub cached_input: Option<u64>,
    #[serde(deserialize_with = "required")]
    pub cache_write: Option<u64>,
    #[serde(deserialize_with = "required")]
    pub reasoning: Option<u64>,
}

/// The bill of one call.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct ReportReceipt {
    pub source_reference: String,
    pub call_id: String,
    #[serde(deserialize_with = "required")]
    pub litellm_call_id: Option<String>,
    pub status: String,
    #[serde(deserialize_with = "required")]
    pub result: Option<String>,
    #[serde(deserialize_with = "required")]
    pub model: Option<String>,
    #[serde(deserialize_with = "required")]
    pub model_served: Option<String>,
    #[serde(deserialize_with = "required")]
    pub usage: Option<ReportUsage>,
    #[serde(deserialize_with = "required")]
    pub cost_usd: Option<String>,
    #[serde(deserialize_with = "required")]
    pub null_reason: Option<String>,
}

/// The audit file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct ReportAudit {
    pub file: String,
    pub lines: u64,
    pub complete: bool,
}

/// Times of the phases in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs, reason = "named like the members")]
pub struct ReportTimings {
    #[serde(deserialize_with = "required")]
    pub sidecar_ready: Option<f64>,
    #[serde(deserialize_with = "required")]
    pub container_create: Option<f64>,
    #[serde(deserialize_with = "required")]
    pub container_start: Option<f64>,
    #[serde(deserialize_with = "required")]
    pub run: Option<f64>,
    #[serde(deserialize_with = "required")]
    pub teardown: Option<f64>,
}

impl RunReport {
    /// Returns the values that most tests compare: ok, the error code, the exit code.
    pub fn verdict(&self) -> (bool, Option<&str>, i32) {
        (self.ok, self.error_code.as_deref(), self.exit_code)
    }

    /// The error message; panics when the run was ok.
    #[track_caller]
    pub fn message(&self) -> &str {
        self.error_message.as_deref().unwrap_or_else(|| panic!("the run was ok: {self:?}"))
    }

    /// Returns the only receipt.
    #[track_caller]
    pub fn only_receipt(&self) -> &ReportReceipt {
        assert_eq!(self.receipts.len(), 1, "receipts: {:?}", self.receipts);
        &self.receipts[0]
    }
}

/// Reads a member that may be null, and must not be left out.
fn required<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Deserialize<'de>,
{
    Option::deserialize(deserializer)
}
