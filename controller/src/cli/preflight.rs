//! `sluice preflight`: whether runs would work here.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;
use sluice_contract::text::truncate;

use super::{Common, FAILED, Failed, USAGE, print, print_json};
use crate::preflight::{Status, preflight};

/// Checks Docker, image, limits, paths, upstream and key; says what to do about what is wrong.
///
/// Where the upstream is a LiteLLM, also which of its budgets would stop the calls of the account, and where the settings
/// count on them, that it makes virtual keys (key_mode), and that its spend log can be read (spend_key_file).
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// One JSON object
    #[arg(long)]
    json: bool,
    /// The image that agents run in [default: sluice-runtime:latest]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let image: BTreeMap<_, _> = flags.image.iter().map(|image| ("image", image.clone())).collect();
    let settings =
        flags.common.layers(image).and_then(|layers| layers.settings()).map_err(|error| Failed::new(USAGE, &error))?;
    let checks = preflight(&settings).await;
    let ok = checks.iter().all(|check| matches!(check.status, Status::Pass | Status::Warn));
    if flags.json {
        print_json(&json!({ "ok": ok, "checks": checks }));
    } else {
        for check in &checks {
            print(&format!("{}  {:<16} {}\n", check.status.as_str(), check.name, truncate(&check.detail)));
        }
    }
    Ok(if ok { ExitCode::SUCCESS } else { ExitCode::from(FAILED) })
}
