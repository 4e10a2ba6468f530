//! Budgets in the database: admission of runs, and changes by the operator.

use rusqlite::{Transaction, TransactionBehavior, params};
use sluice_contract::{Account, RunKey};

use super::account_state::{self, AccountState, BudgetHold, SettledHolds};
use super::error::BudgetError;
use super::log::{BudgetChange, ChangeKind};
use super::{Balance, Shortfall, holds, still_held};
use crate::operator;
use crate::store::{self, RunRow, Store, now_us};

/// Request to admit a run.
#[derive(Debug, Clone)]
pub struct AdmissionRequest {
    /// The first row of the run.
    pub entry: RunRow,
    /// The cap of the run, in nano-USD.
    pub cap: Option<i64>,
    /// Maximum amount that a run without a cap holds of a budget.
    pub default: i64,
}

/// A run that was admitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Admitted {
    /// The cap of the run: the requested one, or the amount that it holds of its account's budget.
    pub cap: Option<i64>,
}

impl Store {
    /// Adds the row of a run together with its hold on the account's budget, or neither.
    ///
    /// # Errors
    /// [`BudgetError::Insufficient`], and the errors of [`Store::begin`].
    pub async fn admit(&self, request: AdmissionRequest) -> Result<Admitted, BudgetError> {
        self.write(move |connection| {
            // If several runs arrive at once, each sees the holds of the earlier ones.
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let (admitted, _) = admit(&transaction, &request)?;
            transaction.commit()?;
            Ok(admitted)
        })
        .await
    }

