//! Programs that are started in a running container.

use std::pin::Pin;

use bollard::exec::CreateExecOptions;
use bollard::query_parameters::ResizeExecOptionsBuilder;
use futures_util::Stream;
use tokio::io::AsyncWrite;

use super::error::refused;
use super::{Engine, EngineError, QUICK, attach, within};
use crate::forward::OutputChunk;

/// A program for a running container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecSpec {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// `K=V`, in addition to the variables of the container.
    pub env: Vec<String>,
    /// Working directory.
    pub cwd: String,
    /// User and group.
    pub uid: u32,
    /// True if the program gets a terminal.
    pub tty: bool,
}

/// Streams of a started program.
pub struct ExecStreams {
    /// Output; with a terminal all of it is stdout.
    pub output: Pin<Box<dyn Stream<Item = OutputChunk> + Send>>,
    /// Input.
    pub input: Pin<Box<dyn AsyncWrite + Send>>,
}

/// State of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecState {
    /// Process on the host, if it was started.
    pub pid: Option<i32>,
    /// Exit code, if it has ended.
    pub exit_code: Option<i64>,
}

impl Engine {
    /// Prepares a program without privileges, and returns its id.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn create_exec(&self, container: &str, spec: &ExecSpec) -> Result<String, EngineError> {
        let options = CreateExecOptions {
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(spec.tty),
            detach_keys: spec.tty.then(|| attach::EXEC_DETACH_KEYS.to_owned()),
            env: Some(spec.env.clone()),
            cmd: Some(spec.argv.clone()),
            privileged: Some(false),
            user: Some(format!("{0}:{0}", spec.uid)),
            working_dir: Some(spec.cwd.clone()),
        };
        let created = within(QUICK, "create the exec", self.docker.create_exec(container, options)).await;
        Ok(created.map_err(refused)?.id)
    }

    /// Starts a prepared program.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn start_exec(&self, id: &str, tty: bool) -> Result<ExecStreams, EngineError> {
        let started = if tty {
            within(QUICK, "start the exec", attach::raw_exec(&self.docker, &self.socket, id)).await
        } else {
            within(QUICK, "start the exec", attach::framed_exec(&self.docker, id)).await
        };
        let streams = started.map_err(refused)?;
        Ok(ExecStreams { output: streams.output, input: streams.input })
    }

    /// Returns the state of a program.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn exec_state(&self, id: &str) -> Result<ExecState, EngineError> {
        let found = within(QUICK, "inspect the exec", self.docker.inspect_exec(id)).await.map_err(refused)?;
        let pid = found.pid.and_then(|pid| i32::try_from(pid).ok()).filter(|pid| *pid > 0);
        Ok(ExecState { pid, exit_code: found.exit_code.filter(|_| found.running == Some(false)) })
    }

    /// Sets the size of a program's terminal.
    ///
    /// # Errors
    /// [`EngineError`].
    pub async fn resize_exec(&self, id: &str, rows: u16, columns: u16) -> Result<(), EngineError> {
        let options = ResizeExecOptionsBuilder::new().h(rows.into()).w(columns.into()).build();
        within(QUICK, "resize the terminal", self.docker.resize_exec(id, options)).await.map_err(refused)
    }
}

impl std::fmt::Debug for ExecStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ExecStreams").finish_non_exhaustive()
    }
}
