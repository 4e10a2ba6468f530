//! The real `sluice-proxy` process, between a scripted upstream and a raw client.
//!
//! Dropping a [`Sidecar`] kills and reaps the process, removes its directory, and fails the test
//! if the upstream key is in anything that the process wrote or shows.

use std::path::{Path, PathBuf};

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::audit::CheckedAuditFile;
use crate::client::{ClientAnswer, RawClient, RequestPayload};
use crate::scratch::TempDir;

pub(crate) mod inspect;
mod launch;
pub(crate) mod process;

pub use launch::{CANARY, FailedStart, Launch, UNPRIVILEGED, program};
use process::Process;
pub use process::SidecarExit;

/// A running sidecar that has printed its ready line.
#[derive(Debug)]
pub struct Sidecar {
    process: Process,
    /// Pid of the sidecar, which is not the child when a wrapper started it.
    pid: i32,
    ready: Value,
    socket: PathBuf,
    audit: PathBuf,
    key: String,
    passed_headers: Vec<String>,
    dir: TempDir,
}

impl Sidecar {
    /// Describes a sidecar for this upstream.
    pub fn to(upstream: &crate::Upstream) -> Launch {
        Launch::new(upstream.url())
    }

    /// Describes a sidecar for any `--upstream`.
    pub fn to_url(url: &str) -> Launch {
        Launch::new(url)
    }

    /// The ready line.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The pid of the sidecar itself.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Path of the socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Directory of the socket and the audit file, unless a test put them elsewhere.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Path of the audit file.
    pub fn audit_path(&self) -> &Path {
        &self.audit
    }

    /// The audit file so far, checked by all rules (see [`CheckedAuditFile::read`]).
    #[track_caller]
    pub fn audit(&self) -> CheckedAuditFile {
        CheckedAuditFile::read(&self.audit)
    }

    /// The audit file once it has `count` records of `kind` (see [`CheckedAuditFile::wait_for`]).
    pub async fn audit_with(&self, kind: &str, count: usize) -> CheckedAuditFile {
        CheckedAuditFile::wait_for(&self.audit, kind, count).await
    }

    /// Opens a connection to the socket.
    pub async fn connect(&self) -> RawClient {
        RawClient::connect(&self.socket).await.allowing(&self.passed_headers)
    }

    /// Sends one request on a new connection.
    pub async fn request(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl RequestPayload,
    ) -> ClientAnswer {
        self.connect().await.request(method, path, headers, body).await
    }

    /// Sends one `GET` on a new connection.
    pub async fn get(&self, path: &str) -> ClientAnswer {
        self.connect().await.get(path).await
    }

    /// Sends one `POST` of JSON on a new connection.
    pub async fn post(&self, path: &str, body: impl RequestPayload) -> ClientAnswer {
        self.connect().await.post_json(path, body).await
    }

    /// Sends a `POST` of JSON and returns the connection, on which the test reads head and events.
    pub async fn stream(&self, path: &str, body: impl RequestPayload) -> RawClient {
        let mut raw = self.connect().await;
        raw.send_request("POST", path, &[("content-type", "application/json")], body).await;
        raw
    }

    /// Sends any signal.
    pub fn signal(&self, signal: Signal) {
        self.inspect();
        self.process.signal(self.pid, signal);
    }

    /// Sends SIGTERM.
    pub fn sigterm(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill(&self) {
        self.signal(Signal::SIGKILL);
        self.wait().await;
    }

    /// Waits until the process and its output have ended.
    pub async fn wait(&self) -> SidecarExit {
        self.process.wait().await
    }

    /// Sends SIGTERM, and returns the exit code; panics if a signal ended the process.
    pub async fn stop(&self) -> i32 {
        self.sigterm();
        let exit = self.wait().await;
        exit.code.unwrap_or_else(|| panic!("ended by signal {:?}: {}", exit.signal, self.stderr()))
    }

    /// Everything on stdout so far.
    pub fn stdout(&self) -> String {
        self.process.stdout.text()
    }

    /// Everything on stderr so far.
    pub fn stderr(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits until stderr contains `text`.
    pub async fn logs(&self, text: &str) {
        self.process.stderr.contains(text).await;
    }

    /// Resident memory in KiB.
    pub fn rss_kib(&self) -> u64 {
        inspect::status_kib(self.pid, "VmRSS:")
    }

    /// Resident memory in KiB without pages of the program: those depend on what the system reads ahead.
    pub fn anonymous_kib(&self) -> u64 {
        inspect::status_kib(self.pid, "RssAnon:")
    }

    /// Peak of the resident memory in KiB.
    pub fn peak_rss_kib(&self) -> u64 {
        inspect::status_kib(self.pid, "VmHWM:")
    }

    /// Number of open file descriptors.
    pub fn fds(&self) -> usize {
        inspect::fds(self.pid)
    }

    /// Waits until the sidecar holds fewer file descriptors than `count`: it has noticed that a peer has left.
    ///
    /// Nothing signals that another process has closed a socket that its peer had closed before, so
    /// this looks every 2 ms.
    pub async fn fds_below(&self, count: usize) {
        let mut ticks = tokio::time::interval(std::time::Duration::from_millis(2));
        let looking = async {
            while self.fds() >= count {
                ticks.tick().await;
            }
        };
        let waited = tokio::time::timeout(crate::PATIENCE, looking).await;
        waited.unwrap_or_else(|_| panic!("the sidecar still holds {} descriptors, not under {count}", self.fds()));
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        inspect::threads(self.pid)
    }

    /// Fails on faults of the running process: a key that others can read, a child process.
    fn inspect(&self) {
        let mut faults = Vec::new();
        if self.process.is_running() {
            inspect::process(self.pid, &self.key, &mut faults);
        }
        if !std::thread::panicking() {
            assert!(faults.is_empty(), "{}", faults.join("; "));
        }
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        let mut faults = Vec::new();
        if self.process.is_running() {
            inspect::process(self.pid, &self.key, &mut faults);
            // If there are children, the test has failed by now, but must still end them.
            let children = inspect::children(self.pid);
            self.process.signal(self.pid, Signal::SIGKILL);
            inspect::kill(&children);
        }
        self.process.end(&mut faults);
        inspect::text("stdout", self.stdout().as_bytes(), &self.key, &mut faults);
        inspect::text("stderr", self.stderr().as_bytes(), &self.key, &mut faults);
        inspect::files(&self.audit, &self.key, &mut faults);
        inspect::files(self.dir.path(), &self.key, &mut faults);
        if !faults.is_empty() && !std::thread::panicking() {
            panic!("{}", faults.join("; "));
        }
    }
}

#[cfg(test)]
mod tests;
