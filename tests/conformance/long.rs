//! The agents that take longer, and faults during their calls: `make test-agents`.

use std::fs;
use std::process::Command;

use sluice_testkit::TempDir;
use sluice_testkit::agent_provider::AgentProvider;

use super::agents::{SIDECAR, finishes};
use super::commands::{
    Agent, agents_sdk, agents_sdk_js, ai_sdk, aider, claude, codex, langgraph, mini_swe_agent, opencode, pydantic_ai,
};

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn codex_finishes_a_task_with_older_models() {
    for model in ["gpt-5.5", "gpt-5.1-codex"] {
        finishes(&codex(model, SIDECAR)).await;
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn claude_code_finishes_a_task_with_opus() {
    finishes(&claude("opus")).await;
}

/// Claude Code asks for a title at the same time as for the first answer, and one of the calls waits until the cap has
/// room. The bound of the first input with opus alone is $0.28.
#[tokio::test]
#[ignore = "long: make test-agents"]
async fn claude_code_finishes_a_task_under_a_cap() {
    for (model, cap) in [("sonnet", "0.25"), ("opus", "0.5")] {
        finishes(&claude(model).with("capped", "").flags(["--max-cost-usd", cap])).await;
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn opencode_finishes_a_task_in_both_formats() {
    for model in ["openai/gpt-5.5", "anthropic/claude-sonnet-5"] {
        finishes(&opencode(model)).await;
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn aider_finishes_a_task_in_both_formats() {
    // aider sends temperature 0, which LiteLLM refuses for newer models of Anthropic.
    for model in ["openai/gpt-5.5", "anthropic/claude-haiku-4-5-20251001"] {
        finishes(&aider(model)).await;
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn mini_swe_agent_finishes_a_task_in_both_formats() {
    for model in ["openai/gpt-5.5", "anthropic/claude-sonnet-5"] {
        finishes(&mini_swe_agent(model)).await;
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn the_agents_sdk_finishes_a_task_in_both_formats() {
    for agent in [agents_sdk("gpt-5.5", "responses"), agents_sdk("gpt-5.5", "chat"), agents_sdk_js("gpt-5.5")] {
        finishes(&agent).await;
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn pydantic_ai_finishes_a_task_in_all_three_formats() {
    for model in ["openai-chat:gpt-5.5", "openai-responses:gpt-5.5", "anthropic:claude-sonnet-5"] {
        finishes(&pydantic_ai(model)).await;
    }
}

/// Each agent tries again by itself, as it does without Sluice. Codex gives up at a 429 without `retry-after`, and SDKs
/// do not try again where a stream was cut off.
#[tokio::test]
#[ignore = "long: make test-agents"]
async fn agents_get_over_errors_and_a_cut_stream() {
    let faults = [
        (codex("gpt-6.1-sol", SIDECAR), "500 529 cut"),
        (claude("sonnet"), "429 500 529 cut"),
        (langgraph("gpt-5.5"), "429 500 ok 529"),
        (ai_sdk("claude-sonnet-5"), "429 500 ok 529"),
        (agents_sdk("gpt-5.5", "responses"), "429 500 ok 529"),
    ];
    for (agent, faults) in faults {
        let report = finishes(&agent.with("faults", faults)).await;
        let failed = report.receipts.iter().filter(|receipt| receipt.result.as_deref() != Some("ok")).count();
        assert_eq!(failed, faults.split(' ').filter(|fault| *fault != "ok").count(), "{:?}", report.receipts);
    }
}

#[tokio::test]
#[ignore = "long: make test-agents"]
async fn an_image_of_20_mb_arrives_as_it_is() {
    let directory = TempDir::new();
    let sha256 = noise(&directory);
    let sees = ["--volume".to_owned(), format!("{}:/opt/images:ro", directory.path().display())];
    let image = "/opt/images/noise.png";
    for agent in [langgraph("gpt-5.5"), langgraph("claude-sonnet-5"), ai_sdk("gpt-5.5"), ai_sdk("claude-sonnet-5")] {
        finishes(&agent.with("image", &format!("image={sha256}")).flags(&sees).after([image])).await;
    }
    // Codex reduces the image before it sends it.
    let agent = codex("gpt-6.1-sol", SIDECAR).with("image", "image").flags(&sees);
    finishes(&agent.after(["-i", image])).await;
}

/// Writes `noise.png`, 20 MB of incompressible data, and returns its SHA-256.
fn noise(directory: &TempDir) -> String {
    let program = "
import hashlib, os, struct, sys, zlib
def chunk(kind, data):
    return struct.pack('>I', len(data)) + kind + data + struct.pack('>I', zlib.crc32(kind + data))
side = 2582
rows = b''.join(b'\\0' + os.urandom(side * 3) for _ in range(side))
head = struct.pack('>IIBBBBB', side, side, 8, 2, 0, 0, 0)
png = b'\\x89PNG\\r\\n\\x1a\\n' + chunk(b'IHDR', head) + chunk(b'IDAT', zlib.compress(rows, 0)) + chunk(b'IEND', b'')
open(sys.argv[1], 'wb').write(png)
print(hashlib.sha256(png).hexdigest())
";
    let made = Command::new("python3").args(["-c", program]).arg(directory.join("noise.png")).output();
    let made = made.expect("python3 is there");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(fs::metadata(directory.join("noise.png")).expect("it was made").len() > 19_000_000);
    String::from_utf8_lossy(&made.stdout).trim().to_owned()
}

/// The provider gets the same from an agent through Sluice as from one that calls LiteLLM directly: paths, models,
/// members, roles, tools and betas.
#[tokio::test]
#[ignore = "long: make test-agents"]
async fn the_provider_gets_what_it_gets_without_sluice() {
    let provider = AgentProvider::shared().await;
    let litellm = provider.litellm();
    let agents = [
        (codex("gpt-6.1-sol", SIDECAR), codex("gpt-6.1-sol", litellm.url())),
        (claude("sonnet"), claude("sonnet")),
        (ai_sdk("gpt-5.5"), ai_sdk("gpt-5.5")),
    ];
    for (through, direct) in agents {
        let (through, direct) = (through.with("through", ""), direct.with("direct", ""));
        finishes(&through).await;
        without_sluice(&direct).await;
        assert_eq!(seen(&through).await, seen(&direct).await);
    }
}

async fn without_sluice(agent: &Agent) {
    let litellm = AgentProvider::shared().await.litellm();
    let (url, key) = (litellm.url(), litellm.key());
    let mut command = tokio::process::Command::new("docker");
    command.args([
        "run", "--rm", "--init", "--network=host", "--user=1001:1001", "--workdir=/workspace", "--env=HOME=/workspace",
    ]);
    command.args(["--tmpfs=/workspace:uid=1001,exec", "--entrypoint", agent.argv[0].as_str()]);
    command.arg(format!("--env=OPENAI_BASE_URL={url}/v1")).arg(format!("--env=ANTHROPIC_BASE_URL={url}"));
    command.arg(format!("--env=OPENAI_API_KEY={key}")).arg(format!("--env=ANTHROPIC_API_KEY={key}"));
    // A sandbox sets these variables: without them, Claude Code makes other calls and has other tools.
    command.args([
        "--env=CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
        "--env=DISABLE_TELEMETRY=1",
        "--env=DO_NOT_TRACK=1",
    ]);
    command.args(agent.all_flags()).arg("sluice-runtime:latest").args(&agent.argv[1..]);
    command.arg(format!("[[task {}]] Do it.", agent.name)).args(&agent.after).kill_on_drop(true);
    let ran = command.stdin(std::process::Stdio::null()).output().await.expect("docker is installed");
    let said = String::from_utf8_lossy(&ran.stdout);
    assert!(said.contains(&format!("task {} is done", agent.name)), "{said}{}", String::from_utf8_lossy(&ran.stderr));
}

async fn seen(agent: &Agent) -> Vec<String> {
    let mut seen: Vec<_> = AgentProvider::shared().await.requests(&agent.name).iter().map(outline).collect();
    // Claude Code asks for a title at the same time as for the first answer.
    seen.sort_unstable();
    seen
}

fn outline(request: &serde_json::Value) -> String {
    let body = request["body"].as_object().expect("an object");
    // The outline leaves out the members that Sluice sets.
    let members: Vec<_> = body.keys().filter(|name| !["metadata", "user"].contains(&name.as_str())).collect();
    let tools = body.get("tools").map(ToString::to_string);
    let roles: Vec<_> = ["messages", "input"]
        .iter()
        .filter_map(|name| body.get(*name)?.as_array())
        .flatten()
        .map(|item| (item["role"].as_str(), item["type"].as_str()))
        .collect();
    format!(
        "{} {} {members:?} {roles:?} {} {tools:?}",
        request["path"], request["model"], request["headers"]["anthropic-beta"]
    )
}
