//! Budgets of a call that can be counted exactly: system calls and memory.

use serde_json::{Value, json};
use sluice_testkit::{Script, Sidecar, Upstream};
use tokio::task::JoinSet;

const CHAT: &str = "/v1/chat/completions";
/// One mebibyte in KiB.
const MIB: u64 = 1024;
/// Size in bytes: the shipped program is smaller, and a debug build larger. Each has its own budget of memory.
const SHIPPED_MAX: u64 = 12 << 20;

fn stream() -> Value {
    json!({"model": "m", "messages": [], "stream": true, "stream_options": {"include_usage": true}})
}

/// The kernel's count of reads and writes so far; it does not include receives on sockets.
fn reads_and_writes(sidecar: &Sidecar) -> (u64, u64) {
    let io = std::fs::read_to_string(format!("/proc/{}/io", sidecar.pid())).expect("the sidecar lives");
    let count = |name: &str| {
        let line = io.lines().find_map(|line| line.strip_prefix(name)).expect("the kernel counts");
        line.trim().parse().expect("a number")
    };
    (count("syscr:"), count("syscw:"))
}

#[tokio::test]
async fn a_call_is_four_writes() {
    const CALLS: u64 = 64;
    let upstream = Upstream::answering(Script::chat("hi").in_a_burst()).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let mut client = sidecar.connect().await;
    client.post_json(CHAT, json!({"model": "m", "messages": []})).await.expect(200);
    let (reads, writes) = reads_and_writes(&sidecar);

    for _ in 0..CALLS {
        client.post_json(CHAT, json!({"model": "m", "messages": []})).await.expect(200);
    }

    let (reads, writes) = (reads_and_writes(&sidecar).0 - reads, reads_and_writes(&sidecar).1 - writes);
    // The writes are the intent, the request, the outcome and the answer; head and body go together. The operator's log
    // has a line or two of its own.
    assert!(writes < 4 * CALLS + 8, "{writes}");
    // Each call reads its request, and one read fetches random bytes for 32 ids; the receive of the answer is not
    // counted.
    assert!(reads <= CALLS + CALLS / 16, "{reads}");
}

#[tokio::test]
async fn a_burst_of_events_takes_two_writes() {
    let upstream = Upstream::answering(Script::chat_stream(["x"; 100]).in_a_burst()).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let mut client = sidecar.connect().await;
    client.post_json(CHAT, stream()).await.expect(200);
    let (_, before) = reads_and_writes(&sidecar);

    client.post_json(CHAT, stream()).await.expect(200);

    // The writes are the intent, the request, the outcome and a few pieces of the answer, not one for each of the 100
    // events.
    let writes = reads_and_writes(&sidecar).1 - before;
    assert!(writes <= 12, "{writes}");
}

#[tokio::test]
async fn live_streams_take_little_memory_each() {
    let upstream = Upstream::chat_stream(["x", "y", "z"]).hold_after(2).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off", "--max-concurrency", "128"]).start().await;
    let idle = sidecar.rss_kib();
    let mut streams = JoinSet::new();
    for _ in 0..64 {
        let mut stream = sidecar.stream(CHAT, stream()).await;
        streams.spawn(async move {
            stream.read_some().await.expect("the first event");
            stream
        });
    }
    let streams = streams.join_all().await;

    let live = sidecar.rss_kib();
    assert_eq!(streams.len(), 64);
    let binary = std::fs::metadata(format!("/proc/{}/exe", sidecar.pid())).expect("the sidecar lives").len();
    let (idle_max, live_max) = if binary <= SHIPPED_MAX { (6 * MIB, 9 * MIB) } else { (48 * MIB, 56 * MIB) };
    assert!(idle <= idle_max && live <= live_max, "{idle} KiB idle, {live} KiB with 64 streams");
}
