//! The command line over a daemon: on its host, and over TCP with a token.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use sluice_testkit::controller::{Daemon, FinishedCommand};
use sluice_testkit::schemas;

use super::*;

pub(super) const GO: &str = "while [ ! -e go ]; do sleep 0.05; done";

/// Runs a command that finds the daemon, and expects an exit code.
pub(super) async fn ran(daemon: &Daemon<'_>, words: &[&str], code: i32) -> FinishedCommand {
    daemon.command(words).finish().await.expect(code)
}

/// Creates a run with `run -d`, and returns its id.
pub(super) async fn detached(daemon: &Daemon<'_>, words: &[&str]) -> String {
    let words = [&["run", "-d", "--model", "m"], words].concat();
    ran(daemon, &words, 0).await.stdout.trim().to_owned()
}

/// Returns the faults of objects against their schemas, without the schemas that are not among them.
pub(crate) async fn faults(objects: &[(&str, Value)]) -> Vec<String> {
    let cases: Vec<_> =
        objects.iter().map(|(schema, object)| json!({ "schema": schema, "case": schema, "object": object })).collect();
    let faults = schemas::faults(&cases).await;
    faults.lines().filter(|line| !line.ends_with("no case has this schema")).map(str::to_owned).collect()
}

#[tokio::test]
async fn a_detached_run_is_followed_to_its_exit_code() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{CALL}; echo out; echo err >&2; {GO}; exit 7");
    let flags =
        ["--name", "nightly", "--label", "team=core", "--env", "A=1", "--memory", "64m", "--", "sh", "-c", &script];
    let id = detached(&daemon, &flags).await;
    let logs = daemon.command(["logs", "-f", "nightly"]).spawn();
    let events = daemon.command(["events", "-f", "nightly", "--json"]).spawn();
    let waiting = daemon.command(["wait", "nightly", "--json"]).spawn();
    logs.prints("out").await;

    let listed = ran(&daemon, &["ps", "--json"], 0).await.value();
    let inspected = ran(&daemon, &["inspect", "nightly", "--json"], 0).await.value();
    let shown = ran(&daemon, &["inspect", "nightly"], 0).await.stdout;
    go(&sluice, &id);
    let logs = logs.finish().await.expect(7);
    let waited = waiting.finish().await.expect(7).value();
    let events = events.finish().await.expect(0);

    let row = &listed["runs"][0];
    assert_eq!((&row["state"], &row["name"], &row["driver"]), (&json!("RUNNING"), &json!("nightly"), &json!("daemon")));
    assert_eq!(inspected["sandbox"]["labels"], json!({"team": "core"}), "{inspected}");
    assert!(!shown.lines().any(|line| line.trim_end() == "settings"), "{shown}");
    assert!(shown.contains(" s so far; it goes on or has no record of its end\n"), "{shown}");
    assert_eq!(logs.stdout, "out\n");
    assert!(logs.stderr.starts_with("err\n") && logs.stderr.contains("container_failed"), "{}", logs.stderr);
    assert_eq!(waited["runs"][0]["failure_code"], "container_failed", "{waited}");
    assert_eq!((&waited["ok"], &waited["error_code"]), (&json!(false), &json!("container_failed")));
    let seen: Vec<Value> = events.stdout.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert_eq!(states(&seen), ["CREATING", "RUNNING", "COMPLETING", "FAILED"]);
    let found = faults(&[("ps", listed), ("inspect", inspected), ("wait", waited)]).await;
    assert!(found.is_empty(), "{found:?}");
    let shown = ran(&daemon, &["ps", "--all"], 0).await.stdout;
    assert!(shown.contains("container_failed"), "{shown}");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_is_cancelled_failed_and_retried() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let sleep = ["--", "sleep", "600"];
    let [first, second, third] = [
        detached(&daemon, &[&["--name", "first"], &sleep[..]].concat()).await,
        detached(&daemon, &sleep).await,
        detached(&daemon, &sleep).await,
    ];
    for id in [&first, &second, &third] {
        daemon.reaches(id, "RUNNING").await;
    }

    let cancelled = ran(&daemon, &["cancel", "first", "--wait", "--json"], 0).await.value();
    ran(&daemon, &["wait", &first], 143).await;
    ran(&daemon, &["cancel", "first"], 1).await;
    let failed = ran(&daemon, &["fail", &second[..10], "--reason", "it loops", "--json"], 0).await;
    ran(&daemon, &["wait", &second], 1).await;
    let retried = ran(&daemon, &["retry", &second, "--json"], 0).await.value();
    daemon.reaches(&second, "RUNNING").await;
    let all = ran(&daemon, &["cancel", "--all", "--wait", "--json"], 0).await.value();
    ran(&daemon, &["wait", "--timeout", "60s", &second, &third], 143).await;

    assert_eq!(cancelled["state"], "over", "{cancelled}");
    assert!(failed.stderr.contains(&format!("run {second}")), "the full id is shown: {}", failed.stderr);
    assert_eq!((&retried["run"], &retried["state"]), (&json!(format!("{second}.1")), &json!("PENDING")));
    assert_eq!(all["runs"].as_array().map(Vec::len), Some(2), "{all}");
    let found = faults(&[("cancel", cancelled), ("fail", failed.value()), ("retry", retried), ("cancel", all)]).await;
    assert!(found.is_empty(), "{found:?}");
    assert_eq!(sluice.containers().await, [""; 0]);
}