    /// Sets the budget of an account. Remaining holds of runs that have ended are released; other runs keep theirs.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn set_budget(&self, account: &Account, nano_usd: i64) -> Result<(), BudgetError> {
        let account = account.clone();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            holds::release_ended_runs(&transaction, account.as_str(), "budget_set")?;
            insert_budget(&transaction, &change(&account, ChangeKind::Set, nano_usd))?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Adds an amount to the budget of an account.
    ///
    /// # Errors
    /// [`BudgetError::NoBudget`], [`BudgetError::TooMuch`].
    pub async fn add_budget(&self, account: &Account, nano_usd: i64) -> Result<(), BudgetError> {
        let account = account.clone();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let Some(state) = account_state::read(&transaction, account.as_str(), SettledHolds::Leave)? else {
                return Err(BudgetError::NoBudget(account));
            };
            if state.balance.granted + i128::from(nano_usd) > i128::from(i64::MAX) {
                return Err(BudgetError::TooMuch);
            }
            insert_budget(&transaction, &change(&account, ChangeKind::Added, nano_usd))?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Removes the budget of an account, which then has no limit.
    ///
    /// # Errors
    /// [`BudgetError::NothingToRemove`].
    pub async fn remove_budget(&self, account: &Account) -> Result<(), BudgetError> {
        let account = account.clone();
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if account_state::opening(&transaction, account.as_str())?.is_none() {
                return Err(BudgetError::NothingToRemove(account));
            }
            holds::release_ended_runs(&transaction, account.as_str(), "budget_removed")?;
            insert_budget(&transaction, &change(&account, ChangeKind::Removed, 0))?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Returns the accounts that have a budget, or only this one, each with its amounts and holds.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn budgets(
        &self,
        only: Option<&Account>,
    ) -> Result<Vec<(String, Balance, Vec<BudgetHold>)>, BudgetError> {
        let only = only.map(Account::to_string);
        self.query(move |connection| {
            // One snapshot for all queries.
            let snapshot = connection.transaction()?;
            let accounts: Vec<String> = snapshot
                .prepare("SELECT DISTINCT account FROM budgets WHERE ?1 IS NULL OR account = ?1 ORDER BY account")?
                .query_map([only], |row| row.get(0))?
                .collect::<Result<_, _>>()?;
            let mut budgets = Vec::new();
            for account in accounts {
                if let Some(state) = account_state::read(&snapshot, &account, SettledHolds::Leave)? {
                    budgets.push((account, state.balance, state.held));
                }
            }
            Ok(budgets)
        })
        .await
    }
}

/// Adds the row of an attempt together with its hold, in the caller's transaction. Also returns the row of the hold.
pub(crate) fn admit(
    transaction: &Transaction<'_>,
    request: &AdmissionRequest,
) -> Result<(Admitted, Option<i64>), BudgetError> {
    let AdmissionRequest { entry, cap, default } = request;
    store::insert_run(transaction, entry)?;
    let Some(state) = account_state::read(transaction, &entry.account, SettledHolds::RecordEnd)? else {
        return Ok((Admitted { cap: *cap }, None));
    };
    let cap = insert_hold(transaction, entry, *cap, *default, &state)?;
    Ok((Admitted { cap: Some(cap) }, Some(transaction.last_insert_rowid())))
}

/// Returns the rest of a cap after the attempts of a run before this one. A call of unknown cost takes the amount reserved
/// for it, and an attempt whose audit file was not read takes everything.
pub(crate) fn cap_left(transaction: &Transaction<'_>, next: &RunKey, cap: i64) -> Result<i64, BudgetError> {
    let mut left = cap;
    for attempt in 0..next.attempt {
        let key = RunKey { run_id: next.run_id.clone(), attempt };
        let usage = holds::usage(transaction, &key)?;
        let taken = usage.billed + still_held(left, usage.billed, &usage.state);
        left = i64::try_from((i128::from(left) - taken).max(0)).unwrap_or(left);
    }
    Ok(left)
}

/// Ends the hold of an attempt that never had any resources.
pub(crate) fn release_unused(transaction: &Transaction<'_>, hold: i64) -> rusqlite::Result<()> {
    holds::end(transaction, hold, "settled")
}

/// Inserts the hold of a new run, and returns its amount.
fn insert_hold(
    transaction: &Transaction<'_>,
    entry: &RunRow,
    cap: Option<i64>,
    default: i64,
    state: &AccountState,
) -> Result<i64, BudgetError> {
    let AccountState { budget, balance, counted, .. } = state;
    let hold = balance.admit(cap, default).map_err(|balance| {
        BudgetError::Insufficient(Box::new(Shortfall { account: entry.account.clone(), asked: cap, balance }))
    })?;
    let spent = i64::try_from(balance.spent).map_err(|_| BudgetError::TooMuch)?;
    let (run_id, attempt) = (entry.key.run_id.as_str(), entry.key.attempt);
    transaction.execute(
        "INSERT INTO holds (run_id, attempt, account, nano_usd, budget, spent, counted, made_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        params![run_id, attempt, entry.account, hold, budget, spent, counted, now_us()],
    )?;
    Ok(hold)
}

/// Returns a change that this user makes now.
fn change(account: &Account, kind: ChangeKind, nano_usd: i64) -> BudgetChange {
    BudgetChange { account: account.to_string(), kind, nano_usd, made_us: now_us(), made_by: Some(operator::name()) }
}

/// Inserts a change of a budget.
pub(super) fn insert_budget(transaction: &Transaction<'_>, change: &BudgetChange) -> rusqlite::Result<()> {
    let BudgetChange { account, kind, nano_usd, made_us, made_by } = change;
    transaction.execute(
        "INSERT INTO budgets (account, kind, nano_usd, entries_to, made_us, made_by)
         VALUES (?1, ?2, ?3, (SELECT coalesce(max(id), 0) FROM entries), ?4, ?5)",
        params![account, kind.as_str(), nano_usd, made_us, made_by],
    )?;
    Ok(())
}

/// Adds an amount to the hold of an attempt, if the remaining budget of the account is large enough. An account without
/// a budget has no limit.
pub(crate) fn raise_hold(
    transaction: &Transaction<'_>,
    account: &str,
    hold: Option<i64>,
    nano_usd: i64,
    approval: &str,
) -> Result<(), BudgetError> {
    let Some(state) = account_state::read(transaction, account, SettledHolds::RecordEnd)? else { return Ok(()) };
    if state.balance.left() < i128::from(nano_usd) {
        let (account, balance) = (account.to_owned(), state.balance);
        return Err(BudgetError::Insufficient(Box::new(Shortfall { account, asked: Some(nano_usd), balance })));
    }
    // A run that began without a budget has no hold, and is not counted.
    if let Some(hold) = hold {
        transaction.execute(
            "INSERT INTO hold_raises (hold, nano_usd, approval, made_us) VALUES (?1, ?2, ?3, ?4)",
            params![hold, nano_usd, approval, now_us()],
        )?;
    }
    Ok(())
}
