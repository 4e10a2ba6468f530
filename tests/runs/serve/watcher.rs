//! Changed files of runs as the host sees them, and the transcript that a killed run leaves.

use std::time::Instant;

use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, poll};

use super::*;

/// The events about changed files that the daemon reports.
async fn edits(daemon: &Daemon<'_>, id: &str) -> Vec<Value> {
    let events = daemon.events(id).await;
    let is_edit = |event: &Value| event["event_type"] == "agent.file_edited" && event["source"] == "system";
    events.into_iter().filter(is_edit).collect()
}

/// Waits for an edit of a file.
async fn edit(daemon: &Daemon<'_>, id: &str, path: &str, change: &str) -> Value {
    let mut found = None;
    let is_found = poll(PATIENCE, async || {
        let all = edits(daemon, id).await;
        let is_it =
            |event: &&Value| event["event_data"]["file_path"] == path && event["event_data"]["change_type"] == change;
        found = all.iter().rev().find(is_it).cloned();
        found.is_some()
    });
    assert!(is_found.await, "{path} is not {change}");
    found.expect("it was found")
}

async fn full_diff(daemon: &Daemon<'_>, id: &str, event: &Value) -> String {
    let event = event["id"].as_str().expect("an id");
    daemon.get(&format!("/api/v1/sandboxes/{id}/file-diffs/{event}")).await.expect(200).text()
}

#[tokio::test]
async fn edits_of_any_program_are_events_with_diffs() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    // A new file comes with its content: one that is written in place may be seen twice, empty and full.
    let script = r#"
        wait() { while [ ! -e $1 ]; do sleep 0.05; done; }
        mkdir -p src .sluice; printf 'one\ntwo\n' > .sluice/a; mv .sluice/a src/a; wait 1
        python3 -c 'open("src/a", "a").write("three\n")'; wait 2
        sed -i s/one/1/ src/a; wait 3
        rm src/a; wait 4
        echo last > src/last
    "#;
    let id = daemon.create(shell(script)).await;
    let created = edit(&daemon, &id, "/workspace/src/a", "created").await;
    touch(&sluice, &id, "1");
    let appended = edit(&daemon, &id, "/workspace/src/a", "modified").await;
    touch(&sluice, &id, "2");
    let is_replaced =
        poll(PATIENCE, async || edits(&daemon, &id).await.iter().any(|it| it["event_data"]["lines_removed"] == 1));
    assert!(is_replaced.await, "a file that is renamed over it is a change");
    touch(&sluice, &id, "3");
    let deleted = edit(&daemon, &id, "/workspace/src/a", "deleted").await;
    touch(&sluice, &id, "4");
    let ended = daemon.ended(&id).await;
    assert_eq!(ended["outcome"], "success", "{ended}");
    // No wait is needed: the daemon looks for the last time before the end.
    let last: Vec<_> = edits(&daemon, &id).await;
    assert!(last.iter().any(|it| it["event_data"]["file_path"] == "/workspace/src/last"), "{last:?}");

    let lines = |event: &Value| {
        let data = &event["event_data"];
        (data["lines_added"].as_u64(), data["lines_removed"].as_u64())
    };
    assert_eq!([&created, &appended, &deleted].map(lines), [(2, 0), (1, 0), (0, 3)].map(|(a, b)| (Some(a), Some(b))));
    let diff = full_diff(&daemon, &id, &appended).await;
    assert!(diff.starts_with("diff --git a/src/a b/src/a\n") && diff.contains("\n+three\n"), "{diff}");
    assert_eq!(appended["event_data"]["diff_preview"], diff);
    assert!(!last.iter().any(|it| it.to_string().contains(".sluice")), "{last:?}");
    let states = daemon.events(&id).await;
    let at = |found: &dyn Fn(&Value) -> bool| states.iter().position(found).expect("it is there");
    let end = at(&|event| event["event_data"]["to"] == "COMPLETED");
    assert!(at(&|event| event["event_data"]["file_path"] == "/workspace/src/last") < end, "before the end");
}

