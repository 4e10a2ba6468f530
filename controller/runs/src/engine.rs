//! The Docker Engine, as few verbs; the only module that knows bollard.
//!
//! Every verb has its own deadline: the client's cover only the head of an answer. Containers are never removed by the
//! engine itself, since how they ended has to be read first.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use bollard::Docker;
use bollard::errors::Error;
use bollard::models::ContainerStateStatusEnum as Status;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, KillContainerOptionsBuilder, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;
use sluice_contract::RunKey;
use sluice_state::process::Process;
use sluice_state::run::ContainerExit;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::blueprint::Blueprint;
use crate::{plan, tty};

mod attach;
mod create;
mod info;
mod stdio;

pub use info::EngineInfo;
pub use stdio::{Attached, Stdio};

const QUICK: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A connection to an engine.
#[derive(Debug, Clone)]
pub struct Engine {
    docker: Docker,
    /// Its socket: the terminal of a container needs a connection of its own.
    socket: PathBuf,
}

/// Why the engine did not do something.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// Nobody answers.
    #[error(
        "no Docker Engine answers at {host}; start it (deploy/docker.sh start, or systemctl start docker), or name it with --docker-host"
    )]
    Unreachable {
        /// Where.
        host: String,
        /// Why.
        #[source]
        source: Error,
    },
    /// Something that is not a local engine.
    #[error("{0} is no unix socket: workspace and socket are bind mounts, so the engine has to be on this machine")]
    Remote(String),
    /// The image is not there.
    #[error(
        "there is no image {0} on this engine; build it (runtime-image/build.sh), pull it, or name another with --image"
    )]
    NoImage(String),
    /// A container of that name belongs to somebody else.
    #[error("there is a container named {0} that is not ours; remove it")]
    NameTaken(String),
    /// It took too long.
    #[error("the engine did not {0} in time")]
    Late(&'static str),
    /// It said no.
    #[error("the engine says: {0}")]
    Refused(String),
    /// Our own terminal cannot be given to a program.
    #[error("cannot change the modes of the terminal; leave out --tty")]
    Terminal(#[source] std::io::Error),
    /// The connection failed.
    #[error("cannot talk to the engine")]
    Transport(#[source] Error),
}

/// A container, as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundContainer {
    /// Its id, which is given to no other.
    pub id: String,
    /// What it does.
    pub state: plan::ContainerState,
    /// How it ended, if it has.
    pub exit: Option<ContainerExit>,
    /// When.
    pub finished: Option<SystemTime>,
    /// Its first process, while it runs.
    pub init: Option<i32>,
}

/// A container of ours, as a sweep finds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedContainer {
    /// Its id.
    pub id: String,
    /// Which start of which run it belongs to; none if its labels do not say.
    pub key: Option<RunKey>,
    /// Its name.
    pub name: String,
}

impl Engine {
    /// Connects, and agrees on a version, once.
    ///
    /// # Errors
    /// [`EngineError::Unreachable`], [`EngineError::Remote`].
    pub async fn connect(host: &str) -> Result<Self, EngineError> {
        let Some(socket) = socket_of(host) else {
            return Err(EngineError::Remote(host.to_owned()));
        };
        let unreachable = |source| EngineError::Unreachable { host: host.to_owned(), source };
        // The client's own deadline only has to be longer than each of ours.
        let docker =
            Docker::connect_with_unix(host, 2 * SLOW.as_secs(), bollard::API_DEFAULT_VERSION).map_err(unreachable)?;
        match timeout(QUICK, docker.negotiate_version()).await {
            Ok(Ok(docker)) => Ok(Self { docker, socket: socket.to_owned() }),
            Ok(Err(source)) => Err(unreachable(source)),
            Err(_) => Err(EngineError::Late("answer")),
        }
    }

    /// Creates a container, and returns its id; one that is there already, ours and not started, is taken.
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

