//! `sluice ledger`: compares the ledger with the audit files, corrects it, and copies it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use sluice_contract::exit;
use sluice_state::layout::Layout;
use sluice_state::store::Store;

use super::database::{lock_files, open, open_for_queries, open_or_replace};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::object::CommandObject;
use super::output::{OutputFormat, print, print_json, print_object};

mod import;
mod rebuild;
mod void;

pub(super) use rebuild::{RebuildMode, rebuild};

const EXIT_CODES: &str = "\
Exit codes: 0 ledger and audit files agree; 122 they differ; 1 something cannot be read or written; 2 usage.
Exit codes of import: 0 all files are imported; 1 one was altered, or conflicts with a run of this host; 2 usage;
4 unreadable, or not an audit file; 6 signed by an unknown key, or not signed.";

/// Rebuilds, checks, corrects and copies the ledger.
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
        /// Report differences, and write nothing
        #[arg(long)]
        check: bool,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: HostArgs,
    },
    /// Imports audit files of sidecars that ran alone: their calls become receipts of this ledger
    Import(import::ImportArgs),
    /// Voids a receipt whose cost will never be known, and releases what a budget holds for it
    Void(void::VoidArgs),
    /// Copies the database, also while it is in use, to a file that does not exist yet; sluice backup copies everything
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
    match &args.command {
        LedgerCommand::Rebuild { check, json, host } => {
            let mode = if *check { RebuildMode::Check } else { RebuildMode::Fill };
            rebuild_all(&host.state_dir()?, mode, *json).await
        }
        LedgerCommand::Import(args) => import::run(args).await,
        LedgerCommand::Void(args) => void::run(args).await,
        LedgerCommand::Backup { file, json, host } => {
            let store = checked(open_for_queries(&host.state_dir()?)?).await?;
            store.back_up(file).await.map_err(|error| CommandError::failed(&error))?;
            match OutputFormat::from(*json) {
                OutputFormat::Json => print_json(&serde_json::json!({ "file": file.display().to_string() })),
                OutputFormat::Text => print(&format!("{}\n", file.display())),
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

async fn rebuild_all(state: &Path, mode: RebuildMode, json: bool) -> Result<ExitCode, CommandError> {
    // A lost database is made again from the audit files.
    let is_lost = !Layout::at(state).database().exists() && state.join("audit").is_dir();
    let store = match mode {
        RebuildMode::Fill if is_lost => open_or_replace(state)?,
        RebuildMode::Fill => open(state)?,
        RebuildMode::Check => open_for_queries(state)?,
    };
    let _lock = match mode {
        RebuildMode::Fill => Some(lock_files(state)?),
        RebuildMode::Check => None,
    };
    let rebuilt = rebuild(state, &checked(store).await?, mode).await?;
    let differs = differs(rebuilt.differences.len());
    if json {
        print_object(&CommandObject::of(differs.as_ref(), &rebuilt));
    } else {
        print(&rebuild::text(&rebuilt));
    }
    Ok(differs.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
}

/// Returns the error for this number of differences; `None` for 0.
pub(super) fn differs(count: usize) -> Option<CommandError> {
    let message =
        format!("ledger and audit files differ: {count} differences; sluice ledger rebuild --check lists them");
    (count > 0).then_some(CommandError { code: exit::MISMATCH, message })
}

/// Returns the database, unless it is damaged.
async fn checked(store: Store) -> Result<Store, CommandError> {
    store.check_integrity().await.map_err(|error| CommandError::failed(&error))?;
    Ok(store)
}