#[tokio::test]
async fn agents_are_registered_and_suspended() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;

    let added = ran(&daemon, &["agent", "add", "reviewer", "--account", "acct-1", "--json"], 0).await.value();
    // An agent without a run so far can be suspended too.
    ran(&daemon, &["agent", "suspend", "reviewer"], 0).await;
    ran(&daemon, &["agent", "resume", "reviewer"], 0).await;
    let id = detached(&daemon, &["--as", "reviewer", "--", "true"]).await;
    ran(&daemon, &["wait", &id], 0).await;
    // And one during its run, which goes on.
    let live = detached(&daemon, &["--as", "reviewer", "--", "sh", "-c", GO]).await;
    ran(&daemon, &["agent", "suspend", "reviewer"], 0).await;
    let connected = ran(&daemon, &["agent", "resume", "reviewer", "--json"], 0).await.value();
    ran(&daemon, &["cancel", &live], 0).await;
    ran(&daemon, &["wait", &live], 143).await;
    let suspended = ran(&daemon, &["agent", "suspend", "reviewer", "--json"], 0).await.value();
    let refused = ran(&daemon, &["run", "-d", "--as", "reviewer", "--model", "m", "--", "true"], 125).await;
    let resumed = ran(&daemon, &["agent", "resume", "reviewer", "--json"], 0).await.value();
    let listed = ran(&daemon, &["agent", "ls", "--json"], 0).await.value();
    let removed = ran(&daemon, &["agent", "rm", "reviewer", "--json"], 0).await.value();

    assert_eq!(added["agent"]["billing_account_id"], "acct-1", "{added}");
    assert_eq!(connected["agent"]["state"], "CONNECTED", "{connected}");
    assert_eq!((&suspended["agent"]["state"], &resumed["agent"]["state"]), (&json!("SUSPENDED"), &json!("IDLE")));
    assert!(refused.stderr.contains("suspended") && refused.stdout.is_empty(), "{}", refused.stderr);
    assert_eq!(listed["agents"][0]["agent_id"], "reviewer", "{listed}");
    ran(&daemon, &["agent", "show", "reviewer"], 2).await;
    let objects = [added, suspended, resumed, listed, removed].map(|object| ("agent", object));
    let found = faults(&objects).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_token_is_enough_for_another_host() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let create = ["token", "create", "--owner", "alice", "--role", "owner", "--account", "acct-1"];
    let token = sluice.command(create).finish().await.expect(0).stdout;
    let file = sluice.file("alice.token", &token);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let url = format!("unix:{}", daemon.sockets().join("api.sock").display());
    let remote = async |words: &[&str], code| {
        // The command gets everything from the daemon.
        let (words, flags) =
            words.iter().position(|word| *word == "--").map_or((words, &[][..]), |at| words.split_at(at));
        let command = sluice.command(words).args(["--server", &url, "--token-file", &file]).args(flags);
        command.env("SLUICE_STATE_DIR", "/nowhere").finish().await.expect(code)
    };

    let readable = remote(&["ps"], 2).await;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let script = format!("{CALL}; echo done");
    let id = remote(&["run", "-d", "--name", "far", "--model", "m", "--", "sh", "-c", &script], 0).await.stdout;
    let id = id.trim();
    let logs = remote(&["logs", "-f", "far"], 0).await;
    let waited = remote(&["wait", "far", "--json"], 0).await.value();
    let listed = remote(&["ps", "--all", "--json"], 0).await.value();
    let inspected = remote(&["inspect", &id[..12], "--json"], 0).await.value();
    let shown = remote(&["inspect", "far"], 0).await.stdout;
    let events = remote(&["events", "far", "--json"], 0).await.value();
    let trajectory = remote(&["events", "far", "--trajectory", "--json"], 0).await.value();
    let receipts = remote(&["receipts", "--run", id, "--json"], 0).await.value();
    let usage = remote(&["usage", "--json"], 0).await.value();
    let followed = remote(&["events", "far", "-f", "--type", "llm.*"], 0).await.stdout;

    assert!(readable.stderr.contains("chmod 600"), "{}", readable.stderr);
    assert_eq!(logs.stdout, "done\n");
    assert_eq!((&listed["runs"][0]["calls"], &listed["runs"][0]["owner"]), (&json!(1), &json!("alice")), "{listed}");
    assert_eq!(inspected["tails"]["stdout"], json!(["done"]), "{inspected}");
    assert!(shown.contains("the audit file of this run is on the host of ") && !shown.contains("goes on"), "{shown}");
    assert_eq!(receipts["receipts"].as_array().map(Vec::len), Some(1), "{receipts}");
    assert_eq!(usage["total"]["calls"], 1, "{usage}");
    assert_eq!(followed.lines().count(), 2, "{followed}");
    let objects = [
        ("wait", waited),
        ("ps", listed),
        ("inspect", inspected),
        ("events", events),
        ("events", trajectory),
        ("receipts", receipts),
        ("usage", usage),
    ];
    let found = faults(&objects).await;
    assert!(found.is_empty(), "{found:?}");
    // A run without calls cost nothing.
    remote(&["run", "-d", "--name", "idle", "--model", "m", "--", "true"], 0).await;
    remote(&["wait", "idle"], 0).await;
    let idle = remote(&["inspect", "idle", "--json"], 0).await.value();
    assert_eq!((&idle["run"]["calls"], &idle["run"]["cost_usd"]), (&json!(0), &json!("0")), "{idle}");
    for words in [&["logs", "nope"][..], &["wait", "nope"], &["inspect", "nope"], &["cancel", "nope"]] {
        remote(words, 2).await;
    }
    let refused = remote(&["agent", "add", "x", "--account", "acct-2", "--json"], 1).await;
    assert!(refused.stderr.contains("admin_only"), "{}", refused.stderr);
    sluice.command(["run", "-d", "--server", "unix:/nowhere.sock", "--", "true"]).finish().await.expect(125);
}

