//! Programs that a client starts in a live sandbox.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, RawClient, engine, poll};

use super::*;

/// A program in a sandbox; the test reads its lines one after the other.
struct OpenExec {
    client: RawClient,
    id: String,
    /// Lines after the first one.
    read: Vec<u8>,
}

impl OpenExec {
    async fn start(daemon: &Daemon<'_>, run: &str, body: &Value) -> Self {
        let mut client = daemon.connect().await;
        let json = [("content-type", "application/json")];
        client.send_request("POST", &format!("/api/v1/sandboxes/{run}/exec"), &json, body).await;
        let head = client.read_head().await;
        assert_eq!(head.status, 200);
        let mut read = Vec::new();
        while !read.contains(&b'\n') {
            read.extend(client.read_some().await.expect("a first line"));
        }
        let end = read.iter().position(|byte| *byte == b'\n').expect("a line");
        let rest = read.split_off(end + 1);
        let first: Value = serde_json::from_slice(&read).expect("an object");
        let id = first["exec_id"].as_str().expect("it has an id").to_owned();
        Self { client, id, read: rest }
    }

    /// Waits until output has come.
    async fn begun(mut self) -> Self {
        if self.read.is_empty() {
            self.read = self.client.read_some().await.expect("some output");
        }
        self
    }

    /// Returns all lines of output, and the last line.
    async fn finish(mut self) -> (Vec<Value>, Value) {
        let rest = self.client.read_response().await.expect(200);
        let text = String::from_utf8([self.read, rest.body].concat()).expect("it is text");
        let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
        let last = lines.pop().expect("a last line");
        (lines, last)
    }
}

fn argv(script: &str) -> Value {
    json!({"argv": ["sh", "-c", script]})
}

fn text(lines: &[Value], stream: &str) -> String {
    lines.iter().filter(|line| line["stream"] == stream).filter_map(|line| line["text"].as_str()).collect()
}

/// The number of processes on this host with these arguments.
fn processes(arguments: &[&str]) -> usize {
    let wanted = arguments.join("\0") + "\0";
    let entries = fs::read_dir("/proc").expect("there is /proc").flatten();
    entries.filter(|entry| fs::read(entry.path().join("cmdline")).is_ok_and(|line| line == wanted.as_bytes())).count()
}

async fn until_none(arguments: &[&str]) {
    assert!(poll(PATIENCE, async || processes(arguments) == 0).await, "{arguments:?} still run");
}

async fn working(sluice: &Sluice) -> (Daemon<'_>, String) {
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("exec sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;
    (daemon, id)
}

#[tokio::test]
async fn a_program_has_the_rights_of_its_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (daemon, id) = working(&sluice).await;
    let before = daemon.run(&id).await;
    let script = "id -u; pwd; echo $COLOR; grep -h NoNewPrivs /proc/self/status; grep CapEff /proc/self/status; \
                  echo error >&2; exit 3";
    let body = json!({"argv": ["sh", "-c", script], "env": {"COLOR": "blue-secret"}, "cwd": "/workspace/.sluice/.."});
    let refused = daemon.request("POST", &format!("/api/v1/sandboxes/{id}/exec"), &body).await;
    assert_eq!((refused.status, &refused.error()["details"]["field"]), (422, &json!("cwd")));
    let body = json!({"argv": ["sh", "-c", script], "env": {"COLOR": "blue-secret"}, "timeout": "30s"});

    let (lines, last) = OpenExec::start(&daemon, &id, &body).await.finish().await;

    let uid = fs::metadata(work(&sluice, &id)).expect("it is there").uid();
    let expected = format!("{uid}\n/workspace\nblue-secret\nNoNewPrivs:\t1\nCapEff:\t0000000000000000\n");
    assert_eq!((text(&lines, "stdout"), text(&lines, "stderr")), (expected.clone(), "error\n".to_owned()));
    assert!(uid >= 2_000_000, "{uid}");
    assert_eq!((&last["exit_code"], &last["stopped"], &last["truncated"]), (&json!(3), &Value::Null, &json!(false)));
    assert_eq!(last["bytes"], json!({"stdout": expected.len(), "stderr": 6}));
    assert_ne!(before["last_work_at"], daemon.run(&id).await["last_work_at"], "a program is work");
    let log = fs::read_to_string(sluice.state().join("audit/control.jsonl")).expect("it is there");
    let operations: Vec<_> = ["\"sandbox.exec\"", "\"sandbox.exec_end\""].map(|name| log.matches(name).count()).into();
    assert_eq!(operations, [1, 1], "{log}");
    assert!(!log.contains("blue-secret") && !log.contains("NoNewPrivs") && log.contains("COLOR"), "{log}");
    let (lines, _) = OpenExec::start(&daemon, &id, &argv("printf '\\377'")).await.finish().await;
    assert_eq!(lines, [json!({"stream": "stdout", "offset": 0, "base64": "/w=="})]);
    // The engine's error names its host, so no line has it.
    let (lines, last) = OpenExec::start(&daemon, &id, &json!({"argv": ["/no/such"]})).await.finish().await;
    assert_eq!((lines, &last["stopped"]), (vec![], &json!("not_started")), "{last}");
}

