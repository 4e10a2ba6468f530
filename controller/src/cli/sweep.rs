//! `sluice sweep`: what is left of runs whose controller was killed, and costs that are still open.

use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::json;
use sluice_contract::text::sanitize;
use sluice_runs::host::Host;
use sluice_runs::sweep::{SweepMode, sweep};

use super::{Common, FAILED, Failed, USAGE, print, print_json, progress};
use crate::reconcile::background;

/// Removes containers, sidecars and directories of runs whose controller is gone; only our own. Looks up open costs.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// Says what would be removed, and removes nothing
    #[arg(long)]
    dry_run: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let settings = flags.common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let host = Arc::new(Host::open(&settings.host()).await.map_err(|error| Failed::new(FAILED, &error))?);
    let mode = if flags.dry_run { SweepMode::DryRun } else { SweepMode::Remove };
    let found = sweep(&host, mode, &progress::silent()).await.map_err(|error| Failed::new(FAILED, &error))?;
    if mode == SweepMode::Remove {
        // The next look is not far, and nobody has asked for this one.
        let _ = background::settle(&settings, &host.store).await;
    }
    let stuck = found.iter().any(|leftover| leftover.removed == Some(false));
    if flags.json {
        print_json(&json!({ "leftovers": found }));
    } else if found.is_empty() {
        print("nothing is left over\n");
    } else {
        for leftover in &found {
            let did = match (leftover.removed, &leftover.reason) {
                (None, _) => "would be removed".to_owned(),
                (Some(true), _) => {
                    leftover.audit.as_ref().map_or("removed".to_owned(), |what| format!("removed; {what}"))
                }
                (Some(false), reason) => format!("NOT removed: {}", sanitize(reason.as_deref().unwrap_or_default())),
            };
            print(&format!("{:<10} {:<32} {did}\n", leftover.kind, leftover.name));
        }
    }
    Ok(if stuck { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}
