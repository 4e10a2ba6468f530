//! The state directory: what Sluice did not make stays as it is, and commands that look write nothing.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{Sluice, Upstream};

/// Path, mode and content of everything below a directory.
fn snapshot(directory: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut open = vec![directory.to_owned()];
    while let Some(path) = open.pop() {
        let meta = fs::symlink_metadata(&path).expect("it is there");
        if meta.is_dir() {
            open.extend(fs::read_dir(&path).expect("it is ours").map(|entry| entry.expect("it is readable").path()));
        }
        let content = if meta.is_file() { fs::read(&path).expect("it is ours") } else { Vec::new() };
        found.insert(path, (meta.permissions().mode(), content));
    }
    found
}

/// Commands that only look at a RUN, each with its exit code without and with a state directory.
const LOOKS: &[(&[&str], i32, i32)] = &[
    (&["sweep", "--dry-run"], 0, 0),
    (&["ledger", "rebuild", "--check"], 2, 0),
    (&["receipts"], 2, 0),
    (&["ps", "--all"], 2, 0),
    (&["inspect", "RUN"], 2, 0),
    (&["logs", "RUN"], 2, 0),
    (&["usage"], 2, 0),
    (&["budget", "show"], 2, 0),
    (&["budget", "history"], 2, 0),
    (&["audit", "keys"], 2, 0),
    (&["audit", "verify", "RUN"], 4, 0),
    (&["audit", "show", "RUN"], 4, 0),
    (&["agents"], 0, 0),
    (&["config", "show"], 0, 0),
];

/// The words of a command that looks at this run.
fn looking<'a>(command: &[&'a str], run: &'a str) -> Vec<&'a str> {
    command.iter().map(|word| if *word == "RUN" { run } else { *word }).collect()
}

#[tokio::test]
async fn commands_that_look_write_nothing() {
    let run = unique_run_id("looked-at");
    let upstream = Upstream::json(200, json!({"data": []})).start().await;
    let sluice = Sluice::to(&upstream);
    for (command, code, _) in LOOKS.iter().chain(&[(&["preflight"][..], 0, 0)]) {
        sluice.command(looking(command, &run)).finish().await.expect(*code);
        assert!(!sluice.state().exists(), "{command:?}");
    }
    sluice.run(["-q", "--run-id", &run, "--", "true"]).finish().await.expect(0);
    // The run may have left a WAL: the first command that closes the database moves it into the file.
    sluice.command(["receipts"]).finish().await.expect(0);
    let before = snapshot(&sluice.state());

    for (command, _, code) in LOOKS.iter().chain(&[(&["preflight"][..], 0, 0)]) {
        sluice.command(looking(command, &run)).finish().await.expect(*code);
        let after = snapshot(&sluice.state());
        let names: Vec<_> =
            after.keys().chain(before.keys()).filter(|path| after.get(*path) != before.get(*path)).collect();
        assert!(names.is_empty(), "{command:?} changed {names:?}");
    }
}

#[tokio::test]
async fn commands_that_look_need_no_key() {
    let run = unique_run_id("looked-at");
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--run-id", &run, "--", "true"]).finish().await.expect(0);
    for (command, _, code) in LOOKS.iter().filter(|(command, ..)| command[0] != "config") {
        let looks =
            sluice.command(looking(command, &run)).env("SLUICE_KEY_FILE", "/nonexist").env("SLUICE_MEMORY", "1k");
        looks.finish().await.expect(*code);
    }
}

#[tokio::test]
async fn sweep_and_diff_work_without_a_key() {
    let run = unique_run_id("no-key");
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--run-id", &run, "--", "true"]).finish().await.expect(0);
    let keyless = |words: &[&str]| {
        sluice.command(words).env("SLUICE_KEY_FILE", "/nonexist").env("SLUICE_TIMEOUT", "soon").finish()
    };

    let swept = keyless(&["sweep"]).await.expect(0);
    assert_eq!(swept.stdout, "nothing is left over\n");
    let told = "open costs are not looked up, and virtual keys are not deleted: SLUICE_KEY_FILE: /nonexist: ";
    assert!(swept.stderr.contains(told), "{}", swept.stderr);
    for command in [&["diff", &run][..], &["apply", &run]] {
        let refused = keyless(command).await.expect(2);
        assert!(refused.stderr.contains("worked on no repository"), "{command:?}: {}", refused.stderr);
    }
}

