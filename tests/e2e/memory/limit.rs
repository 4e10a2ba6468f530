//! The kernel bounds the sidecar's memory: normal work stays below the bound, and a sidecar that exceeds it leaves a
//! complete log.

use std::sync::Arc;

use serde_json::json;
use sluice_testkit::{FullAcceptQueue, Sidecar, Upstream};
use tokio::task::JoinSet;

use super::{CHAT, stream, upload};

fn large(bytes: usize) -> Arc<Vec<u8>> {
    let body = json!({"model": "m", "messages": [{"role": "user", "content": "x".repeat(bytes)}]});
    Arc::new(body.to_string().into_bytes())
}

#[tokio::test]
async fn the_memory_limit_is_derived_and_stated() {
    let upstream = Upstream::chat("hi").start().await;
    for (args, bytes) in [
        (&[][..], json!(412_u64 << 20)),
        (
            &["--max-body", "1MiB", "--max-concurrency", "1"],
            json!((64 << 20) + (8 << 20) + 68 * (192 << 10) + (512 << 10)),
        ),
        (&["--max-memory", "100MiB"], json!(100_u64 << 20)),
        (&["--max-memory", "none"], json!(null)),
    ] {
        let sidecar = Sidecar::to(&upstream).args(args).start().await;
        assert_eq!((&sidecar.ready()["max_memory"], &sidecar.audit().open()["limits"]["max_memory"]), (&bytes, &bytes));
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", sidecar.pid())).expect("it lives");
        let data = limits.lines().find_map(|line| line.strip_prefix("Max data size")).expect("a limit of data");
        let wanted = bytes.as_u64().map_or("unlimited".to_owned(), |bytes| bytes.to_string());
        assert_eq!(data.split_whitespace().next(), Some(&*wanted), "{args:?}");
    }
}

#[tokio::test]
async fn large_bodies_beside_streams_stay_below_the_limit() {
    let upstream = Upstream::chat_stream(["x", "y", "z"]).hold_after(2).start().await;
    // Half of the default.
    let sidecar = Sidecar::to(&upstream).args(["--audit-sync", "off", "--max-memory", "206MiB"]).start().await;
    let mut streams = JoinSet::new();
    for _ in 0..60 {
        let mut stream = sidecar.stream(CHAT, stream()).await;
        streams.spawn(async move {
            stream.read_some().await.expect("the first event");
            stream
        });
    }
    let streams = streams.join_all().await;
    let body = json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "x".repeat(20 << 20)}]});
    let mut large = Vec::new();
    for _ in 0..4 {
        large.push(sidecar.stream(CHAT, &body).await);
    }
    for stream in &mut large {
        stream.read_some().await.expect("the first event");
    }

    assert_eq!(streams.len(), 60);
    upstream.release();
    for mut stream in large.into_iter().chain(streams) {
        stream.read_response().await.expect(200);
    }
}

#[tokio::test]
async fn a_sidecar_out_of_memory_has_recorded_its_calls() {
    let upstream = FullAcceptQueue::new().await;
    let args = ["--max-memory", "100MiB", "--max-body", "64MiB", "--connect-timeout", "60s"];
    let sidecar = Sidecar::to_url(&upstream.url()).args(args).start().await;
    let _small = sidecar.stream(CHAT, stream()).await;
    sidecar.audit_with("intent", 1).await;
    let body = large(40 << 20);
    let mut uploads = JoinSet::new();
    for _ in 0..4 {
        uploads.spawn(upload(sidecar.socket().to_owned(), Arc::clone(&body)));
    }

    let exit = sidecar.wait().await;

    assert_eq!(exit.signal, Some(nix::sys::signal::Signal::SIGABRT as i32), "{exit:?}: {}", sidecar.stderr());
    assert!(sidecar.stderr().contains("memory allocation of"), "{}", sidecar.stderr());
    assert!(!sidecar.audit().intents().is_empty(), "the call before it is there");
    uploads.join_all().await;
}
