//! Rows that cannot be read.
//!
//! Pure.

use std::fmt;

use serde::Deserialize;
use serde_json::value::RawValue;
use sluice_contract::{Hash, RunKey};

use super::row_names::RowNames;
use super::{NAME_MAX, RowFault, shown, sluice_metadata, string, time};

/// A row of the account that cannot be read, with the names that can be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnreadableRow {
    /// Name of the row, if it has one.
    pub request_id: Option<String>,
    /// The sidecar's id of the call.
    pub sluice_call_id: Option<String>,
    /// Run that made the call, according to the row.
    pub run: Option<RunKey>,
    /// LiteLLM's id of the call.
    pub litellm_call_id: Option<String>,
    /// Account whose rows were requested.
    pub account: String,
    /// Set if the call failed.
    pub is_failure: bool,
    /// Start of the call in microseconds since 1970, by LiteLLM's clock.
    pub start_us: Option<i64>,
    /// Reason why the row cannot be read.
    pub why: RowFault,
    /// Hash of the text of the row.
    hash: Hash,
}

/// The members of a row that name its call, of any type.
#[derive(Deserialize, Default)]
struct NamingMembers<'a> {
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    litellm_call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow, rename = "startTime")]
    start: Option<&'a RawValue>,
}

impl UnreadableRow {
    /// Returns the row with this text, which cannot be read for this reason.
    pub(super) fn of(text: &str, account: &str, why: RowFault) -> Self {
        let raw: NamingMembers<'_> = serde_json::from_str(text).unwrap_or_default();
        let sluice = sluice_metadata(raw.metadata);
        let name = |name: Option<String>| name.filter(|name| !name.is_empty() && name.len() <= NAME_MAX);
        Self {
            request_id: name(string(raw.request_id)),
            run: sluice.run(),
            sluice_call_id: name(sluice.sluice_call_id),
            litellm_call_id: name(string(raw.litellm_call_id)),
            account: account.to_owned(),
            is_failure: string(raw.status).as_deref() == Some("failure"),
            start_us: string(raw.start).and_then(|start| time("startTime", &start).ok()),
            why,
            hash: Hash::of(text.as_bytes()),
        }
    }

    /// Returns the names of the call that the row bills.
    #[must_use]
    pub fn names(&self) -> RowNames<'_> {
        RowNames {
            request_id: self.request_id.as_deref().unwrap_or_default(),
            sluice_call_id: self.sluice_call_id.as_deref(),
            litellm_call_id: self.litellm_call_id.as_deref(),
            is_failure: self.is_failure,
        }
    }

    /// Returns the name of the row, or its hash if it has none, so that a row that is read twice counts once.
    pub(in super::super) fn key(&self) -> String {
        self.request_id.clone().unwrap_or_else(|| self.hash.to_string())
    }
}

impl fmt::Display for UnreadableRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.request_id.as_deref().map_or_else(|| "without a name".to_owned(), shown);
        write!(f, "row {id} of the spend log cannot be read: {}", self.why)
    }
}
