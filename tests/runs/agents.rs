//! Agents of all kinds get their answers, and each call its receipt.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use sluice_testkit::controller::RunReport;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::{Script, Sluice, Upstream};

const MODEL: &str = "gpt-4o-mini";
const ANSWER: &str = "Hello from the mock model.";

/// Arguments that show a sandbox `tests/python` at `/kit`: the test programs.
pub(crate) fn kit() -> [String; 2] {
    ["--volume".to_owned(), format!("{}/python:/kit", env!("CARGO_MANIFEST_DIR"))]
}

/// Arguments that show a sandbox the `openai` and `anthropic` SDKs.
fn wheels() -> [String; 4] {
    let wheels = concat!(env!("CARGO_MANIFEST_DIR"), "/../.cache/wheels");
    let is_made = std::path::Path::new(wheels).join(".stamp").exists();
    assert!(is_made, "the SDKs for the sandbox are missing: run `make test`, or tests/setup/wheels.sh");
    ["--volume".to_owned(), format!("{wheels}:/wheels"), "--env".to_owned(), "PYTHONPATH=/wheels".to_owned()]
}

/// A controller for runs that make no calls, and an upstream that would notice if they did.
pub(crate) async fn without_calls() -> (Sluice, Upstream) {
    let upstream = Upstream::answering(Script::error(500, "this was not to be called")).start().await;
    (Sluice::to(&upstream), upstream)
}

/// Checks that every call has one receipt with its cost, and a row in LiteLLM that names it.
async fn assert_billed(report: &RunReport, calls: usize) {
    assert_eq!(report.receipts.len(), calls, "{:?}", report.receipts);
    let litellm = LiteLlm::shared().await;
    let mut ids = BTreeSet::new();
    for receipt in &report.receipts {
        let id = receipt.litellm_call_id.as_deref().expect("LiteLLM names each call");
        assert!(ids.insert(id), "two receipts of {id}");
        assert_eq!((receipt.status.as_str(), receipt.result.as_deref()), ("posted", Some("ok")), "{receipt:?}");
        let record = litellm.record_for(id).await;
        assert_eq!((record["spend_logs_metadata"]["run_id"].as_str(), id), (Some(&*report.run_id), &*receipt.call_id));
    }
    assert_eq!((report.refused, report.audit.complete), (0, true));
}

/// Number of receipts with each status.
fn statuses(report: &RunReport) -> BTreeMap<&str, usize> {
    let mut statuses = BTreeMap::new();
    for receipt in &report.receipts {
        *statuses.entry(receipt.status.as_str()).or_default() += 1;
    }
    statuses
}

#[tokio::test]
async fn the_images_agent_answers_with_and_without_streaming() {
    let sluice = Sluice::new().await;
    for stream in ["0", "1"] {
        let run = sluice.run(["--json", "--model", MODEL, "--env", &format!("SLUICE_STREAM={stream}"), "hello"]);

        let report = run.finish().await.expect(0).json();

        assert_eq!((report.content.as_str(), report.stderr.as_str()), (ANSWER, ""));
        assert_billed(&report, 1).await;
        let envelope: serde_json::Value = serde_json::from_str(&report.stdout).expect("an envelope");
        assert_eq!(envelope["meta"]["litellmCallId"].as_str(), report.only_receipt().litellm_call_id.as_deref());
        assert_eq!(envelope["payloads"], json!([{"text": ANSWER}]));
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_images_agent_streams_only_on_request() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let messages = json!([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "héllo \"漢\"\n"}]);
    let file = sluice.file("chat.json", &messages.to_string());
    for flags in [&["--env", "SLUICE_STREAM=1"][..], &[]] {
        let run = sluice.run(["-q", "--model", "m", "--messages", &file]).args(flags);
        assert_eq!(run.finish().await.expect(0).stdout, "hello\n");
    }
    let bodies: Vec<_> = upstream.requests().iter().map(sluice_testkit::ReceivedRequest::json).collect();
    let asked: Vec<_> = bodies.iter().map(|body| (&body["model"], &body["messages"], &body["stream"])).collect();
    assert_eq!(asked, [(&json!("m"), &messages, &json!(true)), (&json!("m"), &messages, &json!(null))]);
}

