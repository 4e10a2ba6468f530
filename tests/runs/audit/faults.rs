//! Audit logs that cannot be written, and the runs that fail for it: full disks, limits, a second writer, a killed
//! sidecar.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::controller::RunReport;
use sluice_testkit::{CheckedAuditFile, Sluice, Upstream};

use super::{ASK, audit, eventually, finished, ours, public_key, theirs, upstream};

/// A mounted tmpfs that is unmounted on drop.
pub(crate) struct Disk(PathBuf);

impl Disk {
    /// Mounts a file system of this size at a path.
    pub(crate) fn at(path: &Path, size: &str) -> Self {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path).expect("a fresh name");
        let options = format!("size={size},mode=0700");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(path).status();
        assert!(mounted.expect("mount is there").success(), "mounting needs root");
        Self(path.to_owned())
    }

    /// Fills it, to the last byte.
    pub(crate) fn fill(&self) {
        let mut ballast = File::options().create(true).append(true).open(self.ballast()).expect("a name is free");
        while ballast.write(&[0; 4096]).is_ok_and(|taken| taken > 0) {}
    }

    /// Makes room again.
    pub(crate) fn free(&self) {
        fs::remove_file(self.ballast()).expect("it was filled");
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Streams an answer, makes calls until one is refused for the log, and exits with 0.
const STREAM_AND_ASK: &str = r#"
ask ', "stream": true' >/tmp/streamed; echo "streamed $?"; tail -n 2 /tmp/streamed
for n in $(seq 200); do answer=$(ask); case $answer in *audit_unavailable*) break;; esac; done
echo "$answer"; curl -s -o /dev/null -w '%{http_code}\n' http://localhost:8080/health"#;

fn stream_and_ask() -> String {
    format!("{ASK}{STREAM_AND_ASK}")
}

/// An upstream that streams if it is asked to, and stops in the middle of its streams.
async fn stalling() -> (Upstream, sluice_testkit::Gate) {
    let gate = sluice_testkit::Gate::new();
    let (stream, plain) = (sluice_testkit::Script::provider("hello you").hold_after(1, &gate), "hello");
    let choose = move |request: &sluice_testkit::ReceivedRequest| {
        if request.json()["stream"] == true { stream.clone() } else { sluice_testkit::Script::chat(plain) }
    };
    (Upstream::with(choose).start().await, gate)
}

/// Checks that the run failed for its audit log, although its program succeeded.
#[track_caller]
fn assert_failed(report: &RunReport, said: &str) {
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120), "{report:?}");
    assert!(report.message().contains(said), "{}", report.message());
    assert!(!report.audit.complete, "{:?}", report.audit);
}

/// Checks the end of the stream as the program saw it, and the refusal after it.
#[track_caller]
fn assert_refused(report: &RunReport, stream: &str, last: &str) {
    let said: Vec<_> = report.stdout.lines().filter(|line| !line.is_empty()).collect();
    let [end, event, refusal, health] = said[..] else { panic!("{said:?}") };
    assert_eq!((end, health), (stream, "503"), "{said:?}");
    assert!(event.contains(last), "{said:?}");
    let refusal: serde_json::Value = serde_json::from_str(refusal).expect("a refusal is JSON");
    assert_eq!(refusal["error"]["code"], "audit_unavailable", "{refusal}");
}

