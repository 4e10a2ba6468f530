//! Messages of the operator reach unmodified agents: the provider sees each at one place, in every later call.

use std::net::TcpListener;
use std::process::Command;

use serde_json::{Value, json};
use sluice_testkit::agent_provider::AgentProvider;
use sluice_testkit::sidecar::program;
use sluice_testkit::{RawClient, Sidecar, TempDir};

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
    let modules = format!("{}/../.cache/agents/short/node_modules", env!("CARGO_MANIFEST_DIR"));
    let words = agent.argv.iter().map(|word| word.replace("/opt/node_modules", &modules));
    let prompt = format!("[[task {}]] Do it.", agent.name);
    let mut command = Command::new("timeout");
    command.arg("150").arg(program()).args(["bridge", "--port", &port.to_string(), "--socket"]);
    command.arg(sidecar.socket()).arg("--").args(words).arg(prompt);
    let base = format!("http://localhost:{port}");
    command.env_clear().env("PATH", std::env::var_os("PATH").expect("a path")).env("HOME", home.path());
    command.envs([("IS_SANDBOX", "1"), ("OPENAI_API_KEY", "none"), ("ANTHROPIC_API_KEY", "none")]);
    command.env("ANTHROPIC_BASE_URL", base).current_dir(home.path()).stdin(std::process::Stdio::null());
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
