//! A log that cannot be written: complete records, correct errors, and no unrecorded call.

use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_testkit::{Launch, Sidecar, TempDir, Upstream};

use super::{CHAT, call, stream};

/// Makes calls until the log is full, and checks each answer, the file and the exit code. Returns whether the log
/// became full.
async fn fill(name: &str, sidecar: Sidecar, upstream: &Upstream, calls: usize) -> bool {
    let mut whole = 0;
    let mut is_full = false;
    for number in 0..calls {
        let body = if number % 2 == 0 { call() } else { stream() };
        let answer = sidecar.post(CHAT, body).await;
        if answer.status == 200 && answer.complete {
            assert!(!is_full, "{name}: no call passes a log that is full");
            whole += 1;
            continue;
        }
        if is_full || answer.status != 200 {
            answer.expect_refusal(503, "audit_unavailable");
        }
        is_full = true;
    }
    if is_full {
        let sent = upstream.requests().len();
        sidecar.post(CHAT, call()).await.expect_refusal(503, "audit_unavailable");
        assert_eq!(upstream.requests().len(), sent, "{name}: no call goes out without its intent");
        let health = sidecar.get("/health").await.expect(503);
        assert_eq!(health.json()["status"], "audit_unavailable", "{name}");
    }
    let code = sidecar.stop().await;
    let audit = sidecar.audit();
    // A log that was full between records still has its end, with the reason; a log with a torn record has none.
    let reason = audit.is_closed().then(|| audit.close()["reason"].clone());
    assert_eq!(code, if reason == Some("sigterm".into()) { 0 } else { 74 }, "{name}: {reason:?}");
    assert!(!is_full || reason.is_none_or(|reason| reason == "audit_full"), "{name}: the end tells what is lost");
    assert!(audit.intents().len() >= upstream.requests().len(), "{name}: no call without its intent");
    assert!(audit.outcomes().len() >= whole, "{name}: no end that a client saw without its outcome");
    is_full
}

#[tokio::test]
async fn any_file_limit_leaves_whole_records_and_an_error() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let fill_up = |launch: Launch, limit: u64| launch.fsize(limit);
    sidecar.post(CHAT, call()).await.expect(200);
    sidecar.stop().await;
    let lengths: Vec<_> = std::fs::read(sidecar.audit_path())
        .expect("the log")
        .split_inclusive(|b| *b == b'\n')
        .map(<[u8]>::len)
        .collect();
    let ends = lengths.iter().scan(0, |end, length| {
        Some({
            *end += length;
            *end as u64
        })
    });
    // Limits inside each record but the first, at its end, and one byte before and after its end.
    let mut limits: Vec<u64> = ends.skip(1).flat_map(|end| [end - 200, end - 20, end - 1, end, end + 1]).collect();
    limits.extend([lengths[0] as u64 + 1, 4000]);

    let mut full = 0;
    for sync in ["call", "off"] {
        for limit in &limits {
            let upstream = Upstream::provider("hello").start().await;
            let launch = fill_up(Sidecar::to(&upstream), *limit).args(["--audit-sync", sync]);
            let sidecar = launch.start().await;
            full += usize::from(fill(&format!("{limit} bytes, sync {sync}"), sidecar, &upstream, 5).await);
        }
    }
    assert!(full > limits.len(), "most of the limits are felt: {full} of {}", 2 * limits.len());
}

/// A mounted file system that is unmounted on drop.
struct Mount(PathBuf);

impl Mount {
    fn tmpfs(at: &Path, size: &str) -> Self {
        std::fs::create_dir(at).expect("a fresh name");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at).status();
        assert!(mounted.expect("mount is there").success(), "mounting needs root");
        Self(at.to_owned())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_leaves_whole_records_and_an_error() {
    let dir = TempDir::new();
    for sync in ["call", "off"] {
        let mount = Mount::tmpfs(&dir.join(sync), "16k");
        let upstream = Upstream::provider("hello").start().await;
        let launch = Sidecar::to(&upstream).audit_path(mount.0.join("a.jsonl"));
        let sidecar = launch.args(["--audit-sync", sync]).start().await;
        assert!(fill(sync, sidecar, &upstream, 40).await, "the disk is full by then");
    }
}

#[tokio::test]
async fn a_disk_full_after_the_intent_takes_the_outcome() {
    let dir = TempDir::new();
    for sync in ["call", "off"] {
        let mount = Mount::tmpfs(&dir.join(sync), "256k");
        let upstream = Upstream::chat("hello").hold_head().start().await;
        let launch = Sidecar::to(&upstream).audit_path(mount.0.join("a.jsonl")).args(["--audit-sync", sync]);
        let sidecar = launch.start().await;
        let mut open = Vec::new();
        for _ in 0..8 {
            open.push(sidecar.stream(CHAT, call()).await);
        }
        upstream.held(8).await;
        // Use up the rest of the disk, to the last byte.
        let mut ballast = std::fs::File::create(mount.0.join("ballast")).expect("a fresh name");
        while std::io::Write::write(&mut ballast, &[0; 512]).is_ok_and(|taken| taken > 0) {}

        upstream.release();
        for raw in &mut open {
            raw.read_response().await.expect(200);
        }
        // New calls are refused once the room that was reserved ahead is used up.
        while sidecar.post(CHAT, call()).await.status == 200 {}
        sidecar.post(CHAT, call()).await.expect_refusal(503, "audit_unavailable");

        assert_eq!(sidecar.stop().await, 74, "{sync}");
        let audit = sidecar.audit();
        assert_eq!(audit.open_calls(), Vec::<String>::new(), "{sync}");
        assert_eq!(audit.close()["reason"], "audit_full", "{sync}");
    }
}

#[tokio::test]
async fn a_log_that_failed_is_never_written_again() {
    let dir = TempDir::new();
    let mount = Mount::tmpfs(&dir.join("m"), "16k");
    let ballast = mount.0.join("ballast");
    std::fs::write(&ballast, vec![0; 8 * 1024]).expect("there is room for two pages more");
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).audit_path(mount.0.join("a.jsonl")).start().await;
    while sidecar.post(CHAT, call()).await.status == 200 {}
    let before = sidecar.audit().lines().len();

    std::fs::remove_file(&ballast).expect("our own file");

    sidecar.post(CHAT, call()).await.expect_refusal(503, "audit_unavailable");
    assert_eq!(sidecar.stop().await, 74);
    // Only the close record follows: it has reserved room and names the reason.
    let audit = sidecar.audit();
    assert_eq!((audit.lines().len(), &audit.close()["reason"]), (before + 1, &"audit_full".into()));
}

#[tokio::test]
async fn a_removed_log_directory_stops_new_calls() {
    let dir = TempDir::new();
    let logs = dir.join("logs");
    std::fs::create_dir(&logs).expect("a fresh name");
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).audit_path(logs.join("a.jsonl")).start().await;
    sidecar.post(CHAT, call()).await.expect(200);

    std::fs::remove_dir_all(&logs).expect("our own directory");

    // Bytes written now are lost.
    sidecar.post(CHAT, call()).await.expect_refusal(503, "audit_unavailable");
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(sidecar.stop().await, 74);
}
