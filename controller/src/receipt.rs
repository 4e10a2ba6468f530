//! What each call of a run came to, from its audit file alone.
//!
//! Pure: the same file gives the same receipts, whoever reads it and whenever.

use serde::Serialize;
use sluice_contract::record::{CallResult, NullReason, Usage};
use sluice_contract::{Call, Story, Trust, Verdict, Witness, reader, verify};

use crate::layout::RunKey;

/// The bill of one call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// `RUN/ATTEMPT/CALL`: the same call has the same one for ever.
    pub source_reference: String,
    /// The sidecar's own id of the call, which stands on LiteLLM's spend row.
    pub call_id: String,
    /// LiteLLM's.
    pub litellm_call_id: Option<String>,
    /// Whether its money is known.
    pub status: Status,
    /// How the call went.
    pub result: Option<CallResult>,
    /// What was asked for.
    pub model: Option<String>,
    /// What answered.
    pub model_served: Option<String>,
    /// Tokens as the provider counted them.
    pub usage: Option<Usage>,
    /// Dollars, in the provider's own words.
    pub cost_usd: Option<String>,
    /// Why tokens or dollars are null.
    pub null_reason: Option<NullReason>,
}

/// Whether the money of a call is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It is.
    Posted,
    /// Its tokens are, or could be; the spend log has the rest.
    PendingCost,
    /// There can be none.
    Voided,
    /// Nobody knows what became of the call.
    Unknown,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// One for each call that was written down.
    pub receipts: Vec<Receipt>,
    /// Requests that were not forwarded.
    pub refused: u64,
    /// All tokens.
    pub usage: Usage,
    /// All dollars that are known; null when there are none.
    pub cost_usd: Option<String>,
    /// The cap that a request was refused for, if one was.
    pub budget: Option<String>,
    /// Lines of the file.
    pub lines: u64,
    /// Why the file is no complete account, if so.
    pub fault: Option<String>,
}

/// The reason of refusals for a cap on the whole run.
const CAP: &str = "budget_exceeded";
/// The reason in the end of a log that had no room for more calls.
const FULL: &str = "audit_full";

/// What an audit file says; none when there is no file, which is right for a run whose sidecar never began.
#[must_use]
pub fn tally(key: &RunKey, file: Option<&[u8]>, trust: &Trust<'_>) -> Tally {
    let Some(bytes) = file else {
        let gone = !trust.seen.is_empty();
        return Tally { fault: gone.then(|| "the audit file is gone".to_owned()), ..Tally::default() };
    };
    let verdict = verify(bytes, trust);
    let story = story(bytes, &verdict, trust.seen);
    let is_full = story.close().is_some_and(|close| close.reason == FULL);
    let fault = match verdict {
        Verdict::Complete(_) if is_full => Some("the audit log had no room left, and calls were refused".to_owned()),
        Verdict::Complete(_) => None,
        verdict => Some(format!("the audit file is {verdict}")),
    };
    let receipts: Vec<_> = story.calls().iter().map(|call| receipt(key, call)).collect();
    let priced = receipts.iter().any(|receipt| receipt.cost_usd.is_some());
    Tally {
        refused: story.totals().refused,
        usage: story.totals().usage,
        cost_usd: priced.then(|| story.totals().cost().to_string()),
        budget: story.refused().contains_key(CAP).then(|| CAP.to_owned()),
        lines: story.lines(),
        fault,
        receipts,
    }
}

/// What a file tells. Of one that was altered, only the lines that a witness vouches for are known.
fn story(bytes: &[u8], verdict: &Verdict, seen: &[Witness]) -> Story {
    let vouched = seen.iter().map(|seen| seen.seq + 1);
    let last = match verdict {
        Verdict::Tampered(fault) => vouched.filter(|line| *line < fault.line).max().unwrap_or(0),
        Verdict::Complete(_) | Verdict::Incomplete(_) => u64::MAX,
    };
    story_to(bytes, last)
}

/// What the lines up to this one tell, from 1.
#[must_use]
pub fn story_to(bytes: &[u8], last: u64) -> Story {
    let mut story = Story::default();
    for line in reader::lines(bytes).map_while(Result::ok).take_while(|line| line.number <= last) {
        if story.take(line).is_err() {
            break;
        }
    }
    story
}

fn receipt(key: &RunKey, call: &Call) -> Receipt {
    let intent = &call.intent;
    let outcome = call.outcome.as_ref();
    Receipt {
        source_reference: format!("{}/{}/{}", key.run_id, key.attempt, intent.call_id),
        call_id: intent.call_id.to_string(),
        litellm_call_id: outcome.and_then(|o| o.litellm_call_id.as_deref().map(str::to_owned)),
        status: status(call),
        result: outcome.map(|o| o.result),
        model: intent.model.as_deref().map(str::to_owned),
        model_served: outcome.and_then(|o| o.model_served.as_deref().map(str::to_owned)),
        usage: outcome.and_then(|o| o.usage),
        cost_usd: outcome.and_then(|o| o.cost_usd.as_deref().map(str::to_owned)),
        null_reason: outcome.and_then(|o| o.null_reason),
    }
}

fn status(call: &Call) -> Status {
    let Some(outcome) = &call.outcome else {
        return Status::Unknown;
    };
    match (outcome.result, &outcome.cost_usd, outcome.null_reason) {
        (_, Some(_), _) => Status::Posted,
        (_, None, Some(NullReason::NotSent | NullReason::NotBilled)) => Status::Voided,
        (CallResult::Unknown, None, _) => Status::Unknown,
        (_, None, _) => Status::PendingCost,
    }
}

impl Status {
    /// The word in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Posted => "posted",
            Self::PendingCost => "pending_cost",
            Self::Voided => "voided",
            Self::Unknown => "unknown",
        }
    }
}
