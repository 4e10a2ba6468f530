//! `sluice agents`: lists the agents that a run can use.

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use sluice_runs::engine::{Engine, EngineError};

use super::error::CommandError;
use super::host_args::HostArgs;
use super::output::{print, print_json, say};
use crate::agent_catalogue::DEFAULT_AGENT;

/// Lists the agents that `sluice run --agent` knows, and which of their images are missing on this engine.
#[derive(Debug, Args)]
pub(super) struct AgentsArgs {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn run(args: &AgentsArgs) -> Result<ExitCode, CommandError> {
    let usage = |error| CommandError::usage(&error);
    let layers = args.host.layers(BTreeMap::new()).map_err(usage)?;
    let docker_host = layers.host_without_key().map_err(usage)?.docker_host;
    let (default_image, _) = layers.get("image").expect("it has a default");
    // The list is useful without an engine, too.
    let engine = Engine::connect(&docker_host).await.ok();
    let mut objects = Vec::new();
    for agent in layers.agents() {
        let image = agent.image.as_deref().unwrap_or(default_image);
        let has_image = match &engine {
            Some(engine) => has_image(engine, image).await,
            None => None,
        };
        if args.json {
            let mut object = json!(agent);
            object["imageIsThere"] = json!(has_image);
            objects.push(object);
        } else {
            print(&format!("{:<20} {}\n", agent.agent_id, agent.description));
            if has_image == Some(false) {
                print(&format!("{:<20} its image {image} is missing; {}\n", "", agent.image_advice()));
            }
        }
    }
    if args.json {
        print_json(&json!({ "agents": Value::Array(objects), "defaultAgentId": DEFAULT_AGENT }));
    } else if engine.is_none() {
        say(&format!("no engine answers at {docker_host}, so it is not known which images are there"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the engine has an image; `None` if the engine does not answer.
async fn has_image(engine: &Engine, image: &str) -> Option<bool> {
    match engine.image(image).await {
        Ok(_) => Some(true),
        Err(EngineError::NoImage(_)) => Some(false),
        Err(_) => None,
    }
}
