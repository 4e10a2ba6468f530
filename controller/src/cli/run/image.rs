//! The image of a run, looked up before budget is held or directories are made for the run.

use std::path::Path;

use sluice_runs::blueprint::WORKSPACE;
use sluice_runs::bridge::program::BridgeProgram;
use sluice_runs::bridge::{Bridge, ImageFacts, MountedBridge};
use sluice_runs::engine::{Engine, EngineError};
use sluice_runs::one_shot::RunRequest;
use sluice_runs::verdict::Contract;

use super::request_error::RequestError;
use crate::agent_catalogue;
use crate::settings::Settings;

/// Looks up the image of a run, and gives the run a bridge. Returns a warning if the bridge may not start.
///
/// # Errors
/// The engine does not have the image, or nothing can run in it.
pub(super) async fn find(
    engine: &Engine,
    proxy: &Path,
    settings: &Settings,
    request: &mut RunRequest,
) -> Result<Option<String>, RequestError> {
    let image = look_up(engine, settings, request).await?;
    let name = &request.spec.image;
    image.check().map_err(|reason| RequestError::UnusableImage { image: name.clone(), reason })?;
    if image.has_bridge() {
        request.spec.bridge = Bridge::OfImage;
        return Ok(None);
    }
    if request.contract == Contract::Envelope {
        return Err(RequestError::NoAgentInImage { image: name.clone() });
    }
    let program = BridgeProgram::of(proxy)?;
    let warning = program.limitation().map(|reason| format!("{name} has no bridge to the model: {reason}"));
    // An agent that works in the repository keeps its directory.
    if request.spec.workdir == WORKSPACE
        && let Some(workdir) = image.own_workdir()
    {
        request.spec.workdir = workdir.to_owned();
    }
    request.spec.bridge = Bridge::Mounted(MountedBridge { program: program.path, entrypoint: image.entrypoint });
    Ok(warning)
}

async fn look_up(engine: &Engine, settings: &Settings, request: &RunRequest) -> Result<ImageFacts, RequestError> {
    let (agent, image) = (&request.agent, &request.spec.image);
    match engine.image(image).await {
        Err(EngineError::NoImage(image)) => {
            let owner = agent_catalogue::find(&settings.agents, agent).filter(|it| it.image.as_ref() == Some(&image));
            Err(match owner {
                Some(owner) => RequestError::NoImage { agent: agent.clone(), advice: owner.image_advice(), image },
                None => EngineError::NoImage(image).into(),
            })
        }
        found => Ok(found?),
    }
}
