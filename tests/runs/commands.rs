//! The other commands: preflight, agents, config show.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use sluice_testkit::controller::{FinishedCommand, Invocation};
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::upstream::{ClosedPort, Script};
use sluice_testkit::{Sluice, Upstream};

mod config;
mod objects;
mod preflight;
mod texts;

/// Name and status of each check, except for the user of sandboxes: some hosts have a user with its id.
fn checks(ran: &FinishedCommand) -> Vec<(String, String)> {
    let said = ran.value();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let checks = said["checks"].as_array().expect("a list of checks");
    let all = checks.iter().map(|check| (text(&check["name"]), text(&check["status"])));
    all.filter(|(name, _)| name != "sandbox user").collect()
}

/// The detail of a check.
fn detail(ran: &FinishedCommand, name: &str) -> String {
    let said = ran.value();
    let check = said["checks"].as_array().into_iter().flatten().find(|check| check["name"] == name).cloned();
    check.unwrap_or_else(|| panic!("no {name} in {said}"))["detail"].as_str().unwrap_or_default().to_owned()
}

/// Checks that this check alone fails, with this text, and that the checks that depend on it are skipped.
async fn fails_in(preflight: Invocation<'_>, name: &str, skipped: &[&str], words: &[&str]) {
    let ran = preflight.args(["--json"]).finish().await.expect(1);
    assert_eq!(ran.value()["ok"], false);
    for (check, status) in checks(&ran) {
        let expected = match () {
            () if check == name => "fail",
            () if skipped.contains(&check.as_str()) => "skipped",
            () => "pass",
        };
        assert_eq!(status, expected, "{check}, when {name} is wrong: {}", ran.stdout);
    }
    let detail = detail(&ran, name);
    assert!(words.iter().all(|word| detail.contains(word)), "{name}: no {words:?} in {detail:?}");
}

#[tokio::test]
async fn preflight_passes_where_runs_work_and_leaves_nothing() {
    let sluice = Sluice::new().await;

    let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);
    let text = sluice.command(["preflight"]).finish().await.expect(0);

    assert_eq!(ran.value()["ok"], true);
    let names = [
        "user", "state directory", "sidecar program", "sidecar user", "engine", "limits", "image", "upstream",
        "upstream key", "litellm budgets",
    ];
    let all: Vec<_> = checks(&ran).into_iter().filter(|(name, _)| name != "litellm").collect();
    assert_eq!(all, names.map(|name| (name.to_owned(), "pass".to_owned())));
    let mut lines = text.stdout.lines().filter(|line| !line.contains("sandbox user"));
    assert!(lines.all(|line| line.starts_with("pass  ")), "{}", text.stdout);
    assert_eq!(text.stderr, "");
    assert_eq!(sluice.assert_nothing_left().await.len(), 0);
}

