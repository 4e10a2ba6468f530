//! The image of a run, and the advice for one that is missing.

use std::path::Path;

use sluice_runs::engine::{Engine, EngineError};
use sluice_runs::one_shot::RunRequest;
use sluice_runs::run_image::{ImageError, choose_bridge};

use super::request_error::RequestError;
use crate::agent_catalogue;
use crate::settings::Settings;

/// Inspects the image of a run, and gives the run a bridge. Returns a warning if the bridge may not start.
///
/// # Errors
/// The engine does not have the image, or nothing can run in it.
pub(super) async fn find(
    engine: &Engine,
    proxy: &Path,
    settings: &Settings,
    request: &mut RunRequest,
) -> Result<Option<String>, RequestError> {
    choose_bridge(engine, proxy, request).await.map_err(|error| match error {
        ImageError::Engine(EngineError::NoImage(image)) => no_image(settings, &request.agent, image),
        error => error.into(),
    })
}

fn no_image(settings: &Settings, agent: &str, image: String) -> RequestError {
    let owner = agent_catalogue::find(&settings.agents, agent).filter(|it| it.image.as_ref() == Some(&image));
    match owner {
        Some(owner) => RequestError::NoImage { agent: agent.to_owned(), advice: owner.image_advice(), image },
        None => ImageError::from(EngineError::NoImage(image)).into(),
    }
}
