//! `sluice ps`: lists runs.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::Account;
use sluice_state::layout::Layout;
use sluice_state::store::RunFilter;

use super::database::open_for_queries;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{print, print_json, terminal_width};
use super::parse::since;

mod row;
mod table;

pub(super) use row::RunView;

/// Lists the runs that go on, newest first.
#[derive(Debug, Args)]
pub(super) struct PsArgs {
    /// List also the runs that are over
    #[arg(long, short)]
    all: bool,
    /// List runs of this account
    #[arg(long, value_name = "ID")]
    account: Option<Account>,
    /// List runs that began since this time: 2026-11-20, 2026-11-20T16:00:00Z, or 24h ago
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &PsArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    let filter = RunFilter {
        open: !args.all,
        account: args.account.as_ref().map(Account::to_string),
        since_us: args.since.as_deref().map(since).transpose()?,
    };
    let store = open_for_queries(&state)?;
    let layout = Layout::at(&state);
    let runs = store.list_runs(filter).await.map_err(|error| CommandError::failed(&error))?;
    let views: Vec<_> = runs.iter().map(|run| RunView::of(run, &layout)).collect();
    if args.json {
        print_json(&json!({ "runs": views }));
    } else {
        print(&table::text(&views, terminal_width()));
    }
    Ok(ExitCode::SUCCESS)
}
