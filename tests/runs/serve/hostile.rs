//! Hostile workers and workspaces in real sandboxes: their claims are bounded, and the evidence about them stays.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, poll};

use super::*;

const FORGERIES: &str = include_str!("../../python/agents/relay_forgeries.py");
const FLOOD: &str = include_str!("../../python/agents/relay_flood.py");
const BODIES: &str = include_str!("../../python/agents/relay_bodies.py");
const SWAPS: &str = include_str!("../../python/agents/swaps.py");

/// Limit of kept agent events, in the tests that report more.
const KEPT: usize = 100;

/// Number of events of the flood: `SLUICE_FLOOD_EVENTS`, or a number that a debug build handles in seconds.
fn flood_events() -> u64 {
    let number = std::env::var("SLUICE_FLOOD_EVENTS").ok().and_then(|text| text.parse().ok());
    number.unwrap_or(15_000)
}

/// A run of a program in Python, with these arguments.
fn python(program: &str, arguments: &[&str]) -> Value {
    let argv: Vec<_> = ["python3", "-c", program].into_iter().chain(arguments.iter().copied()).collect();
    json!({"argv": argv, "model": "m", "limits": {"timeout": "600s"}})
}

async fn stdout(daemon: &Daemon<'_>, id: &str) -> String {
    let text = daemon.get(&format!("/api/v1/sandboxes/{id}/logs?stream=stdout")).await.expect(200);
    lines(&text).iter().filter_map(|line| line["text"].as_str()).collect()
}

/// Report of a program: one JSON object, its last line.
async fn told(daemon: &Daemon<'_>, id: &str) -> BTreeMap<String, Value> {
    let text = stdout(daemon, id).await;
    serde_json::from_str(text.lines().last().unwrap_or_default()).unwrap_or_else(|_| panic!("no object: {text}"))
}

/// All events of a run but heartbeats, oldest first.
async fn all_events(daemon: &Daemon<'_>, id: &str) -> Vec<Value> {
    let (mut events, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/api/v1/sandboxes/{id}/trajectory?limit=1000{cursor}");
        let page = daemon.get(&path).await.expect(200).json();
        events.extend(page["events"].as_array().expect("a list").clone());
        let Some(next) = page["next_cursor"].as_i64() else { break };
        cursor = format!("&cursor={next}");
    }
    events.sort_by_key(|event| event["seq"].as_i64());
    events
}

/// Waits until a run works, and returns the token of its relay.
async fn token_of(sluice: &Sluice, daemon: &Daemon<'_>, id: &str) -> String {
    daemon.reaches(id, "RUNNING").await;
    let conf = sluice.state().join("runs").join(format!("{id}.0")).join("conf");
    std::fs::read_to_string(conf.join("relay.token")).expect("we are root")
}

async fn cancel(daemon: &Daemon<'_>, id: &str) {
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    daemon.reaches(id, "COMPLETED").await;
}

#[tokio::test]
async fn forged_ids_and_tokens_reach_no_other_run() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let other = daemon.create(shell("sleep 600")).await;
    let token = token_of(&sluice, &daemon, &other).await;

    let id = daemon.create(python(FORGERIES, &[&other, &token])).await;
    daemon.ended(&id).await;
    let told = told(&daemon, &id).await;
    let events = all_events(&daemon, &id).await;
    let of_other = all_events(&daemon, &other).await;

    let own = ["own", "own bearer", "own override"];
    for (name, status) in &told {
        let expected: &[u64] = match name.as_str() {
            name if own.contains(&name) => &[200],
            "other" | "other bearer" | "other messages" | "other task" | "other api key" | "none" | "attempt" => &[403],
            "override" => &[404, 405],
            // A fetch from the run's repository, which takes only a push.
            "git" => &[403],
            // The sidecar does not take these names for the own run.
            "cancel" | "encoded slash" | "two slashes" => &[400, 403, 404],
            // The connection goes to the sidecar in any case, and the sidecar relays only the path.
            "other absolute" => &[400, 403, 404],
            "parameter" => &[403, 404],
            _ => &[400, 404],
        };
        assert!(status.as_u64().is_some_and(|status| expected.contains(&status)), "{name}: {status} of {told:?}");
    }
    assert_eq!(told.len(), 30, "{told:?}");
    let claims = |events: &[Value]| events.iter().filter(|event| event["source"] == "agent").count();
    assert_eq!((claims(&events), claims(&of_other)), (own.len(), 0), "{of_other:?}");
    assert_eq!(states(&of_other), ["CREATING", "RUNNING"], "nobody has stopped it");
    cancel(&daemon, &other).await;
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

