//! The witness: the controller's record of a file while it was written, against an attacker who has the file and the
//! key.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use sluice_testkit::controller::{FinishedCommand, RunReport, RunningCommand};
use sluice_testkit::{CheckedAuditFile, Gate, Script, Sluice, Upstream};

use super::forgery::{for_another_account, lines, rewritten, with_a_call_less};
use super::{ASK, audit, eventually, finished, ours, private_key, public_key, upstream};

#[tokio::test]
async fn the_witness_detects_a_rewritten_file_with_valid_signature() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let (path, key) = (sluice.audit_path(&id), private_key(&sluice));
    let bytes = fs::read(&path).expect("we are root");
    let database = sluice.state().join("sluice.db").display().to_string();
    let public = public_key(&sluice).await;
    let kept = sluice.dir().join("kept.jsonl");
    let (mut same, mut own) = (lines(&rewritten(&bytes, |_| (), &key)), lines(&bytes));
    assert!(same.pop() != own.pop() && same == own, "the key of the state signs without a certificate");

    for (name, forged) in [
        ("rewritten", rewritten(&bytes, for_another_account, &key)),
        ("cut and closed", rewritten(&bytes, with_a_call_less, &key)),
    ] {
        fs::write(&path, &forged).expect("we are root");
        fs::write(&kept, &forged).expect("a test's directory takes files");
        // The documented limit: without a witness, a chain shows edits, but not a full rewrite.
        assert_eq!(ours(&sluice, std::slice::from_ref(&kept), &["--key", &public]).await, [(0, 0)], "{name}");
        let told = [
            audit(&sluice, ["verify", &id]).await.expect(1),
            audit(&sluice, ["verify", &kept.display().to_string(), "--key", &public, "--against", &database])
                .await
                .expect(1),
        ];
        for ran in told {
            assert!(ran.stdout.contains(": tampered: line ") && ran.stdout.contains(": witness: "), "{name}: {ran:?}");
        }
    }
    fs::write(&path, &bytes).expect("we are root");
    fs::write(&kept, &bytes).expect("a test's directory takes files");
    assert_eq!(ours(&sluice, &[path, kept], &["--key", &public, "--against", &database]).await, [(0, 0), (0, 0)]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_witness_detects_a_removed_end() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let path = sluice.audit_path(&id);
    let bytes = fs::read(&path).expect("we are root");
    let six: usize = bytes.split_inclusive(|byte| *byte == b'\n').take(6).map(<[u8]>::len).sum();

    for (cut, line) in [(six, 7), (six + 10, 7), (0, 1)] {
        fs::write(&path, &bytes[..cut]).expect("we are root");
        let ran = audit(&sluice, ["verify", &id]).await.expect(1);
        let said = format!(": tampered: line {line}: witness: expected line {line} with hash ");
        assert!(ran.stdout.contains(&said), "{cut}: {}", ran.stdout);
    }
}

/// Starts a run that waits for the file `go` between two calls.
fn waiting(sluice: &Sluice) -> RunningCommand<'_> {
    let script = format!("{ASK} ask >/dev/null; until [ -e /workspace/go ]; do sleep 0.01; done; ask; echo; echo fine");
    sluice.run(["--json", "--", "sh", "-c", &script]).spawn()
}

/// Waits for the first call, changes the file, and then lets the run end.
async fn meddled(sluice: &Sluice, meddle: impl FnOnce(&Path)) -> (FinishedCommand, RunReport) {
    let before = fs::read_dir(sluice.state().join("audit")).into_iter().flatten().count();
    let live = waiting(sluice);
    sluice.container_event("start", before + 1).await;
    let [run] = &sluice.runs()[..] else { panic!("one run: {:?}", sluice.runs()) };
    let name = run.file_name().expect("it has a name").to_string_lossy().into_owned();
    let path = sluice.state().join("audit").join(format!("{name}.jsonl"));
    CheckedAuditFile::wait_for(&path, "outcome", 1).await;
    meddle(&path);
    fs::write(run.join("work/go"), "").expect("the workspace is ours too");
    let ran = live.finish().await.expect(120);
    let report = ran.json();
    assert_eq!(report.verdict(), (false, Some("audit_failed"), 120));
    assert!(!report.audit.complete, "{:?}", report.audit);
    assert_eq!((sluice.containers().await.len(), sluice.runs().len(), sluice.processes().len()), (0, 0, 0));
    (ran, report)
}

