//! `sluice ps`: lists runs.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::{Account, RunId, RunKey};
use sluice_state::layout::Layout;
use sluice_state::sandboxes::{Sandbox, SandboxFilter, WaitCause};
use sluice_state::store::{KnownRun, RunDriver, RunFilter, Store};

use super::database::open_for_queries;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{print, print_json, terminal_width};
use super::parse::since;
use super::server_args::ServerArgs;

mod remote;
mod row;
mod table;

pub(super) use remote::usage_of;
pub(super) use row::RunView;

/// Maximum number of rows in one read.
const PAGE: u32 = 500;

const EXAMPLES: &str = "\
Examples:
  sluice ps                                            live runs, of sluice run and of a daemon
  sluice ps --all --since 24h --json | jq .runs
  sluice ps --server https://sluice.example.org --token-file alice.token";

/// Lists live runs, newest first.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
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
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &PsArgs) -> Result<ExitCode, CommandError> {
    let views = views(args).await?;
    if args.json {
        print_json(&json!({ "runs": views }));
    } else {
        print(&table::text(&views, terminal_width()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the runs that flags select, newest first.
async fn views(args: &PsArgs) -> Result<Vec<RunView>, CommandError> {
    let since_us = args.since.as_deref().map(since).transpose()?;
    match args.server.named(&args.host)? {
        Some(api) => remote::runs(&api, args, since_us).await,
        None => runs_here(args, since_us).await,
    }
}

/// Returns the unfinished runs, newest first.
pub(super) async fn open_runs(server: &ServerArgs, host: &HostArgs) -> Result<Vec<RunView>, CommandError> {
    let (server, host) = (server.clone(), host.clone());
    views(&PsArgs { all: false, account: None, since: None, json: false, server, host }).await
}

async fn runs_here(args: &PsArgs, since_us: Option<i64>) -> Result<Vec<RunView>, CommandError> {
    let state = args.host.state_dir()?;
    let filter = RunFilter { open: !args.all, account: args.account.as_ref().map(Account::to_string), since_us };
    let store = open_for_queries(&state)?;
    let layout = Layout::at(&state);
    let runs = store.list_runs(filter).await.map_err(|error| CommandError::failed(&error))?;
    let DaemonRuns { rows, causes } = daemon_runs(&store, &runs, args.all).await?;
    let view = |run: &KnownRun| {
        let key = &run.entry.key;
        RunView::of(run, rows.get(&key.run_id), &layout).with_cause(causes.get(key))
    };
    Ok(runs.iter().map(view).collect())
}

/// The daemon's runs of a list.
#[derive(Default)]
struct DaemonRuns {
    rows: BTreeMap<RunId, Sandbox>,
    /// Causes for which their present attempts wait.
    causes: BTreeMap<RunKey, WaitCause>,
}

/// Returns the daemon's runs among these.
async fn daemon_runs(store: &Store, runs: &[KnownRun], all: bool) -> Result<DaemonRuns, CommandError> {
    if !runs.iter().any(|run| run.entry.driver == RunDriver::Daemon) {
        return Ok(DaemonRuns::default());
    }
    let failed = |error: sluice_state::sandboxes::SandboxError| CommandError::failed(&error);
    let mut found = store.live_sandboxes().await.map_err(failed)?;
    let causes = store.wait_causes(&found).await.map_err(failed)?;
    if all {
        let mut after = None;
        loop {
            let page = store.list_sandboxes(SandboxFilter::default(), after, PAGE).await.map_err(failed)?;
            found.extend(page.sandboxes);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
    }
    let rows = found.into_iter().map(|sandbox| (sandbox.key.run_id.clone(), sandbox)).collect();
    Ok(DaemonRuns { rows, causes })
}
