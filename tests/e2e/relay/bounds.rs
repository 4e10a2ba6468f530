//! The sidecar's own bounds on requests to the controller.

use std::time::{Duration, Instant};

use sluice_testkit::{PATIENCE, RawClient, poll};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::*;

const TASK: &str = "/api/v1/sandboxes/r1/task";
const POLL: &str = "/api/v1/sandboxes/r1/messages?wait=25";
const CHAT: &str = "/v1/chat/completions";

fn call() -> serde_json::Value {
    json!({"model": "m", "messages": []})
}

#[track_caller]
fn busy(answer: &sluice_testkit::ClientAnswer) {
    let found = (answer.status, answer.reason(), answer.header("retry-after"));
    assert_eq!(found, (429, "relay_busy", Some("1")), "{}", answer.text());
}

#[tokio::test]
async fn a_query_is_written_anew() {
    let controller = Upstream::with(|request| Script::json(200, json!({"saw": request.target}))).start().await;
    let sidecar = relaying(controller.url()).start().await;
    let messages = "/api/v1/sandboxes/r1/messages";
    for (query, written) in [
        ("", ""),
        ("?", ""),
        ("?wait=05&ack=manual", "?ack=manual&wait=5"),
        ("?limit=7&after=msg-0a", "?after=msg-0a&limit=7"),
    ] {
        let answer = sidecar.get(&format!("{messages}{query}")).await.expect(200);
        assert_eq!(answer.json(), json!({"saw": format!("{messages}{written}")}), "{query}");
    }
    let sent = controller.requests().len();
    for (query, reason, param) in [
        ("wait=26", "invalid_param", "wait"),
        ("wait=1&wait=1", "invalid_param", "wait"),
        ("after=a%0d%0ax", "invalid_param", "after"),
        ("token=rt", "param_not_allowed", "token"),
        ("source=system", "param_not_allowed", "source"),
    ] {
        let answer = sidecar.get(&format!("{messages}?{query}")).await.expect_refusal(400, reason);
        assert_eq!(answer.error()["param"], param, "{query}");
    }
    let posted = sidecar.post("/api/v1/sandboxes/r1/events?source=system", "{}").await;
    posted.expect_refusal(400, "param_not_allowed");
    assert_eq!(controller.requests().len(), sent);
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!(audit.close()["relay"], json!({"refused": 6, "requests": 4}));
    assert_eq!(audit.kinds(), ["open", "close"], "the counts are the record");
}

#[tokio::test]
async fn eight_requests_are_carried_at_once() {
    let controller = Upstream::json(200, json!({})).hold_head().start().await;
    let sidecar = relaying(controller.url()).start().await;
    let mut open = JoinSet::new();
    for _ in 0..8 {
        let mut raw = sidecar.connect().await;
        open.spawn(async move { raw.get(TASK).await });
    }
    controller.held(8).await;
    busy(&sidecar.get(TASK).await);
    assert_eq!(sidecar.get("/health").await.expect(200).json()["status"], "ok");
    controller.release();
    while let Some(answer) = open.join_next().await {
        answer.expect("no panic").expect(200);
    }
    sidecar.get(TASK).await.expect(200);
    silent(sidecar).await;
}

#[tokio::test]
async fn one_request_waits_for_the_controller() {
    let controller = Upstream::json(200, json!([])).hold_head().start().await;
    let sidecar = relaying(controller.url()).start().await;
    let mut first = sidecar.connect().await;
    first.send_request("GET", POLL, &[], ()).await;
    controller.held(1).await;
    busy(&sidecar.get(POLL).await);
    // The client leaves, and then another request can wait.
    drop(first);
    let mut second = sidecar.connect().await;
    let mut answered = None;
    let came = poll(PATIENCE, async || {
        second.send_request("GET", POLL, &[], ()).await;
        tokio::select! {
            () = controller.held(2) => true,
            answer = second.read_response() => {
                answered = Some(answer);
                false
            }
        }
    });
    assert!(came.await, "{answered:?}");
    controller.release();
    second.read_response().await.expect(200);
    silent(sidecar).await;
}

