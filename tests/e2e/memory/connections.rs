//! The number of connections is bounded, idle ones give way to new ones, and no call is lost.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use sluice_testkit::{PATIENCE, RawClient, Sidecar, Upstream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::{CHAT, MIB, grew_less_than, unary, warmed};

/// Connections that the sidecar allows: four for each of its 64 calls, and 64 more.
const SLOTS: usize = 320;
const HOSTILE: usize = 2000;

/// Sends these bytes on a new connection, returns the first part of the answer, and stays until the connection is
/// closed.
async fn hostile(socket: Arc<Path>, bytes: Arc<Vec<u8>>) -> Vec<u8> {
    let mut client = UnixStream::connect(&socket).await.expect("the sidecar listens");
    // A refusal may come before the sidecar has read all bytes.
    let _ = client.write_all(&bytes).await;
    let mut answer = vec![0; 4096];
    let read = client.read(&mut answer).await.unwrap_or(0);
    answer.truncate(read);
    // Idle from now on, for as long as the sidecar lets it.
    let _ = client.read(&mut [0; 1]).await;
    answer
}

/// Opens 2,000 such connections at once; returns when `answered` of them have an answer with this status.
async fn attacked_by(sidecar: &Sidecar, bytes: Vec<u8>, answered: usize, status: &str) {
    let (socket, bytes): (Arc<Path>, _) = (sidecar.socket().into(), Arc::new(bytes));
    let mut clients = JoinSet::new();
    for _ in 0..HOSTILE {
        clients.spawn(hostile(Arc::clone(&socket), Arc::clone(&bytes)));
    }
    for _ in 0..answered {
        let answer = clients.join_next().await.expect("two thousand of them").expect("it ran");
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{answer}");
    }
    clients.shutdown().await;
}

/// Checks that memory grew by at most 53 MiB over an idle sidecar, which has 4 MiB in a shipped build: 60 MB in total.
#[track_caller]
fn took_little(sidecar: &Sidecar, before: u64) {
    grew_less_than(sidecar, before, 53 * MIB);
}

fn chat_head(length: usize) -> String {
    format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test]
async fn two_thousand_refused_bodies_leave_little_memory() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let before = warmed(&sidecar).await;
    let body = format!("{{\"no-log\":true,\"x\":\"{}\"}}", "z".repeat(2 << 20));

    attacked_by(&sidecar, (chat_head(body.len()) + &body).into_bytes(), HOSTILE, "400").await;

    took_little(&sidecar, before);
    sidecar.post(CHAT, unary()).await.expect(200);
}

#[tokio::test]
async fn two_thousand_unfinished_heads_take_little() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let before = warmed(&sidecar).await;
    let head = format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nx: {}", "y".repeat(63_000));

    // Each has 10 s; the first answers come when every slot has had a head for that time.
    attacked_by(&sidecar, head.into_bytes(), SLOTS, "408").await;

    took_little(&sidecar, before);
    sidecar.post(CHAT, unary()).await.expect(200);
}

#[tokio::test]
async fn two_thousand_unfinished_bodies_take_little() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--idle-timeout", "2s"]).start().await;
    let before = warmed(&sidecar).await;
    let bytes =
        chat_head(2 << 20) + "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"" + &"z".repeat(60_000);

    attacked_by(&sidecar, bytes.into_bytes(), SLOTS, "408").await;

    took_little(&sidecar, before);
    sidecar.post(CHAT, unary()).await.expect(200);
}

#[tokio::test]
async fn idle_connections_up_to_the_slots_cost_little() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off"]).start().await;
    let before = warmed(&sidecar).await;
    let mut idle: Vec<RawClient> = Vec::new();
    for _ in 0..SLOTS {
        idle.push(sidecar.connect().await);
    }
    for client in &mut idle {
        client.get("/health").await.expect(200);
    }
    assert!(sidecar.fds() > SLOTS);
    // Twice the cost of a connection in a debug build.
    grew_less_than(&sidecar, before, 10 * MIB);
    for client in &mut idle {
        client.post_json(CHAT, unary()).await.expect(200);
    }
    let (peak, fds) = (sidecar.peak_rss_kib(), sidecar.fds());

    // The same number of new connections reuses the memory that the first ones released, apart from some fragments.
    drop(idle);
    sidecar.fds_below(fds - SLOTS + 1).await;
    let mut again: Vec<RawClient> = Vec::new();
    for _ in 0..SLOTS {
        again.push(sidecar.connect().await);
    }
    for client in &mut again {
        client.get("/health").await.expect(200);
    }
    grew_less_than(&sidecar, peak, 3 * MIB);
}

