//! Git of the daemon after the start of a container: strace shows that no git process works where a sandbox could
//! write.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::{PATIENCE, poll};

use super::git::{Forge, branch_of, on_repository};
use super::*;
use crate::clone::COMMIT;
use crate::clone_trace::{CALLS, PLANT, Trace, assert_in_place};

/// A strace of a running daemon.
struct Strace {
    child: Child,
    file: PathBuf,
}

impl Strace {
    async fn of(daemon: &Daemon<'_>, file: PathBuf) -> Self {
        let pid = daemon.process().pid();
        let mut strace = Command::new("strace");
        strace.args(["-f", "-v", "-s", "4096", "-e", CALLS, "-e", "signal=none", "-o"]).arg(&file);
        strace.args(["-p", &pid.to_string()]).stdin(Stdio::null()).stderr(Stdio::null());
        let child = strace.spawn().expect("strace is there");
        let tracer = format!("TracerPid:\t{}\n", child.id());
        let strace = Self { child, file };
        let is_attached = async || {
            let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("the daemon lives").flatten();
            let statuses = tasks.map(|task| fs::read_to_string(task.path().join("status")).unwrap_or_default());
            statuses.into_iter().all(|status| status.contains(&tracer))
        };
        assert!(poll(PATIENCE, is_attached).await, "strace does not attach");
        strace
    }

    /// Detaches from the daemon, and returns what it did.
    fn end(mut self) -> Trace {
        self.interrupt();
        Trace::parse(&String::from_utf8_lossy(&fs::read(&self.file).expect("it was written")))
    }

    fn interrupt(&mut self) {
        let _ = kill(Pid::from_raw(self.child.id().cast_signed()), Signal::SIGINT);
        let _ = self.child.wait();
    }
}

impl Drop for Strace {
    fn drop(&mut self) {
        self.interrupt();
    }
}

#[tokio::test]
async fn git_of_the_daemon_works_nowhere_else() {
    let forge = Forge::new("").await;
    let state = forge.sluice.state();
    let places = [state.join("git"), forge.bare().to_owned()];
    let writable = ["runs", "kept"].map(|name| state.join(name).display().to_string());
    let daemon = forge.sluice.serve().await;
    let strace = Strace::of(&daemon, forge.sluice.dir().join("trace")).await;
    let script = format!(
        "cd repo\n{PLANT}{COMMIT} && git push -q && {COMMIT}; git add nested 2>/dev/null; echo five >>text; git status >/dev/null"
    );

    let id = daemon.create(on_repository(&script, json!({ "ticket": "ABC-7", "pull_request": true }))).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    assert_eq!(branch_of(&daemon, &id).await["commits"], 2);
    for path in ["commits", "diff"] {
        daemon.get(&format!("/api/v1/sandboxes/{id}/git/{path}")).await.expect(200);
    }
    let asked = daemon.get(&format!("/api/v1/sandboxes/{id}/approvals")).await.expect(200).json();
    let [name, digest] = ["approval_id", "digest"].map(|name| asked["approvals"][0][name].as_str().expect("a text"));
    // Not by the command, which waits 30 s for its answer: strace stops git at each system call.
    let decision = format!("/api/v1/sandboxes/{id}/approvals/{name}/decision");
    daemon.request("POST", &decision, &json!({ "decision": "approve", "digest": digest })).await.expect(200);
    assert_eq!(forge.branches(), ["feature/ABC-7", "main"]);
    let trace = strace.end();

    let container = trace.container.expect("the request that starts the container");
    let after: Vec<_> = trace.git().filter(|git| git.line > container).collect();
    assert!(after.len() > 20, "push, bundles, views and publication: {}", after.len());
    after.iter().for_each(|git| assert_in_place(git, &places));
    let of_sandbox =
        |program: &str| program.contains("planted.sh") || writable.iter().any(|path| program.starts_with(path));
    let ran = trace.started.iter().filter(|one| one.line > container && of_sandbox(&one.program));
    assert_eq!(ran.map(|one| one.program.as_str()).collect::<Vec<_>>(), [""; 0]);
}
