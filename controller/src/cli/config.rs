//! `sluice config show`: shows every setting and its source.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::object::CommandObject;
use super::output::{fail, print, print_object};
use crate::settings::{ITEMS, SettingItem, SettingLayers};

/// Shows the settings.
#[derive(Debug, Args)]
pub(super) struct ConfigArgs {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Shows every setting and its source; secrets are redacted
    Show {
        /// Show the settings of runs of this agent: with its profiles and its own defaults
        #[arg(long, value_name = "ID")]
        agent: Option<String>,
        /// Show the settings of runs of this account: with its profiles
        #[arg(long, value_name = "ID")]
        account: Option<String>,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        host: Box<HostArgs>,
    },
}

pub(super) fn run(args: &ConfigArgs) -> Result<ExitCode, CommandError> {
    let ConfigCommand::Show { agent, account, json, host } = &args.command;
    let flags = [("agent", agent), ("account", account)];
    let flags: BTreeMap<_, _> = flags.into_iter().filter_map(|(name, value)| Some((name, value.clone()?))).collect();
    let layers = host.layers(flags).map_err(|error| CommandError::usage(&error))?;
    // An invalid value is shown like the others, and its error follows.
    let invalid = layers.settings().err().or_else(|| layers.daemon_runs().err()).or_else(|| layers.serve().err());
    let invalid = invalid.map(|error| CommandError::usage(&error));
    if *json {
        print_object(&CommandObject::of(invalid.as_ref(), object(&layers)));
    } else {
        print(&text(&layers));
    }
    Ok(invalid.map_or(ExitCode::SUCCESS, |error| fail(&error)))
}

fn object(layers: &SettingLayers) -> serde_json::Map<String, serde_json::Value> {
    let member = |name: &str| {
        let (value, source) = layers.redacted(name).unzip();
        json!({ "value": value, "source": source.map(ToString::to_string) })
    };
    ITEMS.iter().map(|item| (item.name.to_owned(), member(item.name))).collect()
}

fn text(layers: &SettingLayers) -> String {
    let width = ITEMS.iter().map(|item| item.name.len()).max().unwrap_or_default();
    let line = |item: &SettingItem| match layers.redacted(item.name) {
        Some((value, source)) => format!("{:<width$} {value:<34} {source}\n", item.name),
        None => format!("{:<width$} {:<34} not set: {}\n", item.name, "-", item.help),
    };
    ITEMS.iter().map(line).collect()
}
