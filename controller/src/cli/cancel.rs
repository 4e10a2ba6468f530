//! `sluice cancel`: ends a run from another terminal.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use nix::sys::signal::Signal;
use serde_json::json;
use sluice_contract::exit;
use sluice_contract::text::error_chain;
use sluice_runs::host::Host;
use sluice_runs::removal;
use sluice_runs::sweep::take_down;
use sluice_state::store::{KnownRun, RunDriver, Store};

use super::database::open;
use super::error::CommandError;
use super::find_run::find_run;
use super::host_args::{HostArgs, host_for_removal};
use super::output::{print, print_json, say};
use super::progress;
use super::server_args::ServerArgs;
use crate::settings::SettingLayers;

mod at_daemon;

/// Time between two checks of a run that ends.
const EVERY: Duration = Duration::from_millis(100);

const EXAMPLES: &str = "\
Examples:
  sluice cancel nightly --wait
  sluice cancel --all --owner alice";

/// Ends a live run, as Ctrl-C in its terminal does. A second cancel kills its program at once. A run whose controller was
/// killed is taken down. A daemon's run is cancelled by the daemon, and a second cancel changes nothing.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct CancelArgs {
    /// The run: its id, the name of a daemon's run, or the beginning of its id
    #[arg(value_name = "RUN", required_unless_present = "all", conflicts_with = "all")]
    run: Option<String>,
    /// Cancel all live runs of the daemon that this user may cancel
    #[arg(long)]
    all: bool,
    /// With --all, only the runs of this owner
    #[arg(long, value_name = "OWNER", requires = "all")]
    owner: Option<String>,
    /// Wait until the run is over
    #[arg(long)]
    wait: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &CancelArgs) -> Result<ExitCode, CommandError> {
    if args.all {
        return at_daemon::cancel_all(&args.server.daemon(&args.host)?, args).await;
    }
    let name = args.run.as_deref().unwrap_or_default();
    if let Some(api) = args.server.named(&args.host)? {
        return at_daemon::cancel(&api, name, args).await;
    }
    // A live run can be stopped with settings that are not valid for a new one.
    let layers = args.host.layers(BTreeMap::new()).map_err(|error| CommandError::usage(&error))?;
    let store = open(&layers.state_dir())?;
    let run = find_run(&store, name).await?;
    let key = run.entry.key.clone();
    if run.entry.driver == RunDriver::Daemon {
        // Its owner is a process that drives other runs as well.
        let api = args.server.daemon(&args.host)?;
        return at_daemon::cancel(&api, key.run_id.as_str(), args).await;
    }
    if run.is_closed() {
        return Err(over(&key.to_string()));
    }
    let done = if run.entry.owner.is_alive() {
        signal(&run)?;
        if args.wait { wait(&store, &run).await? } else { "asked to end" }
    } else {
        take_down_orphan(&layers, &run).await?
    };
    if args.json {
        print_json(&json!({ "run": key.to_string(), "state": done.replace(' ', "_") }));
    } else {
        print(&format!("run {key}: {done}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the error of a run that has ended.
fn over(run: &str) -> CommandError {
    failed(format!("run {run} is over already; sluice inspect {run} shows its result"))
}

/// Sends the signal of Ctrl-C to the controller that drives the run.
fn signal(run: &KnownRun) -> Result<(), CommandError> {
    let (key, owner) = (&run.entry.key, &run.entry.owner);
    owner.signal(Signal::SIGINT).map_err(|error| {
        failed(format!("cannot signal the controller of run {key} (pid {}): {}", owner.pid, error_chain(&error)))
    })
}

/// Waits until the run is over and its controller has removed its resources, or is gone.
async fn wait(store: &Store, run: &KnownRun) -> Result<&'static str, CommandError> {
    let key = &run.entry.key;
    let mut look = tokio::time::interval(EVERY);
    loop {
        look.tick().await;
        let now = store.find_run(key).await.map_err(|error| CommandError::failed(&error))?;
        if now.is_none_or(|now| now.is_closed()) {
            return Ok("over");
        }
        if !run.entry.owner.is_alive() {
            return Err(failed(format!(
                "the controller of run {key} ended before the run; sluice sweep takes it down"
            )));
        }
    }
}

async fn take_down_orphan(layers: &SettingLayers, run: &KnownRun) -> Result<&'static str, CommandError> {
    let (settings, _) =
        host_for_removal(layers, "the virtual key of the run, if it has one, is left to the next sweep")?;
    let host = Arc::new(Host::open(&settings).await.map_err(|error| CommandError::failed(&error))?);
    let taken = take_down(&host, &run.as_open(), &progress::silent()).await;
    let taken = taken.map_err(|error| CommandError::failed(&error))?;
    taken.remarks(run.entry.key.run_id.as_str()).iter().for_each(|remark| say(remark));
    let (runs, own) = (host.layout.runs_directory(), run.entry.key.to_string());
    let removing = tokio::task::spawn_blocking(move || removal::remove_all(&runs, Some(&own), None));
    // Directories of other runs are left to the sweep that reports them.
    let own = run.entry.key.to_string();
    match removing.await.unwrap_or_default().into_iter().find(|remaining| remaining.name == own) {
        Some(remaining) => Err(failed(format!("the directory of run {own} is not removed: {}", remaining.reason))),
        None => Ok("taken down"),
    }
}

fn failed(message: String) -> CommandError {
    CommandError { code: exit::FAILED, message }
}