#[tokio::test]
async fn a_program_reads_its_input_and_has_a_terminal() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (daemon, id) = working(&sluice).await;
    let cat = OpenExec::start(&daemon, &id, &json!({"argv": ["cat"]})).await;
    let path = format!("/api/v1/sandboxes/{id}/exec/{}/stdin", cat.id);
    let content = vec![b'x'; 3 << 20];

    let mut client = daemon.connect().await;
    client.request("POST", &format!("{path}?close=true"), &[], &content).await.expect(204);
    let (lines, last) = cat.finish().await;

    assert_eq!(text(&lines, "stdout").len(), content.len());
    assert_eq!((&last["exit_code"], &last["bytes"]["stdout"]), (&json!(0), &json!(content.len())));
    daemon.connect().await.request("POST", &path, &[], "late").await.expect(404);

    let body = json!({"argv": ["sh", "-c", "echo begun; read line; stty size"], "tty": true});
    let terminal = OpenExec::start(&daemon, &id, &body).await.begun().await;
    let path = format!("/api/v1/sandboxes/{id}/exec/{}", terminal.id);
    daemon.request("POST", &format!("{path}/resize"), &json!({"rows": 33, "columns": 99})).await.expect(204);
    daemon.request("POST", &format!("{path}/resize"), &json!({"rows": 0, "columns": 99})).await.expect(422);
    daemon.connect().await.request("POST", &format!("{path}/stdin"), &[], "\n").await.expect(204);
    let (lines, last) = terminal.finish().await;
    assert!(text(&lines, "stdout").ends_with("33 99\r\n") && last["exit_code"] == 0, "{lines:?}");
}

#[tokio::test]
async fn a_program_ends_before_its_end_in_four_ways() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (daemon, id) = working(&sluice).await;
    let forks = |seconds: &str| {
        argv(&format!("echo begun; (setsid sleep {seconds} &); sleep {seconds} & exec sleep {seconds}"))
    };

    let cancelled = OpenExec::start(&daemon, &id, &forks("7331")).await.begun().await;
    let path = format!("/api/v1/sandboxes/{id}/exec/{}", cancelled.id);
    assert!(poll(PATIENCE, async || processes(&["sleep", "7331"]) == 3).await);
    daemon.request("DELETE", &path, &Value::Null).await.expect(202);
    let (_, last) = cancelled.finish().await;
    assert_eq!(
        (&last["stopped"], &last["exit_code"], processes(&["sleep", "7331"])),
        (&json!("cancelled"), &json!(137), 0)
    );
    daemon.request("DELETE", &path, &Value::Null).await.expect(404);

    let mut late = forks("7332");
    late["timeout"] = json!("1s");
    let (_, last) = OpenExec::start(&daemon, &id, &late).await.finish().await;
    assert_eq!((&last["stopped"], processes(&["sleep", "7332"])), (&json!("timed_out"), 0));

    drop(OpenExec::start(&daemon, &id, &forks("7333")).await.begun().await);
    until_none(&["sleep", "7333"]).await;
    let log = sluice.state().join("audit/control.jsonl");
    let ends = async || fs::read_to_string(&log).expect("it is there").matches("\"sandbox.exec_end\"").count();
    assert!(poll(PATIENCE, async || ends().await == 3).await, "each end is recorded");

    // The end of the daemon ends its programs, but not the run.
    let open = OpenExec::start(&daemon, &id, &forks("7334")).await.begun().await;
    daemon.stop().await;
    assert_eq!(processes(&["sleep", "7334"]), 0);
    drop(open);
    assert_eq!(sluice.containers().await.len(), 1);
}

