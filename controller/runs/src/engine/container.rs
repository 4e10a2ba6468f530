//! The life of a container: create, start, attach, kill, remove.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::errors::Error;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, KillContainerOptionsBuilder, RemoveContainerOptionsBuilder, StartContainerOptions,
    WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;
use sluice_state::process::Process;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::attach::ContainerStreams;
use super::attached::{AttachedContainer, StdioConfig};
use super::container_output::{OutputConfig, RunningContainer};
use super::error::refused;
use super::inspect::FoundContainer;
use super::live_output::InitProcess;
use super::logged::LoggedContainer;
use super::{Engine, EngineError, LOOK_AGAIN, QUICK, SLOW, attach, create, window, within};
use crate::blueprint::{Blueprint, EXPIRES_LABEL};
use crate::plan::ContainerState;
use crate::tty;

impl Engine {
    /// Creates a container, and returns its id. An existing one is used if it is ours and was never started.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn create(&self, blueprint: &Blueprint) -> Result<String, EngineError> {
        let options = CreateContainerOptionsBuilder::new().name(&blueprint.name).build();
        let created = self.docker.create_container(Some(options), create::body(blueprint));
        match within(SLOW, "create the container", created).await {
            Ok(created) => Ok(created.id),
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => {
                Err(EngineError::NoImage(blueprint.image.clone()))
            }
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 409, .. })) => {
                self.adopt(blueprint).await
            }
            Err(error) => Err(refused(error)),
        }
    }

    async fn adopt(&self, blueprint: &Blueprint) -> Result<String, EngineError> {
        let mut identity = blueprint.labels.clone();
        identity.remove(EXPIRES_LABEL);
        match self.find(&blueprint.name, &identity).await? {
            Some(FoundContainer { id, state: ContainerState::Created, .. }) => Ok(id),
            _ => Err(self.name_taken(&blueprint.name, &blueprint.labels).await),
        }
    }

    /// Returns the error for a name that another container has; it tells which kind of owner that container has.
    async fn name_taken(&self, name: &str, labels: &BTreeMap<String, String>) -> EngineError {
        const INSTANCE: &str = "sluice.instance";
        let theirs = self.labels_of(name).await.unwrap_or_default().remove(INSTANCE);
        match theirs {
            None => EngineError::NameTaken(name.to_owned()),
            Some(theirs) if labels.get(INSTANCE) == Some(&theirs) => EngineError::NameOfEarlierRun(name.to_owned()),
            Some(_) => EngineError::NameOfOtherRun(name.to_owned()),
        }
    }

    /// Waits until the engine has finished every creation of this name that a killed controller had requested, and removes
    /// the container.
    ///
    /// The engine reserves the name of a container before it looks for the directories to mount. So a container that gets
    /// the name after those directories are gone is the last one.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn drain_pending_create(
        &self,
        name: &str,
        image: &str,
        identity: &BTreeMap<String, String>,
    ) -> Result<(), EngineError> {
        let deadline = Instant::now() + QUICK;
        loop {
            let options = CreateContainerOptionsBuilder::new().name(name).build();
            let created = self.docker.create_container(Some(options), create::placeholder(image, identity));
            match within(SLOW, "create a container", created).await {
                Ok(created) => return self.remove(&created.id).await,
                // Without its image no container is created.
                Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => return Ok(()),
                Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 409, .. })) => {}
                Err(error) => return Err(refused(error)),
            }
            match self.find(name, identity).await? {
                Some(found) => self.remove(&found.id).await?,
                None if self.find(name, &BTreeMap::new()).await?.is_some() => return Ok(()),
                None if Instant::now() > deadline => return Err(EngineError::Late("finish a container")),
                // The name is reserved, and the container does not exist yet.
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    /// Attaches, begins to wait for the exit, and starts the container: in this order, neither the output nor the exit
    /// of a short program is lost.
    ///
    /// # Errors
    /// [`EngineError`]; the container is not running then.
    pub async fn start(&self, name: &str, output: OutputConfig) -> Result<RunningContainer, EngineError> {
        match output {
            OutputConfig::Attached(output) => self.start_attached(name, output).await.map(RunningContainer::Attached),
            OutputConfig::Logged(output) => {
                let exit = self.watch_exit(name, "next-exit").await;
                self.start_watched(name, &exit).await?;
                let (docker, name) = (self.docker.clone(), name.to_owned());
                Ok(RunningContainer::Logged(LoggedContainer::new(docker, name, *output, exit)))
            }
        }
    }

    async fn start_attached(&self, name: &str, output: StdioConfig) -> Result<AttachedContainer, EngineError> {
        let streams = self.attach(name, &output).await?;
        let exit = self.watch_exit(name, "next-exit").await;
        self.start_watched(name, &exit).await?;
        let resizer = if output.tty { Some(self.share_terminal(name, &output).await?) } else { None };
        Ok(self.follow(name, streams, output, exit, resizer).await)
    }

    async fn start_watched(&self, name: &str, exit: &JoinHandle<()>) -> Result<(), EngineError> {
        let started = self.docker.start_container(name, None::<StartContainerOptions>);
        within(SLOW, "start the container", started).await.map_err(|error| {
            exit.abort();
            refused(error)
        })
    }

    /// Connects to a container that another controller has started. Earlier output comes again only from the log.
    ///
    /// # Errors
    /// [`EngineError`]; the container keeps running.
    pub async fn reattach(&self, name: &str, output: OutputConfig) -> Result<RunningContainer, EngineError> {
        let output = match output {
            OutputConfig::Attached(output) => output,
            OutputConfig::Logged(output) => {
                let exit = self.watch_exit(name, "not-running").await;
                let (docker, name) = (self.docker.clone(), name.to_owned());
                return Ok(RunningContainer::Logged(LoggedContainer::new(docker, name, *output, exit)));
            }
        };
        let streams = self.attach(name, &output).await?;
        let exit = self.watch_exit(name, "not-running").await;
        Ok(RunningContainer::Attached(self.follow(name, streams, output, exit, None).await))
    }

    /// Reads the streams of a started container. The reader begins before the engine is asked for the first process: if
    /// the container has ended, the engine answers only after it has closed the streams, and what they hold is lost then.
    async fn follow(
        &self,
        name: &str,
        streams: ContainerStreams,
        output: StdioConfig,
        exit: JoinHandle<()>,
        resizer: Option<JoinHandle<()>>,
    ) -> AttachedContainer {
        let (init, is_live) = (Arc::new(OnceLock::new()), output.live.is_some());
        let attached = AttachedContainer::new(streams, output, Arc::clone(&init), exit, resizer);
        if is_live {
            let _ = init.set(self.init_of(name).await);
        }
        attached
    }

    async fn attach(&self, name: &str, output: &StdioConfig) -> Result<ContainerStreams, EngineError> {
        let streams = if output.tty {
            within(QUICK, "attach", attach::raw(&self.docker, &self.socket, name, output.stdin)).await
        } else {
            within(QUICK, "attach", attach::framed(&self.docker, name, output.stdin)).await
        };
        streams.map_err(refused)
    }

    /// Starts a task that ends when the container meets a condition. Its request is sent when this returns.
    async fn watch_exit(&self, name: &str, condition: &'static str) -> JoinHandle<()> {
        let (sent, is_sent) = oneshot::channel();
        let exit = tokio::spawn(watch(self.docker.clone(), name.to_owned(), condition, sent));
        let _ = is_sent.await;
        exit
    }

    /// Gives the terminal of this process to a started container, and follows the size of the window.
    async fn share_terminal(&self, name: &str, output: &StdioConfig) -> Result<JoinHandle<()>, EngineError> {
        // Registered before the size is read, so that a later change is noticed.
        let changes = signal(SignalKind::window_change()).map_err(EngineError::Terminal)?;
        window::resize(&self.docker, name).await;
        if let Err(error) = tty::enter_raw_mode(output.stdin) {
            let _ = self.kill(name, "SIGKILL").await;
            return Err(EngineError::Terminal(error));
        }
        Ok(tokio::spawn(window::follow_size(self.docker.clone(), name.to_owned(), changes)))
    }

    /// Returns the first process of a started container.
    async fn init_of(&self, name: &str) -> InitProcess {
        // A process that is not found has ended since the first answer, or has another number on this host.
        for _ in 0..2 {
            let pid = match self.find(name, &BTreeMap::new()).await {
                Ok(Some(FoundContainer { state: ContainerState::Running, init, .. })) => init,
                Ok(_) => return InitProcess::Ended,
                Err(_) => None,
            };
            match pid.map(Process::of) {
                Some(Ok(process)) => return InitProcess::Started(process),
                Some(Err(_)) => {}
                None => return InitProcess::Unknown,
            }
        }
        InitProcess::Unknown
    }

    /// Sends a signal, unless the container has ended.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn kill(&self, name: &str, signal: &str) -> Result<(), EngineError> {
        let options = KillContainerOptionsBuilder::new().signal(signal).build();
        match within(QUICK, "kill the container", self.docker.kill_container(name, Some(options))).await {
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404 | 409, .. })) => Ok(()),
            done => done.map_err(refused),
        }
    }

    /// Waits until a started container may have ended, but no longer than this.
    pub async fn wait_until_stopped(&self, id: &str, limit: Duration) {
        let (sent, _) = oneshot::channel();
        let _ = timeout(limit, watch(self.docker.clone(), id.to_owned(), "not-running", sent)).await;
    }

    /// Removes a container with its anonymous volumes, if it still exists.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn remove(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new().v(true).force(true).build();
        match within(SLOW, "remove the container", self.docker.remove_container(name, Some(options))).await {
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => Ok(()),
            // Another process removes it.
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 409, message }))
                if message.contains("already in progress") =>
            {
                Ok(())
            }
            done => done.map_err(refused),
        }
    }
}

/// Waits for the end of a container. The answer is not used: bollard turns a non-zero exit into an error, and the caller
/// inspects the container anyway.
async fn watch(docker: Docker, name: String, condition: &str, sent: oneshot::Sender<()>) {
    let options = WaitContainerOptionsBuilder::new().condition(condition).build();
    let mut ends = std::pin::pin!(docker.wait_container(&name, Some(options)));
    // The first poll writes the request.
    let first = futures_util::poll!(ends.next());
    let _ = sent.send(());
    if first.is_pending() {
        ends.next().await;
    }
}
