//! The control socket: the state of a running sidecar, caps that are raised, and a stopped clock.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_testkit::{ClientAnswer, Launch, RawClient, Sidecar, Upstream};

mod clock;
mod holds;
mod hostile;
mod inject;
mod interrupt;
mod pause;
mod raise;
mod records;

const CHAT: &str = "/v1/chat/completions";

fn call() -> Value {
    json!({"model": "m", "messages": [], "max_tokens": 1000})
}

/// Gives a sidecar a control socket in its directory, outside the directory of its call socket.
fn controlled(launch: Launch) -> Launch {
    let path = launch.dir().join("control.sock").display().to_string();
    launch.args(["--control", &path])
}

fn control_path(sidecar: &Sidecar) -> PathBuf {
    sidecar.dir().join("control.sock")
}

async fn ask(sidecar: &Sidecar, method: &str, path: &str, body: Value) -> ClientAnswer {
    let mut raw = RawClient::connect(control_path(sidecar)).await;
    if body.is_null() { raw.request(method, path, &[], "").await } else { raw.post_json(path, body).await }
}

async fn state(sidecar: &Sidecar) -> Value {
    ask(sidecar, "GET", "/state", Value::Null).await.expect(200).json()
}

/// Asks for a change by alice, and returns the answer.
async fn change(sidecar: &Sidecar, path: &str, members: Value) -> ClientAnswer {
    let mut body = json!({"by": "alice", "reason": "a longer test"});
    let members = members.as_object().expect("members").clone();
    body.as_object_mut().expect("an object").extend(members);
    ask(sidecar, "POST", path, body).await
}

/// The status of an answer, and the word in its error.
fn refused(answer: &ClientAnswer) -> (u16, String) {
    (answer.status, answer.json()["error"]["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_state_has_caps_use_and_deadline() {
    let upstream = Upstream::provider("hello").start().await;
    let caps = ["--max-calls", "9", "--max-tokens", "5000", "--max-cost-usd", "2.5", "--deadline", "600"];
    let sidecar = controlled(Sidecar::to(&upstream)).args(caps).start().await;
    sidecar.post(CHAT, call()).await.expect(200);
    sidecar.audit_with("outcome", 1).await;

    let state = state(&sidecar).await;

    assert_eq!(state["caps"], json!({"max_calls": 9, "max_cost_usd": "2.5", "max_tokens": 5000}));
    let used =
        json!({"calls": 1, "cost_usd": "0.0000054", "reserved_cost_usd": "0", "reserved_tokens": 0, "tokens": 15});
    assert_eq!(state["used"], used);
    assert_eq!((&state["open_calls"], &state["held_calls"], &state["draining"]), (&json!(0), &json!(0), &json!(false)));
    let deadline = &state["deadline"];
    assert_eq!(
        (&deadline["deadline_s"], &deadline["stopped"], &deadline["stopped_s"]),
        (&json!(600), &json!(false), &json!(0))
    );
    assert!(deadline["left_s"].as_u64().is_some_and(|left| (500..=600).contains(&left)), "{state}");
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome"], "a look is no record");
}

#[tokio::test]
async fn a_run_without_caps_says_so() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    let state = state(&sidecar).await;
    assert_eq!(state["caps"], json!({"max_calls": null, "max_cost_usd": null, "max_tokens": null}));
    assert_eq!(state["deadline"], Value::Null);
}

#[tokio::test]
async fn the_state_is_there_while_the_run_drains() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let flags = ["--max-calls", "5", "--deadline", "600", "--drain", "300s"];
    let sidecar = controlled(Sidecar::to(&upstream)).args(flags).start().await;
    let mut open = sidecar.stream(CHAT, call()).await;
    upstream.held(1).await;

    sidecar.sigterm();
    sidecar.logs("new calls are refused").await;

    let state = state(&sidecar).await;
    assert_eq!((&state["open_calls"], &state["draining"]), (&json!(1), &json!(true)));
    assert_eq!(refused(&change(&sidecar, "/caps", json!({"max_calls": 6})).await), (409, "draining".to_owned()));
    assert_eq!(refused(&change(&sidecar, "/clock", json!({"stopped": true})).await), (409, "draining".to_owned()));
    upstream.release();
    open.read_response().await.expect(200);
    assert_eq!(sidecar.wait().await.code, Some(0));
    assert_eq!(sidecar.audit().kinds(), ["open", "intent", "outcome", "close"]);
}

