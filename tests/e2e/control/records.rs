//! The records of changes: durable before a change takes effect, and in force after a restart.

use std::path::Path;
use std::process::Command;

use sluice_testkit::TempDir;
use sluice_testkit::audit::CheckedAuditFile;

use super::*;

#[tokio::test]
async fn a_change_is_a_record() {
    let upstream = Upstream::provider("hello").start().await;
    for sync in ["call", "off"] {
        let flags = ["--max-calls", "5", "--max-cost-usd", "1", "--deadline", "600", "--audit-sync", sync];
        let sidecar = controlled(Sidecar::to(&upstream)).args(flags).start().await;

        let raise = json!({"max_calls": 7, "max_cost_usd": "1.50", "deadline_s": 700});
        change(&sidecar, "/caps", raise).await.expect(200);
        ask(&sidecar, "POST", "/clock", json!({"stopped": true})).await.expect(200);

        let audit = sidecar.audit();
        let [caps, clock] = audit.of_kind("control")[..] else { panic!("{:?}", audit.kinds()) };
        assert_eq!(
            (&caps["what"], &caps["by"], &caps["reason"]),
            (&json!("caps"), &json!("alice"), &json!("a longer test"))
        );
        assert_eq!(caps["from"], json!({"deadline_s": 600, "max_calls": 5, "max_cost_usd": "1"}));
        assert_eq!(caps["to"], json!({"deadline_s": 700, "max_calls": 7, "max_cost_usd": "1.5"}));
        assert_eq!((&clock["what"], clock.get("by"), clock.get("reason")), (&json!("clock"), None, None));
        assert_eq!((&clock["from"], &clock["to"]), (&json!({"stopped": false}), &json!({"stopped": true})));
        assert_eq!(sidecar.stop().await, 0);
        assert_eq!(sidecar.audit().kinds(), ["open", "control", "control", "close"]);
    }
}

#[tokio::test]
async fn a_recorded_raise_holds_after_a_kill() {
    let dir = TempDir::new();
    let path = dir.join("a.jsonl");
    let upstream = Upstream::provider("hello").start().await;
    let launch =
        || controlled(Sidecar::to(&upstream)).audit_path(&path).args(["--max-calls", "1", "--deadline", "600"]);
    let first = launch().start().await;
    first.post(CHAT, call()).await.expect(200);
    // The kill comes between the record and the answer, or after both.
    let mut raw = RawClient::connect(control_path(&first)).await;
    let body = json!({"by": "alice", "reason": "a kill", "max_calls": 3, "deadline_s": 900});
    raw.send_request("POST", "/caps", &[("content-type", "application/json")], body).await;
    first.audit_with("control", 1).await;
    first.kill().await;

    let second = launch().start().await;
    let state = state(&second).await;
    assert_eq!((&state["caps"]["max_calls"], &state["deadline"]["deadline_s"]), (&json!(3), &json!(900)));
    for expected in [200, 200, 402] {
        assert_eq!(second.post(CHAT, call()).await.status, expected);
    }
    assert_eq!(second.stop().await, 0);
    let audit = CheckedAuditFile::read(&path);
    assert_eq!(audit.of_kind("control").len(), 1);
    assert_eq!(audit.close()["calls"], 3);
}

#[tokio::test]
async fn a_client_that_leaves_parts_no_record_from_effect() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).args(["--max-calls", "1"]).start().await;
    for max_calls in 2..=30 {
        let mut raw = RawClient::connect(control_path(&sidecar)).await;
        let body = json!({"by": "alice", "reason": "it leaves", "max_calls": max_calls});
        raw.send_request("POST", "/caps", &[("content-type", "application/json")], body).await;
        drop(raw);
    }
    change(&sidecar, "/caps", json!({"max_calls": 31})).await.expect(200);
    let audit = sidecar.audit();
    let recorded = audit.of_kind("control").last().map(|record| record["to"]["max_calls"].clone());
    assert_eq!((recorded, &state(&sidecar).await["caps"]["max_calls"]), (Some(json!(31)), &json!(31)));
}

#[tokio::test]
async fn a_full_disk_refuses_a_change() {
    let dir = TempDir::new();
    for sync in ["call", "off"] {
        let mount = Tmpfs::mount(&dir.join(sync), "16k");
        let upstream = Upstream::provider("hello").start().await;
        let flags = ["--max-calls", "5", "--deadline", "600", "--audit-sync", sync];
        let launch = controlled(Sidecar::to(&upstream)).audit_path(mount.0.join("a.jsonl")).args(flags);
        let sidecar = launch.start().await;

        let mut raised = 5;
        let answer = loop {
            let answer = change(&sidecar, "/caps", json!({"max_calls": raised + 1})).await;
            if answer.status != 200 {
                break answer;
            }
            raised += 1;
            assert!(raised < 1000, "16 KiB do not hold a thousand records");
        };

        assert_eq!(refused(&answer), (503, "audit_unavailable".to_owned()));
        assert_eq!(state(&sidecar).await["caps"]["max_calls"], raised, "what is not recorded does not hold");
        let clock = change(&sidecar, "/clock", json!({"stopped": true})).await;
        assert_eq!(refused(&clock), (503, "audit_unavailable".to_owned()));
        assert_eq!(sidecar.stop().await, 74);
        let audit = sidecar.audit();
        assert_eq!((audit.of_kind("control").len(), &audit.close()["reason"]), (raised - 5, &json!("audit_full")));
    }
}

/// A mounted tmpfs that is unmounted on drop.
pub(super) struct Tmpfs(pub(super) PathBuf);

impl Tmpfs {
    pub(super) fn mount(at: &Path, size: &str) -> Self {
        std::fs::create_dir(at).expect("a fresh name");
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at).status();
        assert!(mounted.expect("mount is there").success(), "mounting needs root");
        Self(at.to_owned())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
