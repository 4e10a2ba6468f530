//! The order of writes and syncs, seen in the system calls.

use serde_json::json;
use sluice_testkit::{Launch, Sidecar, TempDir, Upstream};

use super::{CHAT, call};

/// A sidecar under strace, which records its writes, syncs and connects; the trace is complete once the sidecar has
/// ended.
fn traced(upstream: &Upstream, dir: &TempDir, sync: &str) -> Launch {
    let trace = dir.join(&format!("{sync}.trace")).display().to_string();
    let calls = "trace=write,writev,sendto,sendmsg,fdatasync,fsync,connect";
    let strace = ["strace", "-f", "-s", "400", "-e", calls, "-e", "signal=none", "-o", &trace];
    Sidecar::to(upstream).args(["--audit-sync", sync]).wrapper(strace)
}

fn trace(dir: &TempDir, sync: &str) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join(&format!("{sync}.trace"))).expect("strace wrote its trace");
    text.lines().map(str::to_owned).collect()
}

fn position(lines: &[String], after: usize, what: &[&str]) -> Option<usize> {
    let found = lines.iter().skip(after).position(|line| what.iter().all(|part| line.contains(part)));
    found.map(|at| at + after)
}

#[tokio::test]
async fn a_burst_shares_its_syncs() {
    let dir = TempDir::new();
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sidecar = traced(&upstream, &dir, "call").args(["--max-concurrency", "64"]).start().await;
    let mut open = Vec::new();
    for _ in 0..64 {
        open.push(sidecar.stream(CHAT, call()).await);
    }
    upstream.held(64).await;
    upstream.release();
    for raw in &mut open {
        raw.read_response().await.expect(200);
    }
    assert_eq!(sidecar.stop().await, 0);

    let audit = sidecar.audit();
    let syncs = trace(&dir, "call").iter().filter(|line| line.contains("fdatasync(")).count();
    assert_eq!((audit.calls().len(), &audit.open()["sync"]), (64, &json!("call")));
    assert!((2..audit.lines().len()).contains(&syncs), "{syncs} syncs of {} records", audit.lines().len());
}

#[tokio::test]
async fn an_intent_is_synced_before_the_first_byte() {
    let dir = TempDir::new();
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = traced(&upstream, &dir, "call").start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    assert_eq!(sidecar.stop().await, 0);

    let lines = trace(&dir, "call");
    let steps: [(&str, &[&str]); 6] = [
        ("the intent is written", &["write(", "\\\"kind\\\":\\\"intent\\\""]),
        ("and synced", &["fdatasync"]),
        ("the upstream is connected to", &["connect(", "127.0.0.1"]),
        ("the request goes out", &["POST /v1/chat/completions"]),
        ("the outcome is written", &["write(", "\\\"cost_source\\\":"]),
        ("and synced", &["fdatasync"]),
    ];
    let mut at = 0;
    for (step, what) in steps {
        let found = position(&lines, at, what);
        at = found.unwrap_or_else(|| panic!("{step}: not in order in\n{}", lines.join("\n"))) + 1;
    }
    // The last bytes of the answer follow the outcome.
    assert!(position(&lines, at, &["chatcmpl-sluice1"]).is_some(), "{}", lines.join("\n"));
    assert!(
        lines.iter().any(|line| line.contains("fsync(") && !line.contains("fdatasync")),
        "the name of the file is synced too"
    );
}

#[tokio::test]
async fn without_sync_records_are_synced_at_the_end() {
    let dir = TempDir::new();
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = traced(&upstream, &dir, "off").start().await;
    for _ in 0..3 {
        sidecar.post(CHAT, call()).await.expect(200);
        assert_eq!(sidecar.audit().open_calls(), Vec::<String>::new(), "the outcome is there before its answer");
    }
    assert_eq!(sidecar.stop().await, 0);

    assert_eq!(sidecar.audit().open()["sync"], "off");
    let lines = trace(&dir, "off");
    let close = position(&lines, 0, &["\\\"kind\\\":\\\"close\\\""]).expect("close is written");
    assert_eq!(position(&lines, 0, &["sync("]).map(|at| at > close), Some(true), "{}", lines.join("\n"));
}