#[tokio::test]
async fn a_directory_of_others_is_refused_untouched() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let shared = sluice.dir().join("shared");
    fs::create_dir(&shared).expect("there is room");
    fs::write(shared.join("thesis.txt"), "mine").expect("there is room");
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).expect("it is ours");
    let before = snapshot(&shared);
    let name = shared.to_str().expect("a test's directory is text");

    for (command, code) in [
        (&["preflight"][..], 1),
        (&["run", "--", "true"], 125),
        (&["sweep"], 1),
        (&["sweep", "--dry-run"], 1),
        (&["budget", "set", "acct-1", "1"], 1),
        (&["ledger", "rebuild"], 2),
        (&["audit", "rotate-key", "--reason", "x"], 2),
        (&["receipts"], 2),
    ] {
        let ran = sluice.command(command).args(["--state-dir", name]).env("SLUICE_STATE_DIR", name).finish().await;
        assert_eq!(ran.code, code, "{command:?}: {}", ran.stderr);
        let told = ran.stdout + &ran.stderr;
        assert!(told.contains("--state-dir"), "{command:?}: {told}");
        assert_eq!(snapshot(&shared), before, "{command:?}");
    }
}

#[tokio::test]
async fn a_directory_that_others_can_write_is_refused() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    fs::set_permissions(sluice.state(), Permissions::from_mode(0o777)).expect("it is ours");
    for command in [
        &["receipts"][..],
        &["ledger", "void", "r1/0/a", "--reason", "it is gone"],
        &["ledger", "rebuild"],
        &["prune", "--before", "0s", "--reason", "x"],
        &["reconcile"],
    ] {
        let ran = sluice.command(command).finish().await.expect(2);
        assert!(ran.stderr.contains("chmod 700"), "{command:?}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn a_lost_database_is_reported_by_each_command() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["budget", "set", "acct-1", "5"]).finish().await.expect(0);
    sluice.run(["-q", "--model", "m", "hello"]).finish().await.expect(0);
    fs::remove_file(sluice.state().join("sluice.db")).expect("it is there");

    for command in
        [&["receipts"][..], &["usage"], &["budget", "show"], &["ledger", "rebuild", "--check"], &["reconcile"]]
    {
        let ran = sluice.command(command).finish().await.expect(2);
        assert!(ran.stderr.contains("is missing") && ran.stderr.contains("sluice ledger rebuild"), "{}", ran.stderr);
    }
    for (command, code) in [
        (&["run", "-q", "--account", "other", "--model", "m", "hello"][..], 125),
        (&["sweep"], 1),
        (&["sweep", "--dry-run"], 1),
        (&["preflight"], 1),
        (&["budget", "set", "acct-1", "9"], 1),
        (&["ledger", "import", "/nope"], 1),
    ] {
        let ran = sluice.command(command).finish().await.expect(code);
        let told = ran.stdout + &ran.stderr;
        assert!(told.contains("is missing") && told.contains("sluice ledger rebuild"), "{command:?}: {told}");
        assert!(!sluice.state().join("sluice.db").exists(), "{command:?}");
    }
    sluice.command(["ledger", "rebuild"]).finish().await.expect(0);

    let shown = sluice.command(["budget", "show", "--json"]).finish().await.expect(0).value();
    assert_eq!(shown["budgets"][0]["granted_usd"], "5");
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    assert_eq!(receipts["total"]["calls"], 1);
}

#[tokio::test]
async fn a_check_without_keys_makes_no_key() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--model", "m", "hello"]).finish().await.expect(0);
    fs::remove_dir_all(sluice.state().join("keys")).expect("they are there");

    let ran = sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(1);

    assert!(ran.stderr.contains("bring back the keys"), "{}", ran.stderr);
    assert!(!sluice.state().join("keys").exists());
}
