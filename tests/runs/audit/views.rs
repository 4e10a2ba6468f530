//! `sluice audit show | tail | hash`: the views for people.

use std::fs;

use nix::sys::signal::Signal;
use sluice_contract::Hash;
use sluice_testkit::{CheckedAuditFile, Script, Sluice, Upstream};

use super::forgery::lines;
use super::{ASK, audit, finished, public_key, theirs, upstream};

/// The time of a record as it is shown.
fn time(record: &serde_json::Value) -> &str {
    record["ts"].as_str().and_then(|ts| ts.get(11..26)).expect("a record has a time")
}

#[tokio::test]
async fn show_prints_every_call_and_what_they_come_to() {
    let upstream = Upstream::queue([Script::chat("hello"), Script::error(429, "later")]).start().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let file = sluice.audit(&id);

    let shown = audit(&sluice, ["show", &id]).await.expect(0);

    let calls = file.calls();
    let ms = |at: usize| calls[at].outcome["timing_us"]["total"].as_u64().expect("a time") / 1000;
    let (one, two) = (&calls[0].intent, &calls[1].intent);
    let width = ms(0).max(ms(1)).to_string().len().max(2);
    let expected = format!(
        "run      {id}.0, account default, agent sandbox:agent, upstream {}, since {}\n\
         call  time (UTC)       call id                               model  result          in  out         cost, $  \
         {:>width$}\n   \
         1  {}  {}  m      ok              10    5       0.0000054  {:>width$}\n   \
         2  {}  {}  m      upstream_error   -    -  upstream_error  {:>width$}\n\
         refused  1 × route_not_allowed\n\
         total    2 calls, 1 refused, 1 of unknown cost; 10 tokens in, 5 out; $0.0000054\n",
        upstream.url(),
        file.open()["ts"].as_str().expect("a time"),
        "ms",
        time(one),
        calls[0].id(),
        ms(0),
        time(two),
        calls[1].id(),
        ms(1),
    );
    assert_eq!((shown.stdout.as_str(), shown.stderr.as_str()), (expected.as_str(), ""));
}

#[tokio::test]
async fn show_reports_incomplete_and_altered_files() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let bytes = fs::read(sluice.audit_path(&id)).expect("we are root");
    let lines = lines(&bytes);
    let whole = audit(&sluice, ["show", &id]).await.expect(0).stdout;

    let cut = [&lines[..5].concat()[..], &lines[5][..50]].concat();
    let cut = sluice.file("cut.jsonl", &String::from_utf8(cut).expect("UTF-8"));
    let text = String::from_utf8(bytes).expect("UTF-8");
    let altered = sluice.file("altered.jsonl", &text.replacen("\"route_not_allowed\"", "\"route_not_allowes\"", 1));

    let told = audit(&sluice, ["show", &cut]).await.expect(0).stdout;
    let rows: Vec<_> = told.lines().collect();
    assert_eq!(rows[..3], whole.lines().take(3).collect::<Vec<_>>());
    assert!(rows[3].contains(" open ") && rows[3].ends_with('-'), "{told}");
    assert_eq!(
        rows[4..],
        [
            "refused  1 × route_not_allowed",
            "total    2 calls, 1 refused, 0 of unknown cost; 10 tokens in, 5 out; $0.0000054",
            "torn     50 bytes of a last line",
            "open     the log has no end: its run goes on, or its sidecar was killed",
        ]
    );
    let told = audit(&sluice, ["show", &altered]).await.expect(1);
    let expected = "total    1 calls, 0 refused, 0 of unknown cost; 10 tokens in, 5 out; $0.0000054";
    assert_eq!(told.stdout.lines().last(), Some(expected), "what came before the altered line");
    assert!(told.stderr.starts_with(&format!("sluice: {altered}: line 4: hash: expected ")), "{}", told.stderr);
}

#[tokio::test]
async fn tail_ends_when_no_writer_is_left() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let whole = fs::read_to_string(sluice.audit_path(&id)).expect("the run has a log");
    let begun: String = whole.split_inclusive('\n').take(2).collect();
    let path = sluice.file("begun.jsonl", &begun);

    let tail = sluice.command(["audit", "tail", &path, "--json"]).finish().await.expect(3);

    assert_eq!(tail.stdout, begun);
    assert!(tail.stderr.contains("no sidecar writes it any more"), "{}", tail.stderr);
}

