//! Freezes and thaws the container of a run, and reads back whether that had an effect.
//!
//! The engine can fail to freeze a container while its processes are busy, and then lets it run. So each change is
//! tried a few times, and the state of the container decides.

use std::collections::BTreeMap;
use std::time::Duration;

use sluice_contract::RunKey;
use tokio::time::sleep;

use crate::blueprint;
use crate::engine::{Engine, EngineError};
use crate::host::Host;
use crate::plan::ContainerState;

/// Maximum number of tries of one change.
const TRIES: usize = 3;
/// Time between two tries.
const AGAIN: Duration = Duration::from_millis(200);

/// State of the processes of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Frost {
    /// The container does not exist, was not started, or has ended.
    Absent,
    /// Its processes run.
    Running,
    /// Its processes are frozen.
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

    /// Resumes all processes. Returns the state of the container.
    ///
    /// # Errors
    /// [`EngineError`]: its state cannot be read.
    pub async fn thaw(&self) -> Result<Frost, EngineError> {
        self.change(Frost::Frozen).await
    }

    /// Freezes a running container, or thaws a frozen one; `from` is the state to change.
    async fn change(&self, from: Frost) -> Result<Frost, EngineError> {
        let mut state = self.state().await?;
        for round in 0..TRIES {
            if state != from {
                break;
            }
            if round > 0 {
                sleep(AGAIN).await;
            }
            // The state is read back, because the engine's answer can be lost or late.
            let _ = match from {
                Frost::Frozen => self.engine.thaw(&self.name).await,
                Frost::Running | Frost::Absent => self.engine.freeze(&self.name).await,
            };
            state = self.state().await?;
        }
        Ok(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_engine::{ScriptedContainer, TestHost, from_now};

    #[tokio::test]
    async fn freezing_is_tried_again_and_read_back() {
        let test = TestHost::start().await;
        let key: RunKey = "r.0".parse().expect("a key");
        test.orphan(&key, from_now(100), None).await;
        let freezer = Freezer::of(&test.host, &key);
        for (before, after) in [
            (ScriptedContainer::Running, Frost::Frozen),
            (ScriptedContainer::Busy(2), Frost::Frozen),
            (ScriptedContainer::Busy(3), Frost::Running),
            (ScriptedContainer::Frozen, Frost::Frozen),
            (ScriptedContainer::Exited(0), Frost::Absent),
            (ScriptedContainer::Absent, Frost::Absent),
        ] {
            test.set(before);
            assert_eq!(freezer.freeze().await.expect("the engine answers"), after, "{before:?}");
        }
        test.set(ScriptedContainer::Frozen);
        assert_eq!(freezer.thaw().await.expect("the engine answers"), Frost::Running);
        assert_eq!(test.container(), ScriptedContainer::Running);
        test.set(ScriptedContainer::Exited(0));
        assert_eq!(freezer.thaw().await.expect("the engine answers"), Frost::Absent);
    }

    #[tokio::test]
    async fn a_container_of_others_is_left_alone() {
        let test = TestHost::start().await;
        let (key, other): (RunKey, RunKey) = ("r.0".parse().expect("a key"), "q.0".parse().expect("a key"));
        test.orphan(&key, from_now(100), None).await;
        test.set(ScriptedContainer::Running);
        let frost = Freezer::of(&test.host, &other).freeze().await.expect("the engine answers");
        assert_eq!((frost, test.container()), (Frost::Absent, ScriptedContainer::Running));
    }
}