#[tokio::test]
async fn preflight_names_what_is_wrong_and_what_to_do() {
    let litellm = LiteLlm::shared().await;
    let upstream = Upstream::json(200, json!({"data": []})).start().await;
    let nowhere = ClosedPort::new();
    let sluice = Sluice::to(&upstream);
    let preflight = || sluice.command(["preflight"]);

    let engine = preflight().args(["--docker-host", "unix:///nope.sock"]);
    fails_in(engine, "engine", &["limits", "image"], &["/nope.sock", "--docker-host"]).await;
    let image = preflight().args(["--image", "no/such:image"]);
    fails_in(image, "image", &[], &["no/such:image", "build.sh", "--image"]).await;
    let dead = preflight().args(["--upstream", &nowhere.url()]);
    fails_in(dead, "upstream", &["upstream key"], &[&nowhere.url(), "--upstream"]).await;
    let unset = preflight().without("SLUICE_UPSTREAM");
    fails_in(unset, "upstream", &["upstream key"], &["--upstream", "SLUICE_UPSTREAM"]).await;
    let strange = preflight().args(["--upstream", "ftp://somewhere"]);
    fails_in(strange, "upstream", &["upstream key"], &["ftp://somewhere", "http://HOST:PORT"]).await;
    let keyless = preflight().without("SLUICE_KEY_FILE");
    fails_in(keyless, "upstream key", &[], &["--key-file", "SLUICE_KEY_FILE"]).await;
    let lost_key = preflight().env("SLUICE_KEY_FILE", "/nonexist");
    fails_in(lost_key, "upstream key", &[], &["SLUICE_KEY_FILE: /nonexist: cannot read it"]).await;
    let plain_name = preflight().args(["--key-file", "wk"]).without("SLUICE_KEY_FILE");
    fails_in(plain_name, "upstream key", &[], &["--key-file: the value has no '/'", "write ./NAME"]).await;
    let open_key = sluice.file("open.key", "sk-open");
    fs::set_permissions(&open_key, Permissions::from_mode(0o644)).expect("it is ours");
    let open_key = preflight().args(["--key-file", &open_key]).without("SLUICE_KEY_FILE");
    fails_in(open_key, "upstream key", &[], &["--key-file: ", "open.key", "chmod 600"]).await;
    let wrong_key = preflight().args(["--upstream", litellm.url()]);
    fails_in(wrong_key, "upstream key", &[], &["40", "key_file"]).await;
    let proxy = preflight().args(["--proxy", "/nope"]);
    fails_in(proxy, "sidecar program", &["upstream key"], &["/nope", "--proxy"]).await;
    let user = preflight().env("SLUICE_SIDECAR_UID", "0-10");
    assert_eq!(user.finish().await.code, 2);
    let user = preflight().env("SLUICE_SIDECAR_UID", "65534");
    fails_in(user, "sidecar user", &["upstream key"], &["user nobody", "65534", "sidecar_uid"]).await;
    let file = sluice.file("a-file", "");
    let state = preflight().args(["--state-dir", &file]);
    fails_in(state, "state directory", &["upstream key"], &["a-file"]).await;
    let long = sluice.dir().join("d".repeat(80)).display().to_string();
    let long = preflight().args(["--state-dir", &long]);
    fails_in(long, "state directory", &["upstream key"], &["107", "--state-dir"]).await;

    assert_eq!(sluice.assert_nothing_left().await.len(), 0);
}

#[tokio::test]
async fn preflight_prints_lines_for_people() {
    let nowhere = ClosedPort::new();
    let sluice = Sluice::with(&nowhere.url(), "sk-nobody-wants-it");

    let ran = sluice.command(["preflight"]).finish().await.expect(1);

    let line = |word: &str| ran.stdout.lines().find(|line| line.contains(word)).unwrap_or_default().to_owned();
    assert!(line("--upstream").starts_with("FAIL  upstream "), "{}", ran.stdout);
    assert!(line("upstream key").starts_with("skip  upstream key"), "{}", ran.stdout);
    assert!(line("root").starts_with("pass  user "), "{}", ran.stdout);
}

#[tokio::test]
async fn an_upstream_without_model_list_is_a_warning() {
    let upstream = Upstream::json(404, json!({"error": "no such page"})).start().await;
    let sluice = Sluice::to(&upstream);

    let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);

    assert_eq!(checks(&ran).last(), Some(&("upstream key".to_owned(), "warn".to_owned())), "{}", ran.stdout);
}

#[tokio::test]
async fn an_old_litellm_is_reported() {
    for (title, version, status) in [
        ("LiteLLM API", "1.80.0", Some("warn")),
        ("LiteLLM API", "1.105.9", Some("warn")),
        ("LiteLLM API", "1.106.0", Some("pass")),
        ("LiteLLM API", "2.0.0", Some("pass")),
        ("Something Else", "1.80.0", None),
    ] {
        let upstream = Upstream::with(move |request| match request.target.as_str() {
            "/openapi.json" => Script::json(200, json!({"info": {"title": title, "version": version}})),
            _ => Script::json(200, json!({"data": []})),
        });
        let upstream = upstream.start().await;
        let sluice = Sluice::to(&upstream);

        let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);

        let found = checks(&ran).into_iter().find(|(name, _)| name == "litellm").map(|(_, status)| status);
        assert_eq!(found.as_deref(), status, "{title} {version}");
    }
}

