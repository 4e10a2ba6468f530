//! The end of an answer is not seen before its outcome is in the file.

use serde_json::{Value, json};
use sluice_testkit::{CheckedAuditFile, Script, Sidecar, Upstream};

use super::{CHAT, ROUTES, stream, without_usage};

/// Every way in which a client can see that an answer is over.
fn endings() -> Vec<(&'static str, &'static str, Script, Value)> {
    let unary = || json!({"model": "m", "messages": []});
    let mut all: Vec<_> =
        ROUTES.iter().map(|(path, ends)| (*path, *ends, stream(path, &["a"]), without_usage(path))).collect();
    all.extend([
        (CHAT, "", Script::chat("a"), unary()),
        (CHAT, "", Script::chat("a").in_pieces(10), unary()),
        (CHAT, "", Script::chat("a").in_pieces(10).chunked(), unary()),
        (CHAT, "", Script::chat("a").until_close(), unary()),
        (CHAT, "", Script::error(400, "no"), unary()),
        (CHAT, "", Script::error(401, "no"), unary()),
        (CHAT, "", Script::close(), unary()),
        ("/v1/embeddings", "", Script::embeddings(), json!({"model": "m", "input": "a"})),
    ]);
    all
}

/// Reads until the event that ends the stream, or the last byte.
async fn to_the_end(sidecar: &Sidecar, path: &str, ends: &str, body: &Value) {
    let mut client = sidecar.stream(path, body).await;
    if ends.is_empty() {
        client.read_response().await;
        return;
    }
    loop {
        let event = client.read_event().await.unwrap_or_else(|| panic!("{path} ended without {ends}"));
        if event.contains(ends) {
            return;
        }
    }
}

#[tokio::test]
async fn the_outcome_is_recorded_before_the_answer_ends() {
    for (path, ends, script, body) in endings() {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "call"]).start().await;
        for number in 1..=10 {
            to_the_end(&sidecar, path, ends, &body).await;
            assert_eq!(sidecar.audit().outcomes().len(), number, "{path} {ends} {body}");
        }
    }
}

#[tokio::test]
async fn a_kill_after_the_answer_keeps_its_outcome() {
    for round in 0..3 {
        for (path, ends, script, body) in endings() {
            let upstream = Upstream::answering(script).start().await;
            let sidecar = Sidecar::to(&upstream).start().await;
            to_the_end(&sidecar, path, ends, &body).await;
            sidecar.kill().await;
            let (audit, torn) = CheckedAuditFile::read_torn(sidecar.audit_path());
            assert_eq!(
                (audit.calls().len(), audit.open_calls().len(), torn.len()),
                (1, 0, 0),
                "{path} {ends} {body}, round {round}"
            );
        }
    }
}
