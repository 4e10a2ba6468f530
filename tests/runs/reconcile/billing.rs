//! A real LiteLLM with every setting that changes the cost of a call: a cache, margins, discounts, tiers, retries,
//! fallbacks.

use sluice_testkit::controller::unique_run_id;
use sluice_testkit::litellm::LiteLlm;

use super::*;

const POST: &str = r#"
post() {
    curl --silent --show-error --no-buffer --output /dev/null --json "$2" "http://localhost:8080$1"
}
chat() {
    post /v1/chat/completions "{\"model\": \"$1\", \"max_tokens\": 300, \"messages\": [{\"role\": \"user\", \"content\": \"$2\"}]$3}"
}
respond() {
    post /v1/responses "{\"model\": \"$1\", \"input\": \"$2\"$3}"
}
ask() {
    post /v1/messages "{\"model\": \"$1\", \"max_tokens\": 300, \"messages\": [{\"role\": \"user\", \"content\": \"$2\"}]$3}"
}
stream=', "stream": true'
"#;

/// All routes, each twice, so that a cache answers the second call; then calls with special prices, and failing ones.
const CALLS: &str = r#"
for round in 1 2; do
    for model in gpt claude; do
        for words in "$MARK" "$MARK PROMPTCACHE"; do
            chat $model "$words"
            chat $model "$words" "$stream"
            respond $model "$words"
            respond $model "$words" "$stream"
            ask $model "$words"
            ask $model "$words" "$stream"
        done
    done
    post /v1/embeddings "{\"model\": \"embedding\", \"input\": \"$MARK\"}"
done
chat tiered "$MARK"
chat tiered "$MARK" "$stream"
chat broken "$MARK broken"
respond broken "$MARK broken" "$stream"
chat slow "$MARK"
respond slow "$MARK"
ask slow "$MARK"
"#;

/// Sum of the rows of each call and its earlier tries: whole nano-USD, rounded row by row.
const ROWS: &str = r#"
SELECT end_user || ' ' || coalesce(metadata->'spend_logs_metadata'->>'sluice_call_id',
                                   regexp_replace(litellm_call_id, '-attempt-[0-9]+$', ''))
       || ' ' || sum(round(spend::numeric * 1000000000))
FROM "LiteLLM_SpendLogs" WHERE end_user LIKE 'acct-billing-%' GROUP BY end_user,
     coalesce(metadata->'spend_logs_metadata'->>'sluice_call_id', regexp_replace(litellm_call_id, '-attempt-[0-9]+$', ''))
"#;

#[tokio::test]
async fn every_receipt_is_what_litellm_billed() {
    let litellm = LiteLlm::with_billing().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let accounts = ["a", "b"].map(|name| unique_run_id(&format!("acct-billing-{name}")));
    for account in &accounts {
        let script = format!("MARK={}\n{POST}{CALLS}", unique_run_id("mark"));
        sluice
            .run(["--quiet", "--account", account, "--timeout", "10m", "--", "sh", "-c", &script])
            .finish()
            .await
            .expect(0);
    }

    let (code, outcome) = reconcile_written(&sluice, &[]).await;

    assert_eq!((code, mismatches(&outcome)), (0, vec![]), "{outcome:#}");
    let found = classes(&outcome);
    // Each account makes 25 calls twice; 4 more answer, and 3 fail after two tries that LiteLLM bills.
    assert_eq!(found, counts([("cache_hit", 2 * 25), ("matched", 2 * (25 - 4 + 4)), ("settled", 2 * (4 + 3 + 3))]));
    let told = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    let receipts = told["receipts"].as_array().expect("a list");
    let text = |receipt: &Value, name: &str| receipt[name].as_str().unwrap_or_default().to_owned();
    let mut ours: Vec<_> = receipts
        .iter()
        .map(|receipt| {
            format!("{} {} {}", text(receipt, "account"), text(receipt, "call_id"), text(receipt, "nano_usd"))
        })
        .collect();
    ours.sort();
    let mut rows = litellm.spend().sql(ROWS);
    rows.sort();
    rows.retain(|row| accounts.iter().any(|account| row.starts_with(account)));
    assert_eq!(ours, rows);
    let sources = |source: &str| receipts.iter().filter(|receipt| receipt["price_source"] == source).count();
    assert_eq!((sources("cache_hit"), sources("spend_log_failure")), (2 * 25, 2 * 3));
    let tiered = receipts.iter().find(|receipt| receipt["model"] == "tiered").expect("it was called");
    assert_eq!(tiered["nano_usd"], "65853792", "250,000 x 246 and 50 x 912 nano-USD, and 7 % more");

    // The usage of one provider's answer is the same on every route.
    let usages =
        receipts.iter().filter(|receipt| receipt["model"] == "claude" && receipt["price_source"] != "cache_hit");
    let mut parts: Vec<_> = usages
        .map(|receipt| {
            ["input", "cached_input", "cache_write", "output", "total"].map(|name| receipt["usage"][name].as_u64())
        })
        .collect();
    parts.sort();
    parts.dedup();
    let all = |counts: [u64; 5]| counts.map(Some);
    assert_eq!(parts, [all([100, 0, 0, 50, 150]), all([1450, 400, 50, 100, 1550])]);

    // Independent check: the sum of an account.
    let usage = sluice.command(["usage", "--by", "account", "--json"]).finish().await.expect(0).value();
    for group in usage["groups"].as_array().expect("a list") {
        let name = group["name"].as_str().expect("a name");
        let sum = litellm.spend().sql(&format!(
            "SELECT sum(round(spend::numeric * 1000000000)) FROM \"LiteLLM_SpendLogs\" WHERE end_user = '{name}'"
        ));
        assert_eq!([group["nano_usd"].as_str().expect("an amount")], [sum[0].as_str()], "{name}");
    }
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);

    let again = reconcile(&sluice, &["--correct", "--reason", "a test"]).await;

    assert_eq!((again.0, &again.1["posted"]), (0, &nothing_posted()));
    assert_eq!((classes(&again.1), &again.1["receipts"]), (found, &outcome["receipts"]));
}

#[tokio::test]
async fn a_cached_answer_uses_no_budget() {
    let litellm = LiteLlm::with_billing().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let account = unique_run_id("acct-cached");
    // Room for two calls of $0.0214 each.
    sluice.command(["budget", "set", &account, "0.05"]).finish().await.expect(0);
    // A short bound, so that its possible cost fits into the cap.
    let body = r#"{\"model\": \"dear\", \"max_tokens\": 50, \"messages\": [{\"role\": \"user\", \"content\": \"x\"}]}"#;
    let script = format!("{POST}post /v1/chat/completions \"{body}\"");
    let words = ["--quiet", "--account", &account, "--max-cost-usd", "0.025", "--", "sh", "-c", &script];
    for _ in 0..5 {
        sluice.run(words).finish().await.expect(0);
    }

    let shown = sluice.command(["budget", "show", &account, "--json"]).finish().await.expect(0).value();
    assert_eq!(shown["budgets"][0]["spent_usd"], "0.0214", "{shown:#}");
    assert_eq!(shown["budgets"][0]["held_usd"], "0", "{shown:#}");
    let (code, outcome) = reconcile_written(&sluice, &["--account", &account, "--since", "1h"]).await;
    assert_eq!((code, classes(&outcome)), (0, counts([("matched", 1), ("cache_hit", 4)])));
    assert_eq!(outcome["posted"], nothing_posted(), "the answers themselves have said so");
}
