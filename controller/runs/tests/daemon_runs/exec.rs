//! Programs that are started in a live run.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use sluice_contract::RunKey;
use sluice_runs::exec::{self, ExecEnd, ExecRequest, ExecStop, OUTPUT_MAX, RunningExec};
use sluice_runs::forward::OutputChunk;
use sluice_runs::host::Host;
use sluice_runs::observer::NoObserver;
use sluice_state::run::Cancel;
use tokio::sync::watch;

use crate::support::{TestState, drive, host, key};

const SLEEPER: &str = "import time; print('begun', flush=True); time.sleep(100)";

fn request(argv: &[&str]) -> ExecRequest {
    ExecRequest {
        argv: argv.iter().map(ToString::to_string).collect(),
        env: BTreeMap::from([("COLOR".into(), "blue".into())]),
        cwd: "/workspace".into(),
        timeout: Duration::from_secs(30),
        tty: false,
    }
}

/// Waits for the end, and returns it with stdout and stderr.
async fn finish(mut running: RunningExec) -> (ExecEnd, [Vec<u8>; 2]) {
    let mut output = [Vec::new(), Vec::new()];
    while let Some(chunk) = running.output.recv().await {
        match chunk {
            OutputChunk::Stdout(bytes) => output[0].extend_from_slice(&bytes),
            OutputChunk::Stderr(bytes) => output[1].extend_from_slice(&bytes),
        }
    }
    (running.end.await.expect("it does not panic"), output)
}

async fn start(host: &Arc<Host>, key: &RunKey, request: ExecRequest) -> RunningExec {
    exec::start(host, key, request).await.expect("the run is live")
}

/// Returns the processes of this user that sleep for this long.
fn sleepers(uid: u32, seconds: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("there is /proc").flatten();
    let is_one = |entry: &std::fs::DirEntry| {
        let status = std::fs::read_to_string(entry.path().join("status")).unwrap_or_default();
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        status.contains(&format!("Uid:\t{uid}\t")) && line == format!("sleep\0{seconds}\0").as_bytes()
    };
    entries.filter(is_one).count()
}

async fn until(mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not become true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn check_execs(host: &Arc<Host>, key: &RunKey) {
    let uid = sluice_runs::rundir::sandbox_uid(&host.layout.run(key)).expect("it runs");
    let script = "id -u; pwd; echo $COLOR; grep -c 'NoNewPrivs:.1' /proc/self/status; grep CapEff /proc/self/status; \
                  echo error >&2; exit 3";
    let (end, [out, err]) = finish(start(host, key, request(&["sh", "-c", script])).await).await;
    let expected = format!("{uid}\n/workspace\nblue\n1\nCapEff:\t0000000000000000\n");
    assert_eq!((String::from_utf8_lossy(&out).as_ref(), &err[..]), (&*expected, &b"error\n"[..]));
    assert_eq!((end.exit_code, end.stopped, end.truncated), (Some(3), None, false));

    let cat = start(host, key, request(&["cat"])).await;
    assert!(cat.control.write(Bytes::from_static(b"some \0 input")).await && cat.control.close_input().await);
    assert_eq!(finish(cat).await.1[0], b"some \0 input");

    let terminal = ExecRequest { tty: true, ..request(&["sh", "-c", "read line; stty size; printf '\\001\\002'"]) };
    let terminal = start(host, key, terminal).await;
    terminal.control.resize(33, 99).await.expect("it has a terminal");
    assert!(terminal.control.write(Bytes::from_static(b"\n")).await);
    let (end, [out, _]) = finish(terminal).await;
    assert!(out.ends_with(b"33 99\r\n\x01\x02") && end.exit_code == Some(0), "{out:?} {end:?}");

    let (end, [out, _]) = finish(start(host, key, request(&["head", "-c", "9000000", "/dev/zero"])).await).await;
    assert_eq!((out.len() as u64, end.bytes, end.truncated), (OUTPUT_MAX, [9_000_000, 0], true));

    // Children in sessions of their own; their parents have ended.
    let script = "for n in 1 2 3; do (setsid sleep 98 &) ; done; sleep 98 & exec sleep 98";
    let forks = start(host, key, request(&["sh", "-c", script])).await;
    until(|| sleepers(uid, "98") == 5).await;
    forks.control.cancel();
    let (end, _) = finish(forks).await;
    assert_eq!((end.exit_code, end.stopped), (Some(137), Some(ExecStop::Cancelled)));
    assert_eq!(sleepers(uid, "98"), 0);

    let late = ExecRequest { timeout: Duration::from_secs(1), ..request(&["sleep", "97"]) };
    let (end, _) = finish(start(host, key, late).await).await;
    assert_eq!((end.stopped, sleepers(uid, "97")), (Some(ExecStop::TimedOut), 0));
}

#[tokio::test]
async fn an_exec_is_bounded_and_ends_with_all_of_its_processes() {
    let state = TestState::new();
    let state = state.path();
    let upstream = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let upstream = format!("http://{}", upstream.local_addr().expect("it listens"));
    let host = host(state).await;
    let key = key(state);
    let early = exec::start(&host, &key, request(&["true"])).await;
    assert!(matches!(early, Err(exec::ExecError::NotRunning(_))), "{early:?}");
    let record = host.layout.records().of(&key);
    let (cancel, cancelled) = watch::channel(None);
    let execs = async {
        until(|| record.output(0).next_piece().is_ok_and(|piece| piece.is_some())).await;
        check_execs(&host, &key).await;
        cancel.send_replace(Some(Cancel { signal: 15 }));
    };
    let driving = drive(&host, SLEEPER, &upstream, Arc::new(NoObserver), cancelled);
    let (completed, ()) = tokio::join!(Box::pin(driving), execs);
    assert_eq!(completed.report.error_code, Some("cancelled"));
}
