//! `sluice retry` and `sluice fail`: another attempt of a run, and the end of one.

use std::process::ExitCode;

use clap::Args;
use http::{HeaderName, HeaderValue};
use serde_json::json;
use sluice_client::{ApiRequest, ApiSandbox};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{print, print_json};
use super::server_args::ServerArgs;

const RETRY_EXAMPLES: &str = "\
Examples:
  sluice retry nightly
  sluice retry r_0f8fad5b && sluice wait r_0f8fad5b";

/// Puts a run that has ended without success into the queue again, as its next attempt.
#[derive(Debug, Args)]
#[command(before_help = RETRY_EXAMPLES)]
pub(super) struct RetryArgs {
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

const FAIL_EXAMPLES: &str = "\
Examples:
  sluice fail nightly --reason \"it repeats the same edit\"";

/// Ends a live run as failed, with the failure code agent_failed; sluice cancel ends it without a failure.
#[derive(Debug, Args)]
#[command(before_help = FAIL_EXAMPLES)]
pub(super) struct FailArgs {
    /// A run of the daemon: its id, its name, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// The reason, which its record keeps: 1 to 1,000 characters
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn retry(args: &RetryArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let request = idempotent(ApiRequest::post(&["sandboxes", &id, "retry"]));
    let run = api.send(request).await?;
    show(&run, args.json);
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn fail(args: &FailArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, &args.run).await?.sandbox.sandbox_id;
    let request = ApiRequest::post(&["sandboxes", &id, "fail"]).json(&json!({ "reason": args.reason }));
    let run = api.send(request).await?;
    show(&run, args.json);
    Ok(ExitCode::SUCCESS)
}

/// Gives a request an idempotency key, so that a repetition has no further effect.
pub(super) fn idempotent(request: ApiRequest) -> ApiRequest {
    let key = uuid::Uuid::new_v4().simple().to_string();
    let key = HeaderValue::from_str(&key).expect("hex digits are visible");
    request.header(HeaderName::from_static("idempotency-key"), key)
}

fn show(run: &ApiSandbox, as_json: bool) {
    let key = format!("{}.{}", run.sandbox_id, run.attempt);
    if as_json {
        print_json(&json!({ "run": key, "state": run.state }));
    } else {
        print(&format!("run {key}: {}\n", run.state));
    }
}