#[tokio::test]
async fn followers_outlive_a_killed_daemon() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let sockets = daemon.sockets().to_owned();
    let api = format!("unix:{}", sockets.join("admin.sock").display());
    let script = format!("echo begun; {GO}; echo over");
    let id = detached(&daemon, &["--", "sh", "-c", &script]).await;
    let followers: Vec<_> = [&["logs", "-f", &id][..], &["logs", "-f", &id, "--server", &api]]
        .into_iter()
        .map(|words| daemon.command(words).spawn())
        .collect();
    for follower in &followers {
        follower.prints("begun").await;
    }
    // The command gets the beginning of an id, and prints the whole id once it has found the run.
    let waiting = daemon.command(["wait", &id[..id.len() - 1], "--server", &api]).spawn();
    waiting.says(&format!("run {id}")).await;
    let events = daemon.command(["events", "-f", &id, "--json", "--server", &api]).spawn();
    events.prints("RUNNING").await;

    daemon.kill().await;
    sluice.command(["cancel", &id]).finish().await.expect(125);
    go(&sluice, &id);
    let daemon = sluice.serve_in(&sockets, [""; 0]).await;

    for follower in followers {
        assert_eq!(follower.finish().await.expect(0).stdout, "begun\nover\n");
    }
    waiting.finish().await.expect(0);
    let seen = events.finish().await.expect(0).stdout;
    let seen: Vec<Value> = seen.lines().map(|line| serde_json::from_str(line).expect("an event")).collect();
    assert_eq!(states(&seen), ["CREATING", "RUNNING", "COMPLETING", "COMPLETED"], "each event comes once");
    daemon.stop().await;
}

