//! Budgets of accounts, and the admission of runs.
//!
//! Pure. An account has a budget only if the operator set one. Its remainder is the granted amount, less the spending in
//! the ledger since then, less the amounts held for runs. A run holds its cap before any of its resources exist; its receipts
//! replace that hold when they are in the ledger. Unknown amounts stay held: a call of unknown cost holds
//! the amount that its sidecar reserved for it, and a run without a trusted audit log holds everything that was not billed.

use std::fmt;

use serde::Serialize;

use crate::ledger::{dollars, usd};

mod account_state;
mod accounts;
mod error;
mod history;
mod holds;
mod log;
mod log_rows;
mod synchronize;

pub use account_state::BudgetHold;
pub use accounts::{AdmissionRequest, Admitted};
pub(crate) use accounts::{admit, cap_left, raise_hold, release_unused};
pub use error::{BudgetError, LogError};
pub use history::BudgetEvent;
pub use log::LineFault;
pub use synchronize::BudgetLog;

/// Amounts of an account with a budget, in nano-USD.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Balance {
    /// Granted by the operator since the budget was set.
    pub granted: i128,
    /// Spent since then, according to the ledger.
    pub spent: i128,
    /// Held for runs.
    pub held: i128,
}

/// State of a run that has a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HoldState {
    /// The run has not ended, or its audit log is not trusted: it may have spent its whole hold.
    Uncertain,
    /// The audit log was read to its end.
    Read {
        /// Calls of unknown cost: the reservation of each, in nano-USD, where it is known.
        open: Vec<Option<i64>>,
    },
}

/// A run that is not admitted, because the remaining budget is too small.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.text())]
pub struct Shortfall {
    /// Account that pays for the run.
    pub account: String,
    /// Requested cap in nano-USD; none if any amount is enough.
    pub asked: Option<i64>,
    /// Amounts of the account.
    pub balance: Balance,
}

impl Balance {
    /// Returns the remaining amount. It is negative after a call that cost more than its hold.
    #[must_use]
    pub fn left(self) -> i128 {
        self.granted - self.spent - self.held
    }

    /// Returns the amount that a new run holds: its cap if it has one, otherwise the smaller of the default and the
    /// remaining amount.
    ///
    /// # Errors
    /// The balance, if the remaining amount is not positive or is smaller than the cap.
    pub fn admit(self, cap: Option<i64>, default: i64) -> Result<i64, Balance> {
        let left = i64::try_from(self.left()).unwrap_or(if self.left() < 0 { 0 } else { i64::MAX });
        let hold = cap.unwrap_or_else(|| default.min(left));
        if left > 0 && hold <= left { Ok(hold) } else { Err(self) }
    }
}

/// Returns the part of a hold that is still held after this amount was billed.
#[must_use]
pub fn still_held(hold: i64, billed: i128, state: &HoldState) -> i128 {
    let rest = (i128::from(hold) - billed).max(0);
    match state {
        HoldState::Uncertain => rest,
        HoldState::Read { open } => {
            let reserved = open.iter().flatten().map(|nanos| i128::from(*nanos)).sum();
            // A call without a reservation may have cost anything up to the cap.
            if open.iter().any(Option::is_none) { rest.max(reserved) } else { reserved }
        }
    }
}

impl Shortfall {
    fn text(&self) -> String {
        let Self { account, asked, balance } = self;
        let asks = asked.map_or("this run needs some of it".to_owned(), |cap| {
            format!("this run asks for {} (--max-cost-usd)", dollars(cap.into()))
        });
        let less = if asked.is_some() && balance.left() > 0 { "lower that, " } else { "" };
        format!(
            "account {account} has {} left of its budget ({balance}), and {asks}; {less}wait for runs that hold some, \
             or give more: sluice budget add {account} USD",
            dollars(balance.left())
        )
    }
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} granted, {} spent, {} held", dollars(self.granted), dollars(self.spent), dollars(self.held))
    }
}

/// Amounts as strings: a reader's numbers may be floats.
impl Serialize for Balance {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct BalanceFields {
            granted_usd: String,
            spent_usd: String,
            held_usd: String,
            left_usd: String,
        }
        BalanceFields {
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
