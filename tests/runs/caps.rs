//! A run's own cap in dollars: its prices, and the end of a run that reaches it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::json;
use sluice_testkit::upstream::{Script, UpstreamPlan};
use sluice_testkit::{Sluice, Upstream};

/// A script that makes one call, and fails if the call does.
const ASK: &str = r#"
curl --silent --show-error --fail "$OPENAI_BASE_URL/chat/completions" --output /dev/null \
    --json "{\"model\": \"$SLUICE_MODEL\", \"max_tokens\": 20, \"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]}"
"#;

/// A LiteLLM that names the price of `m`: a micro-dollar a token, in and out.
fn priced() -> UpstreamPlan {
    Upstream::with(|request| match request.target.as_str() {
        "/model/info" => Script::json(
            200,
            json!({"data": [{"model_name": "m", "litellm_params": {"api_base": "http://inside"},
                             "model_info": {"input_cost_per_token": 1e-6, "output_cost_per_token": 1e-6}}]}),
        ),
        _ => Script::provider("hello"),
    })
}

/// Number of requests for prices.
fn asked(upstream: &Upstream) -> usize {
    upstream.requests().iter().filter(|request| request.target == "/model/info").count()
}

/// Returns the price lists that a state directory keeps.
fn lists(sluice: &Sluice) -> Vec<PathBuf> {
    let files = fs::read_dir(sluice.state().join("prices")).expect("it is made at first use");
    files.map(|file| file.expect("it is readable").path()).collect()
}

/// Makes the price list older.
fn age(sluice: &Sluice, by: Duration) {
    let [list] = &lists(sluice)[..] else { panic!("one list: {:?}", lists(sluice)) };
    let file = fs::File::options().write(true).open(list).expect("it is there");
    file.set_modified(SystemTime::now() - by).expect("it is ours");
}

#[tokio::test]
async fn a_run_stopped_by_its_cap_exits_with_121() {
    let sluice = Sluice::new().await;
    let run = |cap: &'static str| {
        let words = ["--model", "gpt-4o-mini", "--max-cost-usd", cap, "--json", "--", "sh", "-ec"];
        sluice.run(words).arg(format!("{ASK}{ASK}")).finish()
    };

    // A call is reserved with some 45 tokens in and 20 out at 1.5e-7 and 6e-7 dollars, and costs 1.35e-5.
    let report = run("0.00003").await.expect(121).json();
    assert_eq!(report.verdict(), (false, Some("budget_exceeded"), 121));
    assert_eq!((report.receipts.len(), report.refused), (1, 1), "{report:?}");
    let intent = sluice.audit(&report.run_id).intents()[0].clone();
    let reserved: f64 = intent["reserved_usd"].as_str().and_then(|text| text.parse().ok()).expect("an amount");
    assert!((0.000_012..0.000_03).contains(&reserved), "{intent}");

    let report = run("0.01").await.expect(0).json();
    assert_eq!(report.receipts.len(), 2);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn prices_are_fetched_for_a_cap_and_cached() {
    let upstream = priced().start().await;
    let sluice = Sluice::to(&upstream);
    let run = |cap: &'static [&'static str]| {
        sluice.run(["--model", "m", "--json"]).args(cap).args(["--", "sh", "-ec", ASK]).finish()
    };
    run(&[]).await.expect(0);
    assert_eq!((asked(&upstream), lists(&sluice)), (0, vec![]));

    for _ in 0..2 {
        run(&["--max-cost-usd", "1"]).await.expect(0);
        assert_eq!(asked(&upstream), 1);
    }
    let [list] = &lists(&sluice)[..] else { panic!("one list: {:?}", lists(&sluice)) };
    assert_eq!(fs::metadata(list).expect("it is there").permissions().mode() & 0o777, 0o600);
    let text = fs::read_to_string(list).expect("it is readable");
    assert!(!text.contains("inside") && text.contains("input_cost_per_token"), "{text}");

    age(&sluice, Duration::from_secs(11 * 60));
    run(&["--max-cost-usd", "1"]).await.expect(0);
    assert_eq!((asked(&upstream), lists(&sluice).len()), (2, 1));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn without_prices_a_run_with_a_cap_is_refused() {
    let upstream = Upstream::with(|request| match request.target.as_str() {
        "/model/info" => Script::json(500, json!({"error": sluice_testkit::sidecar::CANARY})),
        _ => Script::provider("hello"),
    });
    let upstream = upstream.start().await;
    let sluice = Sluice::to(&upstream);
    let words = ["--model", "m", "--max-cost-usd", "1", "--json"];

    let report = sluice.run(words).args(["--", "true"]).finish().await.expect(125).json();

    assert_eq!(report.error_code.as_deref(), Some("creation_failed"));
    assert!(report.message().contains("--prices") && report.message().contains("status 500"), "{report:?}");
    assert_eq!(upstream.requests().len(), 1);
    sluice.assert_nothing_left().await;

    let named = sluice.file(
        "prices.json",
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}}]}"#,
    );
    sluice.run(words).args(["--prices", &named, "--", "sh", "-ec", ASK]).finish().await.expect(0);
    // A command of the tests runs in the directory of the file.
    sluice.run(words).args(["--prices", "prices.json", "--", "sh", "-ec", ASK]).finish().await.expect(0);
    assert_eq!(asked(&upstream), 1);
}

