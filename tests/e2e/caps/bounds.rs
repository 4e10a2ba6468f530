//! Output bounds of the sidecar: calls without a bound, calls that keep their own, prompts that do not fit.

use serde_json::{Value, json};
use sluice_testkit::{Sidecar, Upstream};

use super::{CHAT, priced};

/// Each route with an answer, with the name of its bound.
const ROUTES: [(&str, &str); 4] = [
    (CHAT, "max_tokens"),
    ("/v1/completions", "max_tokens"),
    ("/v1/responses", "max_output_tokens"),
    ("/v1/messages", "max_tokens"),
];

/// Each route, unary and streamed: the path, the name of its bound, and a call without a bound.
fn calls() -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    ROUTES.into_iter().flat_map(|(path, bound)| {
        let (input, text) = match path {
            "/v1/completions" => ("prompt", json!("x")),
            "/v1/responses" => ("input", json!("x")),
            _ => ("messages", json!([])),
        };
        [false, true].map(|stream| (path, bound, json!({"model": "m", "stream": stream, input: text})))
    })
}

#[tokio::test]
async fn a_call_without_a_bound_gets_one_that_fits() {
    for cap in [["--max-tokens", "5000"], ["--max-cost-usd", "5"]] {
        for (path, name, body) in calls() {
            let upstream = Upstream::provider("hello").start().await;
            let sidecar = priced(Sidecar::to(&upstream), "0.001").args(cap).start().await;

            let answer = sidecar.post(path, body).await.expect(200);

            let granted = upstream.received().await.json()[name].as_u64().expect("a bound");
            // Half of what is left, so that a second call fits beside it.
            assert!((2400..=2500).contains(&granted), "{path}: {granted}");
            assert_eq!(answer.header("x-sluice-max-tokens"), Some(granted.to_string().as_str()), "{path}");
            let audit = sidecar.audit_with("outcome", 1).await;
            let intent = audit.intents()[0].clone();
            assert_eq!((&intent["bound"], &intent["reserved_strict"]), (&json!(granted), &json!(true)), "{path}");
        }
    }
}

#[tokio::test]
async fn no_bound_is_written_without_a_cap() {
    for (path, name, body) in calls() {
        let upstream = Upstream::provider("hello").start().await;
        let sidecar = priced(Sidecar::to(&upstream), "0.001").args(["--max-calls", "9"]).start().await;

        let answer = sidecar.post(path, body).await.expect(200);

        assert_eq!(upstream.received().await.json().get(name), None, "{path}");
        assert_eq!(answer.header("x-sluice-max-tokens"), None, "{path}");
    }
}

#[tokio::test]
async fn calls_can_keep_the_bounds_that_they_name() {
    for (path, name, body) in calls() {
        let upstream = Upstream::provider("hello").start().await;
        let launch = priced(Sidecar::to(&upstream), "0.001").args(["--bound-output", "off", "--max-cost-usd", "5"]);
        let sidecar = launch.start().await;

        let answer = sidecar.post(path, &body).await.expect(200);
        assert_eq!(upstream.received().await.json().get(name), None, "{path}");
        assert_eq!(answer.header("x-sluice-max-tokens"), None, "{path}");
        let audit = sidecar.audit_with("outcome", 1).await;
        let intent = audit.intents()[0].clone();
        // Nothing bounds this answer, so the sidecar reserves the whole rest of the cap as a guess.
        assert_eq!((intent.get("bound"), &intent["reserved_strict"]), (None, &json!(false)), "{path}");
        assert_eq!(intent["reserved_usd"], "5", "{path}");

        let named = |tokens: u64| {
            let mut body = body.clone();
            body[name] = json!(tokens);
            body
        };
        sidecar.post(path, named(4000)).await.expect(200);
        assert_eq!(upstream.received().await.json()[name], 4000, "{path}");
        let refused = sidecar.post(path, named(64_000)).await.expect_refusal(402, "budget_exceeded");
        assert!(refused.text().contains("needs up to $64"), "{path}: {}", refused.text());
        assert_eq!(upstream.requests().len(), 2, "{path}");
    }
}

#[tokio::test]
async fn a_prompt_that_does_not_fit_is_refused() {
    let upstream = Upstream::provider("hello").start().await;
    for setting in ["auto", "off"] {
        let launch = Sidecar::to(&upstream).args(["--max-tokens", "5", "--bound-output", setting]);
        let sidecar = launch.start().await;
        for (path, name, body) in calls() {
            let mut bounded = body.clone();
            bounded[name] = json!(1);
            for body in [body, bounded] {
                sidecar.post(path, body).await.expect_refusal(402, "budget_exceeded");
            }
        }
    }
    assert_eq!(upstream.requests().len(), 0);
}