#[tokio::test]
async fn a_new_daemon_goes_on_watching() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    // As above: each new file is seen once.
    let script = "mkdir -p .sluice; cd .sluice; echo one > a; echo x > quiet; mv a quiet ..; cd ..; \
                  while [ ! -e away ]; do sleep 0.05; done; echo two > a; echo new > b; \
                  while [ ! -e go ]; do sleep 0.05; done; echo three > a";
    let id = daemon.create(shell(script)).await;
    edit(&daemon, &id, "/workspace/quiet", "created").await;
    // The marker for the next daemon follows the events.
    let modified = |path: PathBuf| path.metadata().and_then(|metadata| metadata.modified()).ok();
    let (marker, quiet) = (work(&sluice, &id).with_file_name("conf").join("watched"), work(&sluice, &id).join("quiet"));
    let is_marked = poll(PATIENCE, async || modified(marker.clone()) > modified(quiet.clone()));
    assert!(is_marked.await, "the changes are not marked as reported");
    daemon.kill().await;
    touch(&sluice, &id, "away");
    assert!(poll(PATIENCE, async || work(&sluice, &id).join("b").exists()).await);

    let daemon = sluice.serve().await;
    let missed = edit(&daemon, &id, "/workspace/a", "modified").await;
    edit(&daemon, &id, "/workspace/b", "created").await;
    go(&sluice, &id);
    daemon.ended(&id).await;

    assert_eq!(missed["event_data"]["diff_omitted"], "no_baseline", "{missed}");
    let all = edits(&daemon, &id).await;
    let of_a: Vec<_> = all.iter().filter(|it| it["event_data"]["file_path"] == "/workspace/a").collect();
    assert_eq!(of_a.last().expect("a change")["event_data"]["lines_added"], 1, "{of_a:?}");
    let quiet = all.iter().filter(|it| it["event_data"]["file_path"] == "/workspace/quiet").count();
    assert_eq!(quiet, 1, "what did not change is reported once: {all:?}");
    let events = daemon.events(&id).await;
    let watch: Vec<_> = events.iter().filter(|event| event["event_type"] == "workspace.watch").collect();
    assert_eq!((watch.len(), &watch[0]["event_data"]["reason"]), (1, &json!("adopted")), "{watch:?}");
}

#[tokio::test]
async fn a_hostile_workspace_has_bounded_events() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let program = r#"
import os, threading, time
os.symlink('/etc/passwd', 'link'); os.symlink('..', 'up'); os.mkfifo('fifo')
import socket; socket.socket(socket.AF_UNIX).bind('socket')
open(b'n\xff', 'w').write('x\n'); open('bin', 'wb').write(b'a\0b'); open('big', 'w').write('x\n' * (1 << 20))
os.makedirs('many')
for n in range(20000): open(f'many/{n}', 'w').close()
d = os.getcwd()
for n in range(18):
    os.mkdir('d' * 200); os.chdir('d' * 200)
os.chdir(d)
open('kept', 'w').write('mine\n')
names = [lambda: open('new', 'w').write('mine\n'), lambda: os.symlink('/etc/passwd', 'new'), lambda: os.mkfifo('new'),
         lambda: os.symlink('../conf/audit.key', 'new'), lambda: os.link('kept', 'new'), lambda: os.mkdir('new')]
end = time.time() + 8
while time.time() < end or not os.path.exists('go'):
    for make in names:
        try:
            make(); os.rename('new', 'x')
        except OSError:
            for remove in (os.rmdir, os.unlink):
                for name in ('new', 'x'):
                    try: remove(name)
                    except OSError: pass
    with open('busy', 'w') as file: file.write(str(time.time()))
"#;
    let begun = Instant::now();
    let id =
        daemon.create(json!({"argv": ["python3", "-c", program], "model": "m", "limits": {"timeout": "300s"}})).await;
    daemon.reaches(&id, "RUNNING").await;
    // The daemon goes on answering: without these answers, the program does not end.
    for _ in 0..40 {
        assert_eq!(daemon.run(&id).await["state"], "RUNNING");
    }
    go(&sluice, &id);
    let ended = daemon.ended(&id).await;
    let took = begun.elapsed();
    assert_eq!(ended["outcome"], "success", "{ended}");

    let mut cursor = String::new();
    let mut events = Vec::new();
    loop {
        let path = format!("/api/v1/sandboxes/{id}/trajectory?limit=1000{cursor}");
        let part = daemon.get(&path).await.expect(200).json();
        events.extend(part["events"].as_array().expect("a list").clone());
        let Some(next) = part["next_cursor"].as_i64() else { break };
        cursor = format!("&cursor={next}");
    }
    let of = |name: &str| events.iter().filter(|event| event["event_type"] == name).collect::<Vec<_>>();
    let (seen, left) = (of("agent.file_edited"), of("workspace.changes_left_out"));
    // The limit is 1,200 events a minute after the first 1,000.
    assert!(seen.len() as u64 <= 2500 + 20 * took.as_secs(), "{} in {took:?}", seen.len());
    let count = |name: &str| left.iter().filter_map(|event| event["event_data"][name].as_u64()).sum::<u64>();
    // The last look at a workspace ends after some time.
    let is_cut = of("workspace.watch").iter().any(|event| event["event_data"]["reason"] == "last_look_cut");
    assert!(is_cut || seen.len() as u64 + count("created") >= 20_000, "{} {}", seen.len(), count("created"));
    let text = serde_json::to_string(&events).expect("plain data");
    assert!(!text.contains("root:x:") && !text.contains("audit.key"), "nothing outside is read");
    let busy = seen.iter().filter(|event| event["event_data"]["file_path"] == "/workspace/busy").count();
    // A file is reported when it was quiet for 300 ms, or after 2 s.
    assert!(busy as u128 <= took.as_millis() / 300 + 2, "{busy} in {took:?}");
}

