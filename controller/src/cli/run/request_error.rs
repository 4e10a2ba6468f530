//! A request that is not valid.

use std::path::PathBuf;

use sluice_contract::run_id::NameError;
use sluice_contract::upstream_key::KeyFault;
use sluice_runs::run_image::ImageError;
use sluice_runs::upstream::UpstreamUnreachable;

use super::clone::CloneRequestError;
use super::seccomp::SeccompError;
use crate::settings::{InvalidValue, SettingError};

/// A request that is not valid.
#[derive(Debug, thiserror::Error)]
pub(super) enum RequestError {
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error("the key of key_file (or SLUICE_KEY) {0}")]
    UpstreamKey(KeyFault),
    #[error("--run-id '{0}'")]
    RunId(String, #[source] NameError),
    #[error("there is nothing to do: give a MESSAGE, --message-file FILE, --messages FILE, or a program after --")]
    Nothing,
    #[error("there is no agent '{0}'; sluice agents lists them")]
    NoAgent(String),
    #[error(
        "{agent} takes its message as an argument, which has no room for more than {max} bytes; put the rest into a file"
    )]
    LongMessage { agent: String, max: usize },
    #[error("{0} takes one MESSAGE, and no --messages")]
    OneMessage(String),
    #[error("there is no image {image} on this engine, and {agent} runs in it; {advice}")]
    NoImage { agent: String, image: String, advice: String },
    #[error(transparent)]
    Image(#[from] ImageError),
    #[error(transparent)]
    Upstream(#[from] UpstreamUnreachable),
    #[error("--interactive: stdin is for a program after --")]
    StdinForAgent,
    #[error("--interactive: the message is read from stdin already")]
    StdinTaken,
    #[error("--tty: a terminal is for a program after --, and an agent answers with one object; use -- PROGRAM")]
    TtyForAgent,
    #[error("--tty: --json prints one object on stdout, where the program would draw; leave out one of them")]
    TtyWithJson,
    #[error("--tty: stdin is not a terminal; leave out --tty, or start sluice in a terminal")]
    NoTerminal,
    #[error("--env {0}: there is no such variable in the environment of this process; write {0}=VALUE")]
    NoValue(String),
    #[error("--env-file {path}, line {line}: {reason}")]
    EnvLine { path: PathBuf, line: usize, reason: String },
    #[error("--env-file {path}")]
    EnvFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{from}: {reason}")]
    Message { from: String, reason: InvalidValue },
    #[error("--env {name}: it {reason}")]
    Variable { name: String, reason: &'static str },
    #[error("--messages {path}: {reason}")]
    Messages { path: PathBuf, reason: InvalidValue },
    #[error("--{flag} '{given}': {reason}")]
    Volume { flag: &'static str, given: String, reason: InvalidValue },
    #[error(transparent)]
    Clone(#[from] CloneRequestError),
    #[error(transparent)]
    Seccomp(#[from] SeccompError),
}
