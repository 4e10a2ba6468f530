//! A ledger that cannot be written, an altered log, and several commands at once.

use super::*;

#[tokio::test]
async fn a_blocked_ledger_does_not_delay_the_answer() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.sql("CREATE TRIGGER full BEFORE INSERT ON entries BEGIN SELECT RAISE(ABORT, 'disk is full'); END").await;

    let ran = sluice.run(["--model", "m", "--json", "hello"]).finish().await.expect(0);

    let report = ran.json();
    assert_eq!((report.verdict(), report.content.as_str()), ((true, None, 0), "hello"));
    assert!(
        ran.stderr.contains("the ledger has not taken this run: cannot use the database: disk is full"),
        "{}",
        ran.stderr
    );
    // The ledger takes all receipts of a file or none.
    assert_eq!(sluice.sql("SELECT count(*) FROM receipts").await, "[[0]]");
    let reason = "its audit file was not read yet".to_owned();
    assert_eq!(unsettled(&sluice).await, [(format!("{}.0", report.run_id), reason)]);
    sluice.sql("DROP TRIGGER full").await;
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    assert_eq!(total(&sluice).await, (1, 0, NANOS));
    assert_eq!(unsettled(&sluice).await, []);
}

#[tokio::test]
async fn an_altered_log_is_flagged_and_bills_nothing() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let script = format!("{ASK} ask; echo asked; until [ -e /workspace/go ]; do sleep 0.01; done");
    let run_id = unique_run_id("altered");
    let words = ["--run-id", &run_id, "--model", "m", "--account", "acct-1", "--", "sh", "-c", &script];
    let live = sluice.run(words).spawn();
    live.prints("asked\n").await;
    let path = sluice.audit_path(&run_id);
    let text = fs::read_to_string(&path).expect("the log is there");
    // Write in place, because the sidecar continues to write the same file.
    let altered = text.replace("acct-1", "acct-2");
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, altered.as_bytes()))
        .expect("we are root");
    fs::write(sluice.runs()[0].join("work/go"), "").expect("the workspace is ours too");

    let ran = live.finish().await.expect(120);

    assert!(ran.stderr.contains("tampered"), "{}", ran.stderr);
    assert!(ran.stderr.contains("calls   0"), "{}", ran.stderr);
    let receipts = value(&sluice, &["receipts", "--json"]).await;
    assert_eq!(receipts["receipts"], json!([]));
    let [(run, reason)] = &unsettled(&sluice).await[..] else { panic!("{receipts}") };
    assert!(*run == format!("{run_id}.0") && reason.contains("tampered"), "{run}: {reason}");
    for words in [&["ledger", "rebuild", "--check"][..], &["ledger", "rebuild"]] {
        let checked = sluice.command(words).finish().await.expect(122);
        assert!(checked.stdout.contains("tampered") && checked.stdout.contains("they DIFFER"), "{}", checked.stdout);
    }
    assert_eq!(value(&sluice, &["receipts", "--json"]).await["receipts"], json!([]));
}

#[tokio::test]
async fn runs_and_readers_at_once_agree_in_the_end() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let script = format!("{ASK} ask && ask");
    let words = ["--model", "m", "-q", "--", "sh", "-c", &script];
    let run = || sluice.run(words).finish();
    run().await.expect(0);

    let (one, two, three, check, fill, sweep) = tokio::join!(
        run(),
        run(),
        run(),
        sluice.command(["ledger", "rebuild", "--check"]).finish(),
        sluice.command(["ledger", "rebuild"]).finish(),
        sluice.command(["sweep"]).finish(),
    );

    for ran in [one, two, three, sweep] {
        ran.expect(0);
    }
    for ran in [check, fill] {
        // A run may have ended whose receipts follow.
        assert!(ran.code == 0 || (ran.code == 122 && ran.stdout.contains("not_in_ledger")), "{}", ran.stdout);
    }
    assert_eq!((total(&sluice).await, upstream.requests().len()), ((8, 0, 8 * NANOS), 8));
}

#[tokio::test]
async fn a_lost_database_is_built_again_from_the_files() {
    let upstream = Upstream::queue([Script::provider("hello"), Script::json(200, json!({"id": "x"}))]).start().await;
    let sluice = Sluice::to(&upstream);
    for _ in 0..2 {
        sluice.run(["--model", "m", "-q", "--", "sh", "-c", &format!("{ASK} ask")]).finish().await.expect(0);
    }
    let before = value(&sluice, &["receipts", "--json"]).await;
    for name in ["sluice.db", "sluice.db-wal", "sluice.db-shm"] {
        let _ = fs::remove_file(sluice.state().join(name));
    }
    sluice.command(["sweep"]).finish().await.expect(1);
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(2);

    let filled = value(&sluice, &["ledger", "rebuild", "--json"]).await;

    assert_eq!(filled["added"], json!({"receipts": 2, "entries": 2}));
    assert_eq!(value(&sluice, &["receipts", "--json"]).await, before);
    assert_eq!(total(&sluice).await.0, 2);
}
