//! Identity of a run's caller: the names that the run's calls carry for LiteLLM and its callbacks.
//!
//! Pure. The account pays and is the end user of each call; nothing here changes that. A caller sets a closed list of
//! names, and the daemon adds its own afterwards. LiteLLM reads most of them from headers, which the sidecar makes from
//! the members, so their texts are ASCII and bounded. Names of users and sessions are percent-encoded.

mod trace_parent;

use http::HeaderMap;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sluice_contract::{Hash, RunId, RunKey};
use utoipa::ToSchema;

pub use trace_parent::TraceParent;

/// Maximum number of characters of a text.
const TEXT_MAX: usize = 255;
/// Maximum number of tags.
const TAGS_MAX: usize = 32;
/// Maximum number of bytes of all members as JSON.
const BYTES_MAX: usize = 4096;
/// Maximum number of bytes of the operator's own metadata as JSON in ASCII.
pub const OPERATOR_BYTES_MAX: usize = 2048;
/// Maximum number of bytes of the metadata of a call as JSON in ASCII. The sidecar does not begin with more.
const CALL_BYTES_MAX: usize = 8192;

/// Metadata of a run's calls. LiteLLM and its callbacks get it with each call; it has no effect on who pays.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunMetadata {
    /// User of the caller. It is the user of the trace unless `trace_user_id` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub user_id: Option<String>,
    /// Session of the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub session_id: Option<String>,
    /// Trace of Langfuse that the calls belong to; a trace for the run otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub existing_trace_id: Option<String>,
    /// User of the trace, if it is another one than `user_id`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub trace_user_id: Option<String>,
    /// Tags of the calls; none has a comma.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 32)]
    pub tags: Vec<String>,
    /// True if traces get no input of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_input: Option<bool>,
    /// True if traces get no output of the calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mask_output: Option<bool>,
    /// Id of the caller's request; the header `x-request-id` otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 255)]
    pub request_id: Option<String>,
}

/// A member of the metadata that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}")]
pub struct MetadataFault {
    /// Name of the member.
    pub field: &'static str,
    rule: String,
}

/// Headers with the origin of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestOrigin {
    /// Span of the caller.
    pub traceparent: Option<TraceParent>,
    /// Id of the request.
    pub request_id: Option<String>,
}

/// Names of a run that its calls carry.
#[derive(Debug, Clone, Copy)]
pub struct RunIdentity<'a> {
    /// Run and attempt.
    pub key: &'a RunKey,
    /// Account that pays.
    pub account: &'a str,
    /// Id of the program.
    pub graph_id: &'a str,
    /// Registered agent; none for an agent of this run only.
    pub agent: Option<&'a str>,
    /// Name of the run.
    pub name: Option<&'a str>,
    /// Span of the caller.
    pub traceparent: Option<&'a TraceParent>,
}

impl RequestOrigin {
    /// Reads the headers of a request. A malformed header is left out, as W3C Trace Context demands.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Self {
            traceparent: text("traceparent").and_then(|text| text.parse().ok()),
            request_id: text("x-request-id").filter(|text| is_plain(text)).map(str::to_owned),
        }
    }
}

impl RunMetadata {
    /// Checks all members against their rules.
    ///
    /// # Errors
    /// [`MetadataFault`], with the name of the member.
    pub fn check(&self) -> Result<(), MetadataFault> {
        let texts = [
            ("metadata.user_id", &self.user_id),
            ("metadata.session_id", &self.session_id),
            ("metadata.existing_trace_id", &self.existing_trace_id),
            ("metadata.trace_user_id", &self.trace_user_id),
            ("metadata.request_id", &self.request_id),
        ];
        for (field, text) in texts {
            if text.as_ref().is_some_and(|text| !is_plain(text)) {
                let member = field.trim_start_matches("metadata.");
                let letters = match member {
                    "user_id" | "session_id" | "trace_user_id" => " (others count as their percent-encoding)",
                    _ => "",
                };
                let rule =
                    format!("{member} is 1 to 255 characters of printable ASCII{letters}, without spaces at its ends");
                return Err(MetadataFault { field, rule });
            }
        }
        let fault = |rule: &str| MetadataFault { field: "metadata.tags", rule: rule.to_owned() };
        if self.tags.len() > TAGS_MAX {
            return Err(fault("metadata has at most 32 tags"));
        }
        if self.tags.iter().any(|tag| !is_plain(tag) || tag.contains(',')) {
            return Err(fault(
                "a tag is 1 to 255 characters of printable ASCII, without commas and without spaces at its ends",
            ));
        }
        if json!(self).to_string().len() > BYTES_MAX {
            let rule = "metadata has at most 4096 bytes as JSON; send fewer tags, or shorter texts".to_owned();
            return Err(MetadataFault { field: "metadata", rule });
        }
        Ok(())
    }

    /// Checks that a header has room for the members that each call of a run carries, whatever the operator adds.
    ///
    /// # Errors
    /// [`MetadataFault`] of the metadata as a whole.
    pub fn check_call_size(&self, run: &RunIdentity<'_>) -> Result<(), MetadataFault> {
        let max = CALL_BYTES_MAX - OPERATOR_BYTES_MAX;
        let bytes = ascii_json_bytes(&Value::Object(self.of_calls(run, Map::new())));
        if bytes <= max {
            return Ok(());
        }
        let rule = format!(
            "metadata has {bytes} bytes with the names of the run, and a header has room for {max}; send fewer tags, \
             or shorter texts"
        );
        Err(MetadataFault { field: "metadata", rule })
    }

