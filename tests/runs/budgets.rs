//! Budgets of accounts: a hold before a run begins, which the sum of its receipts replaces; no money is granted twice.

use std::fs;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::Poll;

use serde_json::{Value, json};
use sluice_testkit::controller::{FinishedCommand, RunReport};
use sluice_testkit::engine::Hold;
use sluice_testkit::upstream::Script;
use sluice_testkit::{Sluice, Upstream};

mod lost;
mod void;

/// Cost of one answered call, in nano-USD.
const NANOS: i64 = 5400;

/// A script that makes calls, and fails if one of them does.
fn ask(times: usize) -> String {
    let one = r#"
curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" --output /dev/null \
    --json '{"model": "m", "max_tokens": 20, "messages": [{"role": "user", "content": "hello"}]}'
"#;
    one.repeat(times)
}

/// Writes a price file in which each token costs `each` dollars.
fn prices(sluice: &Sluice, each: &str) -> String {
    let info = format!(r#"{{"input_cost_per_token":{each},"output_cost_per_token":{each}}}"#);
    sluice.file("prices.json", &format!(r#"{{"data":[{{"model_name":"m","model_info":{info}}}]}}"#))
}

async fn budget(sluice: &Sluice, words: &[&str]) -> FinishedCommand {
    sluice.command(["budget"]).args(words).finish().await
}

/// Granted, spent, held and left of acct-1, in nano-USD.
async fn stands(sluice: &Sluice) -> [i64; 4] {
    let shown = budget(sluice, &["show", "acct-1", "--json"]).await.expect(0).value();
    ["granted_usd", "spent_usd", "held_usd", "left_usd"].map(|name| nanos(&shown["budgets"][0][name]))
}

fn nanos(text: &Value) -> i64 {
    let dollars: f64 = text.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    #[allow(clippy::cast_possible_truncation, reason = "a few dollars")]
    let nanos = (dollars * 1e9).round() as i64;
    nanos
}

/// Sum of the receipts of acct-1, in nano-USD.
async fn receipts(sluice: &Sluice) -> i64 {
    let receipts = sluice.command(["receipts", "--account", "acct-1", "--json"]).finish().await.expect(0).value();
    receipts["total"]["nano_usd"].as_str().map_or(0, |text| text.parse().expect("a number"))
}

/// An account with a budget of this many dollars, at an upstream that answers, and its file of prices.
async fn granted(dollars: &str) -> (Upstream, Sluice, String) {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-6");
    budget(&sluice, &["set", "acct-1", dollars]).await.expect(0);
    (upstream, sluice, prices)
}

const RUN: [&str; 5] = ["--account", "acct-1", "--model", "m", "--json"];

#[tokio::test]
async fn a_budget_for_five_admits_five_of_fifty() {
    let (upstream, sluice, prices) = granted("5").await;
    let words = ["--max-cost-usd", "1", "--prices", &prices, "--timeout", "10m", "--", "sh", "-c"];
    let script = format!("{} until [ -e /workspace/go ]; do sleep 0.05; done", ask(1));
    let mut race = Race::of((0..50).map(|_| sluice.run(RUN).args(words).arg(&script).finish()));

    // Five runs wait for the file `go`; the others are refused and end.
    race.until(45).await;
    assert_eq!(race.codes(), [121; 45]);
    for _ in 0..5 {
        upstream.received().await;
    }
    assert_eq!(stands(&sluice).await[2..], [5_000_000_000, 0]);
    for run in sluice.runs() {
        fs::write(run.join("work/go"), "").expect("the workspace is ours too");
    }
    race.until(50).await;

    assert_eq!(race.codes()[45..], [0; 5]);
    assert_eq!(upstream.requests().len(), 5);
    assert_eq!(stands(&sluice).await, [5_000_000_000, 5 * NANOS, 0, 5_000_000_000 - 5 * NANOS]);
    assert_eq!(sluice.assert_nothing_left().await.len(), 5);
}

/// Concurrent runs: the running ones, and the ended ones in the order of their ends.
struct Race<'a> {
    running: Vec<Pin<Box<dyn Future<Output = FinishedCommand> + 'a>>>,
    ended: Vec<FinishedCommand>,
}

impl<'a> Race<'a> {
    fn of(runs: impl Iterator<Item = impl Future<Output = FinishedCommand> + 'a>) -> Self {
        Self { running: runs.map(|run| Box::pin(run) as _).collect(), ended: Vec::new() }
    }

    /// Waits until `count` have ended.
    async fn until(&mut self, count: usize) {
        poll_fn(|cx| {
            self.running.retain_mut(|run| match run.as_mut().poll(cx) {
                Poll::Ready(ran) => {
                    self.ended.push(ran);
                    false
                }
                Poll::Pending => true,
            });
            if self.ended.len() >= count { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    fn codes(&self) -> Vec<i32> {
        self.ended.iter().map(|ran| ran.code).collect()
    }
}

#[tokio::test]
async fn a_refused_run_leaves_nothing_and_explains_the_budget() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    budget(&sluice, &["set", "acct-1", "0.40"]).await.expect(0);

    let refused = sluice.run(RUN).args(["--run-id", "refused-1", "--max-cost-usd", "0.5", "--", "true"]).finish().await;

    let refused = refused.expect(121);
    let told = "account acct-1 has $0.4 left of its budget ($0.4 granted, $0 spent, $0 held), and this run asks for $0.5 \
                (--max-cost-usd); lower that, wait for runs that hold some, or give more: sluice budget add acct-1 USD";
    assert_eq!(refused.stderr, format!("sluice: insufficient_credits: {told}\n"));
    let object = refused.value();
    for (name, expected) in [
        ("ok", json!(false)),
        ("error_code", json!("insufficient_credits")),
        ("error_message", json!(told)),
        ("exit_code", json!(121)),
        ("run_id", json!(null)),
        ("account", json!("acct-1")),
        ("asked_usd", json!("0.5")),
        ("budget", json!({"granted_usd": "0.4", "spent_usd": "0", "held_usd": "0", "left_usd": "0.4"})),
    ] {
        assert_eq!(object[name], expected, "{name}");
    }
    assert_eq!(sluice.sql("SELECT count(*) FROM runs").await, "[[0]]");
    assert!(sluice.assert_nothing_left().await.is_empty(), "no audit file either");
    assert_eq!(upstream.requests().len(), 0);
    // Another account has no budget, and no limit; and the run id is still free.
    let words = ["--account", "acct-2", "--run-id", "refused-1", "-q", "--", "true"];
    sluice.run(words).finish().await.expect(0);
}

#[tokio::test]
async fn budget_commands_do_not_create_a_database() {
    let sluice = Sluice::to(&Upstream::provider("hello").start().await);
    let nowhere = sluice.dir().join("mistyped");
    let there = ["--state-dir", nowhere.to_str().expect("a test's directory is text")];
    for words in [&["show"][..], &["add", "acct-1", "1"], &["remove", "acct-1"]] {
        let told = sluice.command(["budget"]).args(words).args(there).finish().await.expect(2).stderr;
        assert!(told.contains("there is no database") && told.contains("--state-dir"), "{told}");
        assert!(!nowhere.exists(), "{words:?}");
    }
    sluice.command(["budget", "set", "acct-1", "1"]).args(there).finish().await.expect(0);
    assert!(sluice.command(["budget", "show"]).args(there).finish().await.expect(0).stdout.contains("acct-1"));
}

#[tokio::test]
async fn an_amount_below_a_nano_usd_is_refused() {
    let sluice = Sluice::to(&Upstream::provider("hello").start().await);
    budget(&sluice, &["set", "acct-1", "1"]).await.expect(0);
    for words in [["set", "acct-1", "1e-12"], ["add", "acct-1", "0.0000000001"]] {
        let told = budget(&sluice, &words).await.expect(2).stderr;
        assert!(told.contains(words[2]) && told.contains("less than a nano-dollar"), "{told}");
    }
    assert_eq!(stands(&sluice).await, [1_000_000_000, 0, 0, 1_000_000_000]);
    let held = sluice.run(["--", "true"]).env("SLUICE_HOLD_USD", "1e-12").finish().await.expect(125).stderr;
    assert!(held.contains("SLUICE_HOLD_USD") && held.contains("less than a nano-dollar"), "{held}");
    // Zero is a valid amount.
    budget(&sluice, &["set", "acct-1", "0"]).await.expect(0);
    assert_eq!(stands(&sluice).await, [0; 4]);
}

#[tokio::test]
async fn spent_money_equals_the_sum_of_receipts() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-6");
    let words = ["--prices", &prices, "--", "sh", "-ec"];
    // Money that was spent before there was a budget does not count.
    sluice.run(RUN).args(words).arg(ask(1)).finish().await.expect(0);
    budget(&sluice, &["set", "acct-1", "3"]).await.expect(0);
    for times in [2, 0, 3] {
        sluice.run(RUN).args(words).arg(ask(times)).finish().await.expect(0);
    }
    sluice.run(RUN).args(words).arg(format!("{} exit 7", ask(1))).finish().await.expect(7);

    assert_eq!(stands(&sluice).await, [3_000_000_000, 6 * NANOS, 0, 3_000_000_000 - 6 * NANOS]);
    assert_eq!(receipts(&sluice).await, 7 * NANOS);
    let ran = budget(&sluice, &["add", "acct-1", "0.5"]).await.expect(0);
    assert!(ran.stdout.contains("acct-1") && ran.stdout.contains(" 3.5 "), "{}", ran.stdout);
    assert_eq!(stands(&sluice).await[0], 3_500_000_000);
    budget(&sluice, &["remove", "acct-1"]).await.expect(0);
    let ran = budget(&sluice, &["show", "acct-1"]).await.expect(2);
    assert!(ran.stderr.contains("sluice budget set acct-1 USD"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_run_without_cap_is_capped_at_its_hold() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-7");
    // Enough to reserve one call of some 60 tokens, but not for a second one after the cost of the first.
    budget(&sluice, &["set", "acct-1", "0.00001"]).await.expect(0);

    let run = || sluice.run(RUN).args(["--prices", &prices, "--", "sh", "-ec"]).arg(ask(2)).finish();
    let report = run().await.expect(121).json();

    assert_eq!(report.verdict(), (false, Some("budget_exceeded"), 121));
    let message = report.error_message.as_deref().unwrap_or_default();
    assert!(message.contains("$0.00001 (") && message.contains("sluice budget add acct-1 USD"), "{message}");
    let [granted, spent, held, left] = stands(&sluice).await;
    assert_eq!((granted, spent, held, left), (10_000, NANOS, 0, 10_000 - NANOS));
    assert_eq!(receipts(&sluice).await, NANOS);
}

#[tokio::test]
async fn an_overspending_call_is_billed_and_blocks_later_runs() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    // Prices that are too low: the call is let through, and costs more than the account has.
    let prices = prices(&sluice, "1e-8");
    budget(&sluice, &["set", "acct-1", "0.000001"]).await.expect(0);
    let run = || sluice.run(RUN).args(["--prices", &prices, "--", "sh", "-ec"]).arg(ask(1)).finish();
    run().await.expect(0);

    assert_eq!(stands(&sluice).await, [1000, NANOS, 0, 1000 - NANOS]);
    let refused = run().await.expect(121);
    assert!(refused.stderr.contains("-$0.0000044 left"), "{}", refused.stderr);
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_call_beyond_the_budgets_rest_is_never_made() {
    let (upstream, sluice, prices) = granted("0.000001").await;

    let ran = sluice.run(RUN).args(["--prices", &prices, "--", "sh", "-ec"]).arg(ask(1)).finish().await;

    assert_eq!(ran.expect(121).json().verdict(), (false, Some("budget_exceeded"), 121));
    assert_eq!(stands(&sluice).await, [1000, 0, 0, 1000]);
    assert_eq!(upstream.requests().len(), 0);
}

/// No later reconciliation settles these calls, because there is no spend log.
#[tokio::test]
async fn failed_calls_that_nobody_bills_hold_nothing() {
    let statuses = [404, 400, 401];
    let upstream = Upstream::queue(statuses.map(|status| Script::error(status, "no"))).start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-6");
    budget(&sluice, &["set", "acct-1", "3"]).await.expect(0);
    for status in statuses {
        let ran = sluice.run(RUN).args(["--prices", &prices, "--", "sh", "-ec"]).arg(ask(1)).finish().await;
        assert_eq!(ran.json().receipts.len(), 1, "{status}");
        assert_eq!(stands(&sluice).await, [3_000_000_000, 0, 0, 3_000_000_000], "{status}");
    }
    let shown = budget(&sluice, &["show"]).await.expect(0).stdout;
    assert!(!shown.contains("not known"), "{shown}");
    assert_eq!(upstream.requests().len(), statuses.len());
}

#[tokio::test]
async fn a_run_that_cannot_start_holds_nothing() {
    let (_upstream, sluice, prices) = granted("3").await;
    for words in [["--image", "no-such-image"], ["--proxy", "/bin/false"], ["--upstream", "http://127.0.0.1:1"]] {
        let ran = sluice.run(RUN).args(["--prices", &prices]).args(words).args(["--", "true"]).finish().await;
        ran.expect(125);
        assert_eq!(stands(&sluice).await, [3_000_000_000, 0, 0, 3_000_000_000], "{words:?}");
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_next_controller_releases_a_killed_ones_unspent_hold() {
    let (upstream, sluice, prices) = granted("3").await;
    let words = ["--prices", &prices, "--", "sh", "-c"];
    for (by_sweep, spent) in [(true, NANOS), (false, 2 * NANOS)] {
        // The call of the last round may have been cut.
        let before = stands(&sluice).await[2];
        let live = sluice.run(RUN).args(words).arg(format!("{} sleep 600", ask(1))).spawn();
        upstream.received().await;
        live.kill().await.expect(-9);
        assert_eq!(stands(&sluice).await[2] - before, 1_000_000_000, "the hold is not released yet");

        if by_sweep {
            sluice.command(["sweep"]).finish().await.expect(0);
        } else {
            sluice.run(["-q", "--", "true"]).finish().await.expect(0);
        }

        let [_, billed, held, _] = stands(&sluice).await;
        // The call may have been cut before its answer was written down.
        assert_eq!(billed, receipts(&sluice).await);
        assert!(billed + held >= spent, "{billed} {held}");
        assert!(held < 1_000_000, "no more than a call: {held}");
    }
    // Kill before the container of the run is created.
    let hold = Hold::request("/containers/create");
    let live = sluice.run(RUN).args(words).arg("true").env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    hold.held().await;
    live.kill().await.expect(-9);
    let before = stands(&sluice).await;
    sluice.command(["sweep"]).finish().await.expect(0);
    assert_eq!(before[2] - stands(&sluice).await[2], 1_000_000_000);
    sluice.assert_nothing_left_but_unsealed_audit_files().await;
}

#[tokio::test]
async fn orphaned_holds_are_released_before_the_budget_check() {
    let (_upstream, sluice, prices) = granted("1").await;
    let words = ["--max-cost-usd", "1", "--prices", &prices, "--", "sh", "-c"];
    let live = sluice.run(RUN).args(words).args(["sleep 600"]).spawn();
    sluice.started().await;
    sluice.run(RUN).args(words).args(["true"]).finish().await.expect(121);
    live.kill().await.expect(-9);

    sluice.run(RUN).args(words).args(["true"]).finish().await.expect(0);

    assert_eq!(stands(&sluice).await, [1_000_000_000, 0, 0, 1_000_000_000]);
    sluice.assert_nothing_left().await;
}

/// A run of an account with a budget: one call was answered, and the end of the other is unknown.
async fn run_with_an_open_call() -> (Upstream, Sluice, RunReport) {
    let upstream = Upstream::queue([Script::provider("hello"), Script::never()]).start().await;
    let sluice = Sluice::to(&upstream);
    let prices = prices(&sluice, "1e-6");
    budget(&sluice, &["set", "acct-1", "3"]).await.expect(0);
    let words = ["--prices", &prices, "--timeout", "20s", "--", "sh", "-c"];
    let report = sluice.run(RUN).args(words).arg(ask(2)).finish().await.expect(124).json();
    (upstream, sluice, report)
}

#[tokio::test]
async fn a_call_of_unknown_cost_stays_held() {
    let (_upstream, sluice, report) = run_with_an_open_call().await;

    let reserved = nanos(&sluice.audit(&report.run_id).intents()[1]["reserved_usd"]);
    assert!(reserved > 20_000, "{reserved}");
    assert_eq!(stands(&sluice).await[1..3], [NANOS, reserved]);
    let shown = budget(&sluice, &["show"]).await.expect(0).stdout;
    assert!(shown.contains(&report.run_id) && shown.contains("the cost of 1 of its calls is not known"), "{shown}");
    // It blocks no further run, and the operator can begin anew.
    let prices = prices(&sluice, "1e-6");
    sluice.run(RUN).args(["--prices", &prices, "--", "true"]).finish().await.expect(0);
    assert_eq!(stands(&sluice).await[2], reserved);
    let again = budget(&sluice, &["set", "acct-1", "3"]).await.expect(0);
    assert!(
        again.stderr.contains("begins anew; it replaces one with $3 granted, $0.0000054 spent"),
        "{}",
        again.stderr
    );
    assert_eq!(stands(&sluice).await, [3_000_000_000, 0, 0, 3_000_000_000]);
}

#[tokio::test]
async fn each_change_of_a_budget_is_in_its_history() {
    let (_upstream, sluice, _) = granted("1").await;
    budget(&sluice, &["add", "acct-1", "0.5"]).await.expect(0);
    budget(&sluice, &["set", "acct-2", "2"]).await.expect(0);
    let gone = budget(&sluice, &["remove", "nope"]).await.expect(2);
    assert!(gone.stderr.contains("sluice budget show") && !gone.stderr.contains("budget set"), "{}", gone.stderr);
    budget(&sluice, &["remove", "acct-1"]).await.expect(0);

    let changes = budget(&sluice, &["history", "acct-1", "--json"]).await.expect(0).value();
    let changes: Vec<_> = changes["changes"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|change| {
            assert!(change["made_at"].as_str().is_some_and(|time| time.ends_with('Z')), "{change}");
            (change["change"].clone(), change["amount_usd"].clone(), change["made_by"].clone())
        })
        .collect();
    let expected = [("set", json!("1")), ("added", json!("0.5")), ("removed", json!(null))];
    assert_eq!(changes, expected.map(|(change, amount)| (json!(change), amount, json!("root"))));
    let csv = budget(&sluice, &["history", "--csv"]).await.expect(0).stdout;
    assert!(csv.starts_with("made_at,account,change,amount_usd,made_by\r\n") && csv.lines().count() == 5, "{csv}");
    // The budget log has the names of the operators too.
    fs::remove_file(sluice.state().join("sluice.db")).expect("it is there");
    sluice.command(["ledger", "rebuild"]).finish().await.expect(0);
    let again = budget(&sluice, &["history", "--csv"]).await.expect(0).stdout;
    assert_eq!(again, csv);
}
