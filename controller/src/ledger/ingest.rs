//! From an audit file to the rows of the ledger.
//!
//! Pure: the same file gives the same rows, whoever reads it and whenever. Of a file that was altered, only the lines
//! that a witness vouches for give rows: a bill must rest on a log that somebody vouches for, and whoever could alter
//! the file could bill others. Its run is never settled, and what else it spent comes from LiteLLM's rows, where those
//! calls are then missing here.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use sluice_contract::reader::{Record, lines};
use sluice_contract::record::{CostSource, Outcome, Usage};
use sluice_contract::{Call, Hash, Story, Trust, Usd, Verdict, verify};

use super::entry::{CACHE_HIT, Entry, Receipt};
use crate::layout::RunKey;
use crate::receipt::Status;

/// What one audit file says, and whether to believe it.
#[derive(Debug, Clone)]
pub struct Reading {
    /// The run.
    pub key: RunKey,
    /// What the file is worth.
    pub worth: Worth,
    /// Why it is no complete account, if so.
    pub fault: Option<String>,
    /// Whole lines.
    pub lines: u64,
    /// The hash of the last one.
    pub head: Option<Hash>,
    /// Whether nothing can follow.
    pub ended: bool,
    /// What it tells, as far as somebody vouches for it.
    pub story: Story,
    hashes: HashMap<String, Hashes>,
}

/// Whether to believe a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Worth {
    /// From `open` to `close`, and every call has its outcome.
    Complete,
    /// As it was written, but something is missing.
    Incomplete,
    /// There is none. Right for a run whose sidecar never began, if no line was ever seen.
    Absent,
    /// Not as it was written.
    Tampered,
    /// The ledger knows something else of it.
    Conflict,
}

/// Whether a file may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Its sidecar may live.
    Alive,
    /// It has ended, or was killed.
    Gone,
}

/// The reason in the end of a log that had no room for more calls.
const FULL: &str = "audit_full";

#[derive(Debug, Clone, Copy)]
struct Hashes {
    intent: Hash,
    outcome: Option<Hash>,
}

/// What a file says; `None` is no file.
#[must_use]
pub fn read(key: &RunKey, file: Option<&[u8]>, trust: &Trust<'_>, writer: Writer) -> Reading {
    let mut reading = Reading {
        key: key.clone(),
        worth: Worth::Absent,
        fault: None,
        lines: 0,
        head: None,
        ended: writer == Writer::Gone,
        story: Story::default(),
        hashes: HashMap::new(),
    };
    let Some(bytes) = file else {
        reading.fault = (!trust.seen.is_empty()).then(|| "the audit file is gone".to_owned());
        return reading;
    };
    let verdict = verify(bytes, trust);
    let last = vouched(&verdict, trust);
    reading.worth = match verdict {
        Verdict::Complete(_) => Worth::Complete,
        Verdict::Incomplete(_) => Worth::Incomplete,
        Verdict::Tampered(_) => Worth::Tampered,
    };
    reading.fault = (reading.worth != Worth::Complete).then(|| format!("the audit file is {verdict}"));
    let told = reading.take(bytes, last).and_then(|()| reading.is_of(key));
    if let Err(fault) = told {
        reading.story = Story::default();
        if reading.worth != Worth::Tampered {
            reading.worth = Worth::Tampered;
            reading.fault = Some(format!("the audit file is tampered: {fault}"));
        }
    }
    if reading.fault.is_none() && reading.story.close().is_some_and(|close| close.reason == FULL) {
        reading.fault = Some("the audit log had no room left, and calls were refused".to_owned());
    }
    reading.ended |= reading.story.close().is_some();
    reading
}

/// The last line to believe: of a file that was altered, the last one before that of which somebody saw the hash.
fn vouched(verdict: &Verdict, trust: &Trust<'_>) -> u64 {
    match verdict {
        Verdict::Complete(_) | Verdict::Incomplete(_) => u64::MAX,
        Verdict::Tampered(fault) => {
            let seen = trust.seen.iter().map(|seen| seen.seq + 1);
            seen.filter(|line| *line < fault.line).max().unwrap_or(0)
        }
    }
}

impl Reading {
    fn take(&mut self, bytes: &[u8], last: u64) -> Result<(), String> {
        let mut lines = lines(bytes);
        while self.lines < last {
            let Some(line) = lines.next().transpose().map_err(|fault| fault.to_string())? else { break };
            let (hash, number) = (Hash::of(line.bytes), line.number);
            micros(&line.common.ts).ok_or_else(|| format!("line {number}: ts: no time"))?;
            match &line.record {
                Record::Intent(intent) => {
                    self.hashes.insert(intent.call_id.to_string(), Hashes { intent: hash, outcome: None });
                }
                Record::Outcome(outcome) => {
                    if let Some(hashes) = self.hashes.get_mut(&*outcome.call_id) {
                        hashes.outcome = Some(hash);
                    }
                }
                _ => {}
            }
            self.story.take(line).map_err(|fault| fault.to_string())?;
            self.lines += 1;
            self.head = Some(hash);
        }
        Ok(())
    }

