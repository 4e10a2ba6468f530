//! Status of a receipt, and its permanent name.
//!
//! Pure.

use serde::Serialize;
use sluice_contract::RunKey;
use sluice_contract::record::{CallResult, NullReason, Outcome};

/// State of the money of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptStatus {
    /// The cost is known.
    Posted,
    /// The call has ended without a known cost; the spend log may have it.
    PendingCost,
    /// The call cannot have a cost, or the operator has voided the receipt.
    Voided,
    /// The end of the call is not known.
    Unknown,
    /// The call is in progress, according to the ledger.
    #[default]
    Pending,
    /// The spend log has completed the receipt.
    Settled,
    /// Reversed by a later entry.
    Reversed,
}

/// Returns the permanent name of a call's receipt: `RUN/ATTEMPT/CALL`.
#[must_use]
pub fn reference(key: &RunKey, call_id: &str) -> String {
    format!("{}/{}/{call_id}", key.run_id, key.attempt)
}

/// Returns the state of a call's money at the end of its audit file.
#[must_use]
pub fn status(outcome: Option<&Outcome<'_>>) -> ReceiptStatus {
    let Some(outcome) = outcome else {
        return ReceiptStatus::Unknown;
    };
    match (outcome.result, &outcome.cost_usd, outcome.null_reason) {
        (_, Some(_), _) => ReceiptStatus::Posted,
        (_, None, Some(NullReason::NotSent | NullReason::NotBilled)) => ReceiptStatus::Voided,
        (CallResult::Unknown, None, _) => ReceiptStatus::Unknown,
        (_, None, _) => ReceiptStatus::PendingCost,
    }
}

impl ReceiptStatus {
    /// Returns the word in output and in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Posted => "posted",
            Self::PendingCost => "pending_cost",
            Self::Voided => "voided",
            Self::Unknown => "unknown",
            Self::Pending => "pending",
            Self::Settled => "settled",
            Self::Reversed => "reversed",
        }
    }

    /// Returns the status that a word names.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        use ReceiptStatus::{Pending, PendingCost, Posted, Reversed, Settled, Unknown, Voided};
        [Posted, PendingCost, Voided, Unknown, Pending, Settled, Reversed].into_iter().find(|s| s.as_str() == word)
    }
}