#[tokio::test]
async fn cached_prices_serve_with_a_warning_without_litellm() {
    let upstream = Upstream::queue([
        Script::json(200, json!({"data": [{"model_name": "m", "model_info": {"input_cost_per_token": 1e-6}}]})),
        Script::json(503, json!({})),
    ]);
    let upstream = upstream.start().await;
    let sluice = Sluice::to(&upstream);
    let words = ["--model", "m", "--max-cost-usd", "1", "--", "true"];
    sluice.run(words).finish().await.expect(0);

    age(&sluice, Duration::from_secs(5 * 3600));
    let ran = sluice.run(words).finish().await.expect(0);
    assert!(ran.stderr.contains("the cap rests on prices that are 5h"), "{}", ran.stderr);

    age(&sluice, Duration::from_secs(25 * 3600));
    let ran = sluice.run(words).finish().await.expect(125);
    assert!(ran.stderr.contains("--prices"), "{}", ran.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_run_over_its_cap_says_so_with_amounts() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    // Prices that are too low: the call fits, and costs more than the cap.
    let prices = sluice.file(
        "prices.json",
        r#"{"data":[{"model_name":"m","model_info":{"input_cost_per_token":1e-8,"output_cost_per_token":1e-8}}]}"#,
    );
    let words = ["--model", "m", "--prices", &prices, "--max-cost-usd", "0.000001"];

    let report = sluice.run(words).args(["--json", "--", "sh", "-ec", ASK]).finish().await.expect(0).json();
    let told = sluice.run(words).args(["--", "sh", "-ec", ASK]).finish().await.expect(0);

    assert_eq!(report.over_caps, [json!({"cap": "max_cost_usd", "limit": "0.000001", "used": "0.0000054"})]);
    for line in ["  ok, and over its cap", "over    $0.0000054 spent, and --max-cost-usd is $0.000001"] {
        assert!(told.stderr.lines().any(|it| it.ends_with(line)), "no {line:?} in {}", told.stderr);
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_call_beyond_the_cap_is_never_made() {
    let upstream = priced().start().await;
    let sluice = Sluice::to(&upstream);
    for cap in [["--max-cost-usd", "0.0000001"], ["--max-tokens", "5"]] {
        for setting in ["auto", "off"] {
            let words = ["--model", "m", "--bound-output", setting, "--json"];
            let ran = sluice.run(words).args(cap).args(["--", "sh", "-ec", ASK]).finish().await;
            let report = ran.expect(121).json();
            assert_eq!(report.verdict(), (false, Some("budget_exceeded"), 121), "{cap:?}");
            assert_eq!((report.receipts.len(), report.refused, report.over_caps.len()), (0, 1, 0), "{cap:?}");
        }
    }
    assert!(upstream.requests().iter().all(|request| request.target == "/model/info"));
    sluice.assert_nothing_left().await;
}
