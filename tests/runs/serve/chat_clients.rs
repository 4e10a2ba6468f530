//! Clients of OpenAI that choose an agent as their model: the SDKs of OpenAI, LangChain, the AI SDK.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use sluice_testkit::upstream::Script;
use tokio::process::Command;
use tokio::time::timeout;

use super::chat::sluice_to;
use super::http::{address, token};
use super::*;

const LIMIT: Duration = Duration::from_secs(300);

fn checkout(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

/// Runs a client against a daemon with an agent that streams its answer.
async fn answers(program: &Path, arguments: &[&Path], what: &str, settings: &[(&str, PathBuf)]) {
    assert!(program.components().count() == 1 || program.exists(), "{}: run make test", program.display());
    let upstream = Upstream::with(|request| {
        let is_stream = request.json()["stream"] == true;
        if is_stream { Script::chat_stream(["one ", "two ", "three"]) } else { Script::chat("one two three") }
    });
    let upstream = upstream.start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let running = Command::new(program)
        .args(arguments)
        .arg(what)
        .envs(settings.iter().map(|(name, value)| (*name, value)))
        .env("CHAT_BASE_URL", format!("http://{}/v1", address(&daemon)))
        .env("CHAT_API_KEY", chat)
        .env_remove("OPENAI_API_KEY")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(LIMIT, running).await.expect("it ends in time").expect("it can be started");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = format!("{}\n{}\n{}", text(&output.stdout), text(&output.stderr), daemon.process().stderr());
    assert!(output.status.success(), "{said}");
}

#[tokio::test]
async fn the_sdk_of_openai_chats_with_an_agent() {
    let program = checkout("tests/python/chat_clients.py");
    answers(&checkout(".cache/venv/bin/python"), &[&program], "openai", &[]).await;
}

#[tokio::test]
async fn the_ai_sdk_chats_with_an_agent() {
    answers_node("ai").await;
}

#[tokio::test]
async fn the_node_sdk_of_openai_chats_with_an_agent() {
    answers_node("openai").await;
}

async fn answers_node(package: &str) {
    let modules = checkout(".cache/agents/short/node_modules");
    assert!(modules.join(package).exists(), "run tests/setup/agents.sh short");
    answers(Path::new("node"), &[&checkout("tests/agent/chat_client.mjs")], package, &[("CHAT_MODULES", modules)])
        .await;
}

#[tokio::test]
async fn langchain_chats_with_an_agent() {
    let modules = checkout(".cache/agents/frameworks");
    assert!(modules.join("langchain_openai").exists(), "run tests/setup/agents.sh short");
    let program = checkout("tests/python/chat_clients.py");
    answers(Path::new("/usr/bin/python3"), &[&program], "langchain", &[("PYTHONPATH", modules)]).await;
}