#[tokio::test]
async fn commands_without_a_daemon_say_what_they_need() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for words in [&["run", "-d", "--", "true"][..], &["retry", "x"], &["exec", "x", "--", "true"], &["cancel", "--all"]]
    {
        let refused = sluice.command(words).finish().await.expect(125);
        assert!(refused.stderr.contains("start sluice serve"), "{words:?}: {}", refused.stderr);
    }
    let flags = ["run", "-d", "--repo", ".", "--volume", "/a:/b", "--allow-remote-media", "--", "true"];
    let refused = sluice.command(flags).finish().await.expect(125);
    for flag in ["--repo", "--volume", "--allow-remote-media"] {
        assert!(refused.stderr.contains(flag), "{}", refused.stderr);
    }
    sluice.run(["--name", "x", "--", "true"]).finish().await.expect(125);
    sluice.run(["--server", "http://127.0.0.1:1", "--", "true"]).finish().await.expect(125);
}

#[tokio::test]
async fn lines_are_selected_here_and_over_tcp() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id =
        detached(&daemon, &["--name", "box", "--", "sh", "-c", "echo one; echo two >&2; echo three; printf end"]).await;
    ran(&daemon, &["wait", &id], 0).await;
    let token = http::token(&sluice, "root", "admin", "acct-1").await;
    let (server, file) = (format!("http://{}", http::address(&daemon)), sluice.file("token", &token));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let remote = ["--server", &server, "--token-file", &file];
    for place in [&[][..], &remote] {
        let shown = async |flags: &[&str]| {
            let ended = ran(&daemon, &[&["logs", "box"], flags, place].concat(), 0).await;
            (ended.stdout, ended.stderr.lines().filter(|line| !line.contains("run r_")).collect::<String>())
        };
        assert_eq!(shown(&["--grep", "t"]).await, ("three\n".to_owned(), "two".to_owned()), "{place:?}");
        assert_eq!(shown(&["--stdout", "--tail", "2"]).await.0, "three\nend", "{place:?}");
        assert_eq!(shown(&["--tail", "1", "-f"]).await.0, "end", "{place:?}");
        assert_eq!(shown(&["--since", "1h"]).await.0, "one\nthree\nend", "{place:?}");
        let objects = shown(&["--json", "--grep", "two"]).await.0;
        let object: Value = serde_json::from_str(&objects).expect("one object in a line");
        assert_eq!((&object["stream"], &object["text"]), (&json!("stderr"), &json!("two\n")), "{place:?}");
        assert_eq!(shown(&["--since", "2030-01-01"]).await, (String::new(), String::new()), "{place:?}");
    }
}

