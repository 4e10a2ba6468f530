//! The ledger compared with the spend log: a LiteLLM that lies in every way, and the real one.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sluice_testkit::{PATIENCE, Sluice, poll};

mod billing;
mod failed;
mod faults;
mod lies;
mod truth;
mod unasked;
mod unreadable;

/// Shell functions that each make one call: `ask` a unary one, and `stream` a streamed one.
const ASK: &str = r#"
ask() {
    curl --silent --show-error --output /dev/null --json '{"model": "m", "messages": [{"role": "user", "content": "x"}]}' \
        "$OPENAI_BASE_URL/chat/completions"
}
stream() {
    curl --silent --show-error --output /dev/null "$ANTHROPIC_BASE_URL/v1/messages" \
        --json '{"model": "m", "max_tokens": 9, "stream": true, "messages": [{"role": "user", "content": "x"}]}'
}
"#;

/// Cost of one answered call.
const NANOS: i128 = 5400;

/// Runs a script in a run of account acct-1, and returns the run id.
async fn spend(sluice: &Sluice, script: &str) -> String {
    spend_of(sluice, "acct-1", script).await
}

/// Runs a script in a run of an account, and returns the run id.
async fn spend_of(sluice: &Sluice, account: &str, script: &str) -> String {
    let words = ["--quiet", "--account", account, "--json", "--", "sh", "-c"];
    sluice.run(words).arg(format!("{ASK}{script}")).finish().await.expect(0).json().run_id
}

/// Makes everything in the ledger a minute older, like a wait.
async fn age(sluice: &Sluice) {
    for table in ["receipts", "entries"] {
        sluice.sql(&format!("DROP TRIGGER IF EXISTS {table}_stay")).await;
        sluice.sql(&format!("UPDATE {table} SET arrived_us = arrived_us - 60000000")).await;
    }
}

/// Exit code and output of `sluice reconcile --json`.
async fn reconcile(sluice: &Sluice, args: &[&str]) -> (i32, Value) {
    let ran = sluice.command(["reconcile", "--json"]).args(args).finish().await;
    assert_eq!(ran.stderr, "", "{}", ran.stdout);
    (ran.code, ran.value())
}

/// Compares until nothing differs: on a busy machine LiteLLM writes its rows later than a comparison waits for them.
async fn reconcile_written(sluice: &Sluice, args: &[&str]) -> (i32, Value) {
    let mut outcome = (0, Value::Null);
    poll(PATIENCE, async || {
        outcome = reconcile(sluice, args).await;
        outcome.0 == 0
    })
    .await;
    outcome
}

/// Number of findings of each class that has some.
fn classes(outcome: &Value) -> BTreeMap<String, u64> {
    let counts = outcome["classes"].as_object().expect("an object").iter();
    let counts = counts.map(|(class, count)| (class.clone(), count.as_u64().expect("a count")));
    counts.filter(|(_, count)| *count > 0).collect()
}

fn counts<const N: usize>(of: [(&str, u64); N]) -> BTreeMap<String, u64> {
    of.into_iter().map(|(class, count)| (class.to_owned(), count)).collect()
}

/// The findings that an operator must check.
fn mismatches(outcome: &Value) -> Vec<&Value> {
    const IN_ORDER: [&str; 6] = ["settled", "unknown_settled", "late", "cache_hit", "not_billed", "not_yet"];
    let findings = outcome["findings"].as_array().expect("a list").iter();
    findings.filter(|finding| !IN_ORDER.contains(&finding["class"].as_str().expect("a class"))).collect()
}

/// Checks that both sides have the same sum, and returns it.
fn agreed(outcome: &Value) -> i128 {
    assert_eq!(outcome["receipts"]["nano_usd"], outcome["spend_log"]["nano_usd"], "{outcome}");
    outcome["receipts"]["nano_usd"].as_str().and_then(|nanos| nanos.parse().ok()).expect("an amount")
}

fn nothing_posted() -> Value {
    json!({"receipts": 0, "reversed": 0})
}
