//! Freezes and thaws the container of a run, and reads back whether it had an effect.
//!
//! The engine can fail to freeze a container whose processes are busy, and then lets it run. So each change is tried a few
//! times, and the state of the container decides.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_contract::RunKey;
use tokio::time::sleep;

use crate::blueprint;
use crate::engine::{Engine, EngineError};
use crate::host::Host;
use crate::plan::ContainerState;

/// Tries of one change.
const TRIES: usize = 3;
/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(200);

/// State of the processes of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frost {
    /// There is no container, or it has ended.
    Absent,
    /// They run.
    Running,
    /// They stand still.
    Frozen,
}

/// Freezes and thaws the container of one run.
#[derive(Debug, Clone)]
pub struct Freezer {
    engine: Engine,
    name: String,
    identity: BTreeMap<String, String>,
}

impl Freezer {
    /// Returns the freezer of an attempt.
    #[must_use]
    pub fn of(host: &Host, key: &RunKey) -> Self {
        let identity = blueprint::identity(key, &host.instance);
        Self { engine: host.engine.clone(), name: blueprint::container_name(key), identity }
    }

    /// Reads the state of the container.
    ///
    /// # Errors
    /// [`EngineError`]
    pub async fn state(&self) -> Result<Frost, EngineError> {
        Ok(match self.engine.find(&self.name, &self.identity).await? {
            Some(found) if found.is_frozen => Frost::Frozen,
            Some(found) if found.state == ContainerState::Running => Frost::Running,
            _ => Frost::Absent,
        })
    }

    /// Stops all processes. Returns the state of the container, which may still run.
    ///
    /// # Errors
    /// [`EngineError`]: its state cannot be read.
    pub async fn freeze(&self) -> Result<Frost, EngineError> {
        self.change(Frost::Running).await
    }

    /// Lets all processes go on. Returns the state of the container.
    ///
    /// # Errors
    /// [`EngineError`]: its state cannot be read.
    pub async fn thaw(&self) -> Result<Frost, EngineError> {
        self.change(Frost::Frozen).await
    }

    /// Changes a container that has this state into the other one.
    async fn change(&self, from: Frost) -> Result<Frost, EngineError> {
        let mut state = self.state().await?;
        for round in 0..TRIES {
            if state != from {
                break;
            }
            if round > 0 {
                sleep(AGAIN).await;
            }
            // What it came to is read back: the answer can be lost, or be late.
            let _ = match from {
                Frost::Frozen => self.engine.thaw(&self.name).await,
                Frost::Running | Frost::Absent => self.engine.freeze(&self.name).await,
            };
            state = self.state().await?;
        }
        Ok(state)
    }
}
