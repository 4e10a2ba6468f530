//! Keys and budgets of the real LiteLLM, with the database that it keeps them in.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_testkit::Sluice;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::litellm::LiteLlm;
use sluice_testkit::poll;

/// Makes calls that each fit into the cap, first one after the other on one connection, then four at once, and prints
/// each status. A call costs $0.000045, and reserves at least fifty times as much. One curl makes all calls of a kind,
/// because LiteLLM frees a reservation before another curl has started.
const CALLS: &str = r#"
ask() {
    curl --silent --show-error --no-progress-meter --output /dev/null --write-out '%{http_code}\n' "$@"
}
url=$OPENAI_BASE_URL/chat/completions
body() {
    printf '{"model": "provider-gpt"%s, "messages": [{"role": "user", "content": "x"}]}' "$1"
}
ask --json "$(body '')" "$url#[1-$LONE]"
ask --parallel --parallel-immediate --parallel-max 4 --json "$(body ', "max_tokens": 4000')" "$url#[1-$AT_ONCE]"
"#;

#[tokio::test]
async fn a_runs_key_accepts_all_fitting_calls() {
    let litellm = LiteLlm::with_spend_log().await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    // `make keys` asks for more.
    let mut left: usize = std::env::var("SLUICE_KEY_CALLS").map_or(RUN_CALLS, |text| text.parse().expect("a number"));
    while left > 0 {
        let calls = left.min(RUN_CALLS);
        run_of(&sluice, calls / 2, calls - calls / 2).await;
        left -= calls;
    }
    sluice.assert_nothing_left().await;
}

/// Most calls of one run, which has to end within a test's patience.
const RUN_CALLS: usize = 80;

/// Makes a run with its own key, with `lone` calls one after the other and `at_once` parallel ones, and checks that
/// none is refused.
async fn run_of(sluice: &Sluice, lone: usize, at_once: usize) {
    let calls = lone + at_once;
    // The cap is the cost of all calls, and the reservation of one call without a bound: 16,384 tokens at $0.0000006,
    // and its prompt.
    let micros = 45 * calls + 10_000;
    let cap = format!("0.{micros:06}");
    let script = format!("LONE={lone} AT_ONCE={at_once}\n{CALLS}");
    let account = unique_run_id("fits");

    let ran = sluice
        .run(["--account", &account, "--model", "provider-gpt", "--key-mode", "per-run", "--max-cost-usd", &cap])
        .args(["--timeout", "10m", "--json", "--", "sh", "-c", &script])
        .finish()
        .await
        .expect(0);

    let report = ran.json();
    let refused: Vec<_> = report.stdout.lines().filter(|status| *status != "200").collect();
    assert!(refused.is_empty(), "{} of {calls} refused at a cap of {cap}: {refused:?}", refused.len());
    assert_eq!((report.stdout.lines().count(), report.receipts.len()), (calls, calls));
}

/// Makes calls until LiteLLM refuses one, after a call or two, and then fails.
const UNTIL_REFUSED: &str = r#"
for call in 1 2 3 4 5 6 7 8; do
    curl --silent --show-error --fail-with-body "$OPENAI_BASE_URL/chat/completions" \
        --json '{"model": "provider-gpt", "messages": [{"role": "user", "content": "x"}]}' || exit 1
    sleep 1
done
"#;

/// The checks of `sluice preflight` on budgets.
async fn budgets(sluice: &Sluice, account: &str) -> Vec<Value> {
    let ran = sluice.command(["preflight", "--json"]).env("SLUICE_ACCOUNT", account).finish().await;
    let checks = ran.value()["checks"].as_array().expect("a list").clone();
    checks.into_iter().filter(|check| check["name"] == "litellm budgets").collect()
}

