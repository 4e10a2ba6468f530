//! `sluice receipts`: lists the costs of calls.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use clap::Args;
use sluice_contract::Account;
use sluice_state::ledger::Filter;

use super::database::open;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::fail;
use super::parse::{run_or_attempt, since};

mod csv;
mod list;

use list::{ListFormat, ReceiptList};

const EXAMPLES: &str = "\
Examples:
  sluice receipts --run r20261120-163914-1df9af22
  sluice receipts --account acct-1 --since 2026-11-01 --csv > november.csv
  sluice receipts --since 1h --json | jq .total
  sluice usage --by account";

/// Lists receipts: one for each call that was about to be sent upstream.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct ReceiptsArgs {
    /// List receipts of this run, or of one attempt of it
    #[arg(long, value_name = "RUN[.ATTEMPT]")]
    run: Option<String>,
    /// List receipts of this account
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// List receipts that were made or changed since this time: 2026-11-20, 2026-11-20T16:00:00Z, or 24h ago; each with all
    /// its entries, also earlier ones. sluice usage --by day shows the sum of a day
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a head line; a text that a spreadsheet would take for a formula gets a ' before it
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &ReceiptsArgs) -> Result<ExitCode, CommandError> {
    let settings = args.host.settings()?;
    let filter = args.filter()?;
    let list = Arc::new(Mutex::new(ReceiptList::begin(args.format())));
    let rows = Arc::clone(&list);
    // This runs on the thread of the database: a slow reader of stdout slows it down, and memory use stays constant.
    let each = move |receipt| rows.lock().is_ok_and(|mut list| list.take(&receipt));
    let listed = open(&settings.host.state_dir)?.list(filter, each).await;
    let listed = listed.map_err(|error| CommandError::failed(&error));
    let Ok(mut list) = list.lock() else { return listed.map(|_| ExitCode::SUCCESS) };
    match listed {
        Ok(listed) => list.end(&listed),
        Err(error) if list.abort(&error) => return Ok(fail(&error)),
        Err(error) => return Err(error),
    }
    Ok(ExitCode::SUCCESS)
}

impl ReceiptsArgs {
    fn format(&self) -> ListFormat {
        match (self.csv, self.json) {
            (true, _) => ListFormat::Csv,
            (false, true) => ListFormat::Json,
            (false, false) => ListFormat::Table,
        }
    }

    fn filter(&self) -> Result<Filter, CommandError> {
        let (run_id, attempt) = self.run.as_deref().map(run_or_attempt).unzip();
        let since_us = self.since.as_deref().map(since).transpose()?;
        Ok(Filter {
            run_id,
            attempt: attempt.flatten(),
            account: self.account.as_ref().map(Account::to_string),
            since_us,
            ..Filter::default()
        })
    }
}
