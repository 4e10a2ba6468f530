//! `sluice sweep`: removes leftovers of killed controllers, and looks up open costs.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use clap::Args;
use serde_json::json;
use sluice_contract::exit;
use sluice_contract::text::{error_chain, sanitize};
use sluice_runs::event_log::LogLevel;
use sluice_runs::host::Host;
use sluice_runs::repository_retention::remove_old_repositories;
use sluice_runs::sweep::{Leftover, SweepMode, SweepScope, sweep, swept_entry};
use sluice_state::daemon_lock::DaemonLock;
use sluice_state::record_retention::remove_old_records;

use super::error::CommandError;
use super::host_args::{HostArgs, host_for_removal};
use super::object::CommandObject;
use super::output::{print, print_object, say};
use super::{operator_record, progress, stderr_log};
use crate::reconcile::background::ReconcileLoop;

/// Removes containers, sidecars and directories of runs whose controller has ended. It removes only those of this state
/// directory. It also removes old records, and looks up open costs.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// List what would be removed, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Also end the runs of a daemon that is not running. Without it they stay for the next daemon
    #[arg(long)]
    daemon_runs: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &SweepArgs) -> Result<ExitCode, CommandError> {
    let scope = if args.daemon_runs { SweepScope::All } else { SweepScope::OneShot };
    let leftovers = if args.dry_run { look(&args.host, scope).await? } else { remove(&args.host, scope).await? };
    leftovers.iter().for_each(log);
    let stuck = stuck(&leftovers);
    if args.json {
        print_object(&CommandObject::of(stuck.as_ref(), json!({ "leftovers": leftovers })));
    } else if leftovers.is_empty() {
        print("nothing is left over\n");
    } else {
        leftovers.iter().for_each(|leftover| print(&line(leftover)));
    }
    Ok(stuck.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
}

/// Returns the error for leftovers that could not be removed.
fn stuck(leftovers: &[Leftover]) -> Option<CommandError> {
    let stuck = leftovers.iter().filter(|leftover| leftover.removed == Some(false));
    let names: Vec<_> = stuck.map(|leftover| format!("{} {}", leftover.kind, leftover.name)).collect();
    let message = format!("cannot remove {}", names.join(", "));
    (!names.is_empty()).then_some(CommandError { code: exit::FAILED, message })
}

/// Lists leftovers, and writes nothing.
async fn look(args: &HostArgs, scope: SweepScope) -> Result<Vec<Leftover>, CommandError> {
    let host = Host::open_to_look(&args.host_without_key()?).await.map_err(|error| CommandError::failed(&error))?;
    let Some(host) = host else { return Ok(Vec::new()) };
    let leftovers = sweep(&Arc::new(host), SweepMode::DryRun, scope, &progress::silent()).await;
    leftovers.map_err(|error| CommandError::failed(&error))
}

/// Removes leftovers and old records, and looks up open costs.
async fn remove(args: &HostArgs, scope: SweepScope) -> Result<Vec<Leftover>, CommandError> {
    let usage = |error| CommandError::usage(&error);
    let layers = args.layers(BTreeMap::new()).map_err(usage)?;
    let keep = layers.record_keep().map_err(usage)?;
    let without_key = "open costs are not looked up, and virtual keys are not deleted";
    let (settings, litellm) = host_for_removal(&layers, without_key)?;
    let host = Arc::new(Host::open(&settings).await.map_err(|error| CommandError::failed(&error))?);
    // The lock keeps a daemon from starting before the sweep has ended.
    let _lock = match scope {
        SweepScope::OneShot => None,
        SweepScope::All => Some(DaemonLock::hold(host.layout.state()).map_err(|error| CommandError::failed(&error))?),
    };
    let leftovers = remove_leftovers(&host, scope).await?;
    remove_records(&host, keep).await;
    if let Some(reconcile) = litellm.and_then(|litellm| ReconcileLoop::new(&litellm, host.store.clone())) {
        // A failure is not reported: the next run or sweep tries again, and no user requested this.
        reconcile.look().await;
    }
    Ok(leftovers)
}

/// Removes leftovers. If there are some, the control log has them first.
async fn remove_leftovers(host: &Arc<Host>, scope: SweepScope) -> Result<Vec<Leftover>, CommandError> {
    let swept = async |mode| {
        let swept = sweep(host, mode, scope, &progress::silent()).await;
        swept.map_err(|error| CommandError::failed(&error))
    };
    let found = swept(SweepMode::DryRun).await?;
    if found.is_empty() {
        return swept(SweepMode::Remove).await;
    }
    let recorded = operator_record::begin(host.layout.state(), swept_entry(&found))?;
    recorded.end(swept(SweepMode::Remove).await)
}

/// Writes a leftover to the log, if there is one.
fn log(leftover: &Leftover) {
    if stderr_log::is_json() {
        let level = if leftover.removed == Some(false) { LogLevel::Error } else { LogLevel::Info };
        stderr_log::event(level, "leftover", json!(leftover));
    }
}

/// Removes expired records. A failure is only a message, since it leaves no running resources.
async fn remove_records(host: &Host, keep: Duration) {
    match remove_old_records(&host.layout, &host.store, keep).await {
        Ok(records) => records.remaining.iter().for_each(|(key, reason)| {
            say(&format!("the record of run {key} is not removed: {reason}"));
        }),
        Err(error) => say(&format!("old records are not removed: {}", error_chain(&error))),
    }
    if let Err(error) = remove_old_repositories(&host.git, &host.store, keep, SystemTime::now()).await {
        say(&format!("old repositories are not removed: {}", error_chain(&error)));
    }
}

fn line(leftover: &Leftover) -> String {
    let result = match (leftover.removed, &leftover.reason) {
        (None, _) => "would be removed".to_owned(),
        (Some(true), _) => {
            let remarks = leftover.taken.remarks(&leftover.name);
            remarks.iter().fold("removed".to_owned(), |text, remark| format!("{text}; {remark}"))
        }
        (Some(false), reason) => format!("NOT removed: {}", sanitize(reason.as_deref().unwrap_or_default())),
    };
    format!("{:<10} {:<32} {result}\n", leftover.kind, leftover.name)
}
