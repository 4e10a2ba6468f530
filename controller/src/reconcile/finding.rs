//! Findings of a reconciliation.
//!
//! Pure.

use serde::Serialize;
use sluice_state::ledger::Settlement;

/// Relation of a receipt and its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FindingClass {
    /// Both sides agree.
    Matched,
    /// The cost was unknown here, and the row has it.
    Settled,
    /// The end of the call was not seen, and the row has its cost.
    UnknownSettled,
    /// Like `settled`, on a later day than the call: the cost counts on the day of the entry.
    Late,
    /// A cache of LiteLLM answered without cost.
    CacheHit,
    /// The call cost nothing: it was not sent, is never billed, or was answered with a status that no provider bills. A
    /// failed call that a provider could have billed is in another class.
    NotBilled,
    /// The receipt or the row may still arrive.
    NotYet,
    /// The amounts differ.
    AmountDiffers,
    /// The numbers of tokens differ.
    TokensDiffer,
    /// The receipt has no row. If its cost is unknown it stays open.
    MissingThere,
    /// The row has no receipt: the call bypassed the sidecar.
    MissingHere,
    /// A further row with a cost for a call that already has one.
    Duplicate,
    /// A row that cannot be read, such as one with a negative cost. Nothing is posted for its call.
    UnreadableRow,
}

impl FindingClass {
    /// All classes, in the order in which they are shown.
    pub const ALL: [Self; 13] = [
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
        Self::UnreadableRow,
    ];

    /// Returns the word for output.
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
            Self::UnreadableRow => "unreadable_row",
        }
    }

    /// Returns whether an operator has to examine the finding.
    #[must_use]
    pub fn is_mismatch(self) -> bool {
        match self {
            Self::AmountDiffers
            | Self::TokensDiffer
            | Self::MissingThere
            | Self::MissingHere
            | Self::Duplicate
            | Self::UnreadableRow => true,
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

/// A receipt, a row, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Class of the finding.
    pub class: FindingClass,
    /// Reason for people.
    pub reason: String,
    /// Account that pays.
    pub account: String,
    /// `RUN.ATTEMPT`, if the receipt or the row names it.
    pub run: Option<String>,
    /// Name of the receipt, if there is one.
    pub source_reference: Option<String>,
    /// The sidecar's id of the call.
    pub call_id: Option<String>,
    /// Names of the rows.
    pub request_ids: Vec<String>,
    /// Numbers of the ledger.
    pub ledger: Option<SideAmounts>,
    /// Numbers of the spend log.
    pub spend_log: Option<SideAmounts>,
    /// Latest time at which the other side may still arrive, in microseconds since 1970; `None` if waiting is useless.
    #[serde(skip)]
    pub until_us: Option<i64>,
    /// Entry that corrects the difference.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
}

/// Amounts in a receipt, or in a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SideAmounts {
    /// Cost in nano-USD; a JSON string, since a reader's numbers may be floats.
    #[serde(serialize_with = "as_text")]
    pub nano_usd: Option<i128>,
    /// Input tokens, including the tokens of a prompt cache.
    pub input: Option<u64>,
    /// Output tokens.
    pub output: Option<u64>,
}

/// An entry that corrects a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Adds a cost that was unknown. No permission is needed.
    Settle(Settlement),
    /// Reverses posted entries. This needs permission.
    Correct(Settlement),
}

#[allow(clippy::ref_option, reason = "serde's signature")]
fn as_text<S: serde::Serializer>(amount: &Option<i128>, serializer: S) -> Result<S::Ok, S::Error> {
    amount.map(|amount| amount.to_string()).serialize(serializer)
}
