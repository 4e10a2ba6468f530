//! Processes that are killed, and commands that run to their end.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use nix::sys::prctl;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use crate::fault::ChaosFault;

/// Longest time of any step; after it, the step counts as hung. The machine may be busy with other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// A child that is killed at the latest when this is dropped.
#[derive(Debug)]
pub(crate) struct ChaosProcess {
    name: &'static str,
    child: Child,
}

impl ChaosProcess {
    /// Starts a process in its own process group: a Ctrl-C reaches only this program, which ends the process.
    pub(crate) fn spawn(name: &'static str, command: &mut Command) -> Result<Self, ChaosFault> {
        let program = command.as_std().get_program().to_owned();
        let child = command.process_group(0).kill_on_drop(true).spawn();
        let child = child
            .map_err(|error| ChaosFault::new(format!("cannot start {}: {error}", Path::new(&program).display())))?;
        Ok(Self { name, child })
    }

    /// Reads the first line of its stdout, which is piped. A child that ends before that has failed.
    pub(crate) async fn first_line(&mut self) -> Result<String, ChaosFault> {
        let stdout: ChildStdout = self.child.stdout.take().ok_or_else(|| ChaosFault::new("stdout is not piped"))?;
        let mut line = String::new();
        let mut reader = BufReader::new(stdout);
        let Ok(read) = timeout(PATIENCE, reader.read_line(&mut line)).await else {
            return Err(ChaosFault::new(format!("{} printed nothing for {PATIENCE:?}", self.name)));
        };
        if read? > 0 {
            return Ok(line.trim_end().to_owned());
        }
        let status = self.end().await?;
        Err(ChaosFault::new(format!("{} ended without a word: {status}", self.name)))
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn pid(&self) -> u32 {
        // The id is `None` only after a wait, which takes the process.
        self.child.id().unwrap_or_default()
    }

    /// Sends SIGKILL, and does not wait for the end.
    pub(crate) fn strike(&mut self) -> Result<(), ChaosFault> {
        Ok(self.child.start_kill()?)
    }

    /// Kills the process. A process that ended by itself before is a fault.
    pub(crate) async fn die(mut self) -> Result<(), ChaosFault> {
        match self.kill().await? {
            None => Ok(()),
            Some(status) => Err(ChaosFault::new(format!("{} had ended before it was killed: {status}", self.name))),
        }
    }

    /// Kills the process, and returns its status if it had ended by itself before.
    pub(crate) async fn kill(&mut self) -> Result<Option<ExitStatus>, ChaosFault> {
        let status = match self.child.try_wait()? {
            Some(status) => status,
            None => {
                self.strike()?;
                self.end().await?
            }
        };
        Ok((status.signal() != Some(Signal::SIGKILL as i32)).then_some(status))
    }

    /// Sends SIGTERM, and waits for the end.
    pub(crate) async fn stop(mut self) -> Result<ExitStatus, ChaosFault> {
        kill(Pid::from_raw(self.pid().cast_signed()), Signal::SIGTERM)?;
        self.end().await
    }

    /// Returns true if the process has ended by itself.
    pub(crate) fn has_ended(&mut self) -> Result<bool, ChaosFault> {
        Ok(self.child.try_wait()?.is_some())
    }

    async fn end(&mut self) -> Result<ExitStatus, ChaosFault> {
        match timeout(PATIENCE, self.child.wait()).await {
            Ok(status) => Ok(status?),
            Err(_) => Err(ChaosFault::new(format!("{} does not end", self.name))),
        }
    }
}

/// Runs a command to its end, with an empty stdin.
pub(crate) async fn output(command: &mut Command) -> Result<Output, ChaosFault> {
    let program = command.as_std().get_program().to_string_lossy().into_owned();
    let ran = command.stdin(Stdio::null()).kill_on_drop(true).process_group(0).output();
    match timeout(PATIENCE, ran).await {
        Ok(Ok(output)) => Ok(output),
        Ok(Err(error)) => Err(ChaosFault::new(format!("cannot run {program}: {error}"))),
        Err(_) => Err(ChaosFault::new(format!("{program} does not end"))),
    }
}

/// A command whose environment has only the paths of programs and the engine's address.
pub(crate) fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().current_dir("/");
    for kept in ["PATH", "DOCKER_HOST"] {
        command.envs(std::env::var_os(kept).map(|value| (kept, value)));
    }
    command
}

/// Makes a subcommand of this program end with its parent.
pub(crate) fn die_with_parent() -> Result<(), ChaosFault> {
    let parent = nix::unistd::getppid();
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid() == parent { Ok(()) } else { Err(ChaosFault::new("the parent has already ended")) }
}
