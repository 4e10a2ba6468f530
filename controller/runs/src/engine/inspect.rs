//! Containers and images as they are now.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::errors::Error;
use bollard::models::ContainerStateStatusEnum as Status;
use bollard::query_parameters::{InspectContainerOptions, ListContainersOptionsBuilder};
use sluice_contract::RunKey;
use sluice_state::run::ContainerExit;

use super::error::refused;
use super::{Engine, EngineError, EngineInfo, QUICK, within};
use crate::blueprint::EXPIRES_LABEL;
use crate::bridge::ImageFacts;
use crate::plan::ContainerState;

/// A container as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundContainer {
    /// Id, which is never reused.
    pub id: String,
    /// State.
    pub state: ContainerState,
    /// True if its processes are frozen.
    pub is_frozen: bool,
    /// Exit, if it has ended.
    pub exit: Option<ContainerExit>,
    /// Time of its end.
    pub finished: Option<SystemTime>,
    /// Pid of its first process, while it runs.
    pub init: Option<i32>,
    /// Time after which it is of no use, from its label.
    pub expires: Option<SystemTime>,
}

/// A container of this instance, as a sweep finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedContainer {
    /// Id.
    pub id: String,
    /// Run and attempt; `None` if its labels do not say.
    pub key: Option<RunKey>,
    /// Name.
    pub name: String,
}

impl Engine {
    /// Finds the container of this name or id, if it has these labels: any program can take a name.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn find(
        &self,
        name: &str,
        identity: &BTreeMap<String, String>,
    ) -> Result<Option<FoundContainer>, EngineError> {
        let inspected = self.docker.inspect_container(name, None::<InspectContainerOptions>);
        let found = match within(QUICK, "inspect the container", inspected).await {
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => return Ok(None),
            found => found.map_err(refused)?,
        };
        let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
        if !identity.iter().all(|(name, value)| labels.get(name) == Some(value)) {
            return Ok(None);
        }
        let state = found.state.unwrap_or_default();
        let exit = ContainerExit { code: state.exit_code.unwrap_or(0), oom: state.oom_killed.unwrap_or(false) };
        let finished = state.finished_at.as_deref().and_then(|time| humantime::parse_rfc3339_weak(time).ok());
        let init = state.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
        let expires = labels.get(EXPIRES_LABEL).and_then(|seconds| seconds.parse().ok());
        let expires = expires.and_then(|seconds| UNIX_EPOCH.checked_add(Duration::from_secs(seconds)));
        let is_frozen = state.status == Some(Status::PAUSED);
        let (state, exit) = match state.status {
            // Another process removes it.
            Some(Status::REMOVING) => return Ok(None),
            Some(Status::CREATED) => (ContainerState::Created, None),
            Some(Status::EXITED | Status::DEAD) => (ContainerState::Exited, Some(exit)),
            _ => (ContainerState::Running, None),
        };
        Ok(Some(FoundContainer { id: found.id.unwrap_or_default(), state, is_frozen, exit, finished, init, expires }))
    }

    /// Returns the labels of the container of this name or id.
    ///
    /// # Errors
    /// [`EngineError`], also if the container does not exist.
    pub(super) async fn labels_of(&self, name: &str) -> Result<BTreeMap<String, String>, EngineError> {
        let inspected = self.docker.inspect_container(name, None::<InspectContainerOptions>);
        let found = within(QUICK, "inspect the container", inspected).await.map_err(refused)?;
        Ok(found.config.and_then(|config| config.labels).unwrap_or_default().into_iter().collect())
    }

    /// Lists all containers of an instance, in any state.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn containers_of(&self, instance: &str) -> Result<Vec<ListedContainer>, EngineError> {
        let filters = HashMap::from([("label", vec![format!("sluice.instance={instance}")])]);
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filters).build();
        let found =
            within(QUICK, "list containers", self.docker.list_containers(Some(options))).await.map_err(refused)?;
        Ok(found
            .into_iter()
            .map(|container| {
                let labels = container.labels.unwrap_or_default();
                let label = |name: &str| labels.get(name).map_or("", String::as_str);
                let id = container.id.unwrap_or_default();
                let name = container.names.unwrap_or_default().into_iter().next().unwrap_or_else(|| id.clone());
                ListedContainer {
                    id,
                    key: format!("{}.{}", label("sluice.run"), label("sluice.attempt")).parse().ok(),
                    name: name.trim_start_matches('/').to_owned(),
                }
            })
            .collect())
    }

    /// Looks up an image.
    ///
    /// # Errors
    /// [`EngineError::NoImage`], and errors of the connection.
    pub async fn image(&self, name: &str) -> Result<ImageFacts, EngineError> {
        let found = match within(QUICK, "inspect the image", self.docker.inspect_image(name)).await {
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => {
                return Err(EngineError::NoImage(name.to_owned()));
            }
            found => found.map_err(refused)?,
        };
        let config = found.config.unwrap_or_default();
        Ok(ImageFacts {
            os: found.os.unwrap_or_default(),
            architecture: found.architecture.unwrap_or_default(),
            has_files: found.root_fs.is_none_or(|files| files.layers.is_some_and(|layers| !layers.is_empty())),
            entrypoint: config.entrypoint.unwrap_or_default(),
            workdir: config.working_dir.unwrap_or_default(),
            labels: config.labels.unwrap_or_default().into_iter().collect(),
        })
    }

    /// Returns the properties of the engine.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn info(&self) -> Result<EngineInfo, EngineError> {
        let info = within(QUICK, "describe itself", self.docker.info()).await.map_err(refused)?;
        Ok(EngineInfo {
            version: info.server_version.unwrap_or_default(),
            cgroup_version: info.cgroup_version.map(|version| version.to_string()).unwrap_or_default(),
            memory_limit: info.memory_limit.unwrap_or(false),
            swap_limit: info.swap_limit.unwrap_or(false),
            cpu_quota: info.cpu_cfs_quota.unwrap_or(false),
            pids_limit: info.pids_limit.unwrap_or(false),
            init_binary: info.init_binary.unwrap_or_default(),
            security_options: info.security_options.unwrap_or_default(),
        })
    }
}