#[tokio::test]
async fn tail_follows_a_run_and_ends_with_it() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let go = |name: &str| format!("until [ -e /workspace/{name} ]; do sleep 0.01; done");
    let script = format!("{ASK} {}; ask >/dev/null; {}", go("one"), go("two"));
    let live = sluice.run(["-q", "--", "sh", "-c", &script]).spawn();
    sluice.started().await;
    let run = sluice.runs().remove(0);
    let id = run.file_name().expect("it has a name").to_string_lossy().trim_end_matches(".0").to_owned();
    let path = sluice.audit_path(&id);

    let tail = sluice.command(["audit", "tail", &id]).spawn();
    let json = sluice.command(["audit", "tail", &id, "--json"]).spawn();
    let stopped = sluice.command(["audit", "tail", &id]).spawn();
    let head = "\"$@\" | { head -n 1; exec <&-; echo gone; }; echo \"codes ${PIPESTATUS[*]}\"";
    let head = ["bash", "-c", head, "bash"];
    let head = sluice.command(["audit", "tail", &id]).wrapper(head).spawn();
    stopped.prints("account default").await;
    stopped.signal(Signal::SIGINT);
    stopped.finish().await.expect(-2);
    tail.prints("open ").await;
    head.prints("gone\n").await;
    assert!(!tail.stdout().contains("intent"));
    fs::write(run.join("work/one"), "").expect("the workspace is ours too");
    tail.prints("outcome").await;
    // The reader took the first line, and closed the pipe.
    assert!(head.finish().await.expect(0).stdout.ends_with("codes 141 0\n"));
    assert!(tail.is_running() && live.is_running());
    fs::write(run.join("work/two"), "").expect("the workspace is ours too");

    live.finish().await.expect(0);
    let tail = tail.finish().await.expect(0);
    let json = json.finish().await.expect(0);
    let file = CheckedAuditFile::read(&path);
    let times: Vec<_> = file.lines().iter().map(time).collect();
    let expected = format!(
        "{}  open      account default, upstream {}\n\
         {}  intent    1 POST /v1/chat/completions, model m\n\
         {}  outcome   1 ok, 15 tokens, $0.0000054\n\
         {}  close     1 calls, 0 refused, $0.0000054: sigterm\n",
        times[0],
        upstream.url(),
        times[1],
        times[2],
        times[3],
    );
    assert_eq!((tail.stdout, tail.stderr), (expected, String::new()));
    assert_eq!(json.bytes, fs::read(&path).expect("we are root"));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_hash_kept_elsewhere_is_a_witness() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let id = finished(&sluice).await;
    let path = sluice.audit_path(&id);
    let bytes = fs::read(&path).expect("we are root");

    let kept = audit(&sluice, ["hash", &id]).await.expect(0).stdout;

    assert_eq!(kept, format!("6:{}\n", Hash::of(lines(&bytes).last().expect("it has lines"))));
    let key = public_key(&sluice).await;
    assert_eq!(theirs(std::slice::from_ref(&path), &["--key", &key, "--against", kept.trim()]), [(0, 0)]);
    let other = kept.trim().replace("6:", "5:");
    assert_eq!(theirs(&[path], &["--key", &key, "--against", &other]), [(1, 6)]);
    let empty = sluice.file("empty.jsonl", "");
    let told = audit(&sluice, ["hash", &empty]).await.expect(4);
    assert_eq!((told.stdout.as_str(), told.stderr.as_str()), ("", "sluice: the file has no line\n"));
}

#[tokio::test]
async fn the_control_log_is_only_verified() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    let empty = audit(&sluice, ["verify", "control"]).await.expect(4).stdout;
    assert!(empty.starts_with("control: unreadable: nothing is recorded yet: there is no control log "), "{empty}");
    sluice.command(["budget", "set", "acct-1", "25"]).finish().await.expect(0);
    audit(&sluice, ["verify", "control"]).await.expect(0);
    assert_eq!(theirs(&[sluice.state().join("audit/control.jsonl")], &[]), [(4, 0)], "the page of Python knows it");
    for command in ["show", "tail", "hash"] {
        let told = audit(&sluice, [command, "control"]).await.expect(2);
        assert!(told.stderr.contains("sluice audit verify control checks it"), "{command}: {}", told.stderr);
        assert_eq!(told.stdout, "", "{command}");
    }
}

