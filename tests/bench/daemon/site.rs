//! A state directory with its tokens, and daemons on it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::ask;
use crate::process::Running;
use crate::{Outcome, programs, wire};

/// Number of tokens, each with an owner of its own: an owner may create 60 runs in a minute, and a token may have 20
/// streams.
const TOKENS: usize = 25;
/// Longest wait for a daemon or for a run.
const PATIENCE: Duration = Duration::from_secs(900);

/// A state directory with its tokens.
pub(crate) struct DaemonSite {
    program: PathBuf,
    state: PathBuf,
    sockets: PathBuf,
    settings: Vec<String>,
    pub(crate) tokens: Vec<String>,
}

impl DaemonSite {
    /// Makes the directory and the tokens, in a directory of this name.
    pub(crate) fn create(scratch: &Path, name: &str, upstream: u16) -> Outcome<Self> {
        let own = scratch.join(name);
        fs::create_dir(&own)?;
        let (program, state) = (programs::controller()?, own.join("state"));
        let key = own.join("key");
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&key)?;
        file.write_all(wire::KEY.as_bytes())?;
        let mut settings = vec![format!("--upstream=http://127.0.0.1:{upstream}")];
        settings.push(format!("--key-file={}", key.display()));
        if let Ok(proxy) = programs::sidecar() {
            settings.push(format!("--proxy={}", proxy.display()));
        }
        let mut site = Self { program, state, sockets: own.join("run"), settings, tokens: Vec::new() };
        for number in 0..TOKENS {
            site.tokens.push(site.create_token(number)?);
        }
        Ok(site)
    }

    fn create_token(&self, number: usize) -> Outcome<String> {
        let owner = format!("bench-{number}");
        let mut command = Command::new(&self.program);
        command.args(["token", "create", "--role", "admin", "--owner", &owner, "--state-dir"]).arg(&self.state);
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("sluice token create: {}", String::from_utf8_lossy(&output.stderr)).into());
        }
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    /// Starts a daemon, and waits until it answers.
    pub(crate) async fn start(&self) -> Outcome<Running> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--listen", "127.0.0.1:0"]).args(&self.settings);
        command.arg("--state-dir").arg(&self.state).arg("--run-dir").arg(&self.sockets);
        // The disk of the machine may be nearly full.
        command.env("SLUICE_EVENT_DISK_FREE", "0");
        command.env("SLUICE_SANDBOX_ENABLED", "true").stdin(Stdio::null()).stderr(Stdio::null());
        let mut running = Running::spawn(&mut command)?;
        let begun = Instant::now();
        while ask(&self.admin(), ("GET", "/alive"), None, None).await.is_err() {
            if let Some(status) = running.ended()? {
                return Err(format!("sluice serve has ended: {status}").into());
            }
            if begun.elapsed() > PATIENCE {
                return Err("sluice serve does not answer".into());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(running)
    }

    /// Returns the path of the socket that root uses.
    pub(crate) fn admin(&self) -> PathBuf {
        self.sockets.join("admin.sock")
    }

    /// Returns the path of the socket that takes tokens.
    pub(crate) fn api(&self) -> PathBuf {
        self.sockets.join("api.sock")
    }

    /// Returns the path of the database.
    pub(crate) fn database(&self) -> PathBuf {
        self.state.join("sluice.db")
    }

    /// Sends a `GET` as root, and returns the answer.
    pub(crate) async fn get(&self, path: &str) -> Outcome<Value> {
        Ok(serde_json::from_str(&ask(&self.admin(), ("GET", path), None, None).await?)?)
    }

    /// Creates a run as one of the owners.
    pub(crate) async fn create_run(&self, number: usize, body: &Value) -> Outcome<Value> {
        let token = &self.tokens[number % self.tokens.len()];
        let created = ask(&self.api(), ("POST", "/api/v1/sandboxes"), Some(token), Some(body)).await?;
        Ok(serde_json::from_str(&created)?)
    }

    /// Waits until a run has ended, and returns it.
    pub(crate) async fn ended(&self, id: &str) -> Outcome<Value> {
        let begun = Instant::now();
        loop {
            let run = self.get(&format!("/api/v1/sandboxes/{id}")).await?;
            if run["ended_at"].is_string() {
                return Ok(run);
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("run {id} does not end: {run}").into());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
