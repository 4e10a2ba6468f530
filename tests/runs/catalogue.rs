//! Agents of the catalogue run in their image with their arguments, and a missing image is named before the run begins.
//!
//! The tests download no agent: the configuration file replaces image and program of one.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use crate::agents::without_calls;

/// An entry that prints the agent's input; it keeps memory and timeout of the catalogue.
const SHOWS: &str = r#"
[[agents]]
agentId = "codex"
image = "sluice-runtime:latest"
argv = ["sh", "-c", 'printf "%s\n" "$@" "$PWD" "$FIRST $SECOND"; cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/memory.limit_in_bytes 2>/dev/null; true', "sh", "--model={model}", "{small_model}", "--", "{message}"]
env = { FIRST = "{model}", SECOND = "of the agent" }
"#;
const RUN: [&str; 5] = ["--agent", "codex", "--model", "big", "--model=small"];

async fn shown() -> (Sluice, Upstream) {
    let (sluice, upstream) = without_calls().await;
    sluice.file("sluice.toml", SHOWS);
    (sluice, upstream)
}

#[tokio::test]
async fn an_agent_gets_message_models_and_what_it_needs() {
    let (sluice, _upstream) = shown().await;

    let ran = sluice.run(RUN).args(["-q", "--env", "SECOND=of the user", "--", "x"]).finish().await;
    assert_eq!(ran.code, 127, "a program behind -- takes the place of the agent's: {}", ran.stderr);
    let ran = sluice.run(RUN).args(["-q", "--env", "SECOND=of the user", "say {model}"]).finish().await.expect(0);

    let memory = (2_u64 << 30).to_string();
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines, ["--model=big", "small", "--", "say {model}", "/workspace", "big of the user", &memory]);
    assert_eq!(ran.stderr, "");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_starts_in_the_repository_and_flags_win() {
    let (sluice, _upstream) = shown().await;
    std::fs::create_dir(sluice.dir().join("code")).expect("a fresh directory takes another");

    let flags = ["--json", "--repo", "code", "--memory", "96m", "hello"];
    let report = sluice.run(RUN).args(flags).finish().await.expect(0).json();

    let lines: Vec<_> = report.content.lines().skip(3).collect();
    assert_eq!(lines, ["hello", "/workspace/repo", "big of the agent", &(96 << 20).to_string()]);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_missing_image_is_named_with_what_builds_it() {
    let (sluice, _upstream) = without_calls().await;
    let entry = "[[agents]]\nagentId = \"sandbox:claude\"\nimage = \"sluice-absent:1\"\n";
    for (build, advice) in [
        ("build = \"make my-claude\"", "sandbox:claude runs in it; build it: make my-claude"),
        ("", "sandbox:claude runs in it; build it, or pull it"),
    ] {
        sluice.file("sluice.toml", &format!("{entry}{build}"));

        let ran = sluice.run(["--agent", "claude", "--model", "m", "--json", "hello"]).finish().await.expect(125);
        let list = sluice.command(["agents"]).finish().await.expect(0).stdout;

        let message = ran.value()["error_message"].as_str().expect("a text").to_owned();
        assert!(message.contains("no image sluice-absent:1") && message.contains(advice), "{message}");
        assert_eq!(ran.value()["error_code"], json!("creation_failed"));
        assert!(list.contains("its image sluice-absent:1 is missing; build it"), "{list}");
        // The run was not recorded, so it held no budget.
        assert_eq!(sluice.sql("SELECT count(*) FROM runs").await, "[[0]]");
    }
    assert!(sluice.containers().await.is_empty());
}

#[tokio::test]
async fn a_one_message_agent_refuses_a_list() {
    let (sluice, _upstream) = shown().await;
    let file = sluice.file("chat.json", r#"[{"role": "user", "content": "x"}]"#);
    let ran = sluice.run(RUN).args(["--messages", &file]).finish().await.expect(125);
    assert!(ran.stderr.contains("sandbox:codex takes one MESSAGE"), "{}", ran.stderr);
}

#[tokio::test]
async fn telemetry_is_off_unless_the_user_wants_it() {
    let (sluice, _upstream) = without_calls().await;
    let show = "echo $DO_NOT_TRACK $PYTHONUNBUFFERED $OPENAI_AGENTS_DISABLE_TRACING";
    let ran = sluice.run(["-q", "--env", "OPENAI_AGENTS_DISABLE_TRACING=0", "--", "sh", "-c", show]).finish().await;
    assert_eq!(ran.expect(0).stdout, "1 1 0\n");
}