#[tokio::test]
async fn a_missing_file_is_reported_with_a_hint() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    for command in ["show", "tail", "hash"] {
        let told = audit(&sluice, [command, "r1"]).await.expect(4);
        let said = format!(
            "sluice: cannot read r1: there is no such file, and there is no database {}; name the state directory with \
             --state-dir\n",
            sluice.state().join("sluice.db").display()
        );
        assert_eq!((told.stdout.as_str(), told.stderr), ("", said), "{command}");
    }
    for command in [&["keys"][..], &["rotate-key", "--reason", "x"]] {
        let told = audit(&sluice, command).await.expect(2);
        let said = format!(
            "sluice: {} is not a state directory of sluice; name it with --state-dir\n",
            sluice.state().display()
        );
        assert_eq!((told.stdout.as_str(), told.stderr), ("", said), "{command:?}");
    }
    assert!(!sluice.state().exists(), "who only asks makes nothing");
    // A run id means the last of two attempts, and not a file of that name in the working directory.
    let id = finished(&sluice).await;
    sluice.file(&id, "anybody's");
    let first = sluice.audit_path(&id).display().to_string();
    assert!(audit(&sluice, ["verify", &id]).await.expect(0).stdout.starts_with(&first));
    let third = first.replace(".0.jsonl", ".2.jsonl");
    fs::copy(&first, &third).expect("we are root");
    assert!(audit(&sluice, ["verify", &id]).await.expect(1).stdout.starts_with(&third));
}

#[tokio::test]
async fn a_unique_beginning_of_an_id_is_enough() {
    let upstream = upstream().await;
    let sluice = Sluice::to(&upstream);
    let (id, other) = (finished(&sluice).await, finished(&sluice).await);
    let beginning = &id[..id.len() - 1];
    for command in ["verify", "show", "tail", "hash"] {
        let whole = audit(&sluice, [command, &id]).await.expect(0).stdout;
        assert_eq!(audit(&sluice, [command, beginning]).await.expect(0).stdout, whole, "{command}");
        let several = audit(&sluice, [command, "r"]).await.expect(4);
        let told = several.stdout + &several.stderr;
        assert!(told.contains("'r' is the beginning of several runs: ") && told.contains(&other), "{command}: {told}");
        let unknown = audit(&sluice, [command, "nope"]).await.expect(4);
        let told = unknown.stdout + &unknown.stderr;
        assert!(told.contains("there is no such file, and there is no run 'nope'; "), "{command}: {told}");
    }
    // A file of that name takes precedence over a run, and it is not an audit file.
    sluice.file(beginning, "anybody's\n");
    let named = audit(&sluice, ["verify", beginning]).await.expect(4).stdout;
    assert!(named.starts_with(&format!("{beginning}: not an audit file")), "{named}");
    fs::remove_file(sluice.audit_path(&other)).expect("we are root");
    let removed = audit(&sluice, ["show", &other]).await.expect(4).stderr;
    assert!(removed.contains(": there is no audit file ") && removed.contains(&other), "{removed}");
}

#[tokio::test]
async fn two_high_costs_have_one_total_everywhere() {
    // Each cost fits in an i64 of nano-USD, and their sum does not.
    let cost = "x-litellm-response-cost";
    let edit = move |script: Script| script.without_header(cost).header(cost, "9000000000");
    let upstream = Upstream::provider("hello").edit(edit).start().await;
    let sluice = Sluice::to(&upstream);
    let script = format!("{ASK} ask >/dev/null; ask >/dev/null");
    let id = sluice.run(["--json", "--", "sh", "-c", &script]).finish().await.expect(0).json().run_id;

    let verified = audit(&sluice, ["verify", &id]).await.expect(0).stdout;
    assert!(verified.contains(": complete: 6 lines"), "{verified}");
    assert!(verified.contains(", 2 calls, $18000000000, "), "{verified}");
    let key = public_key(&sluice).await;
    assert_eq!(theirs(&[sluice.audit_path(&id)], &["--key", &key]), [(0, 0)]);
    let shown = audit(&sluice, ["show", &id]).await.expect(0).stdout;
    assert!(shown.ends_with("; $18000000000\n"), "{shown}");
    for command in ["usage", "receipts"] {
        let value = sluice.command([command, "--run", &id, "--json"]).finish().await.expect(0).value();
        assert_eq!(value["total"]["cost_usd"], "18000000000", "{command}: {value}");
    }
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}
