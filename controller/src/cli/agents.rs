//! `sluice agents`: who can be asked.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::{Common, Failed, USAGE, print, print_json};
use crate::agents::{DEFAULT, catalog};

/// Lists the agents that `sluice run --agent` knows.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let settings = flags.common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    let agents = catalog(&settings.agents);
    if flags.json {
        print_json(&json!({ "agents": agents, "defaultAgentId": DEFAULT }));
    } else {
        for agent in agents {
            print(&format!("{:<20} {}\n", agent.agent_id, agent.description));
        }
    }
    Ok(ExitCode::SUCCESS)
}
