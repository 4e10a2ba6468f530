//! Removal of old audit files.

use super::*;

/// Names of the audit files of runs.
fn files(sluice: &Sluice) -> Vec<String> {
    let entries = fs::read_dir(sluice.state().join("audit")).expect("it is there");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("a name").file_name().to_string_lossy().into_owned()).collect();
    // The control log has a line for each prune.
    names.retain(|name| name != "control.jsonl");
    names.sort();
    names
}

#[tokio::test]
async fn pruned_runs_keep_their_receipts() {
    let upstream =
        Upstream::queue([Script::provider("hello"), Script::provider("hello"), Script::never()]).start().await;
    let sluice = Sluice::to(&upstream);
    let script = format!("{ASK} ask");
    for (run, code) in [("pruned-1", 0), ("pruned-2", 0), ("pruned-3", 124)] {
        let timeout = if code == 0 { "5m" } else { "20s" };
        let words = ["--run-id", run, "--model", "m", "--timeout", timeout, "-q", "--", "sh", "-c", &script];
        sluice.run(words).finish().await.expect(code);
    }
    let before = value(&sluice, &["receipts", "--json"]).await;
    let copy = fs::read(sluice.audit_path("pruned-1")).expect("it is there");
    let archive = sluice.dir().join("archive").display().to_string();

    let none = value(&sluice, &["prune", "--before", "2020-01-01", "--reason", "old", "--json"]).await;
    assert_eq!((&none["files"], &none["newer_files"]), (&json!(0), &json!(3)));
    let dry = value(&sluice, &["prune", "--before", "0s", "--dry-run", "--json"]).await;
    assert_eq!((&dry["runs"], files(&sluice).len()), (&json!(["pruned-1.0", "pruned-2.0"]), 3));
    let pruned = value(&sluice, &["prune", "--before", "0s", "--archive", &archive, "--reason", "old", "--json"]).await;

    assert_eq!((&pruned["runs"], &pruned["bytes"]), (&dry["runs"], &dry["bytes"]));
    assert_eq!((&pruned["kept"][0]["run"], pruned["kept"].as_array().map(Vec::len)), (&json!("pruned-3.0"), Some(1)));
    assert_eq!(files(&sluice), ["pruned-3.0.jsonl"]);
    assert_eq!(fs::read(format!("{archive}/pruned-1.0.jsonl")).expect("it was moved"), copy);
    assert_eq!(value(&sluice, &["receipts", "--json"]).await, before);
    let checked = value(&sluice, &["ledger", "rebuild", "--check", "--json"]).await;
    assert_eq!((&checked["differences"], &checked["pruned"]), (&json!([]), &json!(2)));
    let gone = sluice.command(["audit", "verify", "pruned-1"]).finish().await.expect(4);
    assert!(
        gone.stdout.contains("the audit file of run pruned-1.0 (") && gone.stdout.contains("was pruned at"),
        "{}",
        gone.stdout
    );
    let shown = sluice.command(["inspect", "pruned-1"]).finish().await.expect(0).stdout;
    assert!(shown.contains("no file: sluice prune removed it at "), "{shown}");
    sluice.run(["--run-id", "pruned-1", "-q", "--", "true"]).finish().await.expect(125);

    // A file that comes back is compared with what is known of it.
    fs::write(sluice.audit_path("pruned-1"), &copy).expect("it is ours");
    sluice.command(["audit", "verify", "pruned-1"]).finish().await.expect(0);
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
    let other = String::from_utf8_lossy(&copy).replace("\"input\":10", "\"input\":11");
    fs::write(sluice.audit_path("pruned-1"), other).expect("it is ours");
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(122);
}

#[tokio::test]
async fn a_lost_database_reports_what_was_pruned() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["budget", "set", "acct-1", "5"]).finish().await.expect(0);
    let info =
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}}]}"#;
    let prices = sluice.file("prices.json", info);
    let run = ["--account", "acct-1", "--model", "m", "--prices", &prices, "-q", "hello"];
    sluice.run(run).finish().await.expect(0);
    let archive = sluice.dir().join("archive").display().to_string();
    sluice.command(["prune", "--before", "0s", "--archive", &archive, "--reason", "old"]).finish().await.expect(0);
    sluice.run(run).finish().await.expect(0);
    fs::remove_file(sluice.state().join("sluice.db")).expect("it is there");

    let rebuilt = sluice.command(["ledger", "rebuild"]).finish().await.expect(122);
    assert!(rebuilt.stdout.contains("no_file") && rebuilt.stdout.contains("pruned"), "{}", rebuilt.stdout);
    // The spending of the account is not known, so its runs are refused.
    let refused = sluice.run(run).finish().await.expect(125);
    assert!(refused.stderr.contains("were pruned") && refused.stderr.contains("STATE/audit"), "{}", refused.stderr);
    for entry in fs::read_dir(&archive).expect("it is there").flatten() {
        fs::copy(entry.path(), sluice.state().join("audit").join(entry.file_name())).expect("both are ours");
    }
    sluice.command(["ledger", "rebuild"]).finish().await.expect(0);
    sluice.run(run).finish().await.expect(0);
    let budgets = value(&sluice, &["budget", "show", "--json"]).await;
    assert_eq!(budgets["budgets"][0]["spent_usd"], "0.0000162");
}
