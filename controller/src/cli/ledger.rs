//! `sluice ledger`: compares the ledger with the audit files, and copies it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_contract::exit;
use sluice_contract::text::{error_chain, sanitize};
use sluice_state::budget::{BudgetLog, LogError};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::{AuditArchive, RebuildReport, RestoreReport};
use sluice_state::store::Store;

use super::database::{open, open_or_create};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::object::CommandObject;
use super::output::{OutputFormat, print, print_json, print_object};

const EXIT_CODES: &str = "\
Exit codes: 0 ledger and audit files agree; 122 they differ; 1 something cannot be read or written; 2 usage.";

/// Rebuilds, checks and copies the ledger.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct LedgerArgs {
    #[command(subcommand)]
    command: LedgerCommand,
}

#[derive(Debug, Subcommand)]
enum LedgerCommand {
    /// Rebuilds the ledger from all audit files: adds missing entries, and reports differences
    ///
    /// If the database is lost or is an old copy, it also restores the budgets from their log (budgets.log in the state
    /// directory), and reports what it cannot restore.
    Rebuild {
        /// Report differences, and add nothing
        #[arg(long)]
        check: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Copies the database, also while it is in use, to a file that does not exist yet
    Backup {
        /// Path of the copy
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
}

pub(super) async fn run(args: &LedgerArgs) -> Result<ExitCode, CommandError> {
    let (LedgerCommand::Rebuild { host, .. } | LedgerCommand::Backup { host, .. }) = &args.command;
    let settings = host.settings()?;
    let may_create = matches!(args.command, LedgerCommand::Rebuild { check: false, .. });
    let is_lost =
        !Layout::at(&settings.host.state_dir).database().exists() && settings.host.state_dir.join("audit").is_dir();
    let store =
        if may_create && is_lost { open_or_create(&settings.host.state_dir)? } else { open(&settings.host.state_dir)? };
    store.check_integrity().await.map_err(|error| CommandError::failed(&error))?;
    match &args.command {
        LedgerCommand::Rebuild { check, json, .. } => {
            let mode = if *check { RebuildMode::Check } else { RebuildMode::Fill };
            let rebuilt = rebuild(&settings.host.state_dir, &store, mode).await?;
            let differs = differs(&rebuilt);
            if *json {
                print_object(&CommandObject::of(differs.as_ref(), &rebuilt));
            } else {
                print(&text(&rebuilt));
            }
            Ok(differs.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
        }
        LedgerCommand::Backup { file, json, .. } => {
            store.back_up(file).await.map_err(|error| CommandError::failed(&error))?;
            match OutputFormat::from(*json) {
                OutputFormat::Json => print_json(&serde_json::json!({ "file": file })),
                OutputFormat::Text => print(&format!("{}\n", file.display())),
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the error for differences.
fn differs(rebuilt: &RebuildReport) -> Option<CommandError> {
    let count = rebuilt.differences.len();
    let message = format!("ledger and audit files differ: {count} differences");
    (count > 0).then_some(CommandError { code: exit::MISMATCH, message })
}

/// Mode of a rebuild.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RebuildMode {
    /// Report differences.
    Check,
    /// Also add missing entries.
    Fill,
}

async fn rebuild(state: &Path, store: &Store, mode: RebuildMode) -> Result<RebuildReport, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let keys = Keys::open(state).map_err(|error| failed(&error))?;
    let public = keys.public().map_err(|error| failed(&error))?;
    let layout = Layout::at(state);
    let archive = AuditArchive { layout: &layout, store, keys: &public };
    let budgets = BudgetLog { layout: &layout, keys: &keys, store };
    let mut rebuilt = match mode {
        RebuildMode::Check => archive.check().await.map_err(|error| failed(&error))?,
        RebuildMode::Fill => {
            let was_new = store.is_new().await.map_err(|error| failed(&error))?;
            let restored = match budgets.restore(&archive).await {
                Ok(restored) => restored,
                // The budgets' error is reported below; the receipts are restored from the files.
                Err(LogError::Forged(..) | LogError::Damaged { .. }) => 0,
                Err(error) => return Err(failed(&error)),
            };
            let mut rebuilt = archive.fill().await.map_err(|error| failed(&error))?;
            let is_old = restored > 0 || (was_new && rebuilt.files > 0);
            rebuilt.restored = is_old.then_some(RestoreReport { budgets: restored, not_known: NOT_KNOWN });
            rebuilt
        }
    };
    let followed = match mode {
        RebuildMode::Check => budgets.inspect().await,
        RebuildMode::Fill => budgets.synchronize().await,
    };
    match followed {
        Ok(None) => {}
        Ok(Some(error)) | Err(error @ (LogError::Ahead { .. } | LogError::Lost(_) | LogError::Forged(..))) => {
            rebuilt.report_budget_log(error_chain(&error));
        }
        Err(error) => return Err(failed(&error)),
    }
    Ok(rebuilt)
}

/// Facts that neither audit files nor the log of budgets contain.
const NOT_KNOWN: &[&str] = &[
    "reservations of ended runs for calls of unknown cost: they are released",
    "costs that sluice reconcile had settled: run it again",
    "lines of audit files that were seen while they were written: from now on their last lines count as seen",
    "ids of runs that have no audit file: they can be used again",
];

fn text(rebuilt: &RebuildReport) -> String {
    let RebuildReport { files, under_way, added, restored, sums_renewed, by_files, by_ledger, differences } = rebuilt;
    let mut text = String::new();
    for difference in differences {
        let name = difference.source_reference.as_ref().unwrap_or(&difference.run);
        text += &format!("{name}: {}: {}\n", difference.found.as_str(), sanitize(&difference.detail));
    }
    let dollars = |cost: Option<String>| cost.unwrap_or_else(|| "0".to_owned());
    text += &format!("files    {files} read, {under_way} runs under way\n");
    text += &format!("added    {} receipts, {} entries\n", added.receipts, added.entries);
    if let Some(RestoreReport { budgets, not_known }) = restored {
        text += &format!("restored {budgets} changes of budgets; the database was lost or old, and does not know:\n");
        text.extend(not_known.iter().map(|what| format!("         - {what}\n")));
    }
    if *sums_renewed > 0 {
        text += &format!("sums     {sums_renewed} were wrong, and all are added up again\n");
    }
    text += &format!("files    {} calls, ${}\n", by_files.calls, dollars(by_files.cost_usd()));
    text += &format!("ledger   {} calls, ${}\n", by_ledger.calls, dollars(by_ledger.cost_usd()));
    let verdict = if differences.is_empty() { "agree" } else { "DIFFER" };
    text + &format!("they {verdict}\n")
}
