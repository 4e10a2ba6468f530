//! Commands of an operator are recorded in the control log before they take effect.

use serde_json::Value;
use sluice_testkit::{Sluice, Upstream};

use crate::clone::{COMMIT, forge};
use crate::repo::in_repository;

/// The lines of the control log: operation, object and result of each.
fn lines(sluice: &Sluice) -> Vec<[String; 3]> {
    let log = std::fs::read_to_string(sluice.state().join("audit/control.jsonl")).unwrap_or_default();
    let text = |line: &Value, name: &str| line[name].as_str().unwrap_or_default().to_owned();
    let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).expect("a line is an object"));
    lines.map(|line| ["operation", "object", "result"].map(|name| text(&line, name))).collect()
}

/// A run with a branch that no one has published. Returns its id and the head of the branch.
async fn run_with_branch(sluice: &Sluice) -> (String, String) {
    let url = format!("file://{}#main", forge(sluice).display());
    let report = sluice.run(["--json", "--repo", &url]).args(in_repository(COMMIT)).finish().await.expect(0).json();
    let git = report.git.clone().unwrap_or_default();
    (report.run_id.clone(), git["head"].as_str().expect("a commit").to_owned())
}

/// Leaves a container and a sidecar behind.
async fn leave_a_run(sluice: &Sluice) {
    let live = sluice.run(["--", "sh", "-c", "echo started; sleep 600"]).spawn();
    live.prints("started").await;
    live.kill().await;
}

#[tokio::test]
async fn commands_that_change_something_are_recorded_first() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let (run, head) = run_with_branch(&sluice).await;
    let run = run.as_str();
    let key = include_str!("../../proxy/contract/tests/golden/key.pub").trim();
    leave_a_run(&sluice).await;
    let mut before = lines(&sluice);
    assert_eq!(before, [[""; 3]; 0], "runs are in their own audit files");

    for (words, operation, object, succeeds) in [
        (vec!["sweep"], "sweep", "", true),
        (vec!["budget", "set", "acct-1", "25"], "budget.set", "acct-1", true),
        (vec!["budget", "add", "acct-1", "5"], "budget.add", "acct-1", true),
        (vec!["budget", "remove", "acct-1"], "budget.remove", "acct-1", true),
        (vec!["budget", "add", "acct-1", "5"], "budget.add", "acct-1", false),
        (vec!["budget", "confirm"], "budget.confirm", "", true),
        (vec!["audit", "rotate-key", "--reason", "a test"], "audit.rotate_key", "", true),
        (vec!["audit", "import-key", key], "audit.import_key", "", true),
        (vec!["prune", "--before", "2026-01-01", "--reason", "a test"], "prune", "", true),
        // The upstream has no spend log.
        (
            vec!["reconcile", "--run", run, "--correct", "--reason", "a test", "--no-wait"],
            "reconcile.correct",
            run,
            false,
        ),
        (vec!["push", run, "--head", &head], "git.publish", run, true),
        (vec!["pr", run], "git.pull_request", run, true),
        // The project does not allow merges.
        (vec!["merge", run, "--head", &head], "git.merge", run, false),
    ] {
        let ran = sluice.command(words.iter().copied()).finish().await;

        assert_eq!(ran.code == 0, succeeds, "{words:?}: {}", ran.stderr);
        let after = lines(&sluice);
        let seq = before.len().to_string();
        let mut expected = vec![[operation, object, "accepted"].map(str::to_owned)];
        expected.extend((!succeeds).then(|| [operation, &seq, "failed"].map(str::to_owned)));
        assert_eq!(after[before.len()..], expected, "{words:?}: {}{}", ran.stdout, ran.stderr);
        before = after;
    }
    sluice.command(["sweep"]).finish().await.expect(0);
    sluice.command(["prune", "--before", "2026-01-01", "--dry-run"]).finish().await.expect(0);
    assert_eq!(lines(&sluice), before, "what changes nothing has no line");
    sluice.command(["audit", "verify", "control"]).finish().await.expect(0);
}

#[tokio::test]
async fn what_cannot_be_undone_needs_a_reason() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    for words in [&["audit", "rotate-key"][..], &["prune", "--before", "0s"], &["reconcile", "--correct"]] {
        let refused = sluice.command(words).finish().await.expect(2);
        assert!(refused.stderr.contains("--reason <TEXT>"), "{words:?}: {}", refused.stderr);
        let blank = sluice.command(words).args(["--reason", " "]).finish().await.expect(2);
        assert!(blank.stderr.contains("says why"), "{words:?}: {}", blank.stderr);
    }
    assert_eq!(lines(&sluice), [[""; 3]; 0], "nothing was done");

    sluice.command(["audit", "rotate-key", "--reason", "a laptop was lost"]).finish().await.expect(0);
    let log = std::fs::read_to_string(sluice.state().join("audit/control.jsonl")).expect("it is there");
    assert!(log.contains(r#""reason":"a laptop was lost""#), "{log}");
}

#[tokio::test]
async fn nothing_changes_when_the_log_takes_no_line() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["budget", "set", "acct-1", "25"]).finish().await.expect(0);
    let log = sluice.state().join("audit/control.jsonl");
    std::fs::write(&log, "{}\n").expect("it is ours");

    let refused = sluice.command(["budget", "set", "acct-1", "50"]).finish().await;

    assert!(refused.code != 0 && refused.stderr.contains("control.jsonl"), "{}", refused.stderr);
    let shown = sluice.command(["budget", "show", "acct-1", "--json"]).finish().await.expect(0).value();
    assert_eq!(shown["budgets"][0]["granted_usd"], "25", "{shown}");
}