#[tokio::test]
async fn two_runs_are_compared_and_live_ones_shown() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let first = detached(&daemon, &["--", "sh", "-c", CALL]).await;
    let second = detached(&daemon, &["--", "sh", "-c", &format!("{CALL}; {CALL}; exit 3")]).await;
    ran(&daemon, &["wait", &first], 0).await;
    ran(&daemon, &["wait", &second], 3).await;
    let live = detached(&daemon, &["--name", "live", "--", "sh", "-c", GO]).await;
    daemon.reaches(&live, "RUNNING").await;

    let here = ran(&daemon, &["compare", &first, &second, "--json"], 0).await.value();
    let text = ran(&daemon, &["compare", &first, &second], 0).await.stdout;
    let socket = format!("unix:{}", daemon.sockets().join("admin.sock").display());
    let remote = ran(&daemon, &["compare", &first, &second, "--json", "--server", &socket], 0).await.value();
    let top = ran(&daemon, &["top", "--json"], 0).await.value();
    let shown = ran(&daemon, &["top"], 0).await.stdout;
    go(&sluice, &live);
    ran(&daemon, &["wait", &live], 0).await;
    let none = ran(&daemon, &["top", "--server", &socket], 0).await.stdout;

    for compared in [&here, &remote] {
        let [one, two] = [&compared["runs"][0], &compared["runs"][1]];
        assert_eq!((&one["exit_code"], &two["exit_code"]), (&json!(0), &json!(3)), "{compared}");
        assert_eq!((&one["events"]["llm.call"], &two["events"]["llm.call"]), (&json!(1), &json!(2)), "{compared}");
        assert_eq!((&one["calls"], &compared["difference"]["calls"]), (&json!(1), &json!(1)), "{compared}");
        assert_eq!(two["failure_code"], "container_failed", "{compared}");
    }
    assert!(text.contains("event llm.call") && text.contains("container_failed"), "{text}");
    assert_eq!((&top["runs"][0]["name"], &top["runs"][0]["state"]), (&json!("live"), &json!("RUNNING")), "{top}");
    assert!(shown.contains("live") && !shown.contains('\u{1b}'), "{shown}");
    assert!(none.contains("no run is live"), "{none}");
    let found = faults(&[("compare", here), ("compare", remote), ("top", top)]).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_run_of_a_daemon_is_made_again_there() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let program = ["--", "sh", "-c", "echo $WORD"];
    let flags = ["--label", "team=core", "--env", "WORD=one", "--memory", "64m", "--priority", "3", "--keep-workspace"];
    let first = detached(&daemon, &[&["--name", "nightly"], &flags[..], &program].concat()).await;
    daemon.reaches(&first, "COMPLETED").await;

    let missing = ran(&daemon, &["rerun", "nightly"], 125).await;
    let named = ran(&daemon, &["rerun", "nightly", "--run-id", "r1", "--json"], 125).await;
    let again = daemon.command(["rerun", "nightly", "--model", "other", "--json"]).env("WORD", "two").finish().await;
    let again = again.expect(0).value();

    assert!(missing.stderr.contains("set WORD in the environment"), "{}", missing.stderr);
    assert!(named.stderr.contains("leave out --run-id"), "{}", named.stderr);
    // Bug: a rerun at a daemon that failed printed no object.
    let refused = named.value();
    assert_eq!((&refused["error_code"], &refused["run_id"]), (&json!("creation_failed"), &Value::Null), "{refused}");
    let second = again["sandbox_id"].as_str().expect("an id");
    let run = daemon.reaches(second, "COMPLETED").await;
    assert_ne!(second, first);
    assert_eq!(daemon.logged(second, 1).await[0]["text"], "two\n");
    let earlier = daemon.run(&first).await;
    for name in
        ["graph_id", "image", "labels", "limits", "priority", "env_names", "on_cap", "metadata", "keep_workspace"]
    {
        assert_eq!(run[name], earlier[name], "{name}");
    }
    assert_eq!((&run["models"], &run["name"]), (&json!(["other"]), &Value::Null), "{run}");
}
