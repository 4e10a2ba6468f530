//! Errors of the Docker Engine.

use bollard::errors::Error;

/// A call that the engine did not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// No engine answers.
    #[error(
        "no Docker Engine answers at {host}; start it (deploy/docker.sh start, or systemctl start docker), or name it with --docker-host"
    )]
    Unreachable {
        /// Address of the engine.
        host: String,
        /// Reason.
        #[source]
        source: Error,
    },
    /// The address is not the one of a local engine.
    #[error("{0} is not a unix socket: workspace and socket are bind mounts, so the engine has to be on this machine")]
    Remote(String),
    /// The engine does not have the image.
    #[error(
        "there is no image {0} on this engine; build it (runtime-image/build.sh), pull it, or name another with --image"
    )]
    NoImage(String),
    /// Another container has the name.
    #[error("a container that sluice did not make has the name {0}; remove it, or choose another --run-id")]
    NameTaken(String),
    /// A run of another state directory has the name.
    #[error(
        "the container {0} belongs to a run of another state directory of this host; choose another --run-id, and do not \
         remove it: the run may be under way"
    )]
    NameOfOtherRun(String),
    /// A container of this run exists already, and was started.
    #[error(
        "the container {0} of an earlier run with this id is still there; choose another --run-id, or run sluice sweep"
    )]
    NameOfEarlierRun(String),
    /// The call took too long.
    #[error("the engine did not {0} in time")]
    Late(&'static str),
    /// The engine refused the call.
    #[error("the engine says: {0}")]
    Refused(String),
    /// The terminal of this process cannot be given to a program.
    #[error("cannot change the modes of the terminal; leave out --tty")]
    Terminal(#[source] std::io::Error),
    /// The connection failed.
    #[error("cannot talk to the engine")]
    Transport(#[source] Error),
}

impl EngineError {
    /// Returns whether the engine may do what was requested although it gave no answer.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self, Self::Late(_) | Self::Transport(_))
    }
}

/// Replaces a bollard error by the engine's own message, if it has answered.
pub(super) fn refused(error: EngineError) -> EngineError {
    match error {
        EngineError::Transport(Error::DockerResponseServerError { message, .. }) => EngineError::Refused(message),
        error => error,
    }
}
