//! The rate of calls, which counts a call when its body has come.

use std::time::{Duration, Instant};

use super::*;

#[tokio::test]
async fn a_burst_passes_no_more_than_the_rate() {
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--rate", "5/s"]).start().await;
    let began = Instant::now();

    let mut calls = burst(sidecar.socket().into(), 10 * N, &undeclared()).await;
    let mut admitted = 0;
    while !calls.is_empty() {
        let answer = next(&mut calls).await;
        if answer.status == 200 {
            admitted += 1;
        } else {
            let refused = answer.expect_refusal(429, "rate_limited");
            assert_eq!(refused.header("retry-after"), Some("1"));
        }
    }

    // The bucket refills with time, and on a slow machine a burst takes some time.
    let refilled = (began.elapsed().as_secs_f64() * 5.0).floor();
    let refilled = (1..=45).rev().find(|n| f64::from(*n) <= refilled).unwrap_or(0);
    assert!((N..=N + refilled as usize).contains(&admitted), "{admitted} with {refilled} refilled");
    assert_eq!(upstream.requests().len(), admitted);
}

/// Sends the head of a call, and waits until the sidecar reads its body.
async fn open(sidecar: &Sidecar, body: &str) -> RawClient {
    let mut client = sidecar.connect().await;
    let length = body.len();
    client
        .send(format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: {length}\r\n\r\n"))
        .await;
    assert_eq!(client.read_interim().await, 100);
    client
}

#[tokio::test]
async fn a_call_counts_when_its_body_has_come() {
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--rate", "1/s"]).start().await;
    let body = undeclared().to_string();
    let mut slow = open(&sidecar, &body).await;
    sidecar.post(CHAT, undeclared()).await.expect(200);
    // Wait as long as `retry-after` of a refused call says.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut second = open(&sidecar, &body).await;

    let began = Instant::now();
    slow.send(&body).await;
    slow.read_response().await.expect(200);
    second.send(&body).await;
    let answer = second.read_response().await;

    let is_slow_machine = began.elapsed() >= Duration::from_secs(1);
    assert!(answer.status == 429 || is_slow_machine, "two calls at once: {}", answer.text());
}
