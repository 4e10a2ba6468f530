//! The parts of its daemon that a sandbox reaches over the relay of its sidecar, tested from inside.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use super::*;

/// Shell functions that find the own run, and print the status of a request.
pub(super) const RELAY: &str = r#"B=http://localhost:8080/api/v1/sandboxes
ID=$(curl -s http://localhost:8080/health | sed 's/.*"runId":"\([^"]*\)".*/\1/')
code() { name=$1; shift; echo "$name $(curl -s -o /dev/null -w '%{http_code}' "$@")"; }
report() { code "$1" --json "{\"event_type\":\"$1\",\"event_data\":$2}" $B/$ID/events; }
"#;

/// The words after a name in the output of a run.
fn said(lines: &[Value], name: &str) -> Vec<String> {
    let text: String = lines.iter().filter_map(|line| line["text"].as_str()).collect();
    let rows = text.lines().filter_map(|line| line.split_once(' '));
    rows.filter(|(word, _)| *word == name).map(|(_, rest)| rest.to_owned()).collect()
}

#[tokio::test]
async fn a_sandbox_reaches_its_own_run_and_nothing_else() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!(
        "{RELAY}
        report agent.started '{{}}'
        report agent.tool_use '{{\"tool\":\"sh\"}}'
        report run.state_changed '{{\"to\":\"COMPLETED\"}}'
        report approval.decided '{{}}'
        code source --json '{{\"event_type\":\"agent.progress\",\"source\":\"system\"}}' $B/$ID/events
        code task $B/$ID/task
        code interventions $B/$ID/interventions
        code other $B/r_00000000000000000000/task
        code events-of-others --json '{{\"event_type\":\"agent.progress\"}}' $B/r_00000000000000000000/events
        code files $B/$ID/files
        code list $B
        code read-events $B/$ID/events
        code send --json '{{\"content\":\"x\"}}' $B/$ID/messages
        code intervene --json '{{\"message\":\"x\",\"source\":\"user\"}}' $B/$ID/interventions
        code admin http://localhost:8080/api/v1/agents
        curl -s -o /dev/null -w 'agent.heartbeat %{{http_code}}\n' --json \
            '{{\"event_type\":\"agent.heartbeat\",\"event_data\":{{\"status\":\"running\"}}}}' \"$B/$ID/events#[1-14]\"
        echo end"
    );

    let id = daemon.create(shell(&script)).await;
    let run = daemon.reaches(&id, "COMPLETED").await;
    let text = daemon.get(&format!("/api/v1/sandboxes/{id}/logs")).await.expect(200);
    let lines = lines(&text);
    let events = daemon.events(&id).await;

    for (name, expected) in [
        ("agent.started", "200"),
        ("agent.tool_use", "200"),
        ("run.state_changed", "422"),
        ("approval.decided", "422"),
        ("source", "422"),
        ("task", "200"),
        ("interventions", "200"),
        ("other", "403"),
        ("events-of-others", "403"),
        ("files", "404"),
        ("list", "404"),
        ("read-events", "405"),
        ("send", "405"),
        ("intervene", "405"),
        ("admin", "404"),
    ] {
        assert_eq!(said(&lines, name), [expected], "{name} {}", text.text());
    }
    let beats = said(&lines, "agent.heartbeat");
    // One more is accepted every six seconds.
    let accepted = beats.iter().filter(|code| *code == "200").count();
    assert!((10..14).contains(&accepted) && beats[..10].iter().all(|code| code == "200"), "{beats:?}");
    assert!(beats[10..].iter().all(|code| ["200", "429"].contains(&&**code)), "{beats:?}");
    let claims: Vec<_> = events.iter().filter(|event| event["source"] != "system").collect();
    assert_eq!(claims.len(), 2 + accepted, "{claims:?}");
    assert!(claims.iter().all(|event| event["source"] == "agent" && event["attempt"] == 0), "{claims:?}");
    assert_eq!(states(&events), ["CREATING", "RUNNING", "COMPLETING", "COMPLETED"]);
    assert!(run["last_heartbeat_at"].is_string() && run["heartbeat_status"] == "running", "{run}");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_relay_socket_is_the_sidecars_alone() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let id = daemon.create(shell("sleep 600")).await;
    daemon.reaches(&id, "RUNNING").await;

    let conf = sluice.state().join("runs").join(format!("{id}.0")).join("conf");
    let socket = conf.join("relay/sock").metadata().expect("it is there");
    let token = conf.join("relay.token").metadata().expect("it is there");
    let sidecar = sluice.processes().into_iter().next().expect("it runs");
    let status = std::fs::read_to_string(format!("/proc/{sidecar}/status")).expect("it runs");
    let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("it has one");
    let uid = uid.split_whitespace().next().expect("a number").to_owned();

    assert!(socket.file_type().is_socket());
    assert_eq!((socket.permissions().mode() & 0o777, socket.uid().to_string()), (0o600, uid));
    assert_eq!((token.permissions().mode() & 0o777, token.uid()), (0o600, 0));
    let value = std::fs::read_to_string(conf.join("relay.token")).expect("we are root");
    for (place, text) in [
        ("argv", std::fs::read(format!("/proc/{sidecar}/cmdline")).expect("we are root")),
        ("environment", std::fs::read(format!("/proc/{sidecar}/environ")).expect("we are root")),
        ("database", std::fs::read(sluice.state().join("sluice.db")).expect("it is there")),
    ] {
        assert!(!String::from_utf8_lossy(&text).contains(&value), "{place}");
    }
    // Another process of this host gets no further with the token than with none.
    let mut client = sluice_testkit::client::RawClient::connect(daemon.sockets().join("api.sock")).await.allowing_any();
    let bearer = format!("Bearer {value}");
    let headers = [("authorization", bearer.as_str())];
    client.request("GET", &format!("/api/v1/sandboxes/{id}"), &headers, ()).await.expect(401);
    daemon.request("DELETE", &format!("/api/v1/sandboxes/{id}"), &Value::Null).await.expect(202);
    daemon.reaches(&id, "COMPLETED").await;
    assert_eq!(sluice.sql("SELECT count(*) FROM run_tokens").await, "[[0]]");
}

