//! Flags that select receipts.

use clap::Args;
use sluice_contract::Account;
use sluice_state::ledger::Filter;
use sluice_state::store::Store;

use super::error::CommandError;
use super::parse::{run_or_attempt, time};

/// Flags that select receipts. All that are given must match.
#[derive(Debug, Args)]
pub(super) struct SelectionArgs {
    /// Only this run, or one attempt of it
    #[arg(long, value_name = "RUN[.ATTEMPT]")]
    run: Option<String>,
    /// Only this account
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// Only calls that named this model
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Only what was booked since this time: 2026-11-20 (its beginning in UTC), 2026-11-20T16:00:00Z, or 24h ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only what was booked before this time; --since 2026-11-01 --until 2026-12-01 is November
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
}

impl SelectionArgs {
    /// Returns the selection. The run is not looked up.
    ///
    /// # Errors
    /// Wrong usage: a text that is not a time, or times in the wrong order.
    pub(super) fn filter(&self) -> Result<Filter, CommandError> {
        let since_us = self.since.as_deref().map(|text| time("--since", text)).transpose()?;
        let until_us = self.until.as_deref().map(|text| time("--until", text)).transpose()?;
        if since_us.zip(until_us).is_some_and(|(since, until)| since >= until) {
            let message = "--until is not after --since; it names the first moment that does not count";
            return Err(CommandError::wrong_usage(message));
        }
        let (run_id, attempt) = self.run.as_deref().map(run_or_attempt).unzip();
        let account = self.account.as_ref().map(Account::to_string);
        let (attempt, model) = (attempt.flatten(), self.model.clone());
        Ok(Filter { run_id, attempt, account, model, since_us, until_us, ..Filter::default() })
    }
}

/// Checks that the database knows the run of a selection.
///
/// # Errors
/// Wrong usage if it does not.
pub(super) async fn check_run(store: &Store, filter: &Filter) -> Result<(), CommandError> {
    let Some(run) = &filter.run_id else { return Ok(()) };
    let known = store.span_of_run(run.clone(), filter.attempt).await.map_err(|error| CommandError::failed(&error))?;
    if known.is_some() {
        return Ok(());
    }
    let attempt = filter.attempt.map_or_else(String::new, |attempt| format!(".{attempt}"));
    let message = format!("there is no run {run}{attempt} in the ledger; sluice receipts lists those there are");
    Err(CommandError::wrong_usage(message))
}
