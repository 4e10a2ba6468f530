//! `sluice pause` and `sluice resume`: pauses and resumes a run.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_client::{ApiRequest, PausedRun};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{print, print_json};
use super::retry::idempotent;
use super::server_args::ServerArgs;

const PAUSE_EXAMPLES: &str = "\
Examples:
  sluice pause nightly
  sluice pause r_0f8fad5b --json | jq -r .observed_state";

/// Pauses a run: its open calls end first, then its program is frozen and its clocks are stopped.
#[derive(Debug, Args)]
#[command(before_help = PAUSE_EXAMPLES)]
pub(super) struct PauseArgs {
    #[command(flatten)]
    of: RunSelection,
}

const RESUME_EXAMPLES: &str = "\
Examples:
  sluice resume nightly";

/// Continues a paused run where it was.
#[derive(Debug, Args)]
#[command(before_help = RESUME_EXAMPLES)]
pub(super) struct ResumeArgs {
    #[command(flatten)]
    of: RunSelection,
}

/// A run, and how the result is printed.
#[derive(Debug, Args)]
struct RunSelection {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn pause(args: &PauseArgs) -> Result<ExitCode, CommandError> {
    change(&args.of, "pause").await
}

pub(super) async fn resume(args: &ResumeArgs) -> Result<ExitCode, CommandError> {
    change(&args.of, "resume").await
}

async fn change(of: &RunSelection, step: &str) -> Result<ExitCode, CommandError> {
    let api = of.server.daemon(&of.host)?;
    let id = named_run::find(&api, &of.run).await?.sandbox.sandbox_id;
    let run: PausedRun = api.send(idempotent(ApiRequest::post(&["sandboxes", &id, step]))).await?;
    let key = format!("{}.{}", run.sandbox_id, run.attempt);
    if of.json {
        print_json(&json!({
            "run": key, "state": run.state, "desired_state": run.desired_state, "observed_state": run.observed_state,
        }));
    } else if step == "pause" {
        print(&format!("run {key}: it is paused as soon as no call is open; sluice resume {id} continues it\n"));
    } else {
        print(&format!("run {key}: it continues\n"));
    }
    Ok(ExitCode::SUCCESS)
}
