//! The end of a sidecar: in order if possible, by a cut if necessary, and always with its outcomes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_testkit::audit::CheckedAuditFile;
use sluice_testkit::{PATIENCE, Sidecar, SidecarExit, TempDir, Upstream};

mod cuts;

const CHAT: &str = "/v1/chat/completions";

/// Longer than any wait of the test kit: a test that waits for it fails.
const FOREVER: [&str; 2] = ["--drain", "300s"];
/// A drain that is over at once.
const BRIEF: [&str; 2] = ["--drain", "100ms"];

fn call() -> Value {
    json!({"model": "m", "messages": []})
}

fn stream() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

/// Sends a signal and waits until the sidecar acts on it: later connections find it stopping.
async fn begin_to_stop(sidecar: &Sidecar, signal: Signal) {
    sidecar.signal(signal);
    sidecar.logs("stopping").await;
}

fn code(code: i32) -> SidecarExit {
    SidecarExit { code: Some(code), signal: None }
}

/// The files in the directory of the sidecar's socket.
fn left_behind(sidecar: &Sidecar) -> Vec<String> {
    let entries = fs::read_dir(sidecar.dir().join("run")).expect("the socket's directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test]
async fn a_signal_ends_an_idle_sidecar_in_order() {
    let signals = [(Signal::SIGTERM, "sigterm"), (Signal::SIGINT, "sigint"), (Signal::SIGHUP, "sighup")];
    for (signal, reason) in signals {
        let upstream = Upstream::chat("hello").start().await;
        let sidecar = Sidecar::to(&upstream).args(FOREVER).start().await;
        sidecar.post(CHAT, call()).await.expect(200);

        sidecar.signal(signal);

        assert_eq!(sidecar.wait().await, code(0));
        let audit = sidecar.audit();
        assert_eq!(audit.kinds(), ["open", "intent", "outcome", "close"]);
        assert_eq!(
            (&audit.close()["reason"], &audit.close()["calls"], &audit.close()["unknown"]),
            (&json!(reason), &json!(1), &json!(0))
        );
        assert_eq!(left_behind(&sidecar), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_signal_right_after_the_ready_line_is_handled() {
    for _ in 0..10 {
        let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;
        sidecar.sigterm();
        assert_eq!(sidecar.wait().await, code(0));
        assert_eq!(sidecar.audit().kinds(), ["open", "close"]);
    }
}

#[tokio::test]
async fn a_signal_during_the_start_leaves_nothing() {
    let (dir, log) = (TempDir::new(), TempDir::new());
    let early = "exec 3<&0; \"$@\" <&3 & pid=$!; kill -TERM $pid; wait $pid; exit $?";
    for number in 0..10 {
        let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["sh", "-c", early, "sh"]);
        let launch = launch.socket_path(dir.join("s")).audit_path(log.join(&format!("{number}.jsonl")));

        let ended = launch.finish().await;

        assert!([0, 143].contains(&ended.code), "{} {}", ended.code, ended.stderr);
        let left = fs::read_dir(dir.path()).expect("the directory").flatten();
        let left: Vec<_> = left.map(|entry| entry.path()).filter(|path| path.extension().is_none()).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[tokio::test]
async fn a_drain_finishes_streams_and_refuses_new_calls() {
    let upstream = Upstream::chat_stream(["a", "b"]).hold_after(1).start().await;
    let sidecar = Sidecar::to(&upstream).args(FOREVER).start().await;
    let mut open = sidecar.stream(CHAT, stream()).await;
    assert!(open.read_event().await.is_some_and(|event| event.contains("\"a\"")));

    begin_to_stop(&sidecar, Signal::SIGTERM).await;

    sidecar.post(CHAT, call()).await.expect_refusal(503, "draining");
    let health = sidecar.get("/health").await.expect(503);
    assert_eq!(health.json(), json!({"status": "draining", "runId": "r1"}));
    upstream.release();
    let rest = open.read_response().await;
    assert!(rest.complete && rest.text().ends_with("data: [DONE]\n\n"), "{}", rest.text());
    assert_eq!(sidecar.wait().await, code(0));
    let audit = sidecar.audit();
    assert_eq!((audit.only_call().result(), audit.only_call().end()), ("ok", "complete"));
    assert_eq!(audit.refused_reasons(), ["draining"]);
    assert!(audit.is_closed() && left_behind(&sidecar).is_empty());
}

/// Kills a process that lost its parent, even if the test fails.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        let name = fs::read_to_string(format!("/proc/{}/comm", self.0)).unwrap_or_default();
        if name.trim() == "sluice-proxy" {
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.0), Signal::SIGKILL);
        }
    }
}

fn parent_of(pid: i32) -> i32 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    line.and_then(|line| line.trim().parse().ok()).expect("every process has a parent")
}

#[tokio::test]
async fn a_sidecar_ends_with_its_parent_on_request() {
    let upstream = Upstream::chat("hello").start().await;
    let launch = Sidecar::to(&upstream).wrapper(["sh", "-c", "\"$@\"; exit $?", "sh"]);
    let sidecar = launch.args(["--die-with-parent", FOREVER[0], FOREVER[1]]).start().await;
    let _orphan = Orphan(sidecar.pid());
    sidecar.post(CHAT, call()).await.expect(200);
    let shell = nix::unistd::Pid::from_raw(parent_of(sidecar.pid()));
    assert_eq!(parent_of(shell.as_raw()), std::process::id().cast_signed(), "the shell is our child");

    nix::sys::signal::kill(shell, Signal::SIGKILL).expect("the shell runs");

    // wait() also waits for the end of the output, which the sidecar holds open.
    assert_eq!(sidecar.wait().await.signal, Some(9));
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "close"]);
    assert_eq!(left_behind(&sidecar), Vec::<String>::new());
}

