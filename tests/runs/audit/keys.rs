//! The signing keys: their permissions, their rotation, and the effects of a kill or a full disk.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use serde_json::json;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{CheckedAuditFile, Sluice, engine};

use crate::agents::kit;

use super::{ASK, audit, finished, ours, private_key, theirs, upstream};

const UNTIL_GO: &str = "until [ -e /workspace/go ]; do sleep 0.01; done";

/// The files below a directory, with their modes; directories end in a slash.
fn modes(directory: &Path) -> Vec<(String, u32)> {
    let mut all = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).expect("it was listed");
        let name = path.strip_prefix(directory).expect("it is below").display().to_string();
        all.push((if meta.is_dir() { format!("{name}/") } else { name }, meta.mode() & 0o7777));
        if meta.is_dir() {
            left.extend(fs::read_dir(&path).expect("we are root").map(|entry| entry.expect("a name").path()));
        }
    }
    all.sort();
    all
}

/// Returns the id of the key that certified the key of the run.
fn certifier(file: &CheckedAuditFile) -> &str {
    file.close()["certificate"]["key_id"].as_str().expect("it is certified")
}

#[tokio::test]
async fn keys_are_for_their_owner_alone() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    // The modes do not depend on the umask.
    let lax = ["sh", "-c", "umask 0; exec \"$@\"", "sh"];
    sluice.run(["-q", "--", "true"]).wrapper(lax).finish().await.expect(0);

    let id = private_key(&sluice).public().id();
    let expected = [("/", 0o700), ("public/", 0o700), (&format!("public/{id}"), 0o600), ("signing", 0o600)];
    assert_eq!(modes(&sluice.state().join("keys")), expected.map(|(name, mode)| (name.to_owned(), mode)));
    let public = fs::read_to_string(sluice.state().join("keys/public").join(&id)).expect("we are root");
    assert_eq!(audit(&sluice, ["keys"]).await.expect(0).stdout, public);
    assert_eq!(public, format!("{}\n", private_key(&sluice).public()));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn files_signed_by_a_rotated_key_still_verify() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let first = finished(&sluice).await;
    let old = fs::read_to_string(sluice.state().join("keys/signing")).expect("we are root");
    let (old_id, old_public) = (private_key(&sluice).public().id(), private_key(&sluice).public());

    let rotated = audit(&sluice, ["rotate-key", "--reason", "a test"]).await.expect(0);
    let second = finished(&sluice).await;

    let new = private_key(&sluice).public();
    assert_eq!((rotated.stdout, rotated.stderr), (format!("{new}\n"), String::new()));
    assert_ne!(new, old_public);
    let (first, second) = (sluice.audit_path(&first), sluice.audit_path(&second));
    assert_eq!(ours(&sluice, &[first.clone(), second.clone()], &[]).await, [(0, 0), (0, 0)]);
    assert_eq!(
        [&first, &second].map(|path| certifier(&CheckedAuditFile::read(path)).to_owned()),
        [old_id.clone(), new.id()]
    );
    let mut keys = [(old_id, old_public), (new.id(), new)];
    keys.sort_by(|one, other| one.0.cmp(&other.0));
    let printed: String = keys.iter().map(|(_, key)| format!("{key}\n")).collect();
    assert_eq!(audit(&sluice, ["keys"]).await.expect(0).stdout, printed);
    // An auditor elsewhere gets all keys in one file.
    let handed_over = sluice.file("sluice.pub", &printed);
    let both = [first.clone(), second.clone()];
    assert_eq!(ours(&sluice, &both, &["--key", &handed_over]).await, [(0, 0), (0, 0)]);
    assert_eq!(theirs(&both, &["--key", &handed_over]), [(0, 0), (0, 0)]);
    // A key verifies only the files that it signed.
    assert_eq!(ours(&sluice, &[first.clone(), second], &["--key", &new.to_string()]).await, [(1, 7), (0, 0)]);
    assert_eq!(modes(&sluice.state().join("keys")).len(), 5, "two directories, two public keys, one private");
    let found = std::process::Command::new("grep").args(["-rlaF", old.trim()]).arg(sluice.dir()).output();
    assert_eq!(String::from_utf8_lossy(&found.expect("there is a grep").stdout), "", "the old private key");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_during_a_rotation_keeps_the_old_key() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let live = sluice.run(["--json", "--", "sh", "-c", UNTIL_GO]).spawn();
    sluice.started().await;
    let old = private_key(&sluice).public().id();

    audit(&sluice, ["rotate-key", "--reason", "a test"]).await.expect(0);
    fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");

    let report = live.finish().await.expect(0).json();
    assert!(report.audit.complete, "{report:?}");
    assert_eq!(certifier(&sluice.audit(&report.run_id)), old);
    audit(&sluice, ["verify", &report.run_id]).await.expect(0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn only_the_sidecar_has_the_private_key() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    let seed = fs::read_to_string(sluice.state().join("keys/signing")).expect("we are root");
    let seed = seed.trim().to_owned();
    let id = unique_run_id("signed");
    // The script holds the key with each byte changed by one, so that it does not find itself.
    let hidden: String = seed.bytes().map(|byte| format!("{:02x}", byte.wrapping_add(1))).collect();
    let script = format!("{ASK} ask >/dev/null; python3 /kit/agents/search.py; echo up; {UNTIL_GO}");
    let words = ["--run-id", &id, "--env", &format!("HIDDEN={hidden}")];
    let live = sluice.run(words).args(kit()).args(["--", "sh", "-c", &script]);
    let live = live.spawn();
    live.prints("up\n").await;
    let container = sluice.container_event("start", 2).await;

    let mut places = vec![
        ("docker inspect".to_owned(), engine::inspect(&container).await.to_string()),
        ("mounts".to_owned(), engine::exec(&container, ["cat", "/proc/mounts"]).await.stdout),
    ];
    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };
    for pid in [sidecar, live.pid()] {
        for file in ["cmdline", "environ"] {
            let shown = fs::read(format!("/proc/{pid}/{file}")).expect("it runs, and we are root");
            places.push((format!("{file} of {pid}"), String::from_utf8_lossy(&shown).into_owned()));
        }
    }
    let log = sluice.runs()[0].join("conf/sidecar.log");
    places.push(("the sidecar's log".to_owned(), fs::read_to_string(log).expect("it has one")));
    fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");
    let ran = live.finish().await.expect(0);
    let arguments = &places.iter().find(|(place, _)| *place == format!("cmdline of {sidecar}")).expect("above").1;
    assert!(arguments.contains("--audit-key-file"), "{arguments}");
    let found: serde_json::Value = serde_json::from_str(ran.stdout.trim_end_matches("up\n")).expect("what it tells");
    assert_eq!(found, json!({"found": [], "searched_enough": true}));
    places.extend([("stderr".to_owned(), ran.stderr.clone())]);
    for command in
        [&["verify", &id][..], &["verify", &id, "--json"], &["show", &id], &["tail", &id], &["hash", &id], &["keys"]]
    {
        let ran = audit(&sluice, command).await.expect(0);
        places.push((command.join(" "), ran.stdout + &ran.stderr));
    }
    for (place, text) in places {
        assert!(!text.contains(&seed), "{place}: {text}");
    }
    let found = std::process::Command::new("grep").args(["-rlaF", &seed]).arg(sluice.dir()).output();
    let found = String::from_utf8_lossy(&found.expect("there is a grep").stdout).into_owned();
    assert_eq!(found, format!("{}\n", sluice.state().join("keys/signing").display()));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_rotation_leaves_exactly_one_key() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    for step in 0..20 {
        let mut live = std::pin::pin!(sluice.command(["audit", "rotate-key", "--reason", "a test"]).spawn().finish());
        // The drop kills the command, at a moment that differs in each round.
        let _ = tokio::time::timeout(Duration::from_micros(step * 1500), &mut live).await;
    }

    let report = sluice.run(["--json", "--", "true"]).finish().await.expect(0).json();

    assert!(report.audit.complete, "{report:?}");
    audit(&sluice, ["verify", &id, &report.run_id]).await.expect(0);
    let private: Vec<_> =
        modes(&sluice.state().join("keys")).into_iter().filter(|(name, _)| !name.contains('/')).collect();
    assert_eq!(private, [("signing".to_owned(), 0o600)]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_unusable_key_stops_a_run_before_the_start() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let signing = sluice.state().join("keys/signing");
    let seed = fs::read(&signing).expect("we are root");

    fs::write(&signing, "hello").expect("we are root");
    let ran = sluice.run(["--", "true"]).finish().await.expect(125);

    assert_eq!(
        ran.stderr,
        format!("sluice: {} holds no key; move it away, and the next run makes a new one\n", signing.display())
    );
    // Signed files still verify, and the advice of the error works.
    audit(&sluice, ["verify", &id]).await.expect(0);
    fs::rename(&signing, sluice.dir().join("broken")).expect("it is ours too");
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    assert_ne!(fs::read(&signing).expect("it was made"), seed);
    audit(&sluice, ["verify", &id]).await.expect(0);
    sluice.assert_nothing_left().await;
}
