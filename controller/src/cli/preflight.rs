//! `sluice preflight`: checks whether runs would work here.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::exit;
use sluice_contract::text::truncate;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{print, print_json};
use crate::preflight::{CheckStatus, preflight};

/// Checks Docker, image, limits, paths, upstream and key, and names the remedy for each failure.
///
/// For the image, it says which bridge to the model programs get: the image's own, or one that sluice run mounts.
///
/// If the upstream is a LiteLLM, it also checks which of its budgets would stop the calls of the account. If the settings
/// need them, it checks that LiteLLM makes virtual keys (key_mode), and that its spend log can be read (spend_key_file).
#[derive(Debug, Args)]
pub(super) struct PreflightArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// The image that agents run in [default: sluice-runtime:latest]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &PreflightArgs) -> Result<ExitCode, CommandError> {
    let image = args.image.iter().map(|image| ("image", image.clone())).collect();
    let settings = args.host.settings_with(image).map_err(|error| CommandError::usage(&error))?;
    let checks = preflight(&settings).await;
    let ok = checks.iter().all(|check| matches!(check.status, CheckStatus::Pass | CheckStatus::Warn));
    if args.json {
        print_json(&json!({ "ok": ok, "checks": checks }));
    } else {
        for check in &checks {
            print(&format!("{}  {:<16} {}\n", check.status.as_str(), check.name, truncate(&check.detail)));
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(exit::FAILED) })
}
