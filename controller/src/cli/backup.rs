//! `sluice backup` and `sluice restore`: a copy of the state directory, and its return.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use sluice_state::backup::{BackupSummary, back_up, restore};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;

use super::database::{lock_files, open_for_queries};
use super::error::CommandError;
use super::host_args::HostArgs;
use super::ledger::{RebuildMode, differs, rebuild};
use super::object::CommandObject;
use super::output::{print, print_json, print_object};

/// Copies the state directory, also while it is in use: database, audit files, budgets, decisions and keys.
///
/// The copy is a new directory, which has its name only when it is whole. It holds the private key that certifies
/// signatures, so no other user may read it. The workspaces of runs are not in it.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// The directory of the copy, which must not exist
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

/// Restores a copy that sluice backup made, into a new or an empty state directory.
///
/// Each file is checked against the list of the copy before anything is written. Then the ledger is compared with the audit
/// files.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 restored, and all agrees; 122 restored, and ledger and audit files differ: run sluice \
                        ledger rebuild; 1 nothing was restored, or it could not be compared; 2 usage."
)]
pub(super) struct RestoreArgs {
    /// The directory of the copy
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

/// The JSON object of a restoration.
#[derive(Serialize)]
struct Restored {
    #[serde(flatten)]
    copied: BackupSummary,
    /// True if ledger, audit files and budgets agree; null if they could not be compared.
    agrees: Option<bool>,
    /// Number of differences that sluice ledger rebuild --check lists; null if they could not be compared.
    differences: Option<usize>,
}

pub(super) async fn run_backup(args: &BackupArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    let store = open_for_queries(&state)?;
    let _lock = lock_files(&state)?;
    store.check_integrity().await.map_err(|error| CommandError::failed(&error))?;
    let copied = back_up(&Layout::at(&state), &Keys::at(&state), &store, &args.directory).await;
    let copied = copied.map_err(|error| CommandError::failed(&error))?;
    if args.json {
        print_json(&copied);
    } else {
        print(&format!("{}\n", text(&copied)));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn run_restore(args: &RestoreArgs) -> Result<ExitCode, CommandError> {
    let state = args.host.state_dir()?;
    let copied = restore(&args.directory, &state).map_err(|error| CommandError::failed(&error))?;
    if !args.json {
        print(&format!("{}\n", text(&copied)));
    }
    let differences = match differences(&state).await {
        Ok(differences) => differences,
        Err(CommandError { code, message }) => {
            let error = CommandError { code, message: format!("restored, but not compared: {message}") };
            if args.json {
                print_object(&CommandObject::of(Some(&error), Restored { copied, agrees: None, differences: None }));
                return Ok(ExitCode::from(error.code));
            }
            return Err(error);
        }
    };
    let agrees = differences == 0;
    let fault = differs(differences);
    if args.json {
        print_object(&CommandObject::of(
            fault.as_ref(),
            Restored { copied, agrees: Some(agrees), differences: Some(differences) },
        ));
    } else if agrees {
        print("ledger, audit files and budgets agree\n");
    } else {
        print(&format!("{differences} differences: run sluice ledger rebuild\n"));
    }
    Ok(fault.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
}

async fn differences(state: &Path) -> Result<usize, CommandError> {
    let rebuilt = rebuild(state, &open_for_queries(state)?, RebuildMode::Check).await?;
    Ok(rebuilt.differences.len())
}

fn text(copied: &BackupSummary) -> String {
    let BackupSummary { directory, files, audit_files, bytes, created_at } = copied;
    format!("{}: {files} files, {audit_files} of them audit files, {bytes} bytes, of {created_at}", directory.display())
}