    /// A file under another's name would bill under that name.
    fn is_of(&self, key: &RunKey) -> Result<(), String> {
        match self.story.open() {
            Some(open) if (&*open.run_id, open.attempt) != (key.run_id.as_str(), key.attempt) => {
                Err(format!("it is the log of {}.{}", open.run_id, open.attempt))
            }
            _ => Ok(()),
        }
    }

    /// Whether a bill may rest on all of it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        match self.worth {
            Worth::Complete | Worth::Incomplete => true,
            Worth::Absent => self.fault.is_none(),
            Worth::Tampered | Worth::Conflict => false,
        }
    }

    /// The rows that follow from it: each call, and what came of it, if something did.
    #[must_use]
    pub fn rows(&self) -> Vec<(Receipt, Option<Entry>)> {
        let Some(open) = self.story.open() else { return Vec::new() };
        let calls = self.story.calls().iter().map(|call| {
            let hashes = self.hashes[&*call.intent.call_id];
            let receipt = self.receipt(call, hashes.intent, &open.billing_account_id, &open.graph_id);
            let entry = self.entry(&receipt, call, hashes);
            (receipt, entry)
        });
        calls.collect()
    }

    fn receipt(&self, call: &Call, hash: Hash, account: &str, graph_id: &str) -> Receipt {
        let intent = &call.intent;
        Receipt {
            reference: crate::receipt::reference(&self.key, &intent.call_id),
            hash,
            key: self.key.clone(),
            call: intent.call,
            call_id: intent.call_id.to_string(),
            account: account.to_owned(),
            graph_id: graph_id.to_owned(),
            method: intent.method.to_string(),
            path: intent.path.to_string(),
            model: intent.model.as_deref().map(str::to_owned),
            stream: intent.stream,
            reserved_usd: intent.reserved_usd.as_deref().map(str::to_owned),
            origin_us: micros(&intent.ts).expect("every time was read before"),
        }
    }

    fn entry(&self, receipt: &Receipt, call: &Call, hashes: Hashes) -> Option<Entry> {
        let (Some(outcome), Some(hash)) = (&call.outcome, hashes.outcome) else {
            // Nobody will tell what became of it.
            return self.ended.then(|| Entry {
                reference: format!("{}#end", receipt.reference),
                hash: hashes.intent,
                status: Status::Unknown,
                result: None,
                ended: None,
                http_status: None,
                litellm_call_id: None,
                response_id: None,
                model_served: None,
                usage: None,
                cost_usd: None,
                nano_usd: None,
                price_source: CostSource::None.as_str().to_owned(),
                null_reason: None,
                origin_us: receipt.origin_us,
            });
        };
        let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
        let amount = outcome.cost_usd.as_deref().map(|text| Usd::parse(text).expect("the story has read every amount"));
        Some(Entry {
            reference: format!("{}#outcome", receipt.reference),
            hash,
            status: crate::receipt::status(call),
            result: Some(outcome.result.as_str().to_owned()),
            ended: Some(outcome.end.as_str().to_owned()),
            http_status: outcome.status,
            litellm_call_id: text(&outcome.litellm_call_id),
            response_id: text(&outcome.response_id),
            model_served: text(&outcome.model_served),
            usage: outcome.usage.filter(|usage| *usage != Usage::default()).map(Usage::inclusive),
            cost_usd: text(&outcome.cost_usd),
            nano_usd: amount.map(|amount| amount.to_nanos()),
            price_source: price_source(outcome).to_owned(),
            null_reason: outcome.null_reason.map(|reason| reason.as_str().to_owned()),
            origin_us: micros(&outcome.ts).expect("every time was read before"),
        })
    }
}

/// Where the amount of an outcome comes from.
fn price_source(outcome: &Outcome<'_>) -> &'static str {
    if outcome.cache_hit == Some(true) { CACHE_HIT } else { outcome.cost_source.as_str() }
}

impl Worth {
    /// The word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Absent => "absent",
            Self::Tampered => "tampered",
            Self::Conflict => "conflict",
        }
    }
}

/// Microseconds since 1970.
fn micros(ts: &str) -> Option<i64> {
    let since = humantime::parse_rfc3339(ts).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}