#[tokio::test]
async fn only_the_owner_sees_the_socket() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = controlled(Sidecar::to(&upstream)).args(["--peer-uid", "54321", "--socket-mode", "0666"]);
    let sidecar = launch.start().await;

    let socket = std::fs::metadata(control_path(&sidecar)).expect("it is there");
    assert_eq!((socket.uid(), socket.mode() & 0o777), (nix::unistd::getuid().as_raw(), 0o600));
    // The rules for peers of the call socket do not apply to the control socket.
    assert_eq!(state(&sidecar).await["used"]["calls"], 0);
    // The kernel refuses another user; without the mode, the sidecar does.
    assert_eq!(asked_as(&sidecar, "54321").await, "7");
    std::fs::set_permissions(control_path(&sidecar), std::fs::Permissions::from_mode(0o666)).expect("our own file");
    std::fs::set_permissions(sidecar.dir(), std::fs::Permissions::from_mode(0o755)).expect("our own directory");
    assert_ne!(asked_as(&sidecar, "54321").await, "0");
    sidecar.logs("another user than the one that started the sidecar").await;
    assert_eq!(state(&sidecar).await["used"]["calls"], 0);
}

/// Asks for the state as another user, and returns the exit code of curl: 7 if it cannot connect.
async fn asked_as(sidecar: &Sidecar, uid: &str) -> String {
    let socket = control_path(sidecar).display().to_string();
    let mut curl = std::process::Command::new("setpriv");
    curl.args([&format!("--reuid={uid}"), "--clear-groups", "curl", "-s", "--max-time", "90", "-o", "/dev/null"]);
    curl.args(["-w", "%{exitcode}", "--unix-socket", &socket, "http://localhost/state"]).current_dir("/");
    let output = tokio::task::spawn_blocking(move || curl.output().expect("curl and setpriv are there")).await;
    String::from_utf8_lossy(&output.expect("it ran").stdout).into_owned()
}

#[tokio::test]
async fn an_idle_control_socket_costs_no_thread() {
    let upstream = Upstream::provider("hello").start().await;
    let plain = Sidecar::to(&upstream).start().await;
    let sidecar = controlled(Sidecar::to(&upstream)).start().await;
    assert_eq!(sidecar.threads(), plain.threads());
    let (with, without) = (sidecar.anonymous_kib(), plain.anonymous_kib());
    assert!(with < without + 256, "{with} KiB with a control socket, {without} KiB without");
}

#[tokio::test]
async fn a_control_socket_beside_the_call_socket_is_refused() {
    let upstream = Upstream::provider("hello").start().await;
    for command in ["", "check"] {
        let mut launch = Sidecar::to(&upstream);
        let path = launch.dir().join("run/control.sock").display().to_string();
        launch = launch.args(["--control", &path]);
        let failed = if command.is_empty() { launch } else { launch.subcommand(command) }.fail().await;
        assert_eq!(failed.code, 78, "{}", failed.stderr);
        assert!(failed.stderr.contains("--control") && failed.stderr.contains("sandbox sees"), "{}", failed.stderr);
    }
    let mut launch = Sidecar::to(&upstream);
    launch = launch.args(["--control", &format!("/tmp/{}", "c".repeat(110))]);
    let failed = launch.fail().await;
    assert!(failed.code == 73 && failed.stderr.contains("107"), "{}", failed.stderr);
}