#[tokio::test]
async fn an_agent_that_says_that_it_failed_is_stopped() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let script = format!("{RELAY} report agent.error '{{\"message\":\"no disk\",\"fatal\":true}}'; sleep 600");

    let id = daemon.create(shell(&script)).await;
    let run = daemon.reaches(&id, "FAILED").await;

    assert_eq!(run["failure_code"], "agent_failed", "{run}");
    assert!(!run["error_message"].to_string().contains("no disk"), "{run}");
    assert_eq!(sluice.containers().await, [""; 0]);
}

#[tokio::test]
async fn a_program_that_is_done_ends_within_its_grace() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", "stop_grace = \"30s\"\n");
    let daemon = sluice.serve().await;
    let result = r#"{"success":true,"turns":3,"output":"all good","prompt":"secret"}"#;
    let done = format!("{RELAY} report agent.completed '{result}'");
    let stays = format!("trap 'exit 0' TERM; {done}; while :; do sleep 0.2; done");
    let fails = format!("{done}; exit 3");

    let [stays, fails] = [daemon.create(shell(&stays)).await, daemon.create(shell(&fails)).await];
    let failed = daemon.ended(&fails).await;
    let stopped = daemon.ended(&stays).await;

    assert_eq!((&failed["failure_code"], &failed["exit_code"]), (&json!("container_failed"), &json!(3)), "{failed}");
    assert_eq!((&stopped["outcome"], &stopped["exit_code"]), (&json!("success"), &json!(0)), "{stopped}");
    assert_eq!(stopped["result"], json!({"success": true, "turns": 3, "output": "all good"}));
    let events = daemon.events(&stays).await;
    assert_eq!(states(&events), ["CREATING", "RUNNING", "COMPLETING", "COMPLETING", "COMPLETED"], "{events:?}");
}
