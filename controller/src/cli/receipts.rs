//! `sluice receipts`: lists the costs of calls.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use clap::Args;

use super::database::open_for_queries;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::fail;
use super::selection::{SelectionArgs, check_run};
use super::server_args::ServerArgs;

mod csv;
mod list;
mod remote;

pub(super) use csv::quoted;
use list::{ListFormat, ReceiptList};

const EXAMPLES: &str = "\
Examples:
  sluice receipts --run r20261120-163914-1df9af22
  sluice receipts --account acct-1 --since 2026-11-01 --until 2026-12-01 --csv > november.csv
  sluice receipts --since 1h --json | jq .total
  sluice usage --by account";

/// Lists receipts: one for each call that was about to be sent upstream.
///
/// With --since or --until it lists each receipt that was made or changed in that time, with all its entries, also earlier
/// and later ones. So it is not the sum of a period: sluice usage is.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct ReceiptsArgs {
    #[command(flatten)]
    selection: SelectionArgs,
    /// Print one JSON object
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print comma-separated values with a head line: amounts in dollars and nano-dollars, times in UTC; a text that a spreadsheet would take for a formula gets a ' before it
    #[arg(long)]
    csv: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &ReceiptsArgs) -> Result<ExitCode, CommandError> {
    let filter = args.selection.filter()?;
    if let Some(api) = args.server.named(&args.host)? {
        remote::print_receipts(&api, args, &filter).await?;
        return Ok(ExitCode::SUCCESS);
    }
    let state = args.host.state_dir()?;
    let store = open_for_queries(&state)?;
    check_run(&store, &filter).await?;
    let list = Arc::new(Mutex::new(ReceiptList::begin(args.format())));
    let rows = Arc::clone(&list);
    // This runs on the thread of the database: a slow reader of stdout slows it down, and memory use stays constant.
    let each = move |receipt| rows.lock().is_ok_and(|mut list| list.take(&receipt));
    let listed = store.list(filter, each).await;
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
}