#[tokio::test]
async fn run_and_preflight_name_a_spent_litellm_budget() {
    let litellm = LiteLlm::with_spend_log().await;
    let master = litellm.key().to_owned();
    let [customer, team, plain] = ["customer", "team", "key"].map(unique_run_id);
    litellm.post("/customer/new", json!({"user_id": customer, "max_budget": 0.00001})).await;
    litellm.post("/team/new", json!({"team_id": team, "max_budget": 0.00001})).await;
    let of_team = litellm.mint(json!({"team_id": team, "key_alias": unique_run_id("alias-secret")})).await;
    let of_key = litellm.mint(json!({"max_budget": 0.00001, "key_alias": unique_run_id("alias-secret")})).await;
    for (of, account, key) in [("customer", &customer, &master), ("team", &plain, &of_team), ("key", &plain, &of_key)] {
        let sluice = Sluice::with(litellm.url(), key);
        let before = budgets(&sluice, account).await;
        let own: Vec<_> = before.iter().filter(|check| check["budget"]["of"] == of).collect();
        assert_eq!(own.len(), 1, "{of}: {before:?}");
        assert_eq!((&own[0]["status"], &own[0]["budget"]["limit_usd"]), (&json!("pass"), &json!("0.00001")), "{own:?}");
        let unread =
            before.iter().filter(|check| check["detail"].to_string().contains("cannot read the budget")).count();
        assert_eq!(unread, usize::from(of != "customer"), "only an admin reads customers: {before:?}");

        let words = ["--account", account, "--model", "provider-gpt", "--json", "--", "sh", "-c", UNTIL_REFUSED];
        let ran = sluice.run(words).finish().await.expect(121);

        let report = ran.json();
        assert_eq!(report.verdict(), (false, Some("budget_exceeded"), 121), "{of}");
        assert!(report.message().contains("LiteLLM refused a call: its budget for the"), "{}", report.message());
        assert_eq!(report.litellm_budgets.len(), 1, "{of}");
        assert_eq!((&report.litellm_budgets[0]["of"], &report.litellm_budgets[0]["calls"]), (&json!(of), &json!(1)));
        assert_eq!(report.litellm_budgets[0]["limit_usd"], "0.00001");
        let last = report.receipts.last().expect("a call was made");
        assert_eq!((last.status.as_str(), last.null_reason.as_deref()), ("voided", Some("not_billed")));
        assert!(report.stdout.contains("budget_exceeded"), "{}", report.stdout);
        let said = format!(
            "{}{}{}",
            ran.stdout,
            ran.stderr,
            fs::read_to_string(sluice.audit_path(&report.run_id)).expect("it is ours")
        );
        // LiteLLM names a key by its last four characters. Alone, they may be part of a time or an id.
        let name = format!("...{}", &key[key.len() - 4..]);
        assert!(!said.contains("alias-secret") && !said.contains(&name) && !said.contains(key), "{said}");

        // LiteLLM writes the spent amount some seconds later.
        let used_up = async || {
            let checks = budgets(&sluice, account).await;
            checks.iter().any(|check| check["budget"]["of"] == of && check["status"] == "warn")
        };
        assert!(poll(Duration::from_secs(90), used_up).await, "{of}: {:?}", budgets(&sluice, account).await);
        sluice.assert_nothing_left().await;
    }
}

#[tokio::test]
async fn a_successful_run_reports_a_spent_budget() {
    let litellm = LiteLlm::with_spend_log().await;
    let account = unique_run_id("customer");
    litellm.post("/customer/new", json!({"user_id": account, "max_budget": 0.00001})).await;
    let sluice = Sluice::with(litellm.url(), litellm.key());
    let script = format!("({UNTIL_REFUSED}) >/dev/null; echo done");

    let ran = sluice.run(["--account", &account, "--", "sh", "-c", &script]).finish().await.expect(0);

    assert_eq!(ran.stdout, "done\n");
    assert!(ran.stderr.contains("its budget for the customer (the run's account) has no room left"), "{}", ran.stderr);
    sluice.assert_nothing_left().await;
}
