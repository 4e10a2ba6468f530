//! The Docker Engine; the only module that knows bollard.
//!
//! Every call has its own deadline: the client's deadline covers only the head of an answer. The engine never removes
//! containers by itself, since their exit codes have to be read first.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::Docker;
use bollard::errors::Error;
use tokio::time::timeout;

mod attach;
mod attached;
mod container;
mod container_output;
mod create;
mod error;
mod exec;
mod freeze;
mod info;
mod inspect;
mod live_output;
mod log_frames;
mod logged;
mod task_end;
mod window;

pub use attached::{AttachedContainer, StdioConfig};
pub use container_output::{ContainerOutput, OutputConfig, RunningContainer};
pub use error::EngineError;
pub use exec::{ExecSpec, ExecState, ExecStreams};
pub use info::EngineInfo;
pub use inspect::{FoundContainer, ListedContainer};
pub use log_frames::log_size;
pub use logged::{LogConfig, LogLoss, LoggedContainer};

const QUICK: Duration = Duration::from_secs(10);
const SLOW: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// A connection to an engine.
#[derive(Debug, Clone)]
pub struct Engine {
    docker: Docker,
    /// The engine's socket: the terminal of a container needs a connection of its own.
    socket: PathBuf,
}

impl Engine {
    /// Connects, and negotiates the API version once.
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

    /// Checks that the engine answers.
    ///
    /// # Errors
    /// [`EngineError::Transport`], [`EngineError::Late`].
    pub async fn ping(&self) -> Result<(), EngineError> {
        within(QUICK, "answer", self.docker.ping()).await.map(drop)
    }
}

/// Returns the path of a local engine's socket; `None` for any other address.
#[must_use]
pub fn socket_of(host: &str) -> Option<&Path> {
    host.strip_prefix("unix://").map(Path::new)
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
