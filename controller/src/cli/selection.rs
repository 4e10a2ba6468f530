//! Flags that select receipts.

use clap::Args;
use sluice_contract::{Account, exit};
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
    /// Returns the selection.
    ///
    /// # Errors
    /// Wrong usage: a time that is none, times in the wrong order, or a run that the database does not know.
    pub(super) async fn filter(&self, store: &Store) -> Result<Filter, CommandError> {
        let wrong = |message| CommandError { code: exit::USAGE, message };
        let since_us = self.since.as_deref().map(|text| time("--since", text)).transpose()?;
        let until_us = self.until.as_deref().map(|text| time("--until", text)).transpose()?;
        if since_us.zip(until_us).is_some_and(|(since, until)| since >= until) {
            return Err(wrong("--until is not after --since; it names the first moment that does not count".to_owned()));
        }
        let (run_id, attempt) = self.run.as_deref().map(run_or_attempt).unzip();
        let attempt = attempt.flatten();
        if let Some(run) = &run_id {
            let known = store.span_of_run(run.clone(), attempt).await.map_err(|error| CommandError::failed(&error))?;
            if known.is_none() {
                let run = self.run.as_deref().unwrap_or_default();
                return Err(wrong(format!("there is no run {run} in the ledger; sluice receipts lists those there are")));
            }
        }
        let account = self.account.as_ref().map(Account::to_string);
        Ok(Filter { run_id, attempt, account, model: self.model.clone(), since_us, until_us, ..Filter::default() })
    }
}