#[tokio::test]
async fn a_flood_reaches_the_controller_at_ten_a_second() {
    let (upstream, controller) = (Upstream::chat("hi").start().await, Upstream::json(200, json!({})).start().await);
    let sidecar = relaying(controller.url()).upstream(upstream.url()).start().await;
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..16 {
        let mut raw = sidecar.connect().await;
        clients.spawn(async move {
            let mut refused = 0;
            for _ in 0..50 {
                let answer = raw.get(TASK).await;
                refused += usize::from(answer.status == 429);
            }
            refused
        });
    }
    let refused: usize = clients.join_all().await.into_iter().sum();
    let carried = controller.requests().len();
    // Twenty together, and ten in each second after that.
    let allowed = 21 + usize::try_from(began.elapsed().as_millis() / 100).expect("a short test");
    assert!(carried >= 20 && carried <= allowed, "{carried} in {:?}", began.elapsed());
    assert_eq!(refused + carried, 800);
    sidecar.post(CHAT, call()).await.expect(200);
    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    assert_eq!(audit.close()["relay"], json!({"refused": refused, "requests": carried}));
    assert_eq!(audit.refused_reasons().len(), 0, "a flood displaces no record of a call");
}

#[tokio::test]
async fn a_thousand_polls_delay_no_call() {
    let (upstream, controller) = (Upstream::chat("hi").start().await, Upstream::never().start().await);
    let sidecar = relaying(controller.url()).upstream(upstream.url()).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    let before = sidecar.rss_kib();
    let mut polls = Vec::new();
    // All of them come before the first poll ends, after 30 s.
    for n in 0..1024 {
        let connecting = RawClient::try_connect(sidecar.socket());
        let Ok(Ok(mut raw)) = tokio::time::timeout(Duration::from_secs(5), connecting).await else { break };
        raw.send_request("GET", POLL, &[], ()).await;
        polls.push(raw);
        if n % 256 == 0 {
            // An idle connection gives way to new ones, and SDKs connect anew.
            sidecar.post(CHAT, call()).await.expect(200);
            assert_eq!(sidecar.get("/health").await.expect(200).json()["status"], "ok");
        }
    }
    sidecar.post(CHAT, call()).await.expect(200);
    assert_eq!(sidecar.get("/health").await.expect(200).json()["status"], "ok");
    assert_eq!(controller.requests().len(), 1, "the others never reach it");
    let grown = sidecar.rss_kib().saturating_sub(before);
    assert!(grown < 24 * 1024, "{grown} KiB more for {} polls", polls.len());
}

#[tokio::test]
async fn slow_bodies_hold_no_place_for_calls() {
    let (upstream, controller) = (Upstream::chat("hi").start().await, Upstream::json(200, json!({})).start().await);
    let sidecar = relaying(controller.url()).upstream(upstream.url()).start().await;
    let mut slow = Vec::new();
    for _ in 0..8 {
        let mut raw = sidecar.connect().await;
        raw.send("POST /api/v1/sandboxes/r1/events HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n{").await;
        slow.push(raw);
    }
    let full = poll(PATIENCE, async || sidecar.get(TASK).await.status == 429);
    assert!(full.await, "eight bodies are under way");
    sidecar.post(CHAT, call()).await.expect(200);
    drop(slow);
    let free = poll(PATIENCE, async || sidecar.get(TASK).await.status == 200);
    assert!(free.await, "their places are free again");
    silent(sidecar).await;
}

#[tokio::test]
async fn a_silent_controller_has_thirty_seconds() {
    let (upstream, controller) = (Upstream::chat("hi").start().await, Upstream::never().start().await);
    let sidecar = relaying(controller.url()).upstream(upstream.url()).start().await;
    let began = Instant::now();
    // The test kit's own client does not wait longer than that.
    let mut raw = UnixStream::connect(sidecar.socket()).await.expect("it listens");
    raw.write_all(format!("GET {TASK} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").as_bytes())
        .await
        .expect("sent");
    sidecar.post(CHAT, call()).await.expect(200);
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(60), raw.read_to_string(&mut answer)).await;
    read.expect("an answer within a minute").expect("the connection is whole");
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("controller_unavailable"), "{answer}");
    assert!(began.elapsed() >= Duration::from_secs(29), "{:?}", began.elapsed());
    silent(sidecar).await;
}
