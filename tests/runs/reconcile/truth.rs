//! Reconciliation with the real LiteLLM and its database.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::litellm::LiteLlm;

use super::*;

/// Forty calls of ten kinds; then three calls without a row in LiteLLM, or with a row without a cost.
const CALLS: &str = r#"
post() {
    curl --silent --show-error --no-buffer --json "$2" "http://localhost:8080$1"
}
chat() {
    printf '{"model": "%s", "messages": [{"role": "user", "content": "x"}]%s}' "$1" "$2"
}
ask() {
    printf '{"model": "%s", "max_tokens": 60, "messages": [{"role": "user", "content": "%s"}]%s}' "$1" "$2" "$3"
}
respond() {
    printf '{"model": "provider-gpt", "input": "x"%s}' "$1"
}
stream=', "stream": true'
for round in 1 2 3 4; do
    post /v1/chat/completions "$(chat gpt-4o-mini)"
    post /v1/chat/completions "$(chat provider-gpt)"
    post /v1/chat/completions "$(chat provider-gpt "$stream")"
    post /v1/chat/completions "$(chat provider-gpt "$stream")" 2>&1 | head -c 20
    post /v1/responses "$(respond)"
    post /v1/responses "$(respond "$stream")"
    post /v1/messages "$(ask provider-claude x)"
    post /v1/messages "$(ask provider-claude x "$stream")"
    post /v1/messages "$(ask provider-claude x "$stream")" 2>&1 | head -c 20
    post /v1/embeddings '{"model": "provider-embedding", "input": "x"}'
done >/dev/null
curl --silent http://localhost:8080/v1/models >/dev/null
post /v1/messages/count_tokens "$(ask provider-claude x)" >/dev/null
post /v1/chat/completions "$(chat no-such-model)" >/dev/null
"#;

/// The end of the script of the run that loses its sidecar: a stream that stops in the middle.
const STALL: &str = r#"post /v1/chat/completions "$(ask provider-gpt "$MARK" "$stream")" >/dev/null"#;