#[tokio::test]
async fn a_new_connection_replaces_the_longest_idle_one() {
    let upstream = Upstream::chat("hi").start().await;
    // The limit allows the minimum of 16 connections, beside 64 calls and the descriptors of the process.
    let sidecar = Sidecar::to(&upstream).nofile(112).start().await;
    let mut open = Vec::new();
    for _ in 0..16 {
        let mut client = sidecar.connect().await;
        client.get("/health").await.expect(200);
        open.push(client);
    }
    // The first connection has carried a later request than the second one.
    open[0].get("/health").await.expect(200);

    sidecar.post(CHAT, unary()).await.expect(200);

    open.remove(1).expect_closed().await;
    for client in &mut open {
        client.post_json(CHAT, unary()).await.expect(200);
    }
    assert!(!sidecar.stderr().contains("cannot accept"), "{}", sidecar.stderr());
}

#[tokio::test]
async fn connections_with_open_calls_are_never_replaced() {
    let upstream = Upstream::chat("hi").hold_after(0).start().await;
    let sidecar = Sidecar::to(&upstream).nofile(112).start().await;
    let mut open = Vec::new();
    for _ in 0..16 {
        open.push(sidecar.stream(CHAT, unary()).await);
    }
    sidecar.audit_with("intent", 16).await;
    let mut late = sidecar.connect().await;
    late.send_request("GET", "/health", &[], "").await;
    assert_eq!(sidecar.audit().outcomes().len(), 0);

    open.pop();

    late.read_response().await.expect(200);
    assert!(sidecar.audit().outcomes().len() <= 1, "the others go on");
}

/// Makes a request as an SDK's pool does: if the idle connection was closed, the request goes out again on a new one.
async fn pooled(socket: &Path, kept: &mut Option<UnixStream>, request: &[u8], retried: &AtomicUsize) {
    loop {
        let fresh = kept.is_none();
        let mut client = match kept.take() {
            Some(client) => client,
            None => UnixStream::connect(socket).await.expect("the sidecar listens"),
        };
        let mut answer = Vec::new();
        let exchanged = async {
            client.write_all(request).await?;
            while !answer.ends_with(b"}") {
                if client.read_buf(&mut answer).await? == 0 {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            }
            Ok::<_, std::io::Error>(())
        };
        match tokio::time::timeout(PATIENCE, exchanged).await.expect("an answer or an end") {
            Ok(()) => {
                assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
                *kept = Some(client);
                return;
            }
            Err(error) => {
                assert!(!fresh && answer.is_empty(), "{error}: {}", String::from_utf8_lossy(&answer));
                retried.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[tokio::test]
async fn pools_larger_than_the_slots_lose_no_call() {
    const CLIENTS: usize = 48;
    const CALLS: usize = 40;
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).nofile(112).args(["--audit-sync", "off"]).start().await;
    let body = unary().to_string();
    let request: Arc<[u8]> = (chat_head(body.len()) + &body).into_bytes().into();
    let retried = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (request, retried) = (Arc::clone(&request), Arc::clone(&retried));
        let socket = sidecar.socket().to_owned();
        clients.spawn(async move {
            let mut kept = None;
            for _ in 0..CALLS {
                pooled(&socket, &mut kept, &request, &retried).await;
            }
        });
    }
    clients.join_all().await;

    // No request of a connection that closed without an answer reached the upstream.
    assert_eq!(upstream.requests().len(), CLIENTS * CALLS);
    assert!(retried.load(Ordering::Relaxed) > 0, "connections were closed meanwhile");
}

#[tokio::test]
async fn an_unread_refused_body_closes_its_connection() {
    let upstream = Upstream::chat("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mut client = sidecar.connect().await;
    let body = json!({"no-log": true, "x": "z".repeat(300_000)});

    let refused = client.post_json(CHAT, body).await;

    assert_eq!(refused.expect_refusal(400, "param_not_allowed").header("connection"), Some("close"));
    client.expect_closed().await;

    // A small one is read whole, and its connection goes on.
    let mut client = sidecar.connect().await;
    for _ in 0..2 {
        client.post_json(CHAT, json!({"no-log": true})).await.expect_refusal(400, "param_not_allowed");
    }
}
