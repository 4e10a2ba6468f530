//! Limits of connections and requests.

use std::time::Duration;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::test_daemon::{TestDaemon, exchange, policy, read_answer};

#[tokio::test]
async fn a_slow_head_is_cut_and_a_large_one_refused() {
    let daemon = TestDaemon::with(|settings| settings.limits.head_time = Duration::from_millis(50)).await;
    let mut slow = TcpStream::connect(daemon.address()).await.expect("it listens");
    slow.write_all(b"GET /alive HTTP/1.1\r\nHost: ").await.expect("it listens");
    let answer = read_answer(slow).await;
    assert_eq!((answer.status, answer.body.as_str()), (0, ""), "it ends without an answer");
    let large = format!("X-Large: {}", "a".repeat(33 << 10));
    let daemon = TestDaemon::start().await;
    assert_eq!(daemon.bare("GET", "/alive", &[&large]).await.status, 431);
}

#[tokio::test]
async fn connections_of_one_address_are_bounded() {
    let daemon = TestDaemon::with(|settings| settings.limits.connections_per_address = 2).await;
    let host = format!("Host: {}", daemon.address());
    let connect = || TcpStream::connect(daemon.address());
    let held = [connect().await.expect("it listens"), connect().await.expect("it listens")];
    let third = exchange(connect().await.expect("it listens"), "GET", "/alive", &[&host], None).await;
    assert_eq!(third.status, 0, "it is closed");
    drop(held);
    // The daemon notices that the clients are gone.
    while exchange(connect().await.expect("it listens"), "GET", "/alive", &[&host], None).await.status != 200 {}
}

#[tokio::test]
async fn a_token_has_a_burst_of_requests() {
    let daemon = TestDaemon::with(|settings| {
        settings.limits.request_burst = 3;
        settings.limits.requests_per_second = 1;
    })
    .await;
    let mut passed = 0;
    let refused = loop {
        match daemon.get("slu_alice", "/api/v1/budgets").await {
            answer if answer.status == 200 => passed += 1,
            refused => break refused,
        }
    };
    assert!(passed >= 3, "the burst passes: {passed}");
    assert_eq!(refused.error(), (429, "rate_limited".to_owned()));
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(daemon.get("slu_bob", "/api/v1/budgets").await.status, 200, "each token has its own");
    let page = daemon.bare("GET", "/login", &[&format!("Host: {}", daemon.address())]).await.body;
    let style = page.split('"').find(|part| part.ends_with("/console.css")).expect("a style");
    assert_eq!(daemon.get("slu_alice", style).await.status, 200, "files of pages count for no rate");
}

#[tokio::test]
async fn a_large_body_is_refused() {
    let daemon = TestDaemon::start().await;
    let body = serde_json::Value::String("a".repeat(1 << 20));
    let answer = daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&body)).await;
    assert_eq!(answer.error(), (413, "body_too_large".to_owned()));
}

#[tokio::test]
async fn failed_logins_are_delayed_and_counted() {
    let daemon = TestDaemon::with(|settings| {
        settings.limits.failed_logins = 2;
        settings.limits.failed_login_delay = Duration::from_millis(200);
    })
    .await;
    for _ in 0..2 {
        assert_eq!(daemon.get("slu_wrong", "/api/v1/budgets").await.status, 401);
    }
    let start = std::time::Instant::now();
    assert_eq!(daemon.get("slu_wrong", "/api/v1/budgets").await.status, 401);
    assert!(start.elapsed() >= Duration::from_millis(200));
    let state = daemon.settings.state.clone();
    daemon.running.stop().await;
    let text = std::fs::read_to_string(state.join("audit/control.jsonl")).expect("it is there");
    assert!(text.contains(r#""count":3"#) && text.contains("login.failed"), "{text}");
    assert!(!text.contains("slu_wrong"));
}

#[tokio::test]
async fn an_owner_creates_so_many_runs_a_minute() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.limits.creations = 2).await;
    let create = async |token| daemon.request(token, "POST", "/api/v1/sandboxes", Some(&json!({ "task": "x" }))).await;
    assert_eq!((create("slu_alice").await.status, create("slu_alice").await.status), (201, 201));
    let refused = create("slu_alice").await;
    assert_eq!(refused.error(), (429, "creations_limited".to_owned()));
    let wait = refused.head.lines().find_map(|line| line.strip_prefix("retry-after: ")).expect("a time");
    assert!((1..=31).contains(&wait.trim().parse::<u64>().expect("seconds")), "{wait}");
    assert_eq!(create("slu_bob").await.status, 201, "each owner has its own");
    assert_eq!(
        daemon.get("slu_alice", "/api/v1/sandboxes").await.json()["sandboxes"].as_array().map(Vec::len),
        Some(2)
    );
}

#[tokio::test]
async fn an_owner_does_not_fill_the_control_log() {
    let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.limits.changes = 3).await;
    let path = format!("/api/v1/sandboxes/{}/connect", daemon.create("slu_alice", json!({ "task": "x" })).await);
    let connect = async |token| daemon.request(token, "POST", &path, None).await;
    assert_eq!((connect("slu_alice").await.status, connect("slu_alice").await.status), (200, 200));
    assert_eq!(connect("slu_alice").await.error(), (429, "rate_limited".to_owned()));
    assert_eq!(connect("slu_admin").await.status, 200);
}

#[tokio::test]
async fn a_log_that_can_be_written_again_makes_it_ready() {
    let daemon = TestDaemon::with_runs().await;
    let log = daemon.settings.state.join("audit/control.jsonl");
    let aside = log.with_extension("aside");
    let create = async || daemon.request("slu_alice", "POST", "/api/v1/sandboxes", Some(&json!({ "task": "x" }))).await;
    std::fs::rename(&log, &aside).expect("it is ours");
    std::fs::create_dir(&log).expect("there is room");
    assert_eq!(create().await.error(), (503, "audit_unavailable".to_owned()));
    assert_eq!(daemon.get("slu_admin", "/ready").await.status, 503);
    assert_eq!(daemon.get("slu_alice", "/api/v1/sandboxes").await.status, 200, "reads go on");
    std::fs::remove_dir(&log).expect("it is ours");
    std::fs::rename(&aside, &log).expect("it is ours");
    assert_eq!(create().await.status, 201);
    assert_eq!(daemon.get("slu_admin", "/ready").await.status, 200);
}
