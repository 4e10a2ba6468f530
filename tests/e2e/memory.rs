//! Memory and descriptors stay bounded, whatever clients and upstream do, and the sidecar goes on serving.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sluice_testkit::{FullAcceptQueue, PATIENCE, Script, Sidecar, Upstream, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

mod connections;
mod limit;

const CHAT: &str = "/v1/chat/completions";
/// One mebibyte in KiB.
const MIB: u64 = 1024;

fn unary() -> Value {
    json!({"model": "m", "messages": []})
}

fn stream() -> Value {
    json!({"model": "m", "messages": [], "stream": true})
}

/// A flood of a quarter GiB for requests of a stream, an answer for all others.
async fn flooding() -> Upstream {
    let event = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(1000));
    let (flood, chat) = (Script::flood(&event, 250_000), Script::chat("hi"));
    Upstream::with(move |request| if request.json()["stream"] == true { flood.clone() } else { chat.clone() })
        .start()
        .await
}

/// The memory that a sidecar has after some ordinary calls, in KiB.
async fn warmed(sidecar: &Sidecar) -> u64 {
    for _ in 0..20 {
        sidecar.post(CHAT, unary()).await.expect(200);
        sidecar.post("/v1/nowhere", unary()).await.expect(404);
    }
    sidecar.rss_kib()
}

#[track_caller]
fn grew_less_than(sidecar: &Sidecar, before: u64, kib: u64) {
    let peak = sidecar.peak_rss_kib();
    assert!(peak < before + kib, "from {before} KiB to {peak} KiB");
}

#[tokio::test]
async fn a_client_that_never_reads_stalls_only_its_upstream() {
    let upstream = flooding().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let before = warmed(&sidecar).await;
    let mut slow = sidecar.stream(CHAT, stream()).await;

    let sent = upstream.stalled().await;
    assert!(sent < 32 << 20, "{sent} bytes went into nowhere");
    grew_less_than(&sidecar, before, 4 * MIB);
    sidecar.post(CHAT, unary()).await.expect(200);

    // It continues as soon as the client reads.
    let mut read = 0;
    while read < 16 << 20 {
        read += slow.read_some().await.expect("more of the flood").len();
    }
    upstream.sent(sent + (4 << 20)).await;
    grew_less_than(&sidecar, before, 4 * MIB);
}

#[tokio::test]
async fn many_clients_that_never_read_take_little_each() {
    let upstream = flooding().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let before = warmed(&sidecar).await;
    let mut slow = Vec::new();
    for _ in 0..32 {
        slow.push(sidecar.stream(CHAT, stream()).await);
    }
    upstream.stalled().await;

    grew_less_than(&sidecar, before, 32 * MIB);
    sidecar.post(CHAT, unary()).await.expect(200);
    assert_eq!(sidecar.audit().intents().len() - sidecar.audit().outcomes().len(), 32);
}

#[tokio::test]
async fn pipelining_without_reading_stops_the_reader() {
    let upstream = Upstream::chat(&"x".repeat(1000)).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let before = warmed(&sidecar).await;
    let body = unary().to_string();
    let request =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n{body}", body.len()).repeat(100);
    let mut client = UnixStream::connect(sidecar.socket()).await.expect("the sidecar listens");
    let mut sent = 0;
    let stalled = async {
        loop {
            client.write_all(request.as_bytes()).await.expect("the sidecar is there");
            sent += 100;
        }
    };
    // Sending stalls when the sidecar no longer reads; only silence shows that.
    tokio::select! {
        () = stalled => {}
        _ = async { upstream.received().await; upstream.stalled().await } => {}
    }

    assert!(upstream.requests().len() < sent, "{sent} were sent, and all of them made");
    grew_less_than(&sidecar, before, 4 * MIB);
    sidecar.post(CHAT, unary()).await.expect(200);
}

#[tokio::test]
async fn without_descriptors_accepting_backs_off_and_recovers() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).nofile(20).start().await;
    let mut many = Vec::new();
    let start = Instant::now();
    for _ in 0..40 {
        many.push(sidecar.connect().await);
    }
    let failures = || sidecar.stderr().matches("cannot accept a connection").count();
    assert!(poll(PATIENCE, async || failures() >= 5).await, "{}", sidecar.stderr());
    // The sidecar waits between two tries.
    let (count, elapsed) = (failures(), start.elapsed());
    let waits = u32::try_from(count - 1).expect("the log is small");
    assert!(elapsed >= waits * Duration::from_millis(50), "{count} tries in {elapsed:?}");

    drop(many);
    for _ in 0..3 {
        sidecar.post(CHAT, unary()).await.expect(200);
    }
    assert_eq!(sidecar.stop().await, 0);
}