/// Waits until the daemon has asked for an approval, and raises the cap.
async fn raise(daemon: &Daemon<'_>, id: &str) {
    let path = format!("/api/v1/sandboxes/{id}/approvals");
    let mut approval = Value::Null;
    let is_asked = poll(PATIENCE, async || {
        approval = daemon.get(&path).await.expect(200).json()["approvals"].get(0).cloned().unwrap_or_default();
        !approval.is_null()
    });
    assert!(is_asked.await, "no approval in time\n{}", daemon.process().stderr());
    let decision = format!("{path}/{}/decision", approval["approval_id"].as_str().expect("an id"));
    let body = json!({"decision": "approve", "digest": approval["digest"], "raise": {"max_calls": 50}, "reason": "go"});
    daemon.request("POST", &decision, &body).await.expect(200);
}

/// Bytes of a file, or of all files beneath a directory.
fn bytes_of(path: &Path) -> u64 {
    let Ok(meta) = path.symlink_metadata() else { return 0 };
    if !meta.is_dir() {
        return meta.len();
    }
    let entries = std::fs::read_dir(path).expect("we are root");
    entries.map(|entry| bytes_of(&entry.expect("an entry").path())).sum()
}

/// Reports now and then until it is told to end.
const NEIGHBOUR: &str = r#"ID=$(curl -s http://localhost:8080/health | sed 's/.*"runId":"\([^"]*\)".*/\1/')
while [ ! -e go ]; do
  curl -s -o /dev/null -w '%{http_code}\n' --json '{"event_type":"agent.progress"}' http://localhost:8080/api/v1/sandboxes/$ID/events
  sleep 0.2
done"#;

