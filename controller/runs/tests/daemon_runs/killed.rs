//! A daemon is killed at any moment; its run continues, and its output is complete.

use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use sluice_contract::hex;
use sluice_runs::blueprint::{container_name, identity};
use sluice_runs::host::Host;
use sluice_runs::observer::{NoObserver, Observation, Observer};
use sluice_runs::sweep::{SweepMode, SweepScope, sweep};
use sluice_state::records::{OutputContent, RecordedStream, RunRecord};
use sluice_state::run::{Cancel, RunPhase};
use tokio::sync::watch;

use crate::support::{DaemonProcess, TestState, drive, drive_as_daemon, host, key};

/// Prints binary and long lines, then their digest to stderr. It waits for a file before the last lines.
const PRINTER: &str = r"
import hashlib, os, random, sys, time
random.seed(7)
digest = hashlib.sha256()
for n in range(160):
    while n == 144 and not os.path.exists('go'):
        time.sleep(0.05)
    line = random.randbytes([5, 200, 16383, 16384, 16385, 40000, 0, 70000][n % 8])
    line = line + b'\n' if n < 159 else b'an end without a newline'
    digest.update(line)
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
    time.sleep(0.05)
sys.stderr.write(digest.hexdigest() + '\n')
sys.exit(7)
";
const SLEEPER: &str = "import time; print('begun', flush=True); time.sleep(100)";

#[tokio::test]
async fn a_daemon_in_a_process_of_its_own() {
    drive_as_daemon().await;
}

/// Returns the stored output of both streams.
fn stored(record: &RunRecord) -> [Vec<u8>; 2] {
    let mut streams = [Vec::new(), Vec::new()];
    let mut reader = record.output(0);
    while let Some(piece) = reader.next_piece().expect("it is ours") {
        let OutputContent::Bytes(bytes) = piece.content else { panic!("nothing is removed") };
        assert!(piece.time_us > 1_600_000_000_000_000);
        assert_eq!(piece.offset, streams[piece.stream as usize].len() as u64);
        streams[piece.stream as usize].extend(bytes);
    }
    streams
}