#[tokio::test]
async fn a_killed_run_leaves_its_transcript() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "mkdir -p .sluice; echo '{\"n\":1}' > .sluice/transcript.jsonl; touch written; sleep 600";
    let id = daemon.create(shell(script)).await;
    assert!(poll(PATIENCE, async || work(&sluice, &id).join("written").exists()).await);
    let path = format!("/api/v1/sandboxes/{id}/transcript");
    daemon.get(&path).await.expect(404);
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    daemon.ended(&id).await;

    let kept = daemon.get(&path).await.expect(200);
    assert_eq!((kept.text().as_str(), kept.header("x-truncated")), ("{\"n\":1}\n", Some("false")));
    let disposition = kept.header("content-disposition").expect("it is a download").to_owned();
    assert!(disposition.starts_with("attachment; filename=\"transcript.jsonl\""), "{disposition}");

    let next = json!({"argv": ["cat", ".sluice/transcript.jsonl"], "model": "m", "resume_from": id});
    let next = daemon.create(next).await;
    let ended = daemon.ended(&next).await;
    assert_eq!(ended["outcome"], "success", "{ended}");
    let output = daemon.get(&format!("/api/v1/sandboxes/{next}/logs?stream=stdout")).await.expect(200).text();
    assert!(output.contains("{\\\"n\\\":1}"), "{output}");
    let unknown = json!({"argv": ["true"], "model": "m", "resume_from": "r_none"});
    daemon.request("POST", "/api/v1/sandboxes", &unknown).await.expect(404);
    let plain = daemon.create(shell("true")).await;
    daemon.ended(&plain).await;
    let without = json!({"argv": ["true"], "model": "m", "resume_from": plain});
    assert_eq!(
        daemon.request("POST", "/api/v1/sandboxes", &without).await.expect(422).error()["details"]["field"],
        "resume_from"
    );
}

#[tokio::test]
async fn a_transcript_that_is_a_link_is_not_followed() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = "mkdir -p .sluice; ln -s /etc/passwd .sluice/transcript.jsonl";
    let id = daemon.create(shell(script)).await;
    daemon.ended(&id).await;
    daemon.get(&format!("/api/v1/sandboxes/{id}/transcript")).await.expect(404);
}

#[tokio::test]
async fn the_guardian_notices_what_repeats() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let rules = "no_file_change = { after = '10s', calls = 2, action = 'notify' }\n\
                 silence = { after = '10s', action = 'nudge' }\n";
    sluice.file("sluice.toml", &format!("[guardian]\n{rules}"));
    let daemon = sluice.serve().await;
    let id = daemon.create(shell(&format!("{CALL}; {CALL}; sleep 600"))).await;
    let mut found = Vec::new();
    let is_found = poll(PATIENCE, async || {
        let events = daemon.events(&id).await;
        found = events.into_iter().filter(|event| event["event_type"] == "guardian.intervention").collect();
        found.len() >= 2
    });
    assert!(is_found.await, "{found:?}");
    let of =
        |rule: &str| &found.iter().find(|event| event["event_data"]["rule"] == rule).expect("it is met")["event_data"];
    let (calls, silence) = (of("no_file_change"), of("silence"));
    assert_eq!((&calls["action"], &calls["evidence"]["count"]), (&json!("notify"), &json!(2)), "{calls}");
    assert_eq!((&silence["action"], &silence["performed"]), (&json!("nudge"), &json!(true)), "{silence}");
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    daemon.ended(&id).await;
}
