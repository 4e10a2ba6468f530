//! What an account may still spend, and whether a run may begin.
//!
//! Pure. An account has a budget only if the operator set one. What is left of it is what was granted, less what the
//! ledger says was spent since, less what is held for runs. A run holds its cap before anything of it exists; what it
//! really spent takes the place of that once its receipts are in the ledger. Where nobody knows what was spent, the
//! amount stays held: a call of unknown cost holds what its sidecar reserved for it, and a run of whose log nobody
//! vouches holds all that it has not been billed for.

use std::fmt;

use serde::Serialize;

use crate::ledger::usd;

mod book;
mod error;
mod keep;
mod log;

pub use book::{Admission, Admitted, BudgetHold};
pub use error::{BudgetError, LogError};
pub use keep::BudgetLog;
pub use log::LineFault;

/// An account with a budget, in nano-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// What the operator gave since it was set.
    pub granted: i128,
    /// What the ledger says was spent since.
    pub spent: i128,
    /// What is kept for runs.
    pub held: i128,
}

/// What became of a run that holds something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum After {
    /// It is under way, or nobody vouches for what its log says: it may have spent all that it holds.
    Unsure,
    /// Its log was read to the end. Of its calls, these are of unknown cost; each with what was reserved for it, in
    /// nano-USD, where that is known.
    Read {
        /// One for each such call.
        open: Vec<Option<i64>>,
    },
}

/// A run that is not admitted, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Shortfall {
    /// Who was to pay.
    pub account: String,
    /// What was asked for; none if any amount would have done.
    pub asked: Option<i64>,
    /// The account as it stood.
    pub balance: Balance,
}

impl Balance {
    /// What may still be spent. Below zero after a call that cost more than was held for it.
    #[must_use]
    pub fn left(self) -> i128 {
        self.granted - self.spent - self.held
    }

    /// What a new run may hold: its own cap, or else so much by default, or what is left if that is less. None is
    /// given more than is left, and nothing where nothing is.
    ///
    /// # Errors
    /// The account as it stands.
    pub fn admit(self, cap: Option<i64>, default: i64) -> Result<i64, Balance> {
        let left = i64::try_from(self.left()).unwrap_or(if self.left() < 0 { 0 } else { i64::MAX });
        let hold = cap.unwrap_or_else(|| default.min(left));
        if left > 0 && hold <= left { Ok(hold) } else { Err(self) }
    }
}

/// What a run still holds of so much, when the ledger has billed it for so much.
#[must_use]
pub fn still_held(hold: i64, billed: i128, after: &After) -> i128 {
    let rest = (i128::from(hold) - billed).max(0);
    match after {
        After::Unsure => rest,
        After::Read { open } => {
            let reserved = open.iter().flatten().map(|nanos| i128::from(*nanos)).sum();
            // A call without a reservation may have taken anything up to the cap.
            if open.iter().any(Option::is_none) { rest.max(reserved) } else { reserved }
        }
    }
}

impl Shortfall {
    fn text(&self) -> String {
        let Self { account, asked, balance } = self;
        let asks = asked.map_or("this run needs some of it".to_owned(), |cap| {
            format!("this run asks for ${} (--max-cost-usd)", usd(cap.into()))
        });
        let less = if asked.is_some() && balance.left() > 0 { "lower that, " } else { "" };
        format!(
            "account {account} has ${} left of its budget ({balance}), and {asks}; {less}wait for runs that hold some, \
             or give more: sluice budget add {account} USD",
            usd(balance.left())
        )
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${} granted, ${} spent, ${} held", usd(self.granted), usd(self.spent), usd(self.held))
    }
}

/// Money as strings: a reader's numbers may be floats.
impl Serialize for Balance {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Words {
            granted_usd: String,
            spent_usd: String,
            held_usd: String,
            left_usd: String,
        }
        Words {
            granted_usd: usd(self.granted),
            spent_usd: usd(self.spent),
            held_usd: usd(self.held),
            left_usd: usd(self.left()),
        }
        .serialize(serializer)
    }
}

#[cfg(test)]
mod tests;
