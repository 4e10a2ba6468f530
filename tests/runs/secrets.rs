//! The upstream's key: only the sidecar has it.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{Script, Sluice, Upstream, engine};

use crate::agents::{kit, without_calls};

/// A key that is nowhere else on this machine.
fn fresh_key() -> String {
    format!("sk-canary-{}-Zq7", unique_run_id("runs"))
}

/// Every file below a directory that holds this text, whatever the file is.
fn files_with(directory: &Path, text: &str, except: &Path) -> Vec<String> {
    let found = Command::new("grep").args(["-rlaF", text]).arg(directory).output().expect("there is a grep");
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    found.lines().filter(|path| Path::new(path) != except).map(str::to_owned).collect()
}

/// Output of a shell script that the user `nobody` runs on the host.
fn as_nobody(script: &str) -> String {
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let said = Command::new("setpriv").args(user).args(["sh", "-c", script]).output().expect("there is a setpriv");
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// Prints the arguments and environments of all processes that the user can read.
const PROCESSES: &str = "cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'";

#[tokio::test]
async fn a_run_shows_the_key_nowhere() {
    let key = fresh_key();
    // The upstream sends it in every answer.
    let upstream =
        Upstream::queue([Script::chat(&key), Script::error(401, &format!("no such key: {key}"))]).start().await;
    let sluice = Sluice::with(upstream.url(), &key);
    let mut hidden = String::new();
    for byte in key.bytes() {
        write!(hidden, "{:02x}", byte.wrapping_add(1)).expect("a String takes all");
    }
    let gate = sluice.dir().join("gate");
    fs::create_dir(&gate).expect("a fresh directory takes another");
    let id = unique_run_id("secret");
    let call = "curl -sS -i -H 'content-type: application/json' -d '{\"model\":\"m\",\"messages\":[]}' \
        -H \"authorization: Bearer $OPENAI_API_KEY\" $OPENAI_BASE_URL/chat/completions";
    let script = format!(
        "{call} >answers; {call} >>answers; python3 /kit/agents/search.py; until [ -e /gate/end ]; do :; done; cat answers >&2"
    );
    let run = sluice.run(["--json", "--model", "m", "--run-id", &id, "--env", &format!("HIDDEN={hidden}")]);
    let run = run.args(kit()).args(["--volume", &format!("{}:/gate", gate.display())]);
    let run = run.args(["--", "sh", "-c", &script]).env("RUST_LOG", "trace").env("RUST_BACKTRACE", "full").spawn();
    let container = sluice.started().await;
    // Both calls are over, and the sandbox is still there.
    sluice_testkit::CheckedAuditFile::wait_for(sluice.audit_path(&id), "outcome", 2).await;

    let mut places = vec![
        ("docker inspect", engine::inspect(&container).await.to_string()),
        ("docker logs", format!("{:?}", engine::docker(["logs", &container]).await)),
        ("the container's environment", engine::exec(&container, ["env"]).await.stdout),
        ("all processes, as others see them", as_nobody(PROCESSES)),
    ];
    for pid in sluice.processes().into_iter().chain([run.pid()]) {
        for file in ["cmdline", "environ", "comm", "status"] {
            let shown = fs::read(format!("/proc/{pid}/{file}")).expect("the process runs, and we are root");
            places.push(("a process of ours", String::from_utf8_lossy(&shown).into_owned()));
        }
    }
    assert_eq!(files_with(sluice.dir(), &key, &sluice.key_file()), [""; 0], "while it runs");
    fs::write(gate.join("end"), "").expect("we are root");
    let ran = run.finish().await.expect(0);

    let seen_by_nobody = &places[3].1;
    assert!(seen_by_nobody.contains("sluice-proxy") && seen_by_nobody.contains(&id), "it has seen nothing");
    places.push(("stdout", ran.stdout.clone()));
    places.push(("stderr", ran.stderr.clone()));
    for (place, text) in &places {
        assert!(!text.contains(&key), "the key is in {place}: {text}");
    }
    let report = ran.json();
    let found: serde_json::Value = serde_json::from_str(&report.stdout).expect("what search.py tells");
    assert_eq!(found, json!({"found": [], "searched_enough": true}));
    assert!(report.stderr.contains("HTTP/1.1 200 OK") && report.stderr.contains("HTTP/1.1 502"), "{}", report.stderr);
    assert_eq!(files_with(sluice.dir(), &key, &sluice.key_file()), [""; 0], "afterwards");
    let told: Vec<_> =
        upstream.requests().iter().map(|request| request.header("authorization").map(str::to_owned)).collect();
    assert_eq!(told, vec![Some(format!("Bearer {key}")); 2], "the upstream gets the key, and not the sandbox's");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_key_from_the_environment_goes_no_further() {
    let key = fresh_key();
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::with(upstream.url(), "sk-in-the-file");
    let run = sluice.run(["--model", "m", "--", "sh", "-c", "env; cat /proc/*/environ; echo up; sleep 600"]);
    let run = run.env("SLUICE_KEY", &key).spawn();
    run.prints("up\n").await;

    // The controller's environment has the key, and its children do not inherit it.
    let environ =
        |pid: i32| String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/environ")).expect("it runs")).into_owned();
    assert!(environ(run.pid()).contains(&key));
    let sidecars = sluice.processes();
    assert!(!sidecars.is_empty() && sidecars.iter().all(|pid| environ(*pid).is_empty()), "{sidecars:?}");
    assert!(!as_nobody(PROCESSES).contains(&key));
    let inspected = engine::inspect(&sluice.started().await).await.to_string();
    run.signal(Signal::SIGTERM);
    let ran = run.finish().await.expect(143);
    for (place, text) in [("stdout", &ran.stdout), ("stderr", &ran.stderr), ("docker inspect", &inspected)] {
        assert!(!text.contains(&key), "{place}: {text}");
    }
    assert_eq!(files_with(sluice.dir(), &key, Path::new("")), [""; 0]);
}

#[tokio::test]
async fn a_refused_key_is_not_shown() {
    let key = fresh_key();
    let upstream = Upstream::answering(Script::error(401, &format!("Received API Key = {key}"))).start().await;
    let sluice = Sluice::with(upstream.url(), &key);

    for (command, code) in [
        (&["run", "--model", "m", "hello"][..], 1),
        (&["run", "--json", "--model", "m", "hello"], 1),
        (&["preflight"], 1),
        (&["preflight", "--json"], 1),
        (&["config", "show"], 0),
    ] {
        let ran = sluice.command(command).finish().await.expect(code);
        assert!(!ran.stdout.contains(&key) && !ran.stderr.contains(&key), "{command:?}: {ran:?}");
    }
    assert_eq!(files_with(sluice.dir(), &key, &sluice.key_file()), [""; 0]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn key_errors_do_not_show_the_key() {
    let key = fresh_key();
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::with(upstream.url(), &key);
    let open = sluice.file("open.key", &key);
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let lines = sluice.file("lines.key", &format!("{key}\n{key}\n"));
    fs::set_permissions(&lines, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let control = sluice.file("control.key", &format!("{key}\u{1}"));
    fs::set_permissions(&control, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let config = sluice.file("open.toml", &format!("key = \"{key}\"\n"));
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).expect("it is ours");
    let broken = sluice.file("broken.toml", &format!("key = \"{key}\nmodel = 1"));
    fs::set_permissions(&broken, fs::Permissions::from_mode(0o600)).expect("it is ours");

    for flags in [
        &["--key-file", &open][..],
        &["--key-file", &lines],
        &["--key-file", &control],
        // The key itself, where the name of its file belongs.
        &["--key-file", &key],
        &["--config", &config],
        &["--config", &broken],
    ] {
        let run = sluice.command(["run", "--model", "m"]).args(flags).arg("hello");
        let ran = run.without(if flags[0] == "--config" { "SLUICE_KEY_FILE" } else { "" }).finish().await;
        assert_eq!(ran.code, 125, "{flags:?}: {ran:?}");
        assert!(!ran.stdout.contains(&key) && !ran.stderr.contains(&key), "{flags:?}: {}", ran.stderr);
    }
    assert_eq!(upstream.requests().len(), 0);
}

#[tokio::test]
async fn other_users_reach_neither_state_nor_socket() {
    let (sluice, upstream) = without_calls().await;
    let run = sluice.run(["-q", "--stop-grace", "0s", "--", "sh", "-c", "echo up; sleep 60"]).spawn();
    run.prints("up").await;
    let root = sluice.runs().pop().expect("one run").display().to_string();
    let state = sluice.state().display().to_string();

    let script = format!(
        "for path in {state} {state}/sluice.db {state}/audit {root} {root}/work {root}/conf {root}/sock; do \
            [ ! -r $path ] || echo $path; done; \
         curl -sS --unix-socket {root}/sock/llm.sock http://x/v1/models 2>&1"
    );
    let said = as_nobody(&script);

    assert!(said.starts_with("curl: (7)") && said.lines().count() == 1, "{said}");
    assert_eq!(upstream.requests().len(), 0);
    run.signal(Signal::SIGTERM);
    run.finish().await.expect(143);
}

#[tokio::test]
async fn the_controller_leaves_no_core_dump() {
    let (sluice, _upstream) = without_calls().await;
    let run = sluice.run(["-q", "--stop-grace", "0s", "--", "sh", "-c", "echo up; sleep 60"]).spawn();
    run.prints("up").await;

    let limits = fs::read_to_string(format!("/proc/{}/limits", run.pid())).expect("it runs");
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"], "soft and hard");
    run.signal(Signal::SIGTERM);
    run.finish().await.expect(143);
}
