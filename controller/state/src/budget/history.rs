//! The changes of budgets, oldest first.

use serde::Serialize;
use sluice_contract::Account;
use sluice_contract::time::from_unix_micros;

use super::error::BudgetError;
use super::log::{BudgetChange, ChangeKind};
use super::log_rows::change;
use crate::ledger::usd;
use crate::store::Store;

/// A change of a budget, as people and programs see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BudgetEvent {
    /// Account.
    pub account: String,
    /// `set`, `added` or `removed`.
    pub change: &'static str,
    /// Amount in dollars; null for a removal.
    pub amount_usd: Option<String>,
    /// Time in UTC.
    pub made_at: String,
    /// User that made the change; null for changes by earlier versions.
    pub made_by: Option<String>,
}

impl Store {
    /// Returns the changes of all budgets, or of this account's budget.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn budget_history(&self, only: Option<&Account>) -> Result<Vec<BudgetEvent>, BudgetError> {
        let only = only.map(Account::to_string);
        self.query(move |connection| {
            let mut query = connection.prepare(
                "SELECT account, kind, nano_usd, made_us, made_by FROM budgets WHERE ?1 IS NULL OR account = ?1 ORDER BY id",
            )?;
            let rows = query.query_map([only], change)?;
            let event = |row: rusqlite::Result<BudgetChange>| {
                row.map(|change| BudgetEvent {
                    change: change.kind.as_str(),
                    amount_usd: (change.kind != ChangeKind::Removed).then(|| usd(change.nano_usd.into())),
                    made_at: humantime::format_rfc3339_seconds(from_unix_micros(change.made_us)).to_string(),
                    account: change.account,
                    made_by: change.made_by,
                })
            };
            Ok(rows.map(event).collect::<Result<_, _>>()?)
        })
        .await
    }
}