#[tokio::test]
async fn a_flood_of_invalid_requests_leaks_nothing() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let before = warmed(&sidecar).await;
    let fds = sidecar.fds();
    let heads: [String; 5] = [
        "\x00\x01\x02garbage\r\n\r\n".to_owned(),
        format!("GET /health HTTP/1.1\r\nx: {}", "y".repeat(60_000)),
        "POST /v1/nowhere HTTP/1.1\r\nhost: x\r\ncontent-length: 99999999\r\n\r\n{".to_owned(),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n"),
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: 400000\r\n\r\n{{\"no-log\":true,\"x\":\"{}",
            "z".repeat(100_000)
        ),
    ];
    for round in 0..300 {
        let mut clients = Vec::new();
        for head in &heads {
            let mut client = sidecar.connect().await;
            client.send(head).await;
            clients.push(client);
        }
        // The test reads some answers, and only drops the other connections.
        if round % 3 == 0 {
            clients.swap_remove(0).read_response().await;
        }
    }
    sidecar.fds_below(fds + 1).await;
    grew_less_than(&sidecar, before, 4 * MIB);
    let begun = upstream.begun();
    sidecar.post(CHAT, unary()).await.expect(200);
    assert_eq!(upstream.begun(), begun + 1, "nothing of it went upstream");
    assert_eq!(sidecar.stop().await, 0);
}

/// Makes a call with a body of this size, and returns the status of its answer; `None` for a close without one.
async fn upload(socket: std::path::PathBuf, body: Arc<Vec<u8>>) -> Option<u16> {
    let mut client = UnixStream::connect(socket).await.expect("the sidecar listens");
    let head =
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    // The writes may fail: a sidecar that refuses the body does not read the rest.
    let _ = client.write_all(head.as_bytes()).await;
    let _ = client.write_all(&body).await;
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    String::from_utf8_lossy(&answer).strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

#[tokio::test]
async fn a_burst_of_large_bodies_stays_within_bounds() {
    let upstream = Upstream::chat("hi").start().await;
    // A quarter of the default, so that a debug build reads it in a second.
    let sidecar = Sidecar::to(&upstream).args(["--max-body", "8MiB"]).start().await;
    let before = warmed(&sidecar).await;
    let body = Arc::new(
        json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(5 << 20)}]}).to_string().into_bytes(),
    );
    let mut uploads = JoinSet::new();
    for _ in 0..64 {
        uploads.spawn(upload(sidecar.socket().to_owned(), Arc::clone(&body)));
    }
    let statuses = uploads.join_all().await;

    let count = |status: u16| statuses.iter().filter(|one| **one == Some(status)).count();
    assert_eq!(count(200) + count(429), 64, "each has a defined answer: {statuses:?}");
    assert!(count(200) >= 4, "{statuses:?}");
    // The sidecar holds at most four bodies of the largest size, and one read of each connection.
    grew_less_than(&sidecar, before, (4 * 8 + 24) * MIB);
    assert_eq!(
        sidecar.audit().refused_reasons().iter().filter(|reason| *reason == "too_many_calls").count(),
        count(429)
    );
    sidecar.post(CHAT, unary()).await.expect(200);
}

#[tokio::test]
async fn held_bodies_block_more_bodies_until_released() {
    let upstream = FullAcceptQueue::new().await;
    let sidecar =
        Sidecar::to_url(&upstream.url()).args(["--max-body", "1MiB", "--connect-timeout", "60s"]).start().await;
    let large = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(1_000_000)}]}).to_string();
    let mut holders = Vec::new();
    for _ in 0..4 {
        holders.push(sidecar.stream(CHAT, &large).await);
    }
    sidecar.audit_with("intent", 4).await;

    for _ in 0..2 {
        let refused = sidecar.post(CHAT, &large).await.expect_refusal(429, "too_many_calls");
        assert_eq!(refused.header("retry-after"), Some("1"));
    }
    // Small bodies still fit, and held memory is released with its call.
    let _small = sidecar.stream(CHAT, unary()).await;
    sidecar.audit_with("intent", 5).await;
    holders.clear();
    sidecar.audit_with("outcome", 4).await;
    let _large = sidecar.stream(CHAT, &large).await;
    sidecar.audit_with("intent", 6).await;
}
