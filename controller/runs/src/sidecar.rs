//! The sidecar of a run: spawned with nothing but its flags, ready by its own word and by a real answer, ended in order.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_contract::RunKey;
use sluice_litellm::secret::ApiKey;
use sluice_state::layout::{Layout, RunPaths};
use sluice_state::process::Process;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::rundir::SANDBOX_UID;
use crate::sidecar_user::SidecarUser;

/// A start takes milliseconds; what has not answered by then will not.
const READY_WITHIN: Duration = Duration::from_secs(5);
/// How long open calls may go on once a run is decided: what an agent has left is read on to its usage, if that comes
/// soon; the spend log has the rest, and somebody is waiting.
pub const DRAIN: Duration = Duration::from_secs(1);
/// How much longer a sidecar may take over that, to write its log.
const GRACE: Duration = Duration::from_secs(5);

/// Where a system keeps the certificates that TLS trusts, when it is not the usual place.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// What a sidecar is told.
#[derive(Debug)]
pub struct SidecarSpec<'a> {
    /// The program.
    pub program: &'a Path,
    /// Which start of which run.
    pub key: &'a RunKey,
    /// The run's directories.
    pub paths: &'a RunPaths,
    /// Who pays.
    pub account: &'a str,
    /// The agent's name, as the graph that the run belongs to.
    pub graph_id: &'a str,
    /// Where calls go.
    pub upstream: &'a str,
    /// The models that may be named; none for any one.
    pub models: &'a [String],
    /// The user that it becomes; otherwise it stays what it is.
    pub user: Option<SidecarUser>,
    /// When it ends by itself.
    pub deadline: Duration,
    /// Caps and the rest, as flags.
    pub flags: &'a [String],
}

/// A sidecar that carries calls.
#[derive(Debug)]
pub struct Sidecar {
    process: Process,
    /// None for one that another controller has spawned.
    child: Option<Child>,
}

/// Why a sidecar is not there.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The program could not be run.
    #[error("cannot run {0}; name the sidecar with --proxy")]
    Spawn(PathBuf, #[source] io::Error),
    /// It said why not.
    #[error("{0}")]
    Refused(String),
    /// It did not say why not.
    #[error("it refuses the run's flags, and does not say why ({0})")]
    Unchecked(ExitStatus),
    /// It did not get ready in time.
    #[error("it was not ready within {} s", READY_WITHIN.as_secs())]
    Late,
    /// It listens, and does not answer.
    #[error("it listens, and does not answer GET /health")]
    Deaf(#[source] io::Error),
    /// It does not end.
    #[error("it does not end, not even by SIGKILL (pid {0})")]
    Immortal(i32),
    /// The kernel refused.
    #[error("cannot talk to it")]
    Io(#[from] io::Error),
}

impl Sidecar {
    /// Starts a sidecar and waits until it answers.
    ///
    /// # Errors
    /// [`SidecarError`]; nothing of it is left running.
    pub async fn start(order: &SidecarSpec<'_>, key: &ApiKey) -> Result<Self, SidecarError> {
        let log_path = order.paths.conf.join("sidecar.log");
        let mut child = Command::new(order.program)
            .args(arguments(order))
            // Our own variables have the names of its flags.
            .env_clear()
            .envs(CERTIFICATES.iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))))
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log(&log_path)?)
            // A Ctrl-C is for us; the sidecar ends when we tell it to.
            .process_group(0)
            .spawn()
            .map_err(|error| SidecarError::Spawn(order.program.to_owned(), error))?;
        match timeout(READY_WITHIN, ready(&mut child, order, key)).await {
            Ok(Ok(process)) => Ok(Self { process, child: Some(child) }),
            Ok(Err(error)) => {
                let _ = child.kill().await;
                Err(said(&log_path).map_or(error, SidecarError::Refused))
            }
            Err(_) => {
                let _ = child.kill().await;
                Err(said(&log_path).map_or(SidecarError::Late, SidecarError::Refused))
            }
        }
    }

    /// A sidecar that an earlier controller has started, if it still lives.
    #[must_use]
    pub fn adopt(recorded: Option<Process>, program: &Path, paths: &RunPaths) -> Option<Self> {
        let process =
            recorded.filter(Process::is_alive).or_else(|| Process::find(program, "--socket", &paths.socket))?;
        Some(Self { process, child: None })
    }

    /// Which process it is.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until it has ended, by itself or by somebody's hand.
    pub async fn ended(&mut self) -> Option<ExitStatus> {
        match &mut self.child {
            Some(child) => child.wait().await.ok(),
            None => {
                while self.process.is_alive() {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                None
            }
        }
    }

    /// Lets it end its calls and its log; kills it when that takes too long. What it ended with, if we can know.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub async fn drain(&mut self) -> Result<Option<ExitStatus>, SidecarError> {
        for (signal, within) in [(Signal::SIGTERM, DRAIN + GRACE), (Signal::SIGKILL, GRACE)] {
            self.process.signal(signal)?;
            if let Ok(ended) = timeout(within, self.ended()).await {
                return Ok(ended);
            }
        }
        Err(SidecarError::Immortal(self.process.pid))
    }
}

