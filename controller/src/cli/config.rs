//! `sluice config show`: every setting, and where it comes from.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;

use super::{Common, Failed, USAGE, fail, print, print_json};
use crate::settings::ITEMS;

/// Tells what is set.
#[derive(Debug, Args)]
pub(super) struct Flags {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows every setting and where it comes from; secrets are redacted
    Show {
        /// One JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        common: Box<Common>,
    },
}

pub(super) fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let Command::Show { json, common } = &flags.command;
    let layers = common.layers(BTreeMap::new()).map_err(|error| Failed::new(USAGE, &error))?;
    if *json {
        let shown: serde_json::Map<_, _> = ITEMS
            .iter()
            .map(|item| {
                let (value, source) = layers.shown(item.name).unzip();
                (item.name.to_owned(), json!({ "value": value, "source": source.map(ToString::to_string) }))
            })
            .collect();
        print_json(&shown);
    } else {
        for item in ITEMS {
            print(&match layers.shown(item.name) {
                Some((value, source)) => format!("{:<13} {value:<34} {source}\n", item.name),
                None => format!("{:<13} {:<34} not set: {}\n", item.name, "-", item.help),
            });
        }
    }
    // A value that means nothing is shown all the same, and then named; what was printed is an object already.
    Ok(match layers.settings() {
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => fail(&Failed::new(USAGE, &error)),
    })
}