#[tokio::test]
async fn a_file_changed_during_its_run_fails_the_run() {
    let upstream = upstream().await;
    // Change a byte of a line while its writer runs.
    let sluice = Sluice::to(&upstream);
    let (ran, report) = meddled(&sluice, |path| {
        let text = fs::read_to_string(path).expect("we are root");
        fs::write(path, text.replace("\"billing_account_id\":\"default\"", "\"billing_account_id\":\"defaulT\""))
            .expect("we are root");
    })
    .await;
    assert!(report.message().starts_with("the audit file is tampered: line 1: "), "{}", report.message());
    assert!(ran.stderr.contains("sluice: audit_failed: the audit file is tampered: line 1: "), "{}", ran.stderr);
    audit(&sluice, ["verify", &report.run_id]).await.expect(1);

    // Replace the file with a valid file of this host, signed by its key.
    let sluice = Sluice::to(&upstream);
    let good = finished(&sluice).await;
    let (bytes, key) = (fs::read(sluice.audit_path(&good)).expect("we are root"), private_key(&sluice));
    let (_, report) = meddled(&sluice, |path| {
        let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
        let id = name.trim_end_matches(".0.jsonl");
        let forged =
            rewritten(&bytes, |records| records.iter_mut().for_each(|record| record["run_id"] = id.into()), &key);
        fs::remove_file(path).expect("we are root");
        fs::write(path, forged).expect("we are root");
    })
    .await;
    assert!(report.message().contains("tampered: line 1: witness: "), "{}", report.message());
    assert_eq!((report.receipts.len(), &report.cost_usd), (0, &None), "nothing in it is known");
}

#[tokio::test]
async fn a_removed_audit_file_fails_the_run() {
    let upstream = upstream().await;
    for (name, said, remove) in [
        ("the file", "the audit file is gone", (|path| fs::remove_file(path).expect("we are root")) as fn(&Path)),
        ("the directory", "the audit file is gone", |path| {
            fs::remove_dir_all(path.parent().expect("it has one")).expect("we are root");
        }),
        ("by a device", "cannot be held against anything", |path| {
            fs::remove_file(path).expect("we are root");
            symlink("/dev/full", path).expect("the name is free");
        }),
        ("by nothing", "the audit file is tampered", |path| fs::write(path, "").expect("we are root")),
    ] {
        let sluice = Sluice::to(&upstream);
        let (_, report) = meddled(&sluice, remove).await;
        assert!(report.message().contains(said), "{name}: {}", report.message());
        // The writer noticed each change except the truncation, and did not send the next call.
        assert_eq!(report.stdout.contains("audit_unavailable"), name != "by nothing", "{name}: {}", report.stdout);
        assert!(report.stdout.ends_with("fine\n"), "{name}: {}", report.stdout);
    }
}

#[tokio::test]
async fn only_witnessed_lines_of_an_altered_file_are_billed() {
    let gate = Gate::new();
    let answers = [Script::chat("hello"), Script::chat("hello").hold_head(&gate)];
    let upstream = Upstream::queue(answers).start().await;
    let sluice = Sluice::to(&upstream);
    let live = waiting(&sluice);
    sluice.started().await;
    let run = sluice.runs().remove(0);
    let id = run.file_name().expect("it has a name").to_string_lossy().trim_end_matches(".0").to_owned();
    let path = sluice.audit_path(&id);
    CheckedAuditFile::wait_for(&path, "outcome", 1).await;
    // Once the witness has seen the first call's outcome, later changes of the file do not affect it.
    let seen = async || sluice.sql("SELECT count(*) FROM witnesses WHERE seq >= 2").await == "[[1]]";
    eventually("the file is looked at", seen).await;
    fs::write(run.join("work/go"), "").expect("the workspace is ours too");
    gate.reached(1).await;
    let text = fs::read_to_string(&path).expect("we are root");
    let at = text.match_indices("\"kind\":\"intent\"").nth(1).expect("two calls").0;
    fs::write(&path, [&text[..at], &text[at..].replace("\"model\":\"m\"", "\"model\":\"n\"")].concat())
        .expect("we are root");
    gate.open();

    let report = live.finish().await.expect(120).json();

    assert!(report.message().starts_with("the audit file is tampered: line 4: "), "{}", report.message());
    let receipt = report.only_receipt();
    assert_eq!((receipt.status.as_str(), receipt.cost_usd.as_deref()), ("posted", Some("0.0000054")));
    assert_eq!(report.cost_usd.as_deref(), Some("0.0000054"));
}

