//! Messages of the operator reach unmodified agents: the provider sees each at one place, in every later call. And an
//! interruption ends the call of an agent, which does not repeat it.

use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use sluice_testkit::agent_provider::AgentProvider;
use sluice_testkit::sidecar::program;
use sluice_testkit::{PATIENCE, RawClient, Sidecar, TempDir, Upstream, poll};

use super::commands::{Agent, claude, codex};

const TEXT: &str = "note of the operator: keep the file short";

/// Runs an agent on this host behind a sidecar that has a message for it, and returns the provider's requests.
async fn told(agent: &Agent, port: u16) -> Vec<Value> {
    let provider = AgentProvider::shared().await;
    let launch = Sidecar::to_url(provider.litellm().url()).key(provider.litellm().key());
    let control = launch.dir().join("control.sock");
    let sidecar = launch.args(["--control", &control.display().to_string()]).start().await;
    let message = json!({"message_id": "msg-1", "content": TEXT, "message_type": "user_message"});
    let mut raw = RawClient::connect(&control).await;
    raw.request("PUT", "/inject", &[], json!({"messages": [message]})).await.expect(200);

    let home = TempDir::new();
    let mut command = on_this_host(agent, port, &sidecar, &home);
    let output = tokio::task::spawn_blocking(move || command.output().expect("timeout is there")).await;
    let output = output.expect("it ran");
    let said = || format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {}", agent.name, said());
    assert!(said().contains(&format!("task {} is done", agent.name)), "{}", said());

    let answer = raw.get("/injected").await.expect(200).json();
    let steps: Vec<_> = answer["entries"].as_array().into_iter().flatten().map(|entry| &entry["status"]).collect();
    assert_eq!(steps, ["sent", "acknowledged"], "{answer}");
    assert_eq!(sidecar.audit().refusals().len(), 0, "{:?}", sidecar.audit().refused_reasons());
    provider.requests(&agent.name)
}

/// Returns the command of an agent on this host, with the sidecar at this port.
fn on_this_host(agent: &Agent, port: u16, sidecar: &Sidecar, home: &TempDir) -> Command {
    let modules = format!("{}/../.cache/agents/short/node_modules", env!("CARGO_MANIFEST_DIR"));
    let words = agent.argv.iter().map(|word| word.replace("/opt/node_modules", &modules));
    let prompt = format!("[[task {}]] Do it.", agent.name);
    let mut command = Command::new("timeout");
    command.arg("150").arg(program()).args(["bridge", "--port", &port.to_string(), "--socket"]);
    command.arg(sidecar.socket()).arg("--").args(words).arg(prompt);
    command.env_clear().env("PATH", std::env::var_os("PATH").expect("a path")).env("HOME", home.path());
    command.envs([("IS_SANDBOX", "1"), ("OPENAI_API_KEY", "none"), ("ANTHROPIC_API_KEY", "none")]);
    command.env("ANTHROPIC_BASE_URL", format!("http://localhost:{port}")).current_dir(home.path());
    command.stdin(std::process::Stdio::null());
    command
}

/// A free port of this host.
fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}

/// Fails unless every call of the agent's own conversation holds the message once, at the same item, and no other call
/// holds it. Returns the number of calls that hold it.
fn assert_kept(requests: &[Value]) -> usize {
    let mut place = None;
    let mut holding = 0;
    for request in requests {
        let body = &request["body"];
        let items = body["input"].as_array().or(body["messages"].as_array()).cloned().unwrap_or_default();
        let found: Vec<_> = (0..items.len()).filter(|at| items[*at].to_string().contains(TEXT)).collect();
        let is_main = request["body"].to_string().contains("tool") && !found.is_empty();
        if !is_main {
            assert!(found.is_empty(), "{found:?}");
            continue;
        }
        assert_eq!(found.len(), 1, "{found:?} of {}", items.len());
        assert_eq!(*place.get_or_insert(found[0]), found[0]);
        assert_eq!(request["body"].to_string().matches(TEXT).count(), 1);
        holding += 1;
    }
    holding
}

#[tokio::test]
async fn codex_keeps_a_message_of_the_operator() {
    let port = free_port();
    let agent = codex("gpt-6.1-sol", &format!("http://localhost:{port}")).with("told", "");
    let requests = told(&agent, port).await;
    assert_eq!((assert_kept(&requests), requests.len()), (3, 3));
}

#[tokio::test]
async fn claude_code_keeps_a_message_of_the_operator() {
    let agent = claude("sonnet").with("told", "");
    let requests = told(&agent, free_port()).await;
    assert!(assert_kept(&requests) >= 3, "{}", requests.len());
}

#[tokio::test]
async fn agents_do_not_repeat_an_interrupted_call() {
    let port = free_port();
    // Claude Code also asks for a title.
    for (agent, most) in [(codex("gpt-6.1-sol", &format!("http://localhost:{port}")), 1), (claude("sonnet"), 2)] {
        let upstream = Upstream::never().start().await;
        let launch = Sidecar::to(&upstream);
        let control = launch.dir().join("control.sock");
        let sidecar = launch.args(["--control", &control.display().to_string()]).start().await;
        let home = TempDir::new();
        let mut command = on_this_host(&agent, port, &sidecar, &home);
        let running = tokio::task::spawn_blocking(move || command.output().expect("timeout is there"));
        upstream.received().await;

        let interrupt = async || {
            let mut raw = RawClient::connect(&control).await;
            raw.post_json("/interrupt", json!({"by": "alice", "reason": "wrong file"})).await.expect(200);
        };
        let ended = poll(PATIENCE, async || {
            interrupt().await;
            running.is_finished()
        });
        assert!(ended.await, "{} goes on", agent.name);

        let output = running.await.expect("it ran");
        let said = format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!output.status.success() && said.contains("interrupted"), "{}: {said}", agent.name);
        assert!((1..=most).contains(&upstream.requests().len()), "{}: {}", agent.name, upstream.requests().len());
    }
}
