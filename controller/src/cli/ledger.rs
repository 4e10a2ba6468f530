//! `sluice ledger`: whether the ledger is what the audit files say, and a copy of it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::receipts::open;
use super::{Common, FAILED, Failed, MISMATCH, USAGE, print, print_json};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::ledger::{Rebuilt, Shelf};
use crate::plain::plain;
use crate::store::Store;

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
    let store = open(&settings.state_dir)?;
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

async fn rebuild(state: &Path, store: &Store, mode: Mode) -> Result<Rebuilt, Failed> {
    let failed = |error: &dyn std::error::Error| Failed::new(FAILED, error);
    let keys = Keys::open(state).and_then(|keys| keys.public()).map_err(|error| failed(&error))?;
    let shelf = Shelf { layout: &Layout::at(state), store, keys: &keys };
    match mode {
        Mode::Check => shelf.check().await,
        Mode::Fill => shelf.fill().await,
    }
    .map_err(|error| failed(&error))
}

fn text(rebuilt: &Rebuilt) -> String {
    let Rebuilt { files, under_way, added, by_files, by_ledger, differences } = rebuilt;
    let mut text = String::new();
    for difference in differences {
        let name = difference.source_reference.as_ref().unwrap_or(&difference.run);
        text += &format!("{name}: {}: {}\n", difference.found.as_str(), plain(&difference.detail));
    }
    let dollars = |cost: Option<String>| cost.unwrap_or_else(|| "0".to_owned());
    text += &format!("files    {files} read, {under_way} runs under way\n");
    text += &format!("added    {} receipts, {} entries\n", added.receipts, added.entries);
    text += &format!("files    {} calls, ${}\n", by_files.calls, dollars(by_files.cost_usd()));
    text += &format!("ledger   {} calls, ${}\n", by_ledger.calls, dollars(by_ledger.cost_usd()));
    let verdict = if differences.is_empty() { "agree" } else { "DIFFER" };
    text + &format!("they {verdict}\n")
}
