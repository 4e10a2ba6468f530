//! Who takes part in an episode, and how each is started.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use sluice_contract::hex;
use sluice_contract::{PrivateKey, PublicKey};
use tokio::io::AsyncWriteExt;

use crate::fault::Fault;
use crate::options::Programs;
use crate::process::{Victim, clean};
use crate::random::Random;
use crate::upstream::Address;

/// The upstream's key: must be there, and means nothing.
const KEY: &[u8] = b"sk-chaos-0123456789abcdef";

/// One directory, and the names of all that is in it.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) dir: PathBuf,
    pub(crate) run_id: String,
}

impl Stage {
    pub(crate) fn set(dir: PathBuf, run_id: String) -> io::Result<Self> {
        std::fs::create_dir(&dir)?;
        std::fs::create_dir(dir.join("run"))?;
        Ok(Self { dir, run_id })
    }

    pub(crate) fn audit(&self) -> PathBuf {
        self.dir.join("a.jsonl")
    }

    /// Where a torn line that began at this offset is put.
    pub(crate) fn aside(&self, offset: usize) -> PathBuf {
        self.dir.join(format!("a.jsonl.torn-{offset}"))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.join("run/llm.sock")
    }

    /// What the upstream saw.
    pub(crate) fn seen(&self) -> PathBuf {
        self.dir.join("seen")
    }

    /// What the client saw the end of.
    pub(crate) fn whole(&self) -> PathBuf {
        self.dir.join("whole")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.dir.join("sidecar.log")
    }
}

/// Makes the key that signs a file, and leaves it where the sidecar finds it.
pub(crate) fn audit_key(path: &Path, random: &mut Random) -> Result<PublicKey, Fault> {
    let seed: [u8; 32] = std::array::from_fn(|_| random.next().to_le_bytes()[0]);
    secret_file(path, hex::encode(&seed).as_bytes())?;
    Ok(PrivateKey::from_seed(&seed).public())
}

/// The upstream's key, for who takes it from a file.
pub(crate) fn key_file(path: &Path) -> Result<(), Fault> {
    secret_file(path, KEY)
}

fn secret_file(path: &Path, text: &[u8]) -> Result<(), Fault> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    Ok(io::Write::write_all(&mut file, text)?)
}

/// An upstream, once it listens, and where.
pub(crate) async fn upstream(
    programs: &Programs,
    address: &Address,
    record: &Path,
    seed: u64,
) -> Result<(Victim, Address), Fault> {
    let mut command = clean(&programs.own);
    command.arg("__upstream").arg(address.argument()).arg(record).arg(seed.to_string());
    let mut upstream = Victim::spawn("the upstream", command.stdin(Stdio::null()).stdout(Stdio::piped()))?;
    let address = Address::parse(&upstream.first_line().await?);
    Ok((upstream, address))
}

/// A client, which waits for its sidecar by itself.
pub(crate) fn client(programs: &Programs, stage: &Stage, seed: u64, workers: u64) -> Result<Victim, Fault> {
    let mut command = clean(&programs.own);
    command.arg("__client").arg(stage.socket()).arg(stage.whole()).arg(&stage.run_id);
    command.args([seed.to_string(), workers.to_string()]);
    Victim::spawn("the client", command.stdin(Stdio::null()))
}

/// How the sidecars of an episode are started; all of them alike.
#[derive(Debug)]
pub(crate) struct Launch {
    arguments: Vec<String>,
    log: PathBuf,
}

impl Launch {
    pub(crate) fn new(stage: &Stage, upstream: &Address, random: &mut Random) -> Self {
        let path = |path: PathBuf| path.display().to_string();
        let sync = if random.one_in(4) { "off" } else { "call" };
        let abort = if random.one_in(3) { "cancel" } else { "drain" };
        let arguments = [
            ["--socket", &path(stage.socket())],
            ["--audit", &path(stage.audit())],
            ["--audit-key-file", &path(stage.dir.join("audit.key"))],
            ["--upstream", &upstream.url()],
            ["--run-id", &stage.run_id],
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

    /// A sidecar that begins to start; it is ready when it has said its first line.
    pub(crate) async fn begin(&self, programs: &Programs) -> Result<Victim, Fault> {
        let log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        let mut command = clean(&programs.sidecar);
        command.args(&self.arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut sidecar = Victim::spawn("the sidecar", &mut command)?;
        if let Some(mut stdin) = sidecar.child().stdin.take() {
            // It fits into the pipe, whoever reads it, and whenever.
            stdin.write_all(KEY).await?;
        }
        Ok(sidecar)
    }
}
