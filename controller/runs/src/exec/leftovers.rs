//! Programs of a daemon that was killed: no request waits for them any more, and no timeout ends them.

use sluice_contract::RunKey;

use super::process_tree::ProcessTree;
use super::request::MARKER;
use crate::blueprint::{container_name, identity};
use crate::engine::EngineError;
use crate::host::Host;
use crate::plan::ContainerState;

/// Ends all programs that a daemon has started in the container of a run. To be called before a program is started by this
/// process.
///
/// # Errors
/// [`EngineError`]: the container cannot be inspected.
pub async fn end_leftovers(host: &Host, key: &RunKey) -> Result<(), EngineError> {
    let found = host.engine.find(&container_name(key), &identity(key, &host.instance)).await?;
    if let Some(container) = found.filter(|found| found.state == ContainerState::Running) {
        let marker = format!("{MARKER}=").into_bytes();
        ProcessTree { init: container.init, marker }.kill(None).await;
    }
    Ok(())
}