#[tokio::test]
async fn a_run_without_controller_is_verified_by_its_log() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (meddle, expected) in [(false, r#"[["internal", 125]]"#), (true, r#"[["audit_failed", 120]]"#)] {
        let live = sluice.run(["--", "sleep", "600"]).spawn();
        sluice.container_event("start", 1 + usize::from(meddle)).await;
        live.kill().await.expect(-9);
        let [run] = &sluice.runs()[..] else { panic!("one run: {:?}", sluice.runs()) };
        let id = run.file_name().expect("it has a name").to_string_lossy().trim_end_matches(".0").to_owned();
        let path = sluice.audit_path(&id);
        CheckedAuditFile::wait_for(&path, "close", 1).await;
        eventually("the sidecar ends", async || sluice.processes().is_empty()).await;
        if meddle {
            let bytes = fs::read(&path).expect("we are root");
            fs::write(&path, rewritten(&bytes, for_another_account, &private_key(&sluice))).expect("we are root");
        }

        sluice.command(["sweep"]).finish().await.expect(0);

        let judged = sluice.sql(&format!("SELECT error_code, exit_code FROM runs WHERE run_id = '{id}'")).await;
        assert_eq!(judged, expected);
        audit(&sluice, ["verify", &id]).await.expect(i32::from(meddle));
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_earlier_file_stays_unchanged_and_bills_nothing() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let path = sluice.audit_path(&id);
    let before = fs::read(&path).expect("we are root");
    for table in ["runs", "witnesses"] {
        sluice.sql(&format!("DELETE FROM {table} WHERE run_id = '{id}'")).await;
    }

    let ran = sluice.run(["--json", "--run-id", &id, "--", "true"]).finish().await.expect(125);

    let report = ran.json();
    assert!(report.message().contains("a run id is used once"), "{}", report.message());
    assert_eq!((report.receipts.len(), report.audit.lines), (0, 0));
    let seen = sluice.sql(&format!("SELECT count(*) FROM witnesses WHERE run_id = '{id}'")).await;
    assert_eq!(seen, "[[0]]", "it is not this run's");
    assert_eq!(fs::read(&path).expect("we are root"), before);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_without_witness_warns_at_its_end() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["sweep"]).finish().await.expect(0);
    // The trigger fails as a full disk would.
    let full = "CREATE TRIGGER full BEFORE INSERT ON witnesses BEGIN SELECT RAISE(ABORT, 'disk is full'); END";
    sluice.sql(full).await;
    let script = format!("{ASK} ask >/dev/null; echo fine");

    let report = sluice.run(["--json", "--", "sh", "-c", &script]).finish().await.expect(125).json();

    assert_eq!((report.verdict(), report.content.as_str()), ((false, Some("internal"), 125), "fine\n"));
    let said = "cannot record the end of the run: cannot use the database: disk is full";
    assert!(report.message().contains(said), "{}", report.message());
    assert!(report.audit.complete && report.only_receipt().status == "posted", "{report:?}");
    sluice.sql("DROP TRIGGER full").await;
    // The witness has no record of a file that it never saw.
    audit(&sluice, ["verify", &report.run_id]).await.expect(1);
    sluice.assert_nothing_left().await;
}
