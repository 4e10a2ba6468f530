//! The sidecar process of a run: spawned with flags only, ready after its ready line and a real health answer, drained at
//! the end.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use sluice_contract::RunKey;
use sluice_contract::ready::{Health, ReadyLine};
use sluice_litellm::secret::ApiKey;
use sluice_state::layout::{Layout, RunPaths};
use sluice_state::process::Process;
use sluice_upstream::Upstream;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::sidecar_user::SidecarUser;

/// Time within which a sidecar is ready. A start takes milliseconds; its first line has to be on a disk that may be busy.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Time for open calls after a run has its verdict: an abandoned answer is read on to its usage, if that comes soon.
/// Otherwise the spend log has the usage, and a user is waiting.
pub const DRAIN: Duration = Duration::from_secs(1);
/// Additional time of a sidecar to write the end of its log, on a disk that may be busy.
const GRACE: Duration = Duration::from_secs(20);

/// Variables that name the certificates that TLS trusts.
const CERTIFICATES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// Specification of a sidecar process.
#[derive(Debug)]
pub struct SidecarSpec<'a> {
    /// Program.
    pub program: &'a Path,
    /// Run and attempt.
    pub key: &'a RunKey,
    /// Directories of the run.
    pub paths: &'a RunPaths,
    /// Billing account.
    pub account: &'a str,
    /// Graph of the run: the agent's name.
    pub graph_id: &'a str,
    /// Address of the upstream.
    pub upstream: &'a Upstream,
    /// Models that calls may name; an empty list allows every model.
    pub models: &'a [String],
    /// User of the agent, which may connect.
    pub sandbox_uid: u32,
    /// User that the sidecar becomes; otherwise it keeps ours.
    pub user: Option<SidecarUser>,
    /// Setting for relaying the sandbox's reports and pushes to its controller.
    pub relay: RelayMode,
    /// Time after which the sidecar ends by itself.
    pub deadline: Duration,
    /// Lifetime in relation to the controller.
    pub lifetime: SidecarLifetime,
    /// Caps and other flags.
    pub flags: &'a [String],
}

/// Setting for relaying the sandbox's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelayMode {
    /// The sidecar relays nothing.
    Off,
    /// The sidecar relays to its controller, over the socket of the run.
    ToController,
}

/// Lifetime of a sidecar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SidecarLifetime {
    /// Ends with the controller that has started it.
    WithController,
    /// Outlives its controller, so that another one can resume the run.
    Independent,
}

/// A running sidecar.
#[derive(Debug)]
pub struct Sidecar {
    process: Process,
    /// `None` for a sidecar that another controller has spawned.
    child: Option<Child>,
}