#[tokio::test]
async fn pid_1_of_a_container_can_be_the_parent() {
    let as_init = ["unshare", "--pid", "--fork", "--kill-child", "sh", "-c", "\"$@\"; exit $?", "sh"];
    let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(as_init);

    let ended = launch.args(["--die-with-parent", "--deadline", "1ms"]).finish().await;

    assert_eq!((ended.code, ended.stdout.contains("\"ready\"")), (0, true), "{}", ended.stderr);
}

#[tokio::test]
async fn a_killed_sidecar_recorded_each_upstream_call() {
    let upstream = Upstream::chat_stream(["a", "b"]).hold_after(1).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut open = Vec::new();
    for _ in 0..8 {
        let mut raw = sidecar.stream(CHAT, stream()).await;
        raw.read_event().await;
        open.push(raw);
    }

    sidecar.kill().await;

    let (audit, torn) = CheckedAuditFile::read_torn(sidecar.audit_path());
    assert_eq!(torn, b"");
    assert_eq!((audit.intents().len(), audit.open_calls().len(), audit.is_closed()), (8, 8, false));
    let mut ids: Vec<_> =
        upstream.requests().iter().filter_map(|r| r.header("x-litellm-call-id").map(str::to_owned)).collect();
    let mut intents = audit.open_calls();
    ids.sort();
    intents.sort();
    assert_eq!(ids, intents);
}

#[tokio::test]
async fn a_foreign_socket_at_the_path_stays() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;
    let other = sidecar.dir().join("other");
    let _theirs = UnixListener::bind(&other).expect("the directory takes a socket");
    let inode = fs::metadata(&other).expect("it is there").ino();
    fs::rename(&other, sidecar.socket()).expect("a rename within one directory");

    assert_eq!(sidecar.stop().await, 0);

    assert_eq!(fs::metadata(sidecar.socket()).expect("still there").ino(), inode);
}

#[tokio::test]
async fn a_removed_socket_does_not_disturb_the_end() {
    let sidecar = Sidecar::to_url("http://127.0.0.1:9").start().await;
    fs::remove_file(sidecar.socket()).expect("it was there");
    assert_eq!(sidecar.stop().await, 0);
    assert!(sidecar.audit().is_closed());
}

#[tokio::test]
async fn a_stopping_sidecar_frees_its_socket_and_answers_calls() {
    let upstream = Upstream::chat("hello").start().await;
    let (dir, log) = (TempDir::new(), TempDir::new());
    for attempt in 0..3 {
        let audit = log.join(&format!("{attempt}.jsonl"));
        let launch = Sidecar::to(&upstream).socket_path(dir.join("s")).audit_path(audit);
        let sidecar = launch.args(["--attempt", &attempt.to_string()]).start().await;
        sidecar.post(CHAT, call()).await.expect(200);
        assert_eq!(sidecar.stop().await, 0);
        assert_eq!(sidecar.audit().open()["attempt"], attempt);
    }
}

#[tokio::test]
async fn a_closed_stderr_does_not_end_a_call() {
    // A killed launcher closes the pipe; open calls must still be recorded.
    let dir = TempDir::new();
    let audit = dir.join("a.jsonl");
    let closed = "{ \"$@\" 2>&1 >&3 | :; } 3>&1";
    let launch = Sidecar::to_url("http://127.0.0.1:9").wrapper(["sh", "-c", closed, "sh"]).audit_path(&audit);

    let ended = launch.args(["--deadline", "200ms", "--log-level", "trace"]).finish().await;

    assert!(ended.stdout.contains("\"ready\""), "{}", ended.stdout);
    assert_eq!(CheckedAuditFile::read(&audit).kinds(), ["open", "close"]);
}

#[tokio::test]
async fn an_unread_log_blocks_no_call() {
    let upstream = Upstream::chat("hello").start().await;
    let launch = Sidecar::to(&upstream).args(["--log-level", "trace"]);
    let fifo = launch.dir().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).expect("a fresh name");
    let unread = fs::File::options().read(true).write(true).open(&fifo).expect("our own file");
    nix::fcntl::fcntl(&unread, nix::fcntl::FcntlArg::F_SETPIPE_SZ(4096)).expect("a page is allowed");
    let to_fifo = ["sh", "-c", "exec \"$@\" 2>\"$0\"", &fifo.display().to_string()];
    let sidecar = launch.wrapper(to_fifo).start().await;

    // Each request writes a line to the log, and the pipe holds fewer lines.
    let mut raw = sidecar.connect().await;
    for _ in 0..300 {
        raw.get("/nope").await.expect(404);
    }
    raw.post_json(CHAT, call()).await.expect(200);

    assert_eq!(sidecar.stop().await, 0);
    assert!(sidecar.audit().is_closed());
}

#[tokio::test]
async fn the_log_is_complete_when_the_socket_goes() {
    let upstream = Upstream::chat("hello").start().await;
    for _ in 0..5 {
        let sidecar = Sidecar::to(&upstream).start().await;
        sidecar.post(CHAT, call()).await.expect(200);

        sidecar.sigterm();
        let gone = async {
            while sidecar.socket().exists() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(PATIENCE, gone).await.expect("the socket goes");

        assert!(sidecar.audit().is_closed());
        assert_eq!(sidecar.wait().await, code(0));
    }
}
