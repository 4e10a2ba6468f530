//! The real `sluice` program with its own state directory, and a check of its leftovers.
//!
//! Dropping a [`Sluice`] kills the processes of its state directory and removes its containers and the directory.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::audit::CheckedAuditFile;
use crate::engine;
use crate::leash::python;
use crate::litellm::LiteLlm;
use crate::scratch::{TempDir, write_script};
use crate::sidecar::{CANARY, inspect};
use crate::upstream::Upstream;
use crate::wait::{PATIENCE, poll};

mod daemon;
mod invocation;
mod remains;
mod report;

pub use daemon::Daemon;
pub use invocation::{FinishedCommand, Invocation, RunningCommand};
pub use report::{ReportAudit, ReportReceipt, ReportStream, ReportStreams, ReportTimings, RunReport};

/// A controller's state directory, upstream and key; each command is a new process.
#[derive(Debug)]
pub struct Sluice {
    dir: TempDir,
    upstream: String,
    key: String,
    /// Time of creation: no event of its containers is older.
    since: f64,
}

impl Sluice {
    /// Makes a state directory for the shared LiteLLM of this test process.
    pub async fn new() -> Self {
        let litellm = LiteLlm::shared().await;
        Self::with(litellm.url(), litellm.key())
    }

    /// Makes a state directory for a scripted upstream.
    pub fn to(upstream: &Upstream) -> Self {
        Self::with(upstream.url(), CANARY)
    }

    /// Makes a state directory for any upstream, with the key in `up.key`.
    pub fn with(upstream: &str, key: &str) -> Self {
        let dir = TempDir::new();
        let sluice = Self { upstream: upstream.to_owned(), key: key.to_owned(), since: now(), dir };
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(sluice.key_file());
        let written = file.as_mut().map(|file| file.write_all(key.as_bytes()));
        written.expect("a fresh directory takes files").expect("a fresh directory takes files");
        sluice.file("sluice.toml", "");
        sluice
    }

    /// The upstream's key, which must not appear anywhere.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// The file that holds it.
    pub fn key_file(&self) -> PathBuf {
        self.dir.join("up.key")
    }

    /// The state directory; the first command creates it.
    pub fn state(&self) -> PathBuf {
        self.dir.join("st")
    }

