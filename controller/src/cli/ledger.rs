//! `sluice ledger`: whether the ledger is what the audit files say, and a copy of it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_contract::text::{error_chain, sanitize};
use sluice_state::budget::{BudgetLog, LogError};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::ledger::{AuditArchive, RebuildReport, RestoreReport};
use sluice_state::store::Store;

use super::receipts::open;
use super::{Common, FAILED, Failed, MISMATCH, USAGE, print, print_json};

const EXIT_CODES: &str = "\
Exit codes: 0 ledger and audit files agree; 122 they differ; 1 something cannot be read or written; 2 usage.";

/// Looks after the ledger.
#[derive(Debug, Args)]
#[command(after_help = EXIT_CODES)]
pub(super) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Builds the ledger again from all audit files: adds what is missing, and names what differs
    ///
    /// Where the database is gone, or an old copy, it also restores the budgets from their log (budgets.log in the state
    /// directory), and says what it cannot know.
    Rebuild {
        /// Adds nothing
        #[arg(long)]
        check: bool,
        /// One JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Copies the database, while it is in use, to a file that is not there yet
    Backup {
        /// The copy
        #[arg(value_name = "FILE")]
        file: PathBuf,
        #[command(flatten)]
        common: Common,
    },
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let (Command::Rebuild { common, .. } | Command::Backup { common, .. }) = &flags.command;
    let settings = common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let makes_one = matches!(flags.command, Command::Rebuild { check: false, .. });
    let is_lost = !Layout::at(&settings.state_dir).database().exists() && settings.state_dir.join("audit").is_dir();
    let store = if makes_one && is_lost {
        let layout = Layout::open(&settings.state_dir).map_err(|error| Failed::new(FAILED, &error))?;
        Store::open(&layout.database()).map_err(|error| Failed::new(FAILED, &error))?
    } else {
        open(&settings.state_dir)?
    };
    store.check_integrity().await.map_err(|error| Failed::new(FAILED, &error))?;
    match &flags.command {
        Command::Rebuild { check, json, .. } => {
            let mode = if *check { Mode::Check } else { Mode::Fill };
            let rebuilt = rebuild(&settings.state_dir, &store, mode).await?;
            if *json {
                print_json(&rebuilt);
            } else {
                print(&text(&rebuilt));
            }
            Ok(if rebuilt.differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(MISMATCH) })
        }
        Command::Backup { file, .. } => {
            store.back_up(file).await.map_err(|error| Failed::new(FAILED, &error))?;
            print(&format!("{}\n", file.display()));
            Ok(ExitCode::SUCCESS)
        }
    }
}

enum Mode {
    Check,
    Fill,
}

async fn rebuild(state: &Path, store: &Store, mode: Mode) -> Result<RebuildReport, Failed> {
    let failed = |error: &dyn std::error::Error| Failed::new(FAILED, error);
    let keys = Keys::open(state).map_err(|error| failed(&error))?;
    let public = keys.public().map_err(|error| failed(&error))?;
    let layout = Layout::at(state);
    let shelf = AuditArchive { layout: &layout, store, keys: &public };
    let budgets = BudgetLog { layout: &layout, keys: &keys, store };
    let mut rebuilt = match mode {
        Mode::Check => shelf.check().await.map_err(|error| failed(&error))?,
        Mode::Fill => {
            let was_new = store.is_new().await.map_err(|error| failed(&error))?;
            let restored = match budgets.restore(&shelf).await {
                Ok(restored) => restored,
                // What it says of budgets is told below; the files say the rest.
                Err(LogError::Forged(..) | LogError::Damaged { .. }) => 0,
                Err(error) => return Err(failed(&error)),
            };
            let mut rebuilt = shelf.fill().await.map_err(|error| failed(&error))?;
            let is_old = restored > 0 || (was_new && rebuilt.files > 0);
            rebuilt.restored = is_old.then_some(RestoreReport { budgets: restored, not_known: NOT_KNOWN });
            rebuilt
        }
    };
    let followed = match mode {
        Mode::Check => budgets.inspect().await,
        Mode::Fill => budgets.synchronize().await,
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

/// What no audit file and no log of budgets says.
const NOT_KNOWN: &[&str] = &[
    "what runs that are over held of budgets for calls of unknown cost: it is held no more",
    "what sluice reconcile had settled: run it again",
    "what was seen of audit files while they were written: from now on their last lines count as seen",
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