/// Waits until this much of stdout is stored.
async fn wait_for_output(record: &RunRecord, bytes: usize) {
    let begun = Instant::now();
    while stored(record)[RecordedStream::Stdout as usize].len() < bytes {
        assert!(begun.elapsed() < Duration::from_secs(60), "no output");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the container's id and its first process.
async fn container(host: &Host, state: &Path) -> (String, Option<i32>) {
    let key = key(state);
    let found = host.engine.find(&container_name(&key), &identity(&key, &host.instance)).await;
    let found = found.expect("the engine answers").expect("it is there");
    (found.id, found.init)
}

fn status_uid(pid: i32) -> u32 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("proc(5)");
    line.split_whitespace().next().and_then(|uid| uid.parse().ok()).expect("proc(5)")
}

#[tokio::test]
async fn a_killed_daemon_loses_and_repeats_no_output_and_its_run_goes_on() {
    let state = TestState::new();
    let state = state.path();
    let upstream = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let upstream = format!("http://{}", upstream.local_addr().expect("it listens"));
    let host = host(state).await;
    let record = host.layout.records().of(&key(state));
    let mut daemon = DaemonProcess::start(state, PRINTER, &upstream);
    let mut first = None;
    for kill in 1..=7 {
        // Between and within pieces: the sizes of writes are random.
        let target = kill * 330_000 + fastrand::usize(..150_000);
        wait_for_output(&record, target).await;
        daemon.kill();
        let orphan = host.store.open_runs().await.expect("it is open").pop().expect("it is recorded");
        let sidecar = orphan.sidecar.expect("it was started");
        let now = (container(&host, state).await.0, sidecar.clone());
        assert_eq!(first.get_or_insert(now.clone()), &now, "neither was started again");
        assert!(sidecar.is_alive());
        let leftovers = sweep(&host, SweepMode::Remove, SweepScope::OneShot, &no_observer()).await;
        assert_eq!(leftovers.expect("the engine answers"), [], "the run of a daemon is left alone");
        daemon = DaemonProcess::start(state, PRINTER, &upstream);
    }
    std::fs::write(host.layout.run(&key(state)).work.join("go"), "").expect("it is ours");
    daemon.wait();
    let [out, err] = stored(&record);
    let digest = hex::encode(&Sha256::digest(&out));
    assert_eq!(format!("{digest}\n"), String::from_utf8_lossy(&err), "{} bytes", out.len());
    let run = host.store.find_run(&key(state)).await.expect("it is open").expect("it is recorded");
    assert_eq!((run.phase.as_str(), run.exit_code), ("closed", Some(7)));
    let result = std::fs::read_to_string(record.path("result.json")).expect("it is complete");
    assert!(result.contains(&digest), "the result has the digest of all of stdout");
    assert!(!host.layout.run(&key(state)).root.exists() && !first.expect("it was killed").1.is_alive());
}

fn no_observer() -> Arc<dyn Observer> {
    Arc::new(NoObserver)
}

/// Collects the phases of a run.
#[derive(Debug, Default)]
struct Phases(Mutex<Vec<RunPhase>>);

impl Observer for Phases {
    fn observe(&self, observation: Observation<'_>) {
        if let Observation::Entered { phase, .. } = observation {
            self.0.lock().expect("no test panics with it").push(phase);
        }
    }
}

#[tokio::test]
async fn each_run_has_a_user_of_its_own_and_can_be_cancelled() {
    let state = TestState::new();
    let state = state.path();
    let upstream = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let upstream = format!("http://{}", upstream.local_addr().expect("it listens"));
    let host = host(state).await;
    let record = host.layout.records().of(&key(state));
    let phases = Arc::new(Phases::default());
    let (cancel, cancelled) = watch::channel(None);
    let observer: Arc<dyn Observer> = Arc::clone(&phases) as _;
    let watching = async {
        let begun = Instant::now();
        while !record.exists() || stored(&record)[0] != b"begun\n" {
            assert!(begun.elapsed() < Duration::from_secs(60), "no output");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let paths = host.layout.run(&key(state));
        let uid = sluice_runs::rundir::sandbox_uid(&paths).expect("it runs");
        assert!((2_000_000..=2_009_999).contains(&uid), "{uid}");
        assert_eq!(container(&host, state).await.1.map(status_uid), Some(uid));
        let orphan = host.store.open_runs().await.expect("it is open").pop().expect("it is recorded");
        let sidecar = orphan.sidecar.expect("it was started");
        let line = std::fs::read_to_string(format!("/proc/{}/cmdline", sidecar.pid)).expect("it runs");
        assert!(line.contains(&format!("--peer-uid\0{uid}\0")) && !line.contains("die-with-parent"), "{line:?}");
        cancel.send_replace(Some(Cancel { signal: 15 }));
    };
    let (completed, ()) = tokio::join!(drive(&host, SLEEPER, &upstream, observer, cancelled), watching);
    assert_eq!(completed.report.error_code, Some("cancelled"), "{:?}", completed.report);
    assert_eq!(completed.report.stdout, "begun\n");
    let seen = phases.0.lock().expect("no test panics with it").clone();
    assert_eq!(seen, [RunPhase::Creating, RunPhase::Running, RunPhase::Completing, RunPhase::Closed]);
}

#[tokio::test]
async fn only_a_sweep_of_daemon_runs_takes_a_daemons_run_down() {
    let state = TestState::new();
    let state = state.path();
    let upstream = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let upstream = format!("http://{}", upstream.local_addr().expect("it listens"));
    let host = host(state).await;
    let record = host.layout.records().of(&key(state));
    let daemon = DaemonProcess::start(state, SLEEPER, &upstream);
    wait_for_output(&record, 6).await;
    daemon.kill();
    sluice_runs::sweep::recover_orphans(&host, &no_observer()).await;
    let left = sweep(&host, SweepMode::DryRun, SweepScope::OneShot, &no_observer()).await.expect("the engine answers");
    assert_eq!(left, []);
    assert!(container(&host, state).await.1.is_some(), "it runs");
    let left = sweep(&host, SweepMode::Remove, SweepScope::All, &no_observer()).await.expect("the engine answers");
    assert_eq!(left.iter().map(|left| (left.kind, left.removed)).collect::<Vec<_>>(), [("run", Some(true))]);
    assert!(!host.layout.run(&key(state)).root.exists());
}
