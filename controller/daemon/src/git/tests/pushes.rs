//! The limits of pushes, as a sandbox meets them.

use axum::body::{Body, to_bytes};
use http::Request;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::*;
use crate::relay::{RelayCaller, router};

const REFS: &str = "info/refs?service=git-receive-pack";
const PUSH: &str = "git-receive-pack";

impl CommittedRun {
    /// Sends a request of a push, as the sidecar does, and returns status and text.
    async fn send(&self, method: &str, path: &str, body: &'static str) -> (u16, String) {
        let uri = format!("/git/{}.git/{path}", self.run.key.run_id);
        let mut request = Request::builder().method(method).uri(uri).body(Body::from(body)).expect("a request");
        request.extensions_mut().insert(RelayCaller { key: self.run.key.clone() });
        let router = TowerToHyperService::new(router(&self.daemon.running.context));
        let response = router.call(request).await.expect("it always answers");
        let status = response.status().as_u16();
        let text = to_bytes(response.into_body(), 1 << 16).await.expect("it is short");
        (status, String::from_utf8_lossy(&text).into_owned())
    }
}

/// A push counts even if it is refused.
#[tokio::test]
async fn a_push_over_the_limit_is_refused_with_advice() {
    let test = CommittedRun::new().await;
    for nth in 0..40 {
        // Git probes the server like this before a large push.
        assert_eq!(test.send("POST", PUSH, "0000").await, (200, String::new()), "{nth}");
    }
    for nth in 0..30 {
        let (status, text) = test.send("POST", PUSH, "not a list of commands").await;
        assert_eq!(status, 200, "{nth}: {text}");
        let expected = if nth < 29 { 200 } else { 429 };
        assert_eq!(test.send("GET", REFS, "").await.0, expected, "after {nth}");
    }

    for (method, path, body) in [("GET", REFS, ""), ("POST", PUSH, "not a list of commands")] {
        let (status, text) = test.send(method, path, body).await;
        assert_eq!(status, 429, "{method}: {text}");
        assert!(text.contains("30 times within an hour") && text.contains("at the end of the run"), "{text}");
    }
}

/// Bug: a daemon that had started again let a run push thirty more times.
#[tokio::test]
async fn a_restart_forgets_no_push() {
    let test = CommittedRun::new().await;
    for _ in 0..30 {
        assert_eq!(test.send("POST", PUSH, "not a list of commands").await.0, 200);
    }

    let test = test.restarted_with("forge.git").await;

    let (status, text) = test.send("GET", REFS, "").await;
    assert_eq!(status, 429, "{text}");
    assert!(text.contains("30 times within an hour"), "{text}");
}

/// Bug: only the bytes of accepted packs counted, so a run could have any amount of data read and checked.
#[tokio::test]
async fn bytes_of_refused_pushes_are_limited() {
    const BODY: &str = "not a list of commands";
    let test = CommittedRun::new().await;
    let bytes = || test.repository.push_history().expect("it is readable").bytes();
    test.send("POST", PUSH, "0000").await;
    assert_eq!(bytes(), 0, "a probe is not a push");
    test.send("POST", PUSH, BODY).await;
    assert_eq!(bytes(), BODY.len() as u64);

    test.repository.record_push(now_us(), (4_u64 << 30) - bytes(), |_| true).expect("it is writable");

    for (method, path, body) in [("GET", REFS, ""), ("POST", PUSH, BODY)] {
        let (status, text) = test.send(method, path, body).await;
        assert_eq!(status, 413, "{method}: {text}");
        assert!(text.contains("more than 4 GiB together") && text.contains("in a new run"), "{text}");
    }
    assert_eq!(bytes(), 4_u64 << 30, "nothing more was read");
}