#[tokio::test]
async fn a_flood_of_events_removes_no_evidence() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &format!("events_per_run = {KEPT}\n"));
    let daemon = sluice.serve().await;
    let mut neighbour = shell(NEIGHBOUR);
    neighbour["limits"] = json!({"timeout": "600s"});
    let neighbour = daemon.create(neighbour).await;
    daemon.reaches(&neighbour, "RUNNING").await;
    let work = |id: &str| sluice.state().join("runs").join(format!("{id}.0")).join("work");

    let count = flood_events();
    let script = format!(
        "python3 -c \"$FLOOD\" {count} > told & for n in 1 2 3 4; do {CALL}; done; \
         while [ ! -e go ]; do sleep 0.05; done; {CALL}; {CALL}; wait; cat told"
    );
    let mut request = shell(&script);
    request["env"] = json!({"FLOOD": FLOOD});
    request["on_cap"] = json!("ask");
    request["limits"] = json!({"max_calls": 5, "timeout": "600s"});
    let begun = Instant::now();
    let id = daemon.create(request).await;
    raise(&daemon, &id).await;
    std::fs::write(work(&id).join("go"), "").expect("the run works");
    let mut run = Value::Null;
    // A loaded host with a debug build gives 200 answers in a second.
    let ended = poll(PATIENCE * 4 + Duration::from_millis(5 * count), async || {
        run = daemon.run(&id).await;
        run["ended_at"].is_string()
    });
    assert!(ended.await, "{run}");
    let took = begun.elapsed();
    std::fs::write(work(&neighbour).join("go"), "").expect("the run works");
    daemon.ended(&neighbour).await;

    let told = told(&daemon, &id).await;
    let of = |name: &str| told.get(name).and_then(Value::as_u64).unwrap_or_default();
    let answered: u64 = told.iter().filter(|(name, _)| *name != "again").filter_map(|(_, count)| count.as_u64()).sum();
    assert_eq!(answered, count, "{told:?}");
    // The sidecar passes twenty at once and then ten a second; the byte limit of a minute refuses some of them.
    let passed = of("200") + of("429 event_rate");
    assert!(of("429 relay_busy") > count / 2 && of("429 event_rate") > 0, "{told:?}");
    assert!(passed <= 20 + 10 * (took.as_secs() + 1), "{told:?} in {took:?}");

    let events = all_events(&daemon, &id).await;
    let agents = events.iter().filter(|event| event["source"] == "agent").count();
    assert!(agents <= KEPT && of("200") > 0, "{agents} of {told:?}");
    assert_eq!(states(&events), ["CREATING", "RUNNING", "COMPLETING", "COMPLETED"]);
    let of = |name: &str| events.iter().filter(|event| event["event_type"] == name).count();
    for (name, expected) in [
        ("sandbox.created", 1),
        ("approval.requested", 1),
        ("approval.decided", 1),
        ("llm.call_started", 6),
        ("llm.call", 6),
        ("sandbox.stopped", 1),
    ] {
        assert_eq!(of(name), expected, "{name}");
    }
    sluice.command(["audit", "verify", &id]).finish().await.expect(0);
    assert_eq!(sluice.audit(&id).outcomes().len(), 6);
    let used = bytes_of(&sluice.state());
    assert!(used < 64 << 20, "{used} bytes of {told:?}");
    let codes = stdout(&daemon, &neighbour).await;
    assert!(codes.lines().count() > 2 && codes.lines().all(|code| code == "200"), "{codes}");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn bodies_that_no_reader_should_bear_are_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(python(BODIES, &[])).await;
    daemon.ended(&id).await;
    let told = told(&daemon, &id).await;
    let events = all_events(&daemon, &id).await;

    for (name, status) in &told {
        let expected: &[u64] = match name.as_str() {
            "plain" | "depth 29" | "escapes" | "diff of 900 kB" | "diff of a list" => &[200],
            "large data" => &[413, 422],
            // The answer comes before the whole body.
            "large body" => &[0, 413],
            "diff beyond the bytes of a minute" => &[429],
            _ => &[400, 422],
        };
        assert!(status.as_u64().is_some_and(|status| expected.contains(&status)), "{name}: {status} of {told:?}");
    }
    let claims: Vec<_> = events.iter().filter(|event| event["source"] == "agent").collect();
    let kept = told.values().filter(|status| **status == 200).count();
    assert!((kept..=kept + 3).contains(&claims.len()), "{} {told:?}", claims.len());
    assert!(!serde_json::to_string(&claims).expect("plain data").contains("\\u0000"));
    // Every reader still gets them all.
    let snapshot = daemon.get(&format!("/api/v1/sandboxes/{id}/trajectory?limit=1000")).await.expect(200).json();
    assert_eq!(snapshot["trajectory_events"].as_u64(), Some(events.len() as u64), "{snapshot}");
    let printed = sluice.command(["logs", &id]).finish().await.expect(0);
    assert!(!printed.stdout.contains('\u{1b}'));
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_swapped_workspace_shows_nothing_outside() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let neighbour = daemon.create(shell("while [ ! -e go ]; do sleep 0.05; done; echo mine > seen")).await;
    let begun = Instant::now();
    let id = daemon.create(python(SWAPS, &["6"])).await;
    daemon.reaches(&id, "RUNNING").await;
    let mut run = Value::Null;
    let mut slowest = Duration::ZERO;
    let ended = poll(PATIENCE * 4, async || {
        let asked = Instant::now();
        run = daemon.run(&id).await;
        slowest = slowest.max(asked.elapsed());
        run["ended_at"].is_string()
    });
    assert!(ended.await, "{run}");
    assert_eq!(run["outcome"], "success", "{run}");
    assert!(slowest < Duration::from_secs(30), "the daemon answered after {slowest:?}");
    std::fs::write(sluice.state().join("runs").join(format!("{neighbour}.0")).join("work/go"), "").expect("it works");
    daemon.ended(&neighbour).await;

    let refused = told(&daemon, &id).await;
    assert!(refused.contains_key("device") && refused.contains_key("zero"), "{refused:?}");
    let events = all_events(&daemon, &id).await;
    let of = |name: &str| events.iter().filter(|event| event["event_type"] == name).collect::<Vec<_>>();
    let (seen, left) = (of("agent.file_edited"), of("workspace.changes_left_out"));
    assert!(seen.len() as u64 <= 2_500 + 20 * begun.elapsed().as_secs(), "{}", seen.len());
    let created: u64 = left.iter().filter_map(|event| event["event_data"]["created"].as_u64()).sum();
    // The last look at a workspace ends after some time.
    let is_cut = of("workspace.watch").iter().any(|event| event["event_data"]["reason"] == "last_look_cut");
    assert!(is_cut || seen.len() as u64 + created >= 60_000, "{} and {created}", seen.len());
    let text = serde_json::to_string(&events).expect("plain data");
    assert!(!text.contains("root:x:") && !text.contains("PRIVATE KEY"), "nothing outside is read");
    let outside = |event: &&&Value| {
        let path = event["event_data"]["file_path"].as_str().unwrap_or_default();
        !path.starts_with("/workspace/") || path.contains("passwd")
    };
    assert_eq!(seen.iter().find(outside), None);
    let of_neighbour = all_events(&daemon, &neighbour).await;
    assert!(of_neighbour.iter().any(|event| event["event_data"]["file_path"] == "/workspace/seen"), "{of_neighbour:?}");

    let transcript = daemon.get(&format!("/api/v1/sandboxes/{id}/transcript")).await.expect(200);
    assert_eq!(transcript.header("x-truncated"), Some("true"));
    let text = transcript.text();
    assert!(text.starts_with("{\"text\":\"\\ud800") && text.len() <= 64 << 20, "{} bytes", text.len());
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}