/// Flags that the controller checks itself, or does not take from anybody.
const CHECKED: [&str; 4] = ["--audit-sync", "--max-calls", "--max-tokens", "--max-memory"];

/// Whether any of these flags is one that only the sidecar can check. A name of a model is wrong if it is several.
#[must_use]
pub fn needs_check(flags: &[String]) -> bool {
    flags.iter().filter(|flag| flag.starts_with("--")).any(|flag| match flag.strip_prefix("--model=") {
        Some(model) => model.contains(',') || model.chars().any(char::is_control),
        None => !CHECKED.contains(&flag.as_str()),
    })
}

/// Lets the program say what is wrong with the flags of a run of which nothing exists yet.
///
/// # Errors
/// [`SidecarError`].
pub async fn check(
    program: &Path,
    layout: &Layout,
    key: &RunKey,
    account: &str,
    upstream: &str,
    flags: &[String],
) -> Result<(), SidecarError> {
    let mut command = Command::new(program);
    command.arg("check").args(flags).args(["--upstream", upstream, "--account", account]);
    command.args(["--run-id", key.run_id.as_str()]);
    // Names that no run has: its own directory is not there yet.
    command.arg("--socket").arg(layout.runs_directory().join("check.sock"));
    command.arg("--audit").arg(layout.run(key).audit.with_file_name("check.jsonl"));
    command.env_clear().current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    let ran = match timeout(READY_WITHIN, command.output()).await {
        Ok(ran) => ran.map_err(|error| SidecarError::Spawn(program.to_owned(), error))?,
        Err(_) => return Err(SidecarError::Late),
    };
    if ran.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&ran.stderr);
    Err(last_line(&said).map_or(SidecarError::Unchecked(ran.status), SidecarError::Refused))
}

fn arguments(order: &SidecarSpec<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: OsString| words.extend([OsString::from(name), value]);
    flag("--socket", order.paths.socket.clone().into());
    flag("--audit", order.paths.audit.clone().into());
    flag("--upstream", order.upstream.into());
    flag("--run-id", order.key.run_id.as_str().into());
    flag("--attempt", order.key.attempt.to_string().into());
    flag("--account", order.account.into());
    flag("--graph-id", order.graph_id.into());
    flag("--audit-key-file", order.paths.audit_key.clone().into());
    flag("--deadline", order.deadline.as_secs().max(1).to_string().into());
    flag("--drain", format!("{}s", DRAIN.as_secs()).into());
    // The agent, and us for the question whether it is well.
    // The list of users decides who connects.
    flag("--socket-mode", "0666".into());
    flag("--peer-uid", SANDBOX_UID.to_string().into());
    flag("--peer-uid", nix::unistd::Uid::effective().to_string().into());
    if let Some(SidecarUser { uid, gid }) = order.user {
        flag("--user", format!("{uid}:{gid}").into());
    }
    for model in order.models {
        flag("--model", model.into());
    }
    words.extend(order.flags.iter().map(OsString::from));
    words.push("--die-with-parent".into());
    words
}

fn log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// The last thing that it said on its way out.
fn said(log: &Path) -> Option<String> {
    last_line(&std::fs::read_to_string(log).ok()?)
}

fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim_start_matches("sluice-proxy: ").to_owned())
}

async fn ready(child: &mut Child, order: &SidecarSpec<'_>, key: &ApiKey) -> Result<Process, SidecarError> {
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let stdout = child.stdout.take().expect("stdout is piped");
    key.write_to(&mut stdin).await?;
    drop(stdin);
    let mut line = String::new();
    BufReader::new(stdout.take(64 << 10)).read_line(&mut line).await?;
    let said: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    if said["event"] != "ready" || said["run_id"] != order.key.run_id.as_str() {
        return Err(SidecarError::Refused("it ended before it was ready".to_owned()));
    }
    health(&order.paths.socket, order.key).await.map_err(SidecarError::Deaf)?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).ok_or(SidecarError::Late)?;
    Ok(Process::of(pid)?)
}

/// One real question over the socket.
async fn health(socket: &Path, key: &RunKey) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    if head.starts_with("HTTP/1.1 200") && body["runId"] == key.run_id.as_str() {
        Ok(())
    } else {
        Err(io::Error::other(format!("it answered {head:?}")))
    }
}
