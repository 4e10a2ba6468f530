//! The audit file of one sidecar, read back and checked by its rules.
//!
//! [`CheckedAuditFile::read`] fails the test on any line, and any order of lines, that this version must not write.
//! So every test that reads an audit file checks all of it.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use sluice_contract::{TrustAnchors, Verdict, verify};

use crate::wait::PATIENCE;

mod strict;

pub use strict::canonical;

/// An audit file that satisfies every rule.
#[derive(Debug, Clone, Default)]
pub struct CheckedAuditFile {
    lines: Vec<Value>,
}

/// The two records of one call.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedCall {
    /// The record before the first byte to the upstream.
    pub intent: Value,
    /// The record after the end of the call.
    pub outcome: Value,
}

impl RecordedCall {
    /// The call id, which intent, outcome and LiteLLM's row share.
    pub fn id(&self) -> &str {
        self.intent["call_id"].as_str().expect("an intent has a call_id")
    }

    /// The outcome's `result`.
    pub fn result(&self) -> &str {
        self.outcome["result"].as_str().expect("an outcome has a result")
    }

    /// The outcome's `end`, empty if null.
    pub fn end(&self) -> &str {
        self.outcome["end"].as_str().unwrap_or_default()
    }

    /// The outcome's `status`, None if null.
    pub fn status(&self) -> Option<u64> {
        self.outcome["status"].as_u64()
    }

    /// The outcome's usage: (input, output, total); None if null.
    pub fn tokens(&self) -> Option<(Option<u64>, Option<u64>, Option<u64>)> {
        let usage = &self.outcome["usage"];
        usage.is_object().then(|| (usage["input"].as_u64(), usage["output"].as_u64(), usage["total"].as_u64()))
    }

    /// The outcome's `cost_usd`, None if null.
    pub fn cost(&self) -> Option<&str> {
        self.outcome["cost_usd"].as_str()
    }

    /// The outcome's `cost_source`.
    pub fn cost_source(&self) -> &str {
        self.outcome["cost_source"].as_str().expect("an outcome has a cost_source")
    }
}

impl CheckedAuditFile {
    /// Reads a complete file; panics on the first broken rule.
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref();
        let bytes = read(path);
        Self::parse(&bytes).unwrap_or_else(|fault| panic!("{}: {fault}\n{}", path.display(), text(&bytes)))
    }

    /// Reads a file whose last line may be torn, and returns the bytes of that line too.
    #[track_caller]
    pub fn read_torn(path: impl AsRef<Path>) -> (Self, Vec<u8>) {
        let path = path.as_ref();
        let mut bytes = read(path);
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let torn = bytes.split_off(whole);
        let file = Self::parse(&bytes);
        (file.unwrap_or_else(|fault| panic!("{}: {fault}\n{}", path.display(), text(&bytes))), torn)
    }

    /// Checks bytes by the rules; the error names the first broken one.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let lines = strict::lines(bytes)?;
        // The contract's verifier checks hashes, sums and the head of close.
        match verify(bytes, &TrustAnchors::default()) {
            Verdict::Tampered(fault) => Err(fault.to_string()),
            Verdict::Complete(_) | Verdict::Incomplete(_) => Ok(Self { lines }),
        }
    }

    /// Waits until the file has `count` records of `kind`; panics after [`PATIENCE`] with its content.
    ///
    /// Nothing signals that another process has written to its file, so this looks every 5 ms.
    /// Where a signal exists (the client's last byte, the process's exit) wait for that and `read`.
    pub async fn wait_for(path: impl AsRef<Path>, kind: &str, count: usize) -> Self {
        let path = path.as_ref();
        let mut ticks = tokio::time::interval(Duration::from_millis(5));
        let looking = tokio::time::timeout(PATIENCE, async {
            loop {
                ticks.tick().await;
                if !path.exists() {
                    continue;
                }
                // A read may fall into the middle of a write.
                let (file, _) = Self::read_torn(path);
                if file.of_kind(kind).len() >= count {
                    break file;
                }
            }
        });
        let found = looking.await;
        found.unwrap_or_else(|_| {
            let had = if path.exists() { text(&read(path)) } else { "no file".to_owned() };
            panic!("waited {PATIENCE:?} without {count} × {kind} in {}:\n{had}", path.display())
        })
    }

    /// Every record.
    pub fn lines(&self) -> &[Value] {
        &self.lines
    }

    /// The kinds in order.
    pub fn kinds(&self) -> Vec<&str> {
        self.lines.iter().map(|line| line["kind"].as_str().unwrap_or_default()).collect()
    }

    /// The records of one kind.
    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        self.lines.iter().filter(|line| line["kind"] == kind).collect()
    }

    /// The intents.
    pub fn intents(&self) -> Vec<&Value> {
        self.of_kind("intent")
    }

    /// The outcomes.
    pub fn outcomes(&self) -> Vec<&Value> {
        self.of_kind("outcome")
    }

    /// The refusals.
    pub fn refusals(&self) -> Vec<&Value> {
        self.of_kind("refused")
    }

    /// The reasons of the refusals, in order.
    pub fn refused_reasons(&self) -> Vec<String> {
        self.refusals().iter().map(|line| line["reason"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The calls that have an outcome, in the order of their intents.
    pub fn calls(&self) -> Vec<RecordedCall> {
        let settled = |intent: &&Value| {
            let outcome = self.outcomes().into_iter().find(|outcome| outcome["call_id"] == intent["call_id"])?;
            Some(RecordedCall { intent: (*intent).clone(), outcome: outcome.clone() })
        };
        self.intents().iter().filter_map(settled).collect()
    }

    /// The ids of the calls that have no outcome yet.
    pub fn open_calls(&self) -> Vec<String> {
        let (intents, outcomes) = (self.intents(), self.outcomes());
        let open = intents.iter().filter(|intent| !outcomes.iter().any(|line| line["call_id"] == intent["call_id"]));
        open.map(|intent| intent["call_id"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// The only call, which must have an outcome.
    #[track_caller]
    pub fn only_call(&self) -> RecordedCall {
        assert_eq!(self.intents().len(), 1, "intents among {:?}", self.kinds());
        self.calls().pop().unwrap_or_else(|| panic!("the call has no outcome: {:?}", self.kinds()))
    }

    /// The `open` record.
    #[track_caller]
    pub fn open(&self) -> &Value {
        self.of_kind("open").first().copied().unwrap_or_else(|| panic!("no open among {:?}", self.kinds()))
    }

    /// The `close` record.
    #[track_caller]
    pub fn close(&self) -> &Value {
        self.of_kind("close").first().copied().unwrap_or_else(|| panic!("no close among {:?}", self.kinds()))
    }

    /// Returns true if there is a `close`.
    pub fn is_closed(&self) -> bool {
        !self.of_kind("close").is_empty()
    }
}

#[track_caller]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