#[tokio::test]
async fn a_disk_full_during_a_stream_fails_the_run() {
    let (upstream, gate) = stalling().await;
    let sluice = Sluice::to(&upstream);
    let disk = Disk::at(&sluice.state().join("audit"), "256k");
    let live = sluice.run(["--json", "--", "sh", "-c", &stream_and_ask()]).spawn();
    gate.reached(1).await;

    disk.fill();
    gate.open();

    // The room that the log reserved for the end of open calls was still there.
    let report = live.finish().await.expect(120).json();
    assert_failed(&report, "the audit log had no room left, and calls were refused");
    assert_refused(&report, "streamed 0", "[DONE]");
    disk.free();
    let file = sluice.audit(&report.run_id);
    assert_eq!((file.open_calls(), &file.close()["reason"]), (Vec::new(), &"audit_full".into()));
    assert_eq!(report.receipts.len(), file.calls().len());
    assert!(report.receipts.iter().all(|receipt| receipt.status == "posted"), "{:?}", report.receipts);
    audit(&sluice, ["verify", &report.run_id]).await.expect(0);
    drop(disk);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_full_state_directory_ends_the_run() {
    let (upstream, gate) = stalling().await;
    let sluice = Sluice::to(&upstream);
    let disk = Disk::at(&sluice.state(), "2m");
    let live = sluice.run(["--json", "--", "sh", "-c", &stream_and_ask()]).spawn();
    gate.reached(1).await;

    // Wait until the run is recorded: a run that cannot be recorded is another case.
    eventually("it is written down", async || sluice.sql("SELECT phase FROM runs").await == r#"[["running"]]"#).await;

    // The database is on the full disk too: its write is tried again, and then reported.
    disk.fill();
    gate.open();

    let report = live.finish().await.expect(120).json();
    assert_failed(&report, "the audit log had no room left, and calls were refused");
    assert_refused(&report, "streamed 0", "[DONE]");
    assert_eq!((sluice.containers().await.len(), sluice.runs().len(), sluice.processes().len()), (0, 0, 0));
    disk.free();
    sluice.command(["sweep"]).finish().await.expect(0);
    let said = sluice.sql("SELECT phase, error_code, exit_code FROM runs").await;
    assert_eq!(said, r#"[["closed", "audit_failed", 120]]"#);
    let ran = audit(&sluice, ["verify", &report.run_id]).await.expect(0);
    assert!(ran.stdout.contains(", signed by "), "{}", ran.stdout);
}

#[tokio::test]
async fn a_log_failure_during_a_stream_fails_the_run() {
    let upstream = Upstream::provider("hello you").start().await;
    let sluice = Sluice::to(&upstream);
    // The sidecar may write the first two lines, and 100 bytes more.
    let calm = sluice.run(["--json", "--", "sh", "-c", &format!("{ASK} ask ', \"stream\": true'")]);
    let calm = calm.finish().await.expect(0).json();
    let bytes = fs::read(sluice.audit_path(&calm.run_id)).expect("we are root");
    let two: usize = bytes.split_inclusive(|byte| *byte == b'\n').take(2).map(<[u8]>::len).sum();
    let proxy = limited(&sluice, two + 100);

    let live = sluice.run(["--json", "--proxy", &proxy, "--", "sh", "-c", &stream_and_ask()]);
    let report = live.finish().await.expect(120).json();

    assert_failed(&report, "the audit file is incomplete: 2 lines, 1 calls, $0, not signed, no close, open calls: ");
    // The answer came without its end, so that no client takes it for complete.
    assert_refused(&report, "streamed 18", "data: ");
    assert!(!report.stdout.contains("[DONE]"), "{}", report.stdout);
    let receipt = report.only_receipt();
    assert_eq!((receipt.status.as_str(), receipt.cost_usd.as_deref()), ("unknown", None));
    let ran = audit(&sluice, ["verify", &report.run_id]).await.expect(3);
    assert!(ran.stdout.ends_with(&format!("open calls: {}\n", receipt.call_id)), "{}", ran.stdout);
    assert_eq!(upstream.requests().len(), 2, "no call without its intent");
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

/// Returns a script that starts a sidecar with this limit for the size of its files.
fn limited(sluice: &Sluice, bytes: usize) -> String {
    sluice.script("limited", &format!("exec prlimit --fsize={bytes} {} \"$@\"", proxy()))
}

/// Returns the path of the sidecar program that the tests use.
fn proxy() -> String {
    let beside = std::env::current_exe().expect("a running test has an executable");
    let beside = beside.ancestors().skip(1).take(2).map(|dir| dir.join("sluice-proxy")).find(|path| path.is_file());
    std::env::var("SLUICE_PROXY_BIN").unwrap_or_else(|_| beside.expect("cargo has built it").display().to_string())
}

#[tokio::test]
async fn a_run_does_not_start_without_audit_log() {
    let upstream = upstream().await;
    for limit in [10, 100] {
        let sluice = Sluice::to(&upstream);
        let proxy = limited(&sluice, limit);
        let script = "echo began";

        let ran = sluice.run(["--json", "--proxy", &proxy, "--", "sh", "-c", script]).finish().await.expect(125);

        let report = ran.json();
        assert_eq!((report.verdict(), report.stdout.as_str()), ((false, Some("creation_failed"), 125), ""));
        // The limit leaves the sidecar no room to write the reason.
        assert!(report.message().starts_with("cannot start the sidecar: "), "{}", report.message());
        sluice.assert_nothing_left_but_unsealed_audit_files().await;
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn a_second_writer_is_refused_and_changes_nothing() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json", "--", "sh", "-c", "until [ -e /workspace/go ]; do sleep 0.01; done"]).spawn();
    sluice.started().await;
    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };
    let run = sluice.runs().remove(0);
    let name = run.file_name().expect("it has a name").to_string_lossy().into_owned();
    let path = sluice.state().join("audit").join(format!("{name}.jsonl"));
    let before = fs::read(&path).expect("we are root");

    // The same command line, except for the socket.
    let words = fs::read(format!("/proc/{sidecar}/cmdline")).expect("it runs");
    let words = String::from_utf8(words).expect("UTF-8").replace("/sock/llm.sock", "/sock/other.sock");
    let words: Vec<_> = words.trim_end_matches('\0').split('\0').collect();
    let mut second = Command::new(words[0]);
    second.args(&words[1..]).env_clear().stdin(File::open(sluice.key_file()).expect("we have written it"));
    let second = second.output().expect("it runs");

    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("another process holds its lock"), "{said}");
    assert_eq!(fs::read(&path).expect("we are root"), before);
    fs::write(run.join("work/go"), "").expect("the workspace is ours too");
    let report = live.finish().await.expect(0).json();
    audit(&sluice, ["verify", &report.run_id]).await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_sidecars_log_names_the_open_call() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--model", "m", "--json", "hello"]).spawn();
    upstream.received().await;

    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };
    kill(Pid::from_raw(sidecar), Signal::SIGKILL).expect("it lives");

    let report = live.finish().await.expect(120).json();
    let call = &report.only_receipt().call_id;
    let said = format!("incomplete: 2 lines, 1 calls, $0, not signed, no close, open calls: {call}");
    assert_failed(&report, &format!("the audit file is {said}"));
    let ran = audit(&sluice, ["verify", &report.run_id]).await.expect(3);
    let path = sluice.audit_path(&report.run_id);
    assert_eq!(ran.stdout, format!("{}: {said}\n", path.display()));
    let key = public_key(&sluice).await;
    assert_eq!(theirs(&[path], &["--key", &key]), [(3, 0)]);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn concurrent_first_runs_share_one_certifier() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);

    let ids = tokio::join!(finished(&sluice), finished(&sluice), finished(&sluice));

    let paths = <[String; 3]>::from(ids).map(|id| sluice.audit_path(&id));
    assert_eq!(ours(&sluice, &paths, &["--key", &public_key(&sluice).await]).await, [(0, 0); 3]);
    let seals: std::collections::BTreeSet<_> =
        paths.iter().map(|path| CheckedAuditFile::read(path).close()["certificate"]["key_id"].to_string()).collect();
    assert_eq!(seals.len(), 1, "{seals:?}");
    sluice.assert_nothing_left().await;
}