/// Reason why a sidecar did not start or did not end.
#[derive(Debug, thiserror::Error)]
pub enum SidecarError {
    /// The program cannot be executed.
    #[error("cannot run {0}; name the sidecar with --proxy")]
    Spawn(PathBuf, #[source] io::Error),
    /// The sidecar refused, with a message.
    #[error("{0}")]
    Refused(String),
    /// The sidecar refused, without a message.
    #[error("it refuses the run's flags, and does not say why ({0})")]
    Unchecked(ExitStatus),
    /// The sidecar was not ready in time.
    #[error("it was not ready within {} s", READY_WITHIN.as_secs())]
    NotReady,
    /// The sidecar listens, and does not answer a health request.
    #[error("it listens, and does not answer GET /health")]
    Unhealthy(#[source] io::Error),
    /// The sidecar does not end, not even by SIGKILL.
    #[error("it does not end, not even by SIGKILL (pid {0})")]
    Unkillable(i32),
    /// A system call failed.
    #[error("cannot talk to it")]
    Io(#[from] io::Error),
}

impl Sidecar {
    /// Starts a sidecar and waits until it answers.
    ///
    /// # Errors
    /// [`SidecarError`]; no process is left.
    pub async fn start(spec: &SidecarSpec<'_>, key: &ApiKey) -> Result<Self, SidecarError> {
        let log_path = spec.paths.conf.join("sidecar.log");
        let mut child = Command::new(spec.program)
            .args(arguments(spec))
            // The sidecar reads variables with the names of its flags.
            .env_clear()
            .envs(CERTIFICATES.iter().filter_map(|name| std::env::var_os(name).map(|value| (name, value))))
            .current_dir(working_directory(spec))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(open_log(&log_path)?)
            // Ctrl-C must only reach us: we end the sidecar.
            .process_group(0)
            .spawn()
            .map_err(|error| SidecarError::Spawn(spec.program.to_owned(), error))?;
        match timeout(READY_WITHIN, ready(&mut child, spec, key)).await {
            Ok(Ok(process)) => Ok(Self { process, child: Some(child) }),
            Ok(Err(error)) => {
                let _ = child.kill().await;
                Err(last_log_line(&log_path).map_or(error, SidecarError::Refused))
            }
            Err(_) => {
                let _ = child.kill().await;
                Err(last_log_line(&log_path).map_or(SidecarError::NotReady, SidecarError::Refused))
            }
        }
    }

    /// Returns the sidecar that an earlier controller has started, if it still runs.
    #[must_use]
    pub fn adopt(recorded: Option<Process>, program: &Path, paths: &RunPaths) -> Option<Self> {
        let process =
            recorded.filter(Process::is_alive).or_else(|| Process::find(program, "--socket", &paths.socket))?;
        Some(Self { process, child: None })
    }

    /// Returns its process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Waits until it has ended.
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

    /// Lets the sidecar finish its calls and its log, and kills it if that takes too long. Returns its exit status, if
    /// it is our child.
    ///
    /// # Errors
    /// [`SidecarError::Unkillable`], [`SidecarError::Io`].
    pub async fn drain(&mut self) -> Result<Option<ExitStatus>, SidecarError> {
        for (signal, within) in [(Signal::SIGTERM, DRAIN + GRACE), (Signal::SIGKILL, GRACE)] {
            self.process.signal(signal)?;
            if let Ok(ended) = timeout(within, self.ended()).await {
                return Ok(ended);
            }
        }
        Err(SidecarError::Unkillable(self.process.pid))
    }
}

/// Flags that the controller checks itself, or does not accept from users.
const CHECKED: [&str; 4] = ["--audit-sync", "--max-calls", "--max-tokens", "--max-memory"];

/// Returns true if only the sidecar can check one of these flags. A model name with a comma would be several names.
#[must_use]
pub fn needs_check(flags: &[String]) -> bool {
    flags.iter().filter(|flag| flag.starts_with("--")).any(|flag| match flag.strip_prefix("--model=") {
        Some(model) => model.contains(',') || model.chars().any(char::is_control),
        None => !CHECKED.contains(&flag.as_str()),
    })
}

/// Lets the program check the flags of a run before any resource of the run exists.
///
/// # Errors
/// [`SidecarError`].
pub async fn check(
    program: &Path,
    layout: &Layout,
    key: &RunKey,
    account: &str,
    upstream: &Upstream,
    flags: &[String],
) -> Result<(), SidecarError> {
    let mut command = Command::new(program);
    command.arg("check").args(flags).args(["--upstream", &upstream.url, "--account", account]);
    command.args(upstream.ca.iter().flat_map(|ca| [OsStr::new("--ca"), ca.as_os_str()]));
    command.args(["--run-id", key.run_id.as_str()]);
    // Names that no run has: the run's own directory does not exist yet.
    command.arg("--socket").arg(layout.runs_directory().join("check.sock"));
    command.arg("--audit").arg(layout.run(key).audit.with_file_name("check.jsonl"));
    command.env_clear().current_dir("/").stdin(Stdio::null()).kill_on_drop(true);
    let ran = match timeout(READY_WITHIN, command.output()).await {
        Ok(ran) => ran.map_err(|error| SidecarError::Spawn(program.to_owned(), error))?,
        Err(_) => return Err(SidecarError::NotReady),
    };
    if ran.status.success() {
        return Ok(());
    }
    let log = String::from_utf8_lossy(&ran.stderr);
    Err(last_line(&log).map_or(SidecarError::Unchecked(ran.status), SidecarError::Refused))
}

fn arguments(spec: &SidecarSpec<'_>) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let mut flag = |name: &str, value: OsString| words.extend([OsString::from(name), value]);
    flag("--socket", spec.paths.socket.clone().into());
    flag("--audit", spec.paths.audit.clone().into());
    flag("--upstream", (&spec.upstream.url).into());
    if let Some(ca) = &spec.upstream.ca {
        flag("--ca", ca.into());
    }
    flag("--run-id", spec.key.run_id.as_str().into());
    flag("--attempt", spec.key.attempt.to_string().into());
    flag("--account", spec.account.into());
    flag("--graph-id", spec.graph_id.into());
    flag("--audit-key-file", spec.paths.audit_key.clone().into());
    flag("--deadline", spec.deadline.as_secs().max(1).to_string().into());
    flag("--drain", format!("{}s", DRAIN.as_secs()).into());
    // The list of users decides which processes may connect: the agent, and we for the health request.
    flag("--socket-mode", "0666".into());
    flag("--peer-uid", spec.sandbox_uid.to_string().into());
    flag("--peer-uid", nix::unistd::Uid::effective().to_string().into());
    if let Some(SidecarUser { uid, gid }) = spec.user {
        flag("--user", format!("{uid}:{gid}").into());
    }
    for model in spec.models {
        flag("--model", model.into());
    }
    words.extend(spec.flags.iter().map(OsString::from));
    match spec.lifetime {
        SidecarLifetime::WithController => words.push("--die-with-parent".into()),
        // A daemon that adopts the run also reaches the sidecar by this socket.
        SidecarLifetime::Independent => words.extend(["--control".into(), spec.paths.control.clone().into()]),
    }
    if spec.relay == RelayMode::ToController {
        // The sidecar may not enter the directories above the socket. From its working directory, it can still reach
        // the socket, including a new one that a later daemon creates there.
        let socket = Path::new("/proc/self/cwd").join(spec.paths.relay.file_name().unwrap_or_default());
        words.extend(["--relay".into(), format!("unix:{}", socket.display()).into()]);
        words.extend(["--relay-token-file".into(), spec.paths.relay_token.clone().into()]);
    }
    words
}

fn working_directory<'a>(spec: &SidecarSpec<'a>) -> &'a Path {
    match spec.relay {
        RelayMode::Off => Path::new("/"),
        RelayMode::ToController => spec.paths.relay.parent().unwrap_or(Path::new("/")),
    }
}

fn open_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Returns the last line of its log.
fn last_log_line(log: &Path) -> Option<String> {
    last_line(&std::fs::read_to_string(log).ok()?)
}

fn last_line(text: &str) -> Option<String> {
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    // The reader of the message uses our flags, and not the sidecar's help.
    let line = line.trim_start_matches("sluice-proxy: ").trim_start_matches("usage: ");
    Some(line.trim_end_matches("; see sluice-proxy --help").to_owned())
}

async fn ready(child: &mut Child, spec: &SidecarSpec<'_>, key: &ApiKey) -> Result<Process, SidecarError> {
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let stdout = child.stdout.take().expect("stdout is piped");
    key.write_to(&mut stdin).await?;
    drop(stdin);
    let mut line = String::new();
    BufReader::new(stdout.take(64 << 10)).read_line(&mut line).await?;
    if ReadyLine::parse(&line).is_none_or(|ready| ready.run_id != spec.key.run_id.as_str()) {
        return Err(SidecarError::Refused("it ended before it was ready".to_owned()));
    }
    health(&spec.paths.socket, spec.key).await.map_err(SidecarError::Unhealthy)?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).ok_or(SidecarError::NotReady)?;
    Ok(Process::of(pid)?)
}

/// Sends one real health request over the socket.
async fn health(socket: &Path, key: &RunKey) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.take(64 << 10).read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let is_ours = Health::parse(body).is_some_and(|health| health.run_id == key.run_id.as_str());
    if head.starts_with("HTTP/1.1 200") && is_ours {
        Ok(())
    } else {
        Err(io::Error::other(format!("it answered {head:?}")))
    }
}