    /// Waits until no container of this name is being made that somebody asked for who has gone since, and removes what
    /// comes of it.
    ///
    /// The engine gives a container its name before it looks for what is to be mounted. So once that is gone, whoever
    /// gets the name knows that nothing follows.
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
                // Without its image nothing is made.
                Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => return Ok(()),
                Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 409, .. })) => {}
                Err(error) => return Err(refused(error)),
            }
            match self.look(name, identity).await? {
                Some(found) => self.remove(&found.id).await?,
                None if self.look(name, &BTreeMap::new()).await?.is_some() => return Ok(()),
                None if Instant::now() > deadline => return Err(EngineError::Late("finish a container")),
                // The name is taken, and nothing stands under it yet.
                None => tokio::time::sleep(LOOK_AGAIN).await,
            }
        }
    }

    async fn adopt(&self, blueprint: &Blueprint) -> Result<String, EngineError> {
        let mut identity = blueprint.labels.clone();
        identity.remove("sluice.expires");
        match self.look(&blueprint.name, &identity).await? {
            Some(FoundContainer { id, state: plan::ContainerState::Created, .. }) => Ok(id),
            _ => Err(EngineError::NameTaken(blueprint.name.clone())),
        }
    }

    /// Attaches, waits, starts, in this order: what a short program writes is not lost, nor how it ended.
    ///
    /// # Errors
    /// [`EngineError`]; the container is not running then.
    pub async fn start(&self, name: &str, output: Stdio) -> Result<Attached, EngineError> {
        let streams = if output.tty {
            within(QUICK, "attach", attach::raw(&self.docker, &self.socket, name, output.stdin)).await
        } else {
            within(QUICK, "attach", attach::framed(&self.docker, name, output.stdin)).await
        };
        let streams = streams.map_err(refused)?;
        let (sent, waiting) = oneshot::channel();
        let exit = tokio::spawn(watch(self.docker.clone(), name.to_owned(), "next-exit", sent));
        // Its request is on the way before that of the start.
        let _ = waiting.await;
        let started = self.docker.start_container(name, None::<StartContainerOptions>);
        if let Err(error) = within(SLOW, "start the container", started).await {
            exit.abort();
            return Err(refused(error));
        }
        let resizer = if output.tty { Some(self.lend_terminal(name, &output).await?) } else { None };
        let init = if output.live.is_some() { self.init_of(name).await } else { None };
        Ok(Attached::new(streams, output, init, exit, resizer))
    }

    /// Gives our terminal to a container that was started, and follows the size of the window.
    async fn lend_terminal(&self, name: &str, output: &Stdio) -> Result<JoinHandle<()>, EngineError> {
        // Before the size is read: a later change is noticed.
        let changes = signal(SignalKind::window_change()).map_err(EngineError::Terminal)?;
        stdio::resize(&self.docker, name).await;
        if let Err(error) = tty::lend(output.stdin) {
            let _ = self.kill(name, "SIGKILL").await;
            return Err(EngineError::Terminal(error));
        }
        Ok(tokio::spawn(stdio::follow_size(self.docker.clone(), name.to_owned(), changes)))
    }

    /// The first process of a running container.
    async fn init_of(&self, name: &str) -> Option<Process> {
        let asked = self.docker.inspect_container(name, None::<InspectContainerOptions>);
        let state = within(QUICK, "inspect the container", asked).await.ok()?.state?;
        let pid = state.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0)?;
        Process::of(pid).ok()
    }

    /// What is there under this name or id, if it carries these labels: anybody can take a name.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn look(
        &self,
        name: &str,
        identity: &BTreeMap<String, String>,
    ) -> Result<Option<FoundContainer>, EngineError> {
        let asked = self.docker.inspect_container(name, None::<InspectContainerOptions>);
        let found = match within(QUICK, "inspect the container", asked).await {
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
        let (state, exit) = match state.status {
            // Somebody else is at it.
            Some(Status::REMOVING) => return Ok(None),
            Some(Status::CREATED) => (plan::ContainerState::Created, None),
            Some(Status::EXITED | Status::DEAD) => (plan::ContainerState::Exited, Some(exit)),
            _ => (plan::ContainerState::Running, None),
        };
        Ok(Some(FoundContainer { id: found.id.unwrap_or_default(), state, exit, finished, init }))
    }

    /// Sends a signal; a container that has ended needs none.
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

    /// Waits until a started container may have ended, but not longer than this.
    pub async fn settled(&self, id: &str, limit: Duration) {
        let (sent, _) = oneshot::channel();
        let _ = timeout(limit, watch(self.docker.clone(), id.to_owned(), "not-running", sent)).await;
    }

    /// Removes a container with its anonymous volumes; one that is gone is removed.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn remove(&self, name: &str) -> Result<(), EngineError> {
        let options = RemoveContainerOptionsBuilder::new().v(true).force(true).build();
        match within(SLOW, "remove the container", self.docker.remove_container(name, Some(options))).await {
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => Ok(()),
            // Somebody else is at it.
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 409, message }))
                if message.contains("already in progress") =>
            {
                Ok(())
            }
            done => done.map_err(refused),
        }
    }

    /// The containers that carry our instance's name, whatever they do.
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

    /// Whether there is such an image.
    ///
    /// # Errors
    /// [`EngineError::NoImage`], or what else is wrong.
    pub async fn image(&self, name: &str) -> Result<(), EngineError> {
        match within(QUICK, "inspect the image", self.docker.inspect_image(name)).await {
            Err(EngineError::Transport(Error::DockerResponseServerError { status_code: 404, .. })) => {
                Err(EngineError::NoImage(name.to_owned()))
            }
            found => found.map(drop).map_err(refused),
        }
    }

    /// What the engine can do.
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

/// Whether something is a local path to an engine.
#[must_use]
pub fn socket_of(host: &str) -> Option<&Path> {
    host.strip_prefix("unix://").map(Path::new)
}

/// Waits for the end of a container. What is said of it is not used: a non-zero exit comes as an error here, and
/// whoever waits looks for himself.
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

async fn within<T>(
    limit: Duration,
    what: &'static str,
    answer: impl Future<Output = Result<T, Error>>,
) -> Result<T, EngineError> {
    match timeout(limit, answer).await {
        Ok(answer) => answer.map_err(EngineError::Transport),
        Err(_) => Err(EngineError::Late(what)),
    }
}

/// The engine's own words, where it has said something.
fn refused(error: EngineError) -> EngineError {
    match error {
        EngineError::Transport(Error::DockerResponseServerError { message, .. }) => EngineError::Refused(message),
        error => error,
    }
}
