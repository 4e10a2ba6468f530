//! `sluice agents`: who can be asked.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use sluice_runs::engine::{Engine, EngineError};

use super::{Common, Failed, USAGE, print, print_json};
use crate::agents::DEFAULT;

/// Lists the agents that `sluice run --agent` knows, and which of their images are missing on this engine.
#[derive(Debug, Args)]
pub(super) struct Flags {
    /// One JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    common: Common,
}

pub(super) async fn run(flags: &Flags) -> Result<ExitCode, Failed> {
    let settings = flags.common.settings().map_err(|error| Failed::new(USAGE, &error))?;
    // The list is of use without an engine, too.
    let engine = Engine::connect(&settings.docker_host).await.ok();
    let mut objects = Vec::new();
    for agent in &settings.agents {
        let image = agent.image.as_ref().unwrap_or(&settings.image);
        let is_there = match &engine {
            Some(engine) => is_there(engine, image).await,
            None => None,
        };
        if flags.json {
            let mut object = json!(agent);
            object["imageIsThere"] = json!(is_there);
            objects.push(object);
        } else {
            print(&format!("{:<20} {}\n", agent.agent_id, agent.description));
            if is_there == Some(false) {
                print(&format!("{:<20} its image {image} is missing; {}\n", "", agent.image_advice()));
            }
        }
    }
    if flags.json {
        print_json(&json!({ "agents": Value::Array(objects), "defaultAgentId": DEFAULT }));
    } else if engine.is_none() {
        super::say(&format!(
            "no engine answers at {}, so it is not known which images are there",
            settings.docker_host
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// None when the engine does not say.
async fn is_there(engine: &Engine, image: &str) -> Option<bool> {
    match engine.image(image).await {
        Ok(()) => Some(true),
        Err(EngineError::NoImage(_)) => Some(false),
        Err(_) => None,
    }
}
