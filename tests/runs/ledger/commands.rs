//! The output and the refusals of the commands.

use super::*;

#[tokio::test]
async fn receipts_are_found_by_run_account_and_time() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let mut runs = Vec::new();
    for account in ["acct-1", "acct-2"] {
        let words = ["--account", account, "--model", "m", "--json", "hello"];
        runs.push(sluice.run(words).finish().await.expect(0).json().run_id);
    }
    let count = async |args: &[&str]| {
        let args: Vec<_> = ["receipts", "--json"].iter().chain(args).copied().collect();
        value(&sluice, &args).await["receipts"].as_array().expect("a list").len()
    };
    assert_eq!(count(&["--run", &runs[0]]).await, 1);
    assert_eq!(count(&["--run", &format!("{}.0", runs[0])]).await, 1);
    for unknown in [format!("{}.1", runs[0]), "nope".to_owned()] {
        for command in ["receipts", "usage"] {
            let ran = sluice.command([command, "--run", &unknown]).finish().await.expect(2);
            assert!(ran.stderr.contains(&format!("no run {unknown}")) && ran.stdout.is_empty(), "{}", ran.stderr);
        }
    }
    assert_eq!((count(&["--model", "m"]).await, count(&["--model", "other"]).await), (2, 0));
    assert_eq!(count(&["--account", "acct-2"]).await, 1);
    assert_eq!(count(&["--account", "acct-2", "--run", &runs[0]]).await, 0);
    assert_eq!(count(&["--since", "1h"]).await, 2);
    assert_eq!(count(&["--since", "2020-01-01"]).await, 2);
    assert_eq!(count(&["--since", "2020-01-01T00:00:00Z"]).await, 2);
    assert_eq!(count(&["--since", "2999-01-01"]).await, 0);
    assert_eq!(count(&["--until", "2020-01-01"]).await, 0);
    assert_eq!(count(&["--since", "2020-01-01", "--until", "2999-01-01"]).await, 2);
    for wrong in [&["--since", "soon"][..], &["--json", "--csv"], &["--since", "2026-01-02", "--until", "2026-01-02"]] {
        for command in ["receipts", "usage"] {
            sluice.command([command]).args(wrong).finish().await.expect(2);
        }
    }

    let table = sluice.command(["receipts", "--run", &runs[0]]).finish().await.expect(0).stdout;
    assert!(table.contains("posted") && table.contains(COST), "{table}");
    assert!(table.ends_with("total    1 receipts, 0 open; 10 tokens in, 5 out; $0.0000054\n"), "{table}");
    let csv = sluice.command(["receipts", "--csv"]).finish().await.expect(0).stdout;
    let lines: Vec<_> = csv.split_terminator("\r\n").collect();
    assert_eq!(lines.len(), 3, "{csv}");
    assert!(lines[0].starts_with("source_reference,run_id,attempt,call,"), "{csv}");
    assert!(lines.iter().all(|line| line.split(',').count() == 27), "{csv}");
    assert!(lines[1].contains(r#","acct-1","#) && lines[1].contains(",0.0000054,5400,"), "{csv}");
    assert!(lines[0].ends_with("cost_usd,cost_nano_usd,price_source,null_reason,created_at,booked_on,last_booked_on"));
    let csv = sluice.command(["usage", "--by", "account", "--since", "1h", "--csv"]).finish().await.expect(0).stdout;
    let lines: Vec<_> = csv.split_terminator("\r\n").collect();
    assert_eq!(lines[1..], [1, 2].map(|n| format!(r#"account,"acct-{n}",1,0,,10,5,,,,15,0.0000054,5400"#)), "{csv}");
    assert_eq!(lines[0].split(',').count(), 13);
    let one = value(&sluice, &["usage", "--account", "acct-2", "--since", "2020-01-01", "--json"]).await;
    assert_eq!((&one["total"]["calls"], &one["total"]["cost_usd"]), (&json!(1), &json!("0.0000054")));
    let usage = sluice.command(["usage", "--by", "model"]).finish().await.expect(0).stdout;
    let last: Vec<_> = usage.lines().last().unwrap_or_default().split_whitespace().collect();
    assert_eq!(last, ["total", "2", "0", "-", "20", "10", "0.0000108"], "{usage}");
}

#[tokio::test]
async fn a_backup_is_a_ledger_of_its_own() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["--model", "m", "-q", "hello"]).finish().await.expect(0);
    let before = value(&sluice, &["receipts", "--json"]).await;
    let copy = sluice.dir().join("copy.db");
    let copy = copy.to_str().expect("a test's directory is text");

    sluice.command(["ledger", "backup", copy]).finish().await.expect(0);
    let again = sluice.command(["ledger", "backup", copy]).finish().await.expect(1);

    assert!(again.stderr.contains(copy), "{}", again.stderr);
    for name in ["sluice.db-wal", "sluice.db-shm"] {
        let _ = fs::remove_file(sluice.state().join(name));
    }
    fs::rename(copy, sluice.state().join("sluice.db")).expect("both are ours");
    assert_eq!(value(&sluice, &["receipts", "--json"]).await, before);
    assert_eq!(total(&sluice).await, (1, 0, NANOS));
}

#[tokio::test]
async fn a_foreign_database_gives_no_figures() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let commands = [&["receipts"][..], &["usage"], &["ledger", "rebuild", "--check"], &["ledger", "backup", "/nope/x"]];
    for command in commands {
        let ran = sluice.command(command).finish().await.expect(2);
        assert!(ran.stderr.contains("--state-dir") && ran.stdout.is_empty(), "{command:?}: {}", ran.stderr);
    }
    assert!(!sluice.state().join("sluice.db").exists());
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.sql("PRAGMA user_version = 99").await;
    for command in commands {
        let ran = sluice.command(command).finish().await.expect(1);
        assert!(ran.stderr.contains("schema 99"), "{command:?}: {}", ran.stderr);
    }
}
