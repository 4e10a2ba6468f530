//! The processes of an episode, and their start.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sluice_contract::hex;
use sluice_contract::{PrivateKey, PublicKey};
use tokio::io::AsyncWriteExt;

use crate::fault::ChaosFault;
use crate::options::Programs;
use crate::process::{ChaosProcess, clean};
use crate::upstream::UpstreamAddress;
use fastrand::Rng;

/// The upstream's key: it must exist, but its value does not matter.
const KEY: &[u8] = b"sk-chaos-0123456789abcdef";

/// One directory, and the names of its files.
#[derive(Debug, Clone)]
pub(crate) struct EpisodeFiles {
    pub(crate) dir: PathBuf,
    pub(crate) run_id: String,
}

impl EpisodeFiles {
    pub(crate) fn set(dir: PathBuf, run_id: String) -> io::Result<Self> {
        std::fs::create_dir(&dir)?;
        std::fs::create_dir(dir.join("run"))?;
        Ok(Self { dir, run_id })
    }

    pub(crate) fn audit(&self) -> PathBuf {
        self.dir.join("a.jsonl")
    }

    /// File of a torn line that began at this offset.
    pub(crate) fn aside(&self, offset: usize) -> PathBuf {
        self.dir.join(format!("a.jsonl.torn-{offset}"))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("run/llm.sock")
    }

    /// The upstream's record of calls.
    pub(crate) fn seen(&self) -> PathBuf {
        self.dir.join("seen")
    }

    /// The client's record of complete answers.
    pub(crate) fn whole(&self) -> PathBuf {
        self.dir.join("whole")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("sidecar.log")
    }
}

/// Makes the key that signs a file, and writes it for the sidecar.
pub(crate) fn audit_key(path: &Path, random: &mut Rng) -> Result<PublicKey, ChaosFault> {
    let seed: [u8; 32] = std::array::from_fn(|_| random.u8(..));
    secret_file(path, hex::encode(&seed).as_bytes())?;
    Ok(PrivateKey::from_seed(&seed).public())
}

/// Writes the upstream's key into a file.
pub(crate) fn key_file(path: &Path) -> Result<(), ChaosFault> {
    secret_file(path, KEY)
}

fn secret_file(path: &Path, text: &[u8]) -> Result<(), ChaosFault> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(io::Write::write_all(&mut file, text)?)
}

/// Starts an upstream, and returns it with its address once it listens.
pub(crate) async fn upstream(
    programs: &Programs,
    address: &UpstreamAddress,
    record: &Path,
    seed: u64,
) -> Result<(ChaosProcess, UpstreamAddress), ChaosFault> {
    let mut command = clean(&programs.own);
    command.arg("__upstream").arg(address.argument()).arg(record).arg(seed.to_string());
    let mut upstream = ChaosProcess::spawn("the upstream", command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let address = UpstreamAddress::parse(&upstream.first_line().await?);
    Ok((upstream, address))
}

/// Starts a client, which waits for its sidecar.
pub(crate) fn client(
    programs: &Programs,
    stage: &EpisodeFiles,
    seed: u64,
    workers: u64,
) -> Result<ChaosProcess, ChaosFault> {
    let mut command = clean(&programs.own);
    command.arg("__client").arg(stage.socket()).arg(stage.whole()).arg(&stage.run_id);
    command.args([seed.to_string(), workers.to_string()]);
    ChaosProcess::spawn("the client", command.stdin(Stdio::null()))
}

/// The command line of all sidecars of an episode.
#[derive(Debug)]
pub(crate) struct SidecarFlags {
    arguments: Vec<String>,
    log: PathBuf,
}

impl SidecarFlags {
    pub(crate) fn new(stage: &EpisodeFiles, upstream: &UpstreamAddress, random: &mut Rng) -> Self {
        let path = |path: PathBuf| path.display().to_string();
        let sync = if random.u64(..4) == 0 { "off" } else { "call" };
        let abort = if random.u64(..3) == 0 { "cancel" } else { "drain" };
        let arguments = [
            ["--socket", &path(stage.socket())],
            ["--audit", &path(stage.audit())],
            ["--audit-key-file", &path(stage.dir.join("audit.key"))],
            ["--upstream", &upstream.url()],
            ["--run-id", &stage.run_id],
            // Upstreams at unix sockets belong to root.
            ["--user", "root"],
            ["--account", "acct-1"],
            ["--audit-sync", sync],
            ["--abort", abort],
            ["--drain", "200ms"],
            ["--log-level", "warn"],
        ];
        let mut arguments = arguments.concat().into_iter().map(str::to_owned).collect::<Vec<_>>();
        arguments.push("--die-with-parent".to_owned());
        Self { arguments, log: stage.log() }
    }

    /// Starts a sidecar; it is ready when it has printed its first line.
    pub(crate) async fn begin(&self, programs: &Programs) -> Result<ChaosProcess, ChaosFault> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = clean(&programs.sidecar);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut sidecar = ChaosProcess::spawn("the sidecar", &mut command)?;
        if let Some(mut stdin) = sidecar.child().stdin.take() {
            // It fits into the pipe, so the write does not wait for a reader.
            stdin.write_all(KEY).await?;
        }
        Ok(sidecar)
    }
}
