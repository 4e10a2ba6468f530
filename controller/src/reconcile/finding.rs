//! What a reconciliation can find, in words.
//!
//! Pure.

use serde::Serialize;
use sluice_state::ledger::Settlement;

/// What a receipt and its row come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// Both say the same.
    Matched,
    /// The cost was not known here, and the row has it.
    Settled,
    /// Nobody saw what became of the call, and the row tells.
    UnknownSettled,
    /// As `settled`, on a later day than that of the call: it counts in the day on which it came.
    Late,
    /// A cache of LiteLLM's answered, for nothing.
    CacheHit,
    /// No money was possible: not sent, never billed, or answered with a status that no provider bills. A failed call
    /// that a provider could have billed is never this.
    NotBilled,
    /// It may still come.
    NotYet,
    /// The amounts are not the same.
    AmountDiffers,
    /// The tokens are not the same.
    TokensDiffer,
    /// A receipt without a row. If its cost is not known it stays open.
    MissingThere,
    /// A row without a receipt: traffic that by-passed the sidecar.
    MissingHere,
    /// A further row with money in it for a call that has one.
    Duplicate,
}

impl Class {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 12] = [
        Self::Matched,
        Self::Settled,
        Self::UnknownSettled,
        Self::Late,
        Self::CacheHit,
        Self::NotBilled,
        Self::NotYet,
        Self::AmountDiffers,
        Self::TokensDiffer,
        Self::MissingThere,
        Self::MissingHere,
        Self::Duplicate,
    ];

    /// The word in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Matched => "matched",
            Self::Settled => "settled",
            Self::UnknownSettled => "unknown_settled",
            Self::Late => "late",
            Self::CacheHit => "cache_hit",
            Self::NotBilled => "not_billed",
            Self::NotYet => "not_yet",
            Self::AmountDiffers => "amount_differs",
            Self::TokensDiffer => "tokens_differ",
            Self::MissingThere => "missing_there",
            Self::MissingHere => "missing_here",
            Self::Duplicate => "duplicate",
        }
    }

    /// Whether somebody has to look at it.
    #[must_use]
    pub fn is_mismatch(self) -> bool {
        match self {
            Self::AmountDiffers | Self::TokensDiffer | Self::MissingThere | Self::MissingHere | Self::Duplicate => true,
            Self::Matched
            | Self::Settled
            | Self::UnknownSettled
            | Self::Late
            | Self::CacheHit
            | Self::NotBilled
            | Self::NotYet => false,
        }
    }
}

/// One receipt, one row, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub class: Class,
    /// Why, for people.
    pub reason: String,
    /// The account that pays.
    pub account: String,
    /// `RUN.ATTEMPT`, as far as somebody says so.
    pub run: Option<String>,
    /// The receipt; null where there is none.
    pub source_reference: Option<String>,
    /// The sidecar's id of the call.
    pub call_id: Option<String>,
    /// The rows; empty where there are none.
    pub request_ids: Vec<String>,
    /// What the ledger says.
    pub ledger: Option<Side>,
    /// What the spend log says.
    pub spend_log: Option<Side>,
    /// Until when it may still come, in microseconds since 1970; none where waiting decides nothing.
    #[serde(skip)]
    pub until_us: Option<i64>,
    /// What is to be done about it.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
}

/// One side's numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Side {
    /// A string, since a reader's number may be a float.
    #[serde(serialize_with = "as_text")]
    pub nano_usd: Option<i64>,
    /// Tokens, with all that a cache had.
    pub input: Option<u64>,
    /// Tokens.
    pub output: Option<u64>,
}

/// What would put a receipt right.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Adds what was not known; nobody needs to be asked.
    Settle(Settlement),
    /// Takes back what was posted; only if somebody wants that.
    Correct(Settlement),
}

#[allow(clippy::ref_option, reason = "serde's signature")]
fn as_text<S: serde::Serializer>(amount: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|amount| amount.to_string()).serialize(serializer)
}
