//! Calls that failed after a provider could have answered, and been paid.

use sluice_testkit::controller::unique_run_id;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::spendlog::ScriptedSpendLog;
use sluice_testkit::upstream::Script;

use super::*;

const PRICES: &str =
    r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}}]}"#;

async fn value(sluice: &Sluice, words: &[&str]) -> Value {
    sluice.command(words).finish().await.expect(0).value()
}

/// Spent and held of acct-1.
async fn budget(sluice: &Sluice) -> (Value, Value) {
    let shown = value(sluice, &["budget", "show", "acct-1", "--json"]).await;
    (shown["budgets"][0]["spent_usd"].clone(), shown["budgets"][0]["held_usd"].clone())
}

#[tokio::test]
async fn a_failed_call_is_held_until_its_row() {
    let log = ScriptedSpendLog::new();
    let upstream = log.upstream_with(Script::error(500, "the answer is not what the schema says")).start().await;
    let sluice = Sluice::to(&upstream);
    let prices = sluice.file("prices.json", PRICES);
    sluice.command(["budget", "set", "acct-1", "1"]).finish().await.expect(0);
    let words = ["--quiet", "--account", "acct-1", "--json", "--max-cost-usd", "0.5", "--prices", &prices, "--"];
    let ran = sluice.run(words).args(["sh", "-c"]).arg(format!("{ASK}ask")).finish().await.expect(0);
    let run = ran.json().run_id;
    log.hide(true);
    age(&sluice).await;

    let (code, outcome) = reconcile(&sluice, &["--run", &run]).await;

    assert_eq!((code, classes(&outcome)), (122, counts([("missing_there", 1)])), "{outcome:#}");
    assert_eq!(outcome["posted"], nothing_posted());
    let reason = outcome["findings"][0]["reason"].as_str().expect("a reason");
    let receipt = value(&sluice, &["receipts", "--json"]).await["receipts"][0].clone();
    let name = receipt["source_reference"].as_str().expect("a name");
    assert!(reason.contains(&format!("sluice ledger void {name} --reason TEXT")), "{reason}");
    assert_eq!(
        (&receipt["status"], &receipt["http_status"], &receipt["nano_usd"]),
        (&json!("pending_cost"), &json!(500), &Value::Null)
    );
    assert!(receipt["reserved_usd"].is_string(), "{receipt}");
    let usage = value(&sluice, &["usage", "--by", "account", "--json"]).await;
    let group = &usage["groups"][0];
    assert_eq!((&group["name"], &group["open"], &group["cost_usd"]), (&json!("acct-1"), &json!(1), &Value::Null));
    assert_eq!(group["reserved_usd"], receipt["reserved_usd"]);
    assert_eq!(budget(&sluice).await, (json!("0"), receipt["reserved_usd"].clone()));

    log.edit(|rows| {
        rows[0]["status"] = json!("failure");
        for name in ["spend", "prompt_tokens", "completion_tokens", "total_tokens"] {
            rows[0][name] = json!(0);
        }
    });
    log.hide(false);
    let (code, outcome) = reconcile(&sluice, &["--run", &run]).await;

    assert_eq!((code, classes(&outcome)), (0, counts([("settled", 1)])), "{outcome:#}");
    let receipt = value(&sluice, &["receipts", "--json"]).await["receipts"][0].clone();
    assert_eq!(
        (&receipt["status"], &receipt["nano_usd"], &receipt["price_source"]),
        (&json!("settled"), &json!("0"), &json!("spend_log_failure"))
    );
    assert_eq!(value(&sluice, &["usage", "--json"]).await["total"]["reserved_usd"], Value::Null);
    assert_eq!(budget(&sluice).await, (json!("0"), json!("0")));
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}

/// Answers that the provider began, or gave, before the call failed; then a call that it refused.
const FAILED: &str = r#"
post() {
    curl --silent --show-error --no-buffer --json "$2" "http://localhost:8080$1"
}
ask() {
    printf '{"model": "%s", "max_tokens": 60, "messages": [{"role": "user", "content": "%s"}]%s}' "$1" "$2" "$3"
}
stream=', "stream": true'
post /v1/chat/completions "$(ask provider-gpt FAIL)"
post /v1/messages "$(ask provider-claude FAIL)"
post /v1/chat/completions "$(ask provider-gpt CUT "$stream")"
post /v1/messages "$(ask provider-claude CUT "$stream")"
post /v1/chat/completions "$(ask no-such-model x)"
"#;

#[tokio::test]
async fn real_litellm_rows_settle_failed_calls() {
    let litellm = LiteLlm::with_spend_log().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let account = unique_run_id("acct-failed");
    let words = ["--quiet", "--account", &account, "--", "sh", "-c", FAILED];
    sluice.run(words).finish().await;

    let (code, outcome) = reconcile_written(&sluice, &[]).await;

    // LiteLLM has a row without an amount for each failed call, also for streams that the provider began and would
    // bill.
    assert_eq!((code, classes(&outcome)), (0, counts([("settled", 5)])), "{outcome:#}");
    let failed =
        |finding: &Value| finding["reason"].as_str().is_some_and(|why| why.contains("LiteLLM logged it as failed"));
    assert!(outcome["findings"].as_array().is_some_and(|findings| findings.iter().all(failed)), "{outcome:#}");
    let receipts = value(&sluice, &["receipts", "--json"]).await;
    let list = receipts["receipts"].as_array().expect("a list");
    let statuses: Vec<_> = list.iter().map(|receipt| receipt["http_status"].as_u64().unwrap_or(0)).collect();
    // LiteLLM may have sent the head of a stream before the provider broke it off.
    let fits = |(status, expected): (&u64, [u64; 2])| expected.contains(status);
    let expected = [[500, 500], [500, 500], [500, 200], [500, 200], [400, 400]];
    assert!(statuses.len() == 5 && statuses.iter().zip(expected).all(fits), "{statuses:?}");
    assert!(list.iter().all(|receipt| receipt["price_source"] == "spend_log_failure"), "{receipts:#}");
    assert_eq!((&receipts["total"]["nano_usd"], &receipts["total"]["open"]), (&json!("0"), &json!(0)));
}
