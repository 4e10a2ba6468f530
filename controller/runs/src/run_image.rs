//! The image of a run, inspected before budget is held or directories are made for the run.

use std::path::Path;

use crate::admission::RunRequest;
use crate::blueprint::WORKSPACE;
use crate::bridge::program::{BridgeProgram, BridgeProgramError};
use crate::bridge::{Bridge, MountedBridge, UnusableImage};
use crate::engine::{Engine, EngineError};
use crate::verdict::Contract;

/// An image in which the run cannot work.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The engine does not have it, or does not answer.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Nothing can run in it.
    #[error("nothing can run in the image {image}: {reason}")]
    Unusable {
        /// Image.
        image: String,
        /// Reason.
        reason: UnusableImage,
    },
    /// The image has no agent that answers a message.
    #[error("the image {0} has no agent that answers a message; give a program, such as python3 task.py after --")]
    NoAgent(String),
    /// The sidecar's program cannot be its bridge.
    #[error(transparent)]
    Bridge(#[from] BridgeProgramError),
}

/// Inspects the image of a run, and gives the run a bridge. Returns a warning if the bridge may not start.
///
/// # Errors
/// [`ImageError`].
pub async fn choose_bridge(
    engine: &Engine,
    proxy: &Path,
    request: &mut RunRequest,
) -> Result<Option<String>, ImageError> {
    let name = request.spec.image.clone();
    let image = engine.image(&name).await?;
    image.check().map_err(|reason| ImageError::Unusable { image: name.clone(), reason })?;
    if image.has_bridge() {
        request.spec.bridge = Bridge::OfImage;
        return Ok(None);
    }
    if request.contract == Contract::Envelope {
        return Err(ImageError::NoAgent(name));
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