/// A stopped process. It continues when this is dropped.
struct StoppedProcess(Pid);

impl StoppedProcess {
    fn new(pid: i32) -> Self {
        let pid = Pid::from_raw(pid);
        kill(pid, Signal::SIGSTOP).expect("it lives");
        Self(pid)
    }
}

impl Drop for StoppedProcess {
    fn drop(&mut self) {
        kill(self.0, Signal::SIGCONT).expect("it lives");
    }
}

/// Returns the pid of the program that starts programs in a container for the engine.
async fn shim(container: &str) -> i32 {
    let init = engine::inspect(container).await["State"]["Pid"].clone();
    let status = fs::read_to_string(format!("/proc/{init}/status")).expect("the container runs");
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).expect("each process has a parent");
    parent.trim().parse().expect("a number")
}

/// Bug: a program that timed out before the engine started it ran until the end of its run.
#[tokio::test]
async fn a_program_that_starts_late_is_ended_too() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (daemon, id) = working(&sluice).await;
    let busy = StoppedProcess::new(shim(&sluice.containers().await[0]).await);
    let body = json!({"argv": ["sleep", "7335"], "timeout": "1s"});
    let mut late = OpenExec::start(&daemon, &id, &body).await;
    let said = tokio::time::timeout(Duration::from_secs(2), late.client.read_some()).await;
    assert!(said.is_err(), "its end is reported before the engine has started it");
    drop(busy);
    let (lines, last) = late.finish().await;
    assert_eq!((lines.len(), &last["stopped"], processes(&["sleep", "7335"])), (0, &json!("timed_out"), 0));
}

#[tokio::test]
async fn a_sandbox_runs_four_programs_at_once() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (daemon, id) = working(&sluice).await;
    let path = format!("/api/v1/sandboxes/{id}/exec");
    let mut open = Vec::new();
    for _ in 0..4 {
        open.push(OpenExec::start(&daemon, &id, &argv("echo begun; exec sleep 7341")).await.begun().await);
    }

    let fifth = daemon.request("POST", &path, &argv("true")).await;
    assert_eq!((fifth.status, &fifth.error()["code"]), (429, &json!("too_many_execs")), "{}", fifth.text());
    open.pop();
    let admitted = poll(PATIENCE, async || daemon.request("POST", &path, &argv("true")).await.status == 200);
    assert!(admitted.await, "a client that hangs up leaves its place");
    let flood = argv("head -c 20000000 /dev/zero");
    let (lines, last) = OpenExec::start(&daemon, &id, &flood).await.finish().await;
    let came: usize = lines.iter().filter_map(|line| line["text"].as_str()).map(str::len).sum();
    assert_eq!((came, &last["bytes"]["stdout"], &last["truncated"]), (8 << 20, &json!(20_000_000), &json!(true)));

    // The end of the run is the end of its programs.
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    let (_, last) = open.pop().expect("three are left").finish().await;
    assert!(last["exit_code"] != 0 && last["truncated"] == false, "{last}");
    daemon.reaches(&id, "COMPLETED").await;
    until_none(&["sleep", "7341"]).await;
}

#[tokio::test]
async fn programs_of_a_killed_daemon_end_with_its_return() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (daemon, id) = working(&sluice).await;
    let script = "echo begun; (setsid sleep 7351 &); exec sleep 7351";
    let open = OpenExec::start(&daemon, &id, &argv(script)).await.begun().await;
    assert!(poll(PATIENCE, async || processes(&["sleep", "7351"]) == 2).await);

    daemon.kill().await;
    drop(open);
    assert_eq!(processes(&["sleep", "7351"]), 2, "nothing ends them meanwhile");
    let daemon = sluice.serve().await;

    until_none(&["sleep", "7351"]).await;
    assert_eq!((&daemon.run(&id).await["state"], processes(&["sleep", "600"]) > 0), (&json!("RUNNING"), true));
    let path = format!("/api/v1/sandboxes/{id}/exec");
    let again = poll(PATIENCE, async || daemon.request("POST", &path, &argv("true")).await.status == 200);
    assert!(again.await, "the new daemon starts programs");
}