#[tokio::test]
async fn an_upstreams_texts_are_truncated_and_sanitised() {
    let upstream = Upstream::with(|request| match request.target.as_str() {
        "/openapi.json" => {
            let version = format!("0.1\u{1b}[2J{}", "x".repeat(100_000));
            Script::json(200, json!({"info": {"title": "LiteLLM", "version": version}}))
        }
        _ => Script::json(200, json!({"data": []})),
    });
    let upstream = upstream.start().await;
    let sluice = Sluice::to(&upstream);

    let text = sluice.command(["preflight"]).finish().await.expect(0).stdout;
    let ran = sluice.command(["preflight", "--json"]).finish().await.expect(0);

    assert!(text.contains("0.1 [2Jxxx") && !text.contains('\u{1b}'), "{text:.2000?}");
    assert!(detail(&ran, "litellm").len() < 2000, "{} bytes", ran.stdout.len());
}

#[tokio::test]
async fn concurrent_preflight_and_sweep_do_not_interfere() {
    let upstream = Upstream::json(200, json!({"data": []})).hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let preflight = sluice.command(["preflight", "--json"]).spawn();
    upstream.held(1).await;

    let swept = sluice.command(["sweep"]).finish().await.expect(0);
    upstream.release();

    let ran = preflight.finish().await;
    assert_eq!(swept.stdout, "nothing is left over\n");
    assert_eq!((ran.code, ran.value()["ok"].clone()), (0, json!(true)), "{}", ran.stdout);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_killed_preflight_leaves_no_trace_in_state() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    let preflight = sluice.command(["preflight"]).spawn();
    upstream.received().await;
    preflight.kill().await.expect(-9);

    assert_eq!(sluice.leftovers().await, []);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn configured_agents_extend_the_catalogue() {
    let sluice = Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it");
    let ours = sluice.command(["agents", "--json"]).finish().await.expect(0).value();
    sluice.file(
        "sluice.toml",
        "[[agents]]\nagentId = \"sandbox:mine\"\nargv = [\"python3\", \"/a.py\"]\ndescription = \"does it my way\"\n",
    );

    let both = sluice.command(["agents", "--json"]).finish().await.expect(0).value();
    let text = sluice.command(["agents"]).finish().await.expect(0).stdout;

    assert_eq!((&ours["defaultAgentId"], &both["defaultAgentId"]), (&json!("sandbox:agent"), &json!("sandbox:agent")));
    let mine = json!({
        "agentId": "sandbox:mine", "graphId": "sandbox:mine", "name": "sandbox:mine",
        "description": "does it my way", "argv": ["python3", "/a.py"], "output": "envelope", "imageIsThere": true,
    });
    let mut all = ours["agents"].as_array().expect("a list").clone();
    all.push(mine);
    assert_eq!(both["agents"], json!(all));
    // A missing image has a line of its own, which is indented.
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with(' ')).collect();
    let ids: Vec<_> = lines.iter().map(|line| line.split_whitespace().next().unwrap_or_default()).collect();
    let shipped = ["sandbox:agent", "sandbox:claude", "sandbox:codex", "sandbox:aider", "sandbox:opencode"];
    assert_eq!(ids, [&shipped[..], &["sandbox:mine"]].concat());

    let file = sluice.file("sluice.toml", "[[agents]]\nagentId = \"sandbox:mine\"\nargv = []\n");
    let wrong = sluice.command(["agents"]).finish().await.expect(2);
    assert!(wrong.stderr.contains(&file) && wrong.stderr.contains("argv"), "{}", wrong.stderr);
}
