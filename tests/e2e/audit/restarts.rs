//! Files that end in order, and files that continue after a kill: signed, verified, and complete or marked incomplete.

use std::path::Path;

use serde_json::json;
use sluice_contract::verdict::Seal;
use sluice_contract::{PublicKey, TrustAnchors, Verdict, verify};
use sluice_testkit::audit::CheckedAuditFile;
use sluice_testkit::{Launch, Sidecar, TempDir, Upstream, write_private};

use super::{CHAT, call};

/// The seed and the point of RFC 8032, 7.1, test 1.
const SEED: &str = "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60";
const POINT: &str = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";

fn launch(upstream: &Upstream, dir: &TempDir) -> Launch {
    let key = dir.join("audit.key");
    write_private(&key, &format!("{SEED}\n"));
    Sidecar::to(upstream).audit_path(dir.join("a.jsonl")).args(["--audit-key-file", &key.display().to_string()])
}

fn verdict(path: &Path) -> Verdict {
    let keys = [POINT.parse::<PublicKey>().expect("a point")];
    verify(&std::fs::read(path).expect("the log"), &TrustAnchors { keys: &keys, seen: &[] })
}

#[tokio::test]
async fn an_ordered_end_leaves_a_complete_signed_file() {
    let dir = TempDir::new();
    let upstream = Upstream::provider("hello").start().await;
    for sync in ["call", "off"] {
        let path = dir.join(&format!("{sync}.jsonl"));
        let launch = launch(&upstream, &dir).audit_path(&path).args(["--audit-sync", sync, "--log-level", "trace"]);
        let sidecar = launch.start().await;
        assert_eq!(sidecar.ready()["audit_public_key"], POINT, "{sync}");
        for body in [call(), super::stream(), call()] {
            sidecar.post(CHAT, body).await.expect(200);
        }
        sidecar.get("/nope").await.expect(404);
        assert_eq!(sidecar.stop().await, 0);

        let Verdict::Complete(report) = verdict(&path) else { panic!("{sync}: {}", verdict(&path)) };
        assert!(matches!(report.seal, Seal::Valid(_)), "{sync}: {report}");
        assert_eq!((report.lines, report.totals.calls, report.totals.refused), (9, 3, 1), "{sync}");
        let log = std::fs::read_to_string(&path).expect("the log");
        for text in [log, sidecar.stderr(), sidecar.stdout()] {
            assert!(!text.contains(SEED), "{sync}: the key is shown in {text}");
        }
    }
}

#[tokio::test]
async fn a_killed_sidecar_goes_on_in_the_same_file() {
    let dir = TempDir::new();
    let path = dir.join("a.jsonl");
    let answering = Upstream::provider("hello").start().await;
    let silent = Upstream::never().start().await;

    let first = launch(&silent, &dir).start().await;
    let open = first.stream(CHAT, call()).await;
    first.audit_with("intent", 1).await;
    first.kill().await;
    drop(open);
    assert!(matches!(verdict(&path), Verdict::Incomplete(_)), "{}", verdict(&path));

    let second = launch(&answering, &dir).start().await;
    second.post(CHAT, call()).await.expect(200);
    second.kill().await;
    // As if the kill had come in the middle of a write.
    let whole = std::fs::read(&path).expect("the log");
    std::fs::write(&path, [&whole[..], b"{\"attempt\":0,\"ca"].concat()).expect("our own file");

    let third = launch(&answering, &dir).start().await;
    third.post(CHAT, call()).await.expect(200);
    assert_eq!(third.stop().await, 0);

    let audit = CheckedAuditFile::read(&path);
    assert_eq!(
        audit.kinds(),
        [
            "open", "intent", "recovered", "epoch", "intent", "outcome", "recovered", "epoch", "intent", "outcome",
            "close"
        ]
    );
    let recovered = audit.of_kind("recovered");
    assert_eq!(recovered[0]["open_calls"], json!(audit.open_calls()));
    assert_eq!((&recovered[0]["bytes"], &recovered[1]["bytes"]), (&json!(0), &json!(16)));
    assert_eq!(recovered[1]["offset"], json!(whole.len()));
    let aside = std::fs::read(dir.join(&format!("a.jsonl.torn-{}", whole.len()))).expect("kept aside");
    assert_eq!(aside, b"{\"attempt\":0,\"ca");
    assert_eq!((&audit.close()["calls"], &audit.close()["unknown"]), (&json!(3), &json!(1)));
    let Verdict::Incomplete(report) = verdict(&path) else { panic!("{}", verdict(&path)) };
    assert!(report.closed && matches!(report.seal, Seal::Valid(_)), "{report}");
}

#[tokio::test]
async fn use_before_a_restart_still_counts() {
    let dir = TempDir::new();
    let upstream = Upstream::provider("hello").start().await;
    let capped = || launch(&upstream, &dir).args(["--max-calls", "3"]);
    let first = capped().start().await;
    for _ in 0..2 {
        first.post(CHAT, call()).await.expect(200);
    }
    first.kill().await;

    let second = capped().start().await;
    second.post(CHAT, call()).await.expect(200);
    second.post(CHAT, call()).await.expect_refusal(402, "budget_exceeded");
    assert_eq!(second.stop().await, 0);
    assert!(matches!(verdict(&dir.join("a.jsonl")), Verdict::Complete(_)), "nothing was lost");
}

#[tokio::test]
async fn a_file_of_another_attempt_or_account_stays_unchanged() {
    let dir = TempDir::new();
    let upstream = Upstream::provider("hello").start().await;
    let first = launch(&upstream, &dir).start().await;
    first.kill().await;
    let before = std::fs::read(dir.join("a.jsonl")).expect("the log");
    let again = || launch(&upstream, &dir);
    for (name, other) in [
        ("another run", again().run_id("r2")),
        ("another attempt", again().args(["--attempt", "1"])),
        ("another account", again().account("acct-2")),
    ] {
        let failed = other.fail().await;
        assert_eq!(failed.code, 74, "{name}: {}", failed.stderr);
        assert!(failed.stderr.contains("belongs to run r1"), "{name}: {}", failed.stderr);
    }
    let second = launch(&upstream, &dir).start().await;
    assert_eq!(second.stop().await, 0);
    // A closed file is not continued.
    assert!(launch(&upstream, &dir).fail().await.stderr.contains("closed in order"));
    assert!(std::fs::read(dir.join("a.jsonl")).expect("the log").starts_with(&before));
}
