//! A backup of the whole state directory, and its return.

use std::fs;

use serde_json::{Value, json};
use sluice_testkit::{Sluice, Upstream};

/// Runs a command, and returns the object that it prints.
async fn value(sluice: &Sluice, args: &[&str]) -> Value {
    sluice.command(args).finish().await.expect(0).value()
}

/// Returns the receipts and the budgets.
async fn figures(sluice: &Sluice) -> (Value, Value) {
    (value(sluice, &["receipts", "--json"]).await, value(sluice, &["budget", "show", "--json"]).await)
}

#[tokio::test]
async fn a_restored_state_directory_goes_on_as_before() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let info =
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}}]}"#;
    let prices = sluice.file("prices.json", info);
    let run = ["--account", "acct-1", "--model", "m", "--max-cost-usd", "0.1", "--prices", &prices, "--json", "hello"];
    sluice.command(["budget", "set", "acct-1", "5"]).finish().await.expect(0);
    let mut runs = Vec::new();
    for _ in 0..3 {
        runs.push(sluice.run(run).finish().await.expect(0).json().run_id);
    }
    let before = figures(&sluice).await;
    let copy = sluice.dir().join("copy").display().to_string();
    let made = value(&sluice, &["backup", &copy, "--json"]).await;
    assert_eq!((&made["audit_files"], &made["directory"]), (&json!(3), &json!(copy)));
    sluice.command(["backup", &copy]).finish().await.expect(1);
    let nowhere = sluice.command(["backup", "nodir/x"]).finish().await.expect(1);
    assert!(nowhere.stderr.contains("the directory nodir does not exist"), "{}", nowhere.stderr);
    sluice.command(["restore", &copy]).finish().await.expect(1);
    fs::remove_dir_all(sluice.state()).expect("it is ours");

    let restored = value(&sluice, &["restore", &copy, "--json"]).await;

    assert_eq!((&restored["agrees"], &restored["differences"]), (&json!(true), &json!(0)), "{restored}");
    for run in &runs {
        let verified = value(&sluice, &["audit", "verify", run, "--json"]).await;
        assert_eq!(verified["files"][0]["verdict"], "complete");
        assert_eq!(verified["files"][0]["detail"]["vouched_by"], json!(["signature", "witness"]));
    }
    assert_eq!(value(&sluice, &["ledger", "rebuild", "--check", "--json"]).await["differences"], json!([]));
    assert_eq!(figures(&sluice).await, before);
    sluice.run(run).finish().await.expect(0);
    let (receipts, budgets) = figures(&sluice).await;
    assert_eq!((&receipts["total"]["calls"], &receipts["total"]["nano_usd"]), (&json!(4), &json!("21600")));
    assert_eq!(budgets["budgets"][0]["spent_usd"], "0.0000216");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_backup_beside_a_run_can_be_restored() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = sluice.run(["--model", "m", "-q", "--run-id", "backup-1", "hello"]).spawn();
    upstream.received().await;
    let copy = sluice.dir().join("copy").display().to_string();

    sluice.command(["backup", &copy]).finish().await.expect(0);
    run.kill().await.expect(-9);
    sluice.command(["sweep"]).finish().await.expect(0);

    let other = sluice.dir().join("other").display().to_string();
    let there = ["--state-dir", &other];
    sluice.command(["restore", &copy]).args(there).finish().await.expect(0);
    // The controller of the copied run does not run here.
    sluice.command(["sweep"]).args(there).finish().await.expect(0);
    sluice.command(["ledger", "rebuild"]).args(there).finish().await.expect(0);
    let receipts = sluice.command(["receipts", "--json"]).args(there).finish().await.expect(0).value();
    assert_eq!(receipts["receipts"][0]["status"], "unknown");
}

#[tokio::test]
async fn a_copy_that_cannot_be_compared_is_restored() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    fs::write(sluice.state().join("decisions.log"), "no decision\n").expect("it is ours");
    let copy = sluice.dir().join("copy").display().to_string();
    sluice.command(["backup", &copy]).finish().await.expect(0);
    for (name, format) in [("text", None), ("json", Some("--json"))] {
        let state = sluice.dir().join(name).display().to_string();

        let ran = sluice.command(["restore", &copy, "--state-dir", &state]).args(format).finish().await.expect(1);

        let told = ran.stdout.clone() + &ran.stderr;
        assert!(told.contains("restored, but not compared: ") && told.contains(&state), "{told}");
        if format.is_some() {
            let restored = ran.value();
            assert_eq!((&restored["agrees"], &restored["audit_files"]), (&Value::Null, &json!(1)));
        }
    }
}