#[tokio::test]
async fn two_hundred_calls_equal_litellms_bill() {
    let litellm = LiteLlm::with_spend_log().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let accounts = [unique_run_id("acct-a"), unique_run_id("acct-b")];
    let run = async |account: &str| {
        sluice
            .run(["--quiet", "--account", account, "--timeout", "10m", "--", "sh", "-c", CALLS])
            .finish()
            .await
            .expect(0)
    };
    tokio::join!(run(&accounts[0]), run(&accounts[0]), run(&accounts[1]), run(&accounts[1]));
    let mark = unique_run_id("STALL");
    let script = format!("MARK={mark}\n{CALLS}{STALL}");
    let words = ["--quiet", "--account", accounts[0].as_str(), "--timeout", "10m", "--", "sh", "-c", script.as_str()];
    let stalled = sluice.run(words).spawn();
    let arrived = async || litellm.provider_requests_with(&mark).len() == 1;
    assert!(poll(PATIENCE * 2, arrived).await, "{}", stalled.stderr());
    let [sidecar] = sluice.processes()[..] else { panic!("one sidecar: {:?}", sluice.processes()) };
    kill(Pid::from_raw(sidecar), Signal::SIGKILL).expect("it lives");
    stalled.finish().await.expect(120);
    // On a busy machine LiteLLM writes its rows later than a comparison waits for them.
    let names = accounts.each_ref().map(|account| format!("'{account}'")).join(",");
    let count = format!("SELECT count(*) FROM \"LiteLLM_SpendLogs\" WHERE end_user IN ({names})");
    let are_written = async || litellm.spend().sql(&count) == [(5 * 41 + 1).to_string()];
    assert!(poll(PATIENCE * 2, are_written).await, "{:?}", litellm.spend().sql(&count));

    let (code, outcome) = reconcile(&sluice, &[]).await;

    // Each run has 32 calls with the cost in the answer, eight streams of /v1/messages and one error with the cost only
    // in the log, and two calls that are never billed. The killed run has one call more.
    let found = classes(&outcome);
    assert_eq!(code, 0, "{outcome:#}");
    assert_eq!(found.values().sum::<u64>(), 5 * 43 + 1, "{found:?}");
    assert_eq!(found, counts([("matched", 5 * 32), ("settled", 5 * 9), ("not_billed", 5 * 2), ("unknown_settled", 1)]));
    assert_eq!(outcome["posted"], json!({"receipts": 5 * 9 + 1, "reversed": 0}));
    let findings = outcome["findings"].as_array().expect("a list");
    assert!(findings.iter().all(|finding| finding["reason"].as_str().is_some_and(|reason| !reason.is_empty())));
    let nanos = agreed(&outcome);
    // Independent check: the sums of the table itself and of the receipts.
    let table = litellm.spend().sql(&format!(
        "SELECT count(*), sum(round(spend::numeric * 1000000000)) FROM \"LiteLLM_SpendLogs\" WHERE end_user IN ({names})"
    ));
    assert_eq!(table, [format!("{}|{nanos}", 5 * 41 + 1)]);
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    assert_eq!(receipts["total"]["nano_usd"], nanos.to_string());
    assert_eq!(receipts["total"]["open"], 0, "{:#}", receipts["unsettled_runs"]);
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);

    let again = reconcile(&sluice, &[]).await;

    assert_eq!(again.1["posted"], nothing_posted());
    assert_eq!((again.0, &again.1["findings"]), (0, &outcome["findings"]));
    assert_eq!(classes(&again.1), found);
    let events = sluice.sql("SELECT count(*) FROM entries").await;

    // Remove a row.
    let lost = receipts["receipts"].as_array().expect("a list").iter().find(|receipt| receipt["status"] == "posted");
    let lost = lost.expect("most are");
    let call_id = lost["call_id"].as_str().expect("an id");
    litellm.spend().sql(&format!("DELETE FROM \"LiteLLM_SpendLogs\" WHERE litellm_call_id = '{call_id}'"));
    let (code, outcome) = reconcile(&sluice, &[]).await;
    let missing = mismatches(&outcome);
    assert_eq!((code, missing.len()), (122, 1), "{missing:#?}");
    assert_eq!(
        (&missing[0]["class"], &missing[0]["source_reference"], &missing[0]["spend_log"]),
        (&json!("missing_there"), &lost["source_reference"], &Value::Null)
    );

    // Add a row that no sidecar has seen.
    litellm.spend().sql(&format!(
        "CREATE TEMP TABLE one AS SELECT * FROM \"LiteLLM_SpendLogs\" WHERE end_user = '{account}' AND spend > 0 LIMIT 1;
         UPDATE one SET request_id = 'past-{mark}', litellm_call_id = 'past-{mark}', metadata = '{{}}';
         INSERT INTO \"LiteLLM_SpendLogs\" SELECT * FROM one",
        account = accounts[1],
    ));
    let (code, outcome) = reconcile(&sluice, &["--account", &accounts[1], "--since", "1h"]).await;
    let past: Vec<_> = mismatches(&outcome).into_iter().filter(|finding| finding["class"] == "missing_here").collect();
    assert_eq!((code, past.len()), (122, 1), "{outcome:#}");
    assert_eq!(
        (&past[0]["request_ids"], &past[0]["account"], &past[0]["ledger"]),
        (&json!([format!("past-{mark}")]), &json!(accounts[1]), &Value::Null)
    );
    assert_eq!(past[0]["reason"], "it names no call: it came past the sidecar");
    // Nothing was posted for these mismatches.
    assert_eq!(sluice.sql("SELECT count(*) FROM entries").await, events);

    // Change the price of a row.
    let run = receipts["receipts"].as_array().expect("a list").iter().find(|receipt| {
        receipt["status"] == "posted" && receipt["account"] == accounts[0].as_str() && receipt["call_id"] != call_id
    });
    let run = run.expect("most are");
    let (reference, call_id) = (&run["source_reference"], run["call_id"].as_str().expect("an id"));
    let start = format!("{}.{}", run["run_id"].as_str().expect("an id"), run["attempt"]);
    litellm.spend().sql(&format!("UPDATE \"LiteLLM_SpendLogs\" SET spend = 0.125 WHERE litellm_call_id = '{call_id}'"));
    let (_, outcome) = reconcile(&sluice, &["--run", &start]).await;
    let differs = mismatches(&outcome).into_iter().find(|finding| finding["class"] == "amount_differs");
    assert_eq!(&differs.expect("it does")["source_reference"], reference);
    let (_, outcome) = reconcile(&sluice, &["--run", &start, "--correct", "--reason", "a test"]).await;
    assert_eq!(outcome["posted"], json!({"receipts": 1, "reversed": 1}));
    assert!(!mismatches(&outcome).iter().any(|finding| finding["class"] == "amount_differs"), "{outcome:#}");
    let receipts = sluice.command(["receipts", "--json"]).finish().await.expect(0).value();
    let receipts = receipts["receipts"].as_array().expect("a list");
    let corrected = receipts.iter().find(|receipt| receipt["source_reference"] == *reference).expect("it stays");
    assert_eq!(
        (&corrected["status"], &corrected["nano_usd"], &corrected["usage"]),
        (&json!("settled"), &json!("125000000"), &run["usage"])
    );
    sluice.command(["ledger", "rebuild", "--check"]).finish().await.expect(0);
}
