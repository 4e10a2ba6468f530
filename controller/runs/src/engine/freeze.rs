//! Freezes containers: the kernel stops all processes of a container, and resumes them later.

use super::error::refused;
use super::{Engine, EngineError, QUICK, within};

impl Engine {
    /// Stops all processes of a container. It can fail while they are busy, and leaves them running then.
    ///
    /// # Errors
    /// [`EngineError`]; the container's state shows whether the call had an effect.
    pub async fn freeze(&self, name: &str) -> Result<(), EngineError> {
        within(QUICK, "freeze the container", self.docker.pause_container(name)).await.map_err(refused)
    }

    /// Resumes all processes of a container.
    ///
    /// # Errors
    /// [`EngineError`], also for a container that is not frozen.
    pub async fn thaw(&self, name: &str) -> Result<(), EngineError> {
        within(QUICK, "thaw the container", self.docker.unpause_container(name)).await.map_err(refused)
    }
}
