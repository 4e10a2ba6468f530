//! Audit files of sidecars that ran alone.

use sluice_contract::PrivateKey;
use sluice_testkit::Sidecar;
use sluice_testkit::sidecar::Launch;

use super::*;

/// Starts a sidecar, makes one call, and ends it. Returns it, since its audit file is in its directory.
async fn alone(launch: Launch) -> (Sidecar, String) {
    let sidecar = launch.start().await;
    let body = json!({"model": "m", "messages": []});
    sidecar.post("/v1/chat/completions", body).await.expect(200);
    sidecar.stop().await;
    let file = sidecar.audit_path().display().to_string();
    (sidecar, file)
}

async fn import(sluice: &Sluice, words: &[&str]) -> sluice_testkit::controller::FinishedCommand {
    sluice.command(["ledger", "import", "--json"]).args(words).finish().await
}

/// A sidecar that signs, its file, and the public key of its ready line.
async fn signed(upstream: &Upstream, sluice: &Sluice, run: &str) -> (Sidecar, String, String) {
    use std::os::unix::fs::PermissionsExt;
    let file = sluice.file("sidecar.key", &"09".repeat(32));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let launch = Sidecar::to(upstream).run_id(run).args(["--audit-key-file", &file]);
    let (sidecar, file) = alone(launch).await;
    let public = sidecar.ready()["audit_public_key"].as_str().expect("it signs").to_owned();
    (sidecar, file, public)
}

#[tokio::test]
async fn a_signed_file_becomes_receipts_once() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let (_sidecar, file, public) = signed(&upstream, &sluice, "alone-1").await;

    let unknown = import(&sluice, &[&file]).await.expect(6);
    assert!(unknown.stderr.is_empty() && unknown.stdout.contains("--key KEY: audit_public_key"), "{}", unknown.stdout);
    let first = import(&sluice, &[&file, "--key", &public]).await.expect(0).value();
    let second = import(&sluice, &[&file]).await.expect(0).value();

    assert_eq!(first["files"][0]["added"], json!({"receipts": 1, "entries": 1}), "{first}");
    assert_eq!(
        (&second["files"][0]["already_imported"], &second["files"][0]["added"]["receipts"]),
        (&json!(true), &json!(0))
    );
    assert_eq!(total(&sluice).await, (1, 0, NANOS));
    sluice.command(["audit", "verify", "alone-1"]).finish().await.expect(0);
    let account = value(&sluice, &["usage", "--account", "acct-1", "--json"]).await;
    assert_eq!(account["total"]["cost_usd"], "0.0000054");
}

#[tokio::test]
async fn an_unsigned_file_is_imported_only_if_vouched_for() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let (_sidecar, file) = alone(Sidecar::to(&upstream).run_id("alone-2")).await;

    let refused = import(&sluice, &[&file]).await.expect(6);
    assert!(refused.stdout.contains("--unsigned"), "{}", refused.stdout);
    assert_eq!(total(&sluice).await, (0, 0, 0));
    import(&sluice, &[&file, "--unsigned"]).await.expect(0);

    assert_eq!(total(&sluice).await, (1, 0, NANOS));
    // The decision outlives the database, and holds for these lines alone.
    fs::remove_file(sluice.state().join("sluice.db")).expect("it is there");
    sluice.command(["ledger", "rebuild"]).finish().await.expect(0);
    assert_eq!(total(&sluice).await, (1, 0, NANOS));
    let path = sluice.audit_path("alone-2");
    let bytes = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, bytes.replace("\"total\":15", "\"total\":16")).expect("it is ours");
    let checked = sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(122);
    assert!(checked.stdout.contains("tampered"), "{}", checked.stdout);
}

