//! `sluice sweep`: removes leftovers of killed controllers, and looks up open costs.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use sluice_contract::exit;
use sluice_contract::text::sanitize;
use sluice_runs::host::Host;
use sluice_runs::sweep::{Leftover, SweepMode, sweep};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::object::CommandObject;
use super::output::{print, print_object};
use super::progress;
use crate::reconcile::background::ReconcileLoop;

/// Removes containers, sidecars and directories of runs whose controller has ended. It removes only those of this state
/// directory. It also looks up open costs.
#[derive(Debug, Args)]
pub(super) struct SweepArgs {
    /// List what would be removed, and remove nothing
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &SweepArgs) -> Result<ExitCode, CommandError> {
    let settings = args.host.settings()?;
    let host = Arc::new(Host::open(&settings.host).await.map_err(|error| CommandError::failed(&error))?);
    let mode = if args.dry_run { SweepMode::DryRun } else { SweepMode::Remove };
    let leftovers = sweep(&host, mode, &progress::silent()).await.map_err(|error| CommandError::failed(&error))?;
    if mode == SweepMode::Remove
        && let Some(reconcile) = ReconcileLoop::new(&settings.litellm, host.store.clone())
    {
        // A failure is not reported: the next run or sweep looks again, and no user asked for this look.
        reconcile.look().await;
    }
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

fn line(leftover: &Leftover) -> String {
    let result = match (leftover.removed, &leftover.reason) {
        (None, _) => "would be removed".to_owned(),
        (Some(true), _) => leftover.audit.as_ref().map_or("removed".to_owned(), |what| format!("removed; {what}")),
        (Some(false), reason) => format!("NOT removed: {}", sanitize(reason.as_deref().unwrap_or_default())),
    };
    format!("{:<10} {:<32} {result}\n", leftover.kind, leftover.name)
}