    /// Returns the metadata with the names of users and sessions in ASCII. In a name with other letters, each byte that
    /// is not printable ASCII is percent-encoded, and so are `%` and spaces.
    #[must_use]
    pub fn in_ascii(mut self) -> Self {
        for text in [&mut self.user_id, &mut self.session_id, &mut self.trace_user_id].into_iter().flatten() {
            // A text with control characters, or with spaces at its ends, stays as it is and is refused later.
            if !text.is_ascii() && !text.contains(char::is_control) && text.trim() == text.as_str() {
                *text = percent_encoded(text);
            }
        }
        self
    }

    /// Returns the metadata with the id of the request that brought it, unless it has one.
    #[must_use]
    pub fn of_request(mut self, origin: &RequestOrigin) -> Self {
        self.request_id = self.request_id.or_else(|| origin.request_id.clone());
        self
    }

    /// Returns whether all members are missing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the user of traces.
    #[must_use]
    pub fn trace_user(&self) -> Option<&str> {
        self.trace_user_id.as_deref().or(self.user_id.as_deref())
    }

    /// Returns the members that each call of a run carries: defaults of the run, then the operator's members, then the
    /// caller's, then the members that neither may set. A later member replaces an earlier one. Tags of the operator
    /// and of the caller are joined.
    #[must_use]
    pub fn of_calls(&self, run: &RunIdentity<'_>, operator: Map<String, Value>) -> Map<String, Value> {
        let mut members = Map::new();
        let mut set = |name: &str, value: Value| drop(members.insert(name.to_owned(), value));
        // A trace that others have begun keeps its name and its metadata.
        if self.existing_trace_id.is_none() {
            set("trace_name", run.trace_name().into());
            set("trace_metadata", self.of_trace(run));
        }
        set("generation_name", run.graph_id.into());
        let operator_tags = tags_of(operator.get("tags"));
        members.extend(operator);
        let Value::Object(mut own) = json!(self) else { return members };
        for mask in ["mask_input", "mask_output"] {
            // LiteLLM reads them from headers, and some versions take the text "false" for true.
            own.remove(mask)
                .filter(|value| value == &Value::Bool(true))
                .map(|value| members.insert(mask.into(), value));
        }
        own.remove("tags");
        members.extend(own);
        let tags = operator_tags.into_iter().chain(self.tags.iter().cloned());
        let tags = tags.fold(Vec::new(), |mut all: Vec<String>, tag| {
            if !all.contains(&tag) {
                all.push(tag);
            }
            all
        });
        members.remove("tags");
        if !tags.is_empty() {
            members.insert("tags".to_owned(), json!(tags));
        }
        if let Some(user) = self.trace_user() {
            members.insert("trace_user_id".to_owned(), user.into());
        }
        members.insert("trace_id".to_owned(), run.trace_id().into());
        members.remove("traceparent");
        if let Some(span) = run.span() {
            members.insert("traceparent".to_owned(), span.to_string().into());
        }
        members.insert("billing_account_id".to_owned(), run.account.into());
        members
    }

    /// Returns the metadata of the run's trace.
    #[must_use]
    pub fn of_trace(&self, run: &RunIdentity<'_>) -> Value {
        let mut members = json!({
            "run_id": run.key.run_id.as_str(),
            "graph_id": run.graph_id,
            "billing_account_id": run.account,
        });
        for (name, text) in [("user_id", &self.user_id), ("request_id", &self.request_id)] {
            if let Some(text) = text {
                members[name] = text.as_str().into();
            }
        }
        members
    }
}

impl RunIdentity<'_> {
    /// Returns the name of the run's trace: the name of its agent, else its own name, else its program.
    #[must_use]
    pub fn trace_name(&self) -> &str {
        self.agent.or(self.name).unwrap_or(self.graph_id)
    }

    /// Returns the id of the run's trace, 32 hexadecimal digits: the caller's trace id, else an id made for the run.
    #[must_use]
    pub fn trace_id(&self) -> String {
        trace_id(&self.key.run_id, self.traceparent)
    }

    /// Returns the run's span in the trace of its caller, as the parent of its calls; none without a span of the caller.
    #[must_use]
    pub fn span(&self) -> Option<TraceParent> {
        let parent = self.traceparent?;
        Some(TraceParent { span_id: span_id("run", self.key.run_id.as_str()), ..parent.clone() })
    }
}

/// Returns the number of bytes of JSON in ASCII, as a header carries it: six for each UTF-16 unit of another letter.
#[must_use]
pub fn ascii_json_bytes(value: &Value) -> usize {
    value.to_string().chars().map(|letter| if letter.is_ascii() { 1 } else { 6 * letter.len_utf16() }).sum()
}

/// Returns the id of a span, 16 hexadecimal digits. It is always the same for a kind and an id, so that a span which is
/// sent again is not a second span.
#[must_use]
pub fn span_id(kind: &str, id: &str) -> String {
    Hash::of(format!("span\0{kind}\0{id}").as_bytes()).to_hex()[..16].to_owned()
}

/// Returns the id of a run's trace: the same for each attempt and each exporter.
#[must_use]
pub fn trace_id(run: &RunId, traceparent: Option<&TraceParent>) -> String {
    match traceparent {
        Some(parent) => parent.trace_id.clone(),
        None => Hash::of(format!("trace\0{run}").as_bytes()).to_string()[..32].to_owned(),
    }
}

fn percent_encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        match byte {
            b'!'..=b'~' if byte != b'%' => encoded.push(char::from(byte)),
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

fn tags_of(value: Option<&Value>) -> Vec<String> {
    let tags = value.and_then(Value::as_array).into_iter().flatten();
    tags.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Returns whether a header can carry a text without changing it.
fn is_plain(text: &str) -> bool {
    let is_printable = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    (1..=TEXT_MAX).contains(&text.len()) && is_printable && text.trim() == text
}

#[cfg(test)]
mod tests;