#[tokio::test]
async fn altered_and_conflicting_files_are_not_imported() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let ours = sluice.run(["--model", "m", "--json", "hello"]).finish().await.expect(0).json().run_id;
    let own = sluice.audit_path(&ours).display().to_string();
    let (_sidecar, file, public) = signed(&upstream, &sluice, "alone-3").await;
    let (_other, other, _) = signed(&upstream, &sluice, "alone-3").await;
    let bytes = fs::read_to_string(&file).expect("it is there");
    let altered = sluice.file("altered.jsonl", &bytes.replace("\"total\":15", "\"total\":16"));
    let garbage = sluice.file("garbage.jsonl", "hello\n");

    for (file, code, words) in [
        (own.as_str(), 1, "is a run of this host"),
        (&altered, 1, "was altered"),
        (&garbage, 4, "is not an audit file"),
        ("/etc/passwd", 4, "is not an audit file"),
        ("/nope", 4, "cannot read"),
    ] {
        let ran = import(&sluice, &[file, "--key", &public]).await.expect(code);
        assert!(ran.stdout.contains(words), "{file}: {}", ran.stdout);
    }
    import(&sluice, &[&file, "--key", &public]).await.expect(0);
    let conflict = import(&sluice, &[&other]).await.expect(1);
    assert!(conflict.stdout.contains("another file of run alone-3.0"), "{}", conflict.stdout);
    assert_eq!(total(&sluice).await, (2, 0, 2 * NANOS));
}

#[tokio::test]
async fn doubtful_files_have_verdicts_of_their_own() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["--model", "m", "-q", "hello"]).finish().await.expect(0);
    let (_signed, signed, public) = signed(&upstream, &sluice, "alone-4").await;
    let (_unsigned, unsigned) = alone(Sidecar::to(&upstream).run_id("alone-5")).await;
    let other = PrivateKey::from_seed(&[3; 32]).public().to_string();
    for (words, code, verdict) in [
        (&["/etc/passwd"][..], 4, "not_an_audit_file"),
        (&[&signed, "--key", &public], 0, "complete"),
        (&[&signed], 0, "complete"),
        (&[&signed, "--key", &other], 1, "unknown_key"),
        (&[&unsigned, "--key", &other], 1, "unsigned"),
        (&[&unsigned], 0, "complete"),
    ] {
        let ran = sluice.command(["audit", "verify", "--json"]).args(words).finish().await.expect(code);
        assert_eq!(ran.value()["files"][0]["verdict"], verdict, "{words:?}");
    }
    for (run, from, verdict) in [("alone-4", &signed, "unknown_key"), ("alone-5", &unsigned, "unsigned")] {
        fs::copy(from, sluice.audit_path(run)).expect("both are ours");
        let ran = sluice.command(["audit", "verify", "--json", run]).finish().await.expect(6);
        assert_eq!(ran.value()["files"][0]["verdict"], verdict);
    }
    fs::copy("/etc/passwd", sluice.audit_path("alone-6")).expect("both are readable");
    let checked = sluice.command(["ledger", "rebuild", "--check", "--json"]).finish().await.expect(122).value();
    let found: Vec<_> =
        checked["differences"].as_array().expect("a list").iter().map(|one| one["found"].clone()).collect();
    assert_eq!(found, ["unknown_key", "unsigned", "not_an_audit_file"]);
    assert!(checked["differences"][0]["detail"].to_string().contains("audit_public_key"), "{checked}");
}

#[tokio::test]
async fn an_altered_import_is_unsettled_in_every_selection() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let (_sidecar, file, public) = signed(&upstream, &sluice, "alone-7").await;
    import(&sluice, &[&file, "--key", &public]).await.expect(0);
    let path = sluice.audit_path("alone-7");
    let text = fs::read_to_string(&path).expect("it is there");
    fs::write(&path, text.replace("\"total\":15", "\"total\":16")).expect("it is ours");
    sluice.command(["ledger", "rebuild"]).finish().await.expect(122);

    for words in [
        &[][..],
        &["--account", "acct-1"],
        &["--since", "1h"],
        &["--model", "m"],
        &["--run", "alone-7"],
        &["--account", "acct-1", "--since", "2020-01-01", "--until", "2999-01-01"],
    ] {
        let unsettled = async |command: &str| {
            value(&sluice, &[&[command, "--json"][..], words].concat()).await["unsettled_runs"].clone()
        };
        let usage = unsettled("usage").await;
        assert_eq!(usage, unsettled("receipts").await, "{words:?}");
        assert_eq!(usage[0]["run"], "alone-7.0", "{words:?}: {usage}");
        assert!(usage[0]["reason"].as_str().is_some_and(|reason| reason.contains("tampered")), "{words:?}: {usage}");
    }
}
