//! `sluice preflight`: checks whether runs would work here.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::exit;
use sluice_contract::text::truncate;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::object::CommandObject;
use super::output::{print, print_object, print_word};
use super::style::Style;
use crate::git_home::git_home;
use crate::preflight::{Check, CheckStatus, preflight};

/// Checks Docker, image, limits, paths, upstream and key, and names the remedy for each failure.
///
/// For the image, it says which bridge to the model programs get: the image's own, or one that sluice run mounts.
///
/// It warns about each model of the settings and of their profiles that the upstream does not list for the key.
///
/// Where sandbox_enabled is set, it checks the users of the daemon's runs (uid_range).
///
/// If the upstream is a LiteLLM, it also checks which of its budgets would stop the calls of the account. If the settings
/// need them, it checks that LiteLLM makes virtual keys (key_mode), and that its spend log can be read (spend_key_file).
///
/// If a project of the configuration file has a repository, it starts git, checks its version, and reads the credentials.
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
    let usage = |error| CommandError::usage(&error);
    let layers = args.host.layers(image).map_err(usage)?;
    let (settings, key_fault) = layers.settings_and_key_fault().map_err(usage)?;
    let is_daemon = layers.serve().map_err(usage)?.sandbox_enabled;
    let daemon = is_daemon.then(|| layers.daemon_runs()).transpose().map_err(usage)?;
    let users = daemon.map(|daemon| daemon.users);
    let checks = preflight(&settings, key_fault.as_ref(), users.as_ref(), git_home).await;
    let failed = failed(&checks);
    if args.json {
        print_object(&CommandObject::of(failed.as_ref(), json!({ "checks": checks })));
    } else {
        for check in &checks {
            print_word(style(check.status), check.status.as_str());
            print(&format!("  {:<16} {}\n", check.name, truncate(&check.detail)));
        }
    }
    Ok(failed.map_or(ExitCode::SUCCESS, |error| ExitCode::from(error.code)))
}

fn style(status: CheckStatus) -> Style {
    match status {
        CheckStatus::Pass => Style::Green,
        CheckStatus::Warn | CheckStatus::Skipped => Style::Yellow,
        CheckStatus::Fail => Style::Red,
    }
}

/// Returns the error for checks that failed, or were not possible.
fn failed(checks: &[Check]) -> Option<CommandError> {
    let is_wrong = |check: &&Check| matches!(check.status, CheckStatus::Fail | CheckStatus::Skipped);
    let wrong: Vec<_> = checks.iter().filter(is_wrong).collect();
    let first = wrong.iter().find(|check| check.status == CheckStatus::Fail).or(wrong.first())?;
    let count = match wrong.len() {
        1 => String::new(),
        count => format!("{count} checks did not pass, first "),
    };
    Some(CommandError { code: exit::FAILED, message: format!("{count}{}: {}", first.name, truncate(&first.detail)) })
}
