//! The record of a run: what `sluice inspect` shows after its end, what no record has, and when it is removed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{PATIENCE, Sluice, Upstream, poll};

fn record(sluice: &Sluice, run: &str) -> PathBuf {
    sluice.state().join("records").join(format!("{run}.0"))
}

async fn inspect(sluice: &Sluice, run: &str) -> Value {
    sluice.command(["inspect", run, "--json"]).finish().await.expect(0).value()
}

#[tokio::test]
async fn a_failed_run_can_be_explained_later() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("why");
    let shell = "curl -s -d '{}' $OPENAI_BASE_URL/nowhere; echo out; echo cause >&2; exit 42";
    sluice.run(["--quiet", "--run-id", &run, "--model", "m", "--", "sh", "-c", shell]).finish().await.expect(42);

    let seen = inspect(&sluice, &run).await;
    let text = sluice.command(["inspect", &run]).finish().await.expect(0).stdout;

    assert_eq!(seen["run"]["state"], "container_failed");
    assert_eq!((&seen["result"]["exit_code"], &seen["result"]["error_code"]), (&json!(42), &json!("container_failed")));
    assert_eq!((&seen["result"]["refused"], &seen["verdict"]["exited"]["code"]), (&json!(1), &json!(42)));
    assert_eq!(seen["request"]["argv"], json!(["sh", "-c", shell]));
    assert_eq!(
        (&seen["request"]["settings"]["timeout"], &seen["tails"]["stderr"]),
        (&json!("120s"), &json!(["cause"]))
    );
    for word in ["container_failed", "exit code 42", "cause", "timings", "1 × ", &run] {
        assert!(text.contains(word), "no {word} in {text}");
    }
    let log = sluice.command(["logs", &run, "--controller"]).finish().await.expect(0).stdout;
    let events: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("each line is JSON")).collect();
    assert!(events.iter().any(|event| event["event"] == "decided"), "{log}");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_record_has_no_secret_and_is_private() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("secret");
    let words = ["--quiet", "--run-id", &run, "--model", "m", "-e", "TOKEN=do-not-keep-me", "hello"];
    sluice.run(words).finish().await.expect(0);

    let directory = record(&sluice, &run);
    assert_eq!(fs::metadata(&directory).expect("it is there").permissions().mode() & 0o777, 0o700);
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory).expect("it is there") {
        let path = entry.expect("it can be read").path();
        let text = fs::read_to_string(&path).expect("it is text");
        assert!(!text.contains("do-not-keep-me") && !text.contains(sluice.key()), "{}: {text}", path.display());
        assert_eq!(fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600, "{}", path.display());
        names.push(path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default());
    }
    for name in ["request.json", "result.json", "messages.json", "sidecar.log", "controller.log"] {
        assert!(names.iter().any(|other| other == name), "no {name} in {names:?}");
    }
    assert_eq!(inspect(&sluice, &run).await["request"]["variables"], json!(["TOKEN"]));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_controllers_run_has_a_result() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("killed");
    let live = sluice.run(["--run-id", &run, "--", "sh", "-c", "echo begun; sleep 600"]).spawn();
    live.prints("begun").await;
    // The terminal has a line before the record has it.
    let recorded = async || sluice.command(["logs", &run]).finish().await.stdout == "begun\n";
    assert!(poll(PATIENCE, recorded).await);
    live.kill().await;
    let before = inspect(&sluice, &run).await;
    sluice.command(["sweep"]).finish().await.expect(0);

    let after = inspect(&sluice, &run).await;

    assert_eq!((&before["run"]["state"], &before["result"]), (&json!("orphaned"), &Value::Null));
    assert_eq!((&after["verdict"], &after["result"]["error_code"]), (&json!("interrupted"), &json!("internal")));
    let message = after["result"]["error_message"].as_str().unwrap_or_default();
    assert!(message.contains("killed"), "{message}");
    let logs = sluice.command(["logs", &run]).finish().await.expect(0);
    assert_eq!(logs.stdout, "begun\n");
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn an_old_record_is_removed_and_its_run_stays() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("old");
    sluice.run(["--quiet", "--run-id", &run, "--", "true"]).finish().await.expect(0);
    assert!(record(&sluice, &run).exists());

    sluice.command(["sweep"]).env("SLUICE_RECORD_KEEP", "1ms").finish().await.expect(0);

    assert!(!record(&sluice, &run).exists());
    let seen = inspect(&sluice, &run).await;
    assert_eq!((&seen["run"]["state"], &seen["request"]), (&json!("ok"), &Value::Null));
    let why = seen["no_record"].as_str().unwrap_or_default();
    assert!(why.contains("record_keep"), "{why}");
    let logs = sluice.command(["logs", &run]).finish().await.expect(1);
    assert!(logs.stderr.contains("has no record"), "{}", logs.stderr);
    let again = sluice.run(["--quiet", "--run-id", &run, "--", "true"]).finish().await.expect(125);
    assert!(again.stderr.contains("used once"), "{}", again.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn no_record_is_kept_without_a_time() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["--quiet", "--", "true"]).env("SLUICE_RECORD_KEEP", "0").finish().await.expect(0);
    // A file in the directory has the time of the last removal.
    let records = fs::read_dir(sluice.state().join("records"))
        .map_or(0, |all| all.flatten().filter(|one| one.path().is_dir()).count());
    assert_eq!(records, 0);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_cancelled_run_keeps_its_output() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let run = unique_run_id("cut");
    let live = sluice.run(["--run-id", &run, "--json", "--", "sh", "-c", "echo begun; sleep 600"]).spawn();
    sluice.started().await;
    live.signal(Signal::SIGTERM);
    live.finish().await.expect(143);
    let seen = inspect(&sluice, &run).await;
    assert_eq!((&seen["run"]["state"], &seen["result"]["exit_code"]), (&json!("cancelled"), &json!(143)));
    sluice.assert_nothing_left().await;
}
