//! `sluice serve` on the state directory of a test, and requests to it.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::Value;

use super::invocation::{Invocation, RunningCommand};
use super::{Sluice, unique_run_id};
use crate::client::{ClientAnswer, RawClient};
use crate::wait::{PATIENCE, poll};

/// A running daemon; killed when dropped. Its runs are removed with the state directory.
#[derive(Debug)]
pub struct Daemon<'a> {
    process: RunningCommand<'a>,
    sockets: PathBuf,
}

impl Sluice {
    /// Starts a daemon that runs sandboxes, with sockets of its own and a free port, and waits until it listens.
    pub async fn serve(&self) -> Daemon<'_> {
        self.serve_with([""; 0]).await
    }

    /// The same with further flags.
    pub async fn serve_with<A: AsRef<str>>(&self, args: impl IntoIterator<Item = A>) -> Daemon<'_> {
        self.serve_in(&self.dir().join(unique_run_id("sockets")), args).await
    }

    /// The same with sockets in this directory.
    pub async fn serve_in<A: AsRef<str>>(&self, sockets: &Path, args: impl IntoIterator<Item = A>) -> Daemon<'_> {
        self.start_daemon(sockets, args, "true").await
    }

    /// Starts a daemon that creates no sandboxes.
    pub async fn serve_switched_off(&self) -> Daemon<'_> {
        self.start_daemon(&self.dir().join(unique_run_id("sockets")), [""; 0], "false").await
    }

    async fn start_daemon<A: AsRef<str>>(
        &self,
        sockets: &Path,
        args: impl IntoIterator<Item = A>,
        enabled: &str,
    ) -> Daemon<'_> {
        let sockets = sockets.to_owned();
        let words = ["serve", "--listen", "127.0.0.1:0", "--run-dir", &sockets.display().to_string()];
        let process = self.command(words).args(args).env("SLUICE_SANDBOX_ENABLED", enabled).spawn();
        process.says("listening on").await;
        Daemon { process, sockets }
    }
}

impl<'a> Daemon<'a> {
    /// Process of the daemon.
    pub fn process(&self) -> &RunningCommand<'a> {
        &self.process
    }

    /// TCP address of the daemon, `HOST:PORT`.
    pub fn address(&self) -> String {
        let said = self.process.stderr();
        let address = said.split_once("listening on http://").and_then(|(_, rest)| rest.split([',', '\n']).next());
        address.expect("it has said where it listens").to_owned()
    }

    /// The directory of its sockets.
    pub fn sockets(&self) -> &Path {
        &self.sockets
    }

    /// Describes a `sluice` command that finds this daemon, or the next one with the same sockets.
    pub fn command<A: AsRef<str>>(&self, args: impl IntoIterator<Item = A>) -> Invocation<'a> {
        self.process.sluice().command(args).env("SLUICE_RUN_DIR", self.sockets.display().to_string())
    }

    /// Connects to `admin.sock`, as root.
    pub async fn connect(&self) -> RawClient {
        RawClient::connect(self.sockets.join("admin.sock")).await.allowing_any()
    }

    /// Sends a request as root; a body goes as JSON.
    pub async fn request(&self, method: &str, path: &str, body: &Value) -> ClientAnswer {
        let mut client = self.connect().await;
        match body {
            Value::Null => client.request(method, path, &[], ()).await,
            body => client.request(method, path, &[("content-type", "application/json")], body.to_string()).await,
        }
    }

    /// `GET` as root.
    pub async fn get(&self, path: &str) -> ClientAnswer {
        self.request("GET", path, &Value::Null).await
    }

    /// Creates a run, and returns its id.
    pub async fn create(&self, request: Value) -> String {
        let created = self.request("POST", "/api/v1/sandboxes", &request).await.expect(201).json();
        created["run_id"].as_str().expect("it has an id").to_owned()
    }

    /// The run as the API shows it.
    pub async fn run(&self, id: &str) -> Value {
        self.get(&format!("/api/v1/sandboxes/{id}")).await.expect(200).json()
    }

    /// Waits until a run has this state: that may take the time of queue, container, agent and removal.
    pub async fn reaches(&self, id: &str, state: &str) -> Value {
        let mut run = Value::Null;
        let reached = poll(PATIENCE * 4, async || {
            run = self.run(id).await;
            run["state"] == state
        });
        assert!(reached.await, "no {state} in time: {run}\n{}", self.process.stderr());
        run
    }

    /// Waits until a run has ended, also after further attempts: the first retry comes after 10 s.
    pub async fn ended(&self, id: &str) -> Value {
        let mut run = Value::Null;
        let ended = poll(PATIENCE * 7, async || {
            run = self.run(id).await;
            run["ended_at"].is_string()
        });
        assert!(ended.await, "no end in time: {run}\n{}", self.process.stderr());
        run
    }

    /// Waits until this many pieces of a run's output are stored, and returns them.
    pub async fn logged(&self, id: &str, pieces: usize) -> Vec<Value> {
        let mut lines = Vec::new();
        let logged = poll(PATIENCE * 4, async || {
            let text = self.get(&format!("/api/v1/sandboxes/{id}/logs")).await.expect(200).text();
            lines = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            lines.len() >= pieces
        });
        assert!(logged.await, "{lines:?}");
        lines
    }

    /// The events of a run, oldest first.
    pub async fn events(&self, id: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/v1/sandboxes/{id}/events?limit=500")).await.expect(200).json();
        let mut events = page["events"].as_array().cloned().unwrap_or_default();
        events.sort_by_key(|event| event["seq"].as_i64());
        events
    }

    /// Sends SIGTERM, and waits until it has ended in order.
    pub async fn stop(self) {
        self.process.signal(Signal::SIGTERM);
        self.process.finish().await.expect(0);
    }

    /// Sends SIGKILL, and waits until it is gone.
    pub async fn kill(self) {
        self.process.kill().await;
    }
}
