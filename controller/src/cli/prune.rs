//! `sluice prune`: removes old audit files whose receipts are final.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::text::sanitize;
use sluice_state::control_log::ControlEntry;
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::{AuditArchive, PruneOrder, Pruned};

use super::database::{lock_files, open, open_for_queries};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::operator_record;
use super::output::{print, print_json};
use super::parse::{reason, time};

const EXAMPLES: &str = "\
Examples:
  sluice prune --before 2160h --dry-run        what would go: runs that are over for 90 days
  sluice prune --before 2026-08-01 --archive /backup/audit --reason 'yearly archive'";

/// Removes audit files of runs that are over and settled. Their receipts stay in the ledger.
///
/// A file stays if its run is under way, if the cost of a call is not known, or if the ledger differs from the file. The last
/// hash of each removed file is kept, so that a file that comes back is recognized. After the loss of the database, receipts of
/// pruned files come back only with the database, or with the files: make backups.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct PruneArgs {
    /// Remove the files of runs whose last booking is before this time: 2026-08-01, 2026-08-01T16:00:00Z, or 2160h ago
    #[arg(long, value_name = "TIME")]
    before: String,
    /// List what would be removed, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Move the files to this directory, in place of removing them
    #[arg(long, value_name = "DIR")]
    archive: Option<PathBuf>,
    /// The reason, for the control log; required without --dry-run
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run", value_parser = reason)]
    reason: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &PruneArgs) -> Result<ExitCode, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let state = args.host.state_dir()?;
    let order =
        PruneOrder { before_us: time("--before", &args.before)?, archive: args.archive.clone(), dry_run: args.dry_run };
    let store = if args.dry_run { open_for_queries(&state)? } else { open(&state)? };
    let _lock = if args.dry_run { None } else { Some(lock_files(&state)?) };
    let (layout, keys) = (Layout::at(&state), Keys::at(&state));
    let public = keys.public().map_err(|error| failed(&error))?;
    let archive = AuditArchive { layout: &layout, store: &store, keys: &public };
    let recorded = if args.dry_run { None } else { Some(operator_record::begin(&state, args.entry())?) };
    let pruned = archive.prune(&keys, &order).await.map_err(|error| failed(&error));
    let pruned = match recorded {
        Some(recorded) => recorded.end(pruned)?,
        None => pruned?,
    };
    if args.json {
        let Pruned { runs, bytes, kept, newer } = &pruned;
        let files = runs.len();
        print_json(&json!({
            "dry_run": args.dry_run, "files": files, "bytes": bytes, "runs": runs, "kept": kept, "newer_files": newer,
        }));
    } else {
        print(&text(args, &pruned));
    }
    Ok(ExitCode::SUCCESS)
}

impl PruneArgs {
    /// Returns the line of the control log.
    fn entry(&self) -> ControlEntry {
        let archive = self.archive.as_ref().map(|archive| archive.display().to_string());
        ControlEntry {
            operation: "prune".to_owned(),
            after: Some(json!({ "before": self.before, "archive": archive })),
            reason: self.reason.clone(),
            ..ControlEntry::default()
        }
    }
}

fn text(args: &PruneArgs, pruned: &Pruned) -> String {
    let mut text = String::new();
    for kept in &pruned.kept {
        text += &format!("{} stays: {}\n", kept.run, sanitize(&kept.reason));
    }
    let done = match (args.dry_run, &args.archive) {
        (true, _) => "would be removed".to_owned(),
        (false, Some(archive)) => format!("moved to {}", archive.display()),
        (false, None) => "removed".to_owned(),
    };
    let Pruned { runs, bytes, kept, newer } = pruned;
    text += &format!("{} audit files, {bytes} bytes: {done}\n", runs.len());
    text + &format!("{} older ones stay, and {newer} newer ones\n", kept.len())
}