#[tokio::test]
async fn a_loop_of_calls_has_a_receipt_each() {
    let sluice = Sluice::new().await;
    let run = sluice.run(["--json", "--model", MODEL, "hello"]).args(kit());

    let report = run.args(["--", "bash", "/kit/agents/loop.sh", "5"]).finish().await.expect(0).json();

    let mut told: Vec<_> = report.content.lines().collect();
    assert_eq!(told.pop(), Some(ANSWER));
    let receipts = report.receipts.iter().map(|receipt| receipt.litellm_call_id.as_deref());
    assert_eq!(told.into_iter().map(Some).collect::<Vec<_>>(), receipts.collect::<Vec<_>>());
    assert_billed(&report, 5).await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_openai_sdk_works_in_the_sandbox() {
    let sluice = Sluice::new().await;
    let cases = [
        "chat_unary", "chat_stream", "chat_stream_usage", "chat_stream_helper", "chat_stream_left_early",
        "tools_stream", "responses_stream", "models_list", "async_20", "headers_screened",
    ];
    let run = sluice.run(["--json", "--timeout", "10m"]).args(kit()).args(wheels());

    let report = run.args(["--", "python3", "/kit/sdk_openai.py"]).args(cases).finish().await.expect(0).json();

    assert_eq!(report.content.lines().last(), Some("10 cases passed"), "{}{}", report.content, report.stderr);
    // A list of models is free.
    assert_eq!(statuses(&report), BTreeMap::from([("posted", 29), ("voided", 1)]));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_anthropic_sdk_works_in_the_sandbox() {
    let sluice = Sluice::new().await;
    let cases = ["messages_unary", "messages_stream", "tools_stream", "count_tokens", "headers_screened"];
    let run = sluice.run(["--json", "--timeout", "10m"]).args(kit()).args(wheels());

    let report = run.args(["--", "python3", "/kit/sdk_anthropic.py"]).args(cases).finish().await.expect(0).json();

    assert_eq!(report.content.lines().last(), Some("5 cases passed"), "{}{}", report.content, report.stderr);
    // LiteLLM reports the cost of these in its spend log only.
    assert_eq!(statuses(&report), BTreeMap::from([("pending_cost", 4), ("voided", 1)]));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agent_may_call_by_the_socket_itself() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let call = "curl -sS --unix-socket \"$LLM_PROXY_SOCKET\" -d '{\"model\":\"m\",\"messages\":[]}' \
        -H 'content-type: application/json' http://sidecar/v1/chat/completions | jq -r '.choices[0].message.content'";

    let report = sluice.run(["--json", "--model", "m", "--", "sh", "-c", call]).finish().await.expect(0).json();

    assert_eq!((report.content.as_str(), report.receipts.len()), ("hello\n", 1));
}

/// Runs test files of `tests/agent` in the runtime image, with the real agents of `tests/setup/agents.sh short`.
async fn passes_in_the_image(files: &[&str]) {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let agents = format!("{root}/.cache/agents/short/node_modules");
    assert!(
        std::path::Path::new(&agents).exists(),
        "the agents are missing: run `make test`, or tests/setup/agents.sh"
    );
    let volumes =
        [format!("{root}/tests/agent:/t:ro"), format!("{root}/docs/guide:/guide:ro"), format!("{agents}:/agents:ro")];
    let node =
        ["run", "--rm", "--network=none", "--init", "--entrypoint", "node", "--env", "SLUICE_AGENT_CLIS=/agents"];
    let run = tokio::process::Command::new("docker")
        .args(node)
        .args(volumes.iter().flat_map(|volume| ["--volume", volume.as_str()]))
        .args(["sluice-runtime:latest", "--test", "--test-reporter=tap"])
        .args(files.iter().map(|file| format!("/t/{file}.test.mjs")))
        .output()
        .await
        .expect("docker is installed");
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{said}");
    assert!(said.contains("# fail 0") && said.contains("# skipped 0") && !said.contains("# pass 0"), "{said}");
}

#[tokio::test]
async fn the_agent_of_the_image_passes_its_own_tests() {
    passes_in_the_image(&["run"]).await;
}

#[tokio::test]
async fn the_worker_of_the_image_passes_its_own_tests() {
    passes_in_the_image(&["worker_parts", "worker", "worker_page"]).await;
}

#[tokio::test]
async fn the_workers_adapters_fit_the_real_agents() {
    passes_in_the_image(&["adapters"]).await;
}
