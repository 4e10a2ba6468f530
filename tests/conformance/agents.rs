//! Real agents finish a task of several steps, nothing is refused, and the receipts are the provider's bill.

use std::time::Duration;

use serde_json::Value;
use sluice_testkit::Sluice;
use sluice_testkit::agent_provider::{AgentProvider, ProviderBill};
use sluice_testkit::controller::{ReportReceipt, RunReport};
use sluice_testkit::poll;

use super::commands::{Agent, ai_sdk, claude, codex, langgraph};

/// URL of the sidecar in a sandbox.
pub(crate) const SIDECAR: &str = "http://localhost:8080";
/// Longest wait for a run, longer than its `--timeout`.
const LIMIT: Duration = Duration::from_secs(360);

/// Runs an agent in a sandbox, and compares the result with the provider's requests.
pub(crate) async fn finishes(agent: &Agent) -> RunReport {
    let provider = AgentProvider::shared().await;
    let sluice = Sluice::with(provider.litellm().url(), provider.litellm().key());
    let prompt = format!("[[task {}]] Do it.", format!("{} {}", agent.name, agent.options).trim());
    // The file is lost with the sandbox, so the command prints it after the agent's answer.
    let shown = "\"$@\" </dev/null; code=$?; echo; cat sluice-*.txt; exit $code";
    let run = sluice.run(["--json", "--memory", "1g", "--timeout", "5m"]).args(agent.all_flags());
    let run = run.args(["--", "sh", "-c", shown, "sh"]).args(&agent.argv).arg(&prompt).args(&agent.after);

    let live = run.spawn();
    // An agent takes longer than the commands that finish() is made for.
    assert!(poll(LIMIT, async || !live.is_running()).await, "{} still runs: {}", agent.name, live.stderr());
    let report = live.finish().await.json();

    let requests = provider.requests(&agent.name);
    let told = || {
        format!("{}\n{}\n{:#?}\nthe provider saw {}", report.stdout, report.stderr, report.receipts, brief(&requests))
    };
    assert_eq!((report.verdict(), report.refused), ((true, None, 0), 0), "{} {:?}", told(), report.refused_by_reason);
    assert!(report.stdout.contains(&format!("task {} is done", agent.name)), "no answer: {}", told());
    assert!(report.stdout.ends_with("the answer is forty-two\n"), "no file: {}", told());
    assert_eq!(tokens_of_receipts(&report), bills(&requests), "{}", told());
    assert_eq!(report.receipts.len(), requests.len(), "a receipt a request: {}", told());
    assert_costs_are_those_of_litellm(provider, &report).await;
    sluice.assert_nothing_left().await;
    report
}

/// Returns the provider's bills, sorted, without the bills of answers that were cut off, which the agent never
/// received.
fn bills(requests: &[Value]) -> Vec<(u64, u64, u64, u64)> {
    let whole = requests.iter().filter(|request| request["cut"] == false);
    let mut bills: Vec<_> = whole
        .filter_map(|request| {
            let bill = ProviderBill::of(request)?;
            Some((bill.fresh + bill.cached + bill.written, bill.cached, bill.written, bill.output))
        })
        .collect();
    bills.sort_unstable();
    bills
}

/// Returns the same figures from the receipts of completed calls, including calls that the agent left before their end.
fn tokens_of_receipts(report: &RunReport) -> Vec<(u64, u64, u64, u64)> {
    let has_ended = |receipt: &&ReportReceipt| matches!(receipt.result.as_deref(), Some("ok" | "client_abort"));
    let answered = report.receipts.iter().filter(has_ended);
    let usages = answered.filter_map(|receipt| receipt.usage);
    let mut tokens: Vec<_> = usages
        .map(|usage| {
            let parts = [usage.input, usage.cached_input, usage.cache_write, usage.output];
            parts.map(Option::unwrap_or_default).into()
        })
        .collect();
    tokens.sort_unstable();
    tokens
}

/// Checks that each cost in a receipt is LiteLLM's, and that a receipt without cost has a reason.
async fn assert_costs_are_those_of_litellm(provider: &AgentProvider, report: &RunReport) {
    for receipt in &report.receipts {
        let Some(cost) = &receipt.cost_usd else {
            assert!(receipt.null_reason.is_some(), "{receipt:?}");
            continue;
        };
        let id = receipt.litellm_call_id.as_deref().expect("LiteLLM names each call");
        let record = provider.litellm().record_for(id).await;
        let charged = record["response_cost"].as_f64().expect("a priced call");
        let cost: f64 = cost.parse().expect("a cost is a number");
        assert!((charged - cost).abs() < 1e-9, "LiteLLM charged {charged}: {receipt:?}");
    }
    // LiteLLM always reports the cost of an answer in OpenAI's formats.
    let is_told = |receipt: &&ReportReceipt| {
        receipt.result.as_deref() == Some("ok")
            && receipt.model.as_deref().is_some_and(|model| model.starts_with("gpt-"))
    };
    let untold: Vec<_> = report.receipts.iter().filter(is_told).filter(|receipt| receipt.cost_usd.is_none()).collect();
    assert_eq!(untold, Vec::<&ReportReceipt>::new());
}

fn brief(requests: &[Value]) -> String {
    let one = |request: &Value| {
        let fields = ["path", "model", "status", "stream", "cut", "bill"].map(|name| request[name].to_string());
        fields.join(" ")
    };
    requests.iter().map(one).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn codex_finishes_a_task_with_its_default_model() {
    let report = finishes(&codex("gpt-6.1-sol", SIDECAR)).await;
    assert_eq!(report.receipts.len(), 3);
}

#[tokio::test]
async fn claude_code_finishes_a_task_with_sonnet() {
    finishes(&claude("sonnet")).await;
}

#[tokio::test]
async fn langgraph_finishes_a_task_in_both_formats() {
    for model in ["gpt-5.5", "claude-sonnet-5"] {
        assert_eq!(finishes(&langgraph(model)).await.receipts.len(), 3);
    }
}

#[tokio::test]
async fn the_ai_sdk_finishes_a_task_in_both_formats() {
    for model in ["gpt-5.5", "claude-sonnet-5"] {
        assert_eq!(finishes(&ai_sdk(model)).await.receipts.len(), 3);
    }
}