    /// A directory beside the state directory, for the files of a test.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Writes a file into that directory, and returns its path.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = self.dir.join(name);
        fs::write(&path, content).expect("a test's directory takes files");
        path.display().to_string()
    }

    /// Writes a shell script into the test's directory, and returns its path.
    pub fn script(&self, name: &str, lines: &str) -> String {
        let path = self.dir.join(name);
        write_script(&path, lines);
        path.display().to_string()
    }

    /// Path of the audit file of a run.
    pub fn audit_path(&self, run_id: &str) -> PathBuf {
        self.state().join("audit").join(format!("{run_id}.0.jsonl"))
    }

    /// The audit file of a run, checked by all rules (see [`CheckedAuditFile::read`]).
    #[track_caller]
    pub fn audit(&self, run_id: &str) -> CheckedAuditFile {
        CheckedAuditFile::read(self.audit_path(run_id))
    }

    /// The directories of runs that exist now.
    pub fn runs(&self) -> Vec<PathBuf> {
        let runs = fs::read_dir(self.state().join("runs")).into_iter().flatten().flatten();
        runs.map(|entry| entry.path()).collect()
    }

    /// Describes a `sluice run`. Its environment has only `PATH` and the paths of programs and files.
    pub fn run<A: AsRef<str>>(&self, args: impl IntoIterator<Item = A>) -> Invocation<'_> {
        self.command(["run"]).args(args)
    }

    /// Describes any `sluice` command.
    pub fn command<A: AsRef<str>>(&self, args: impl IntoIterator<Item = A>) -> Invocation<'_> {
        Invocation::new(self).args(args)
    }

    /// The label of its containers, `sluice.instance=…`, once the state directory has its name.
    pub async fn label(&self) -> String {
        let file = self.state().join("instance");
        assert!(poll(PATIENCE, async || file.exists()).await, "no {} in time", file.display());
        format!("sluice.instance={}", fs::read_to_string(file).expect("the file is there"))
    }

    /// The names of its containers, in any state.
    pub async fn containers(&self) -> Vec<String> {
        engine::containers_with(&self.label().await).await
    }

    /// Waits until its containers have seen `event` (`create`, `start`, `oom`, `die`, `destroy`) `count` times in all,
    /// and returns the name of the last one.
    pub async fn container_event(&self, event: &str, count: usize) -> String {
        engine::event(event, &self.label().await, self.since, count).await
    }

    /// Waits until its first container has started, and returns its name.
    pub async fn started(&self) -> String {
        self.container_event("start", 1).await
    }

    /// Processes whose command line names the state directory: sidecars.
    pub fn processes(&self) -> Vec<i32> {
        remains::processes_naming(&self.state())
    }

    /// The controllers that run on the state directory.
    pub fn controllers(&self) -> Vec<i32> {
        remains::controllers_of(&self.state())
    }

    /// Runs an SQL statement on the database of runs, and returns the rows as JSON.
    pub async fn sql(&self, statement: &str) -> String {
        const PROGRAM: &str = "import json, sqlite3, sys; \
                               database = sqlite3.connect(sys.argv[1], timeout=90, isolation_level=None); \
                               print(json.dumps(database.execute(sys.argv[2]).fetchall()))";
        let database = self.state().join("sluice.db");
        let ran = tokio::process::Command::new(python()).arg("-c").arg(PROGRAM).arg(database).arg(statement).output();
        let ran = ran.await.expect("the environment of the tests has Python");
        assert!(ran.status.success(), "{statement}: {}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).trim().to_owned()
    }

    /// Kind and name of each leftover that `sluice sweep --dry-run` finds.
    pub async fn leftovers(&self) -> Vec<(String, String)> {
        let swept = self.command(["sweep", "--dry-run", "--json"]).finish().await;
        assert_eq!((swept.code, swept.stderr.as_str()), (0, ""), "{}", swept.stdout);
        let found: serde_json::Value = serde_json::from_str(&swept.stdout).expect("sweep --json prints JSON");
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let found = found["leftovers"].as_array().expect("a list").iter();
        found.map(|leftover| (text(&leftover["kind"]), text(&leftover["name"]))).collect()
    }

    /// Fails if anything but closed audit files is left of the runs; returns the audit files.
    pub async fn assert_nothing_left(&self) -> Vec<CheckedAuditFile> {
        let (mut faults, audit_files) = remains::of(self).await;
        faults.extend(audit_files.iter().filter(|file| !file.is_closed()).map(|file| {
            let run = file.open()["run_id"].as_str().unwrap_or_default();
            format!("the audit file of {run} has no close: {:?}", file.kinds())
        }));
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        audit_files
    }

    /// Like [`Self::assert_nothing_left`], for a killed sidecar: its audit file may have no end.
    pub async fn assert_nothing_left_but_unsealed_audit_files(&self) -> Vec<CheckedAuditFile> {
        let (faults, audit_files) = remains::of(self).await;
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        audit_files
    }
}

impl Drop for Sluice {
    fn drop(&mut self) {
        inspect::kill(&remains::controllers_of(&self.state()));
        inspect::kill(&self.processes());
        if let Ok(instance) = fs::read_to_string(self.state().join("instance")) {
            engine::remove_all(&format!("sluice.instance={instance}"));
        }
    }
}

/// Returns a run id that no other test has: the names of containers include it, and all tests share one engine.
pub fn unique_run_id(prefix: &str) -> String {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_millis();
    format!("{prefix}-{now}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970").as_secs_f64()
}
