//! The caps: exact under a burst, settled by the actual use, with reasons that a program can read.

use std::path::PathBuf;

use serde_json::{Value, json};
use sluice_testkit::upstream::{ClosedPort, Script};
use sluice_testkit::{ClientAnswer, Launch, RawClient, Sidecar, Upstream};
use tokio::task::JoinSet;

mod bounds;
mod broken;
mod litellm;
mod peers;
mod rate;
mod thinking;
mod waiting;

const CHAT: &str = "/v1/chat/completions";
/// Number of calls that each cap of a burst admits.
const N: usize = 5;

/// A call that declares a maximum of output tokens.
fn declared(max_tokens: u64) -> Value {
    json!({"model": "m", "messages": [], "max_tokens": max_tokens})
}

fn undeclared() -> Value {
    json!({"model": "m", "messages": []})
}

/// Gives the launch a price file in which an output token costs `output` dollars, and input is free.
fn priced(launch: Launch, output: &str) -> Launch {
    let path = launch.dir().join("prices.json");
    let text = format!(
        r#"{{"data":[{{"model_name":"m","model_info":{{"input_cost_per_token":0,"output_cost_per_token":{output}}}}}]}}"#
    );
    std::fs::write(&path, text).expect("the sidecar's directory takes files");
    launch.args(["--prices", &path.display().to_string()])
}

/// Makes calls at the same time, each on its own connection; all connections are open before the first call.
async fn burst(socket: PathBuf, count: usize, body: &Value) -> JoinSet<ClientAnswer> {
    let mut connections = Vec::new();
    for _ in 0..count {
        connections.push(RawClient::connect(&socket).await);
    }
    let mut calls = JoinSet::new();
    for mut raw in connections {
        let body = body.clone();
        calls.spawn(async move { raw.post_json(CHAT, body).await });
    }
    calls
}

async fn next(calls: &mut JoinSet<ClientAnswer>) -> ClientAnswer {
    calls.join_next().await.expect("a call is left").expect("no call panics")
}

#[tokio::test]
async fn an_answer_from_litellms_cache_uses_no_cap() {
    let hit = |script: Script| script.header("x-litellm-cache-key", "5f0c");
    for script in [Script::chat("hello"), Script::chat_stream(["hel", "lo"])] {
        let upstream = Upstream::answering(hit(script)).start().await;
        let caps = ["--max-tokens", "1100", "--max-cost-usd", "1.1"];
        let sidecar = priced(Sidecar::to(&upstream), "0.001").args(caps).start().await;
        for _ in 0..3 {
            let answer = sidecar.post(CHAT, declared(1000)).await;
            assert_eq!((answer.status, answer.header("x-litellm-cache-key")), (200, None));
        }
        sidecar.stop().await;
        let audit = sidecar.audit();
        for outcome in audit.outcomes() {
            assert_eq!((&outcome["cache_hit"], &outcome["cost_usd"]), (&json!(true), &json!("0")), "{outcome}");
            assert_eq!(outcome["cost_source"], "header", "{outcome}");
        }
        assert_eq!((audit.outcomes().len(), &audit.close()["cost_usd"]), (3, &json!("0")));
    }
    // A provider can add this header to a unary answer to a Messages call, so it does not count there.
    let upstream = Upstream::answering(hit(Script::messages("hello"))).start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    sidecar.post("/v1/messages", declared(9)).await;
    sidecar.stop().await;
    assert!(
        sidecar
            .audit()
            .outcomes()
            .iter()
            .all(|outcome| outcome.get("cache_hit").is_none() && outcome["cost_usd"] != "0")
    );
}

#[tokio::test]
async fn a_burst_passes_exactly_the_calls_of_the_cap() {
    type Case = (&'static str, u16, &'static str, u64, fn(Launch) -> Launch);
    let cases: [Case; 5] = [
        ("calls", 402, "budget_exceeded", 1, |l| l.args(["--max-calls", "5"])),
        // 1,000 each and a little for the request: five fit, six do not.
        ("tokens", 402, "budget_exceeded", 1000, |l| l.args(["--max-tokens", "5900"])),
        ("dollars", 402, "budget_exceeded", 1000, |l| priced(l, "0.001").args(["--max-cost-usd", "5.9"])),
        ("exact dollars", 402, "budget_exceeded", 1000, |l| priced(l, "1e-3").args(["--max-cost-usd", "5"])),
        ("concurrency", 429, "too_many_calls", 1, |l| l.args(["--max-concurrency", "5"])),
    ];
    for (name, status, reason, max_tokens, flags) in cases {
        let upstream = Upstream::chat("hello").hold_head().start().await;
        let sidecar = flags(Sidecar::to(&upstream)).args(["--cap-wait", "0"]).start().await;

        let mut calls = burst(sidecar.socket().into(), 10 * N, &declared(max_tokens)).await;

        upstream.held(N).await;
        for _ in 0..9 * N {
            let refused = next(&mut calls).await.expect_refusal(status, reason);
            let retry_after = refused.header("retry-after").map(|text| text.parse::<u64>().is_ok());
            assert_eq!(retry_after, (status == 429).then_some(true), "{name}: when to come back");
        }
        upstream.release();
        for _ in 0..N {
            next(&mut calls).await.expect(200);
        }
        assert_eq!(sidecar.stop().await, 0);
        assert_eq!(upstream.requests().len(), N, "{name}");
        let audit = sidecar.audit();
        assert_eq!((audit.calls().len(), audit.refused_reasons()), (N, vec![reason.to_owned(); 9 * N]), "{name}");
    }
}

#[tokio::test]
async fn a_reservation_is_replaced_by_the_actual_use() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = priced(Sidecar::to(&upstream), "0.001");
    // Each call reserves one dollar and 1,000 tokens, and uses 0.0000054 dollars and 15 tokens.
    let sidecar = launch.args(["--max-cost-usd", "1.5", "--max-tokens", "1140"]).start().await;

    for streaming in [false, true, false, true, true] {
        let mut body = declared(1000);
        body["stream"] = json!(streaming);
        sidecar.post(CHAT, body).await.expect(200);
    }
    sidecar.post(CHAT, declared(1501)).await.expect_refusal(402, "budget_exceeded");

    assert_eq!(sidecar.stop().await, 0);
    let audit = sidecar.audit();
    for intent in audit.intents() {
        assert_eq!(intent["reserved_usd"], "1");
    }
    assert_eq!(audit.close()["cost_usd"], "0.000027");
}

/// Makes calls until one is refused for the budget, and returns the number of admitted ones.
async fn until_refused(sidecar: &Sidecar, path: &str, body: &Value) -> usize {
    for carried in 0..20 {
        let answer = sidecar.post(path, body).await;
        match answer.status {
            200 | 502 => {}
            402 => {
                answer.expect_refusal(402, "budget_exceeded");
                return carried;
            }
            status => panic!("{status} on {path}: {}", answer.text()),
        }
    }
    panic!("twenty calls, and no cap")
}

#[tokio::test]
async fn usage_counts_in_every_shape_of_answer() {
    let routes =
        [(CHAT, "messages"), ("/v1/completions", "prompt"), ("/v1/responses", "input"), ("/v1/messages", "messages")];
    for ((path, input), streaming) in routes.into_iter().flat_map(|route| [(route, false), (route, true)]) {
        let upstream = Upstream::provider("hello").start().await;
        let input = (input.to_owned(), if input == "messages" { json!([]) } else { json!("x") });
        let bound = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        let mut body = json!({"model": "m", "stream": streaming, bound: 16});
        body.as_object_mut().expect("an object").extend([input]);
        let sidecar = Sidecar::to(&upstream).args(["--max-tokens", "200"]).start().await;

        // Each call uses 15 tokens, and needs its reservation in addition to the tokens used before.
        let carried = until_refused(&sidecar, path, &body).await;
        let audit = sidecar.audit();
        let needed = audit.intents().last().and_then(|intent| intent["reserved_tokens"].as_u64()).expect("a number");
        assert_eq!(carried as u64, (200 - needed) / 15 + 1, "{path} {streaming}");
    }
}

#[tokio::test]
async fn without_prices_known_cost_stops_the_next_call() {
    for streaming in [false, true] {
        let upstream = Upstream::provider("hello").start().await;
        let sidecar = Sidecar::to(&upstream).args(["--max-cost-usd", "0.00001"]).start().await;
        let mut body = undeclared();
        body["stream"] = json!(streaming);

        // Each call costs 0.0000054: after one there is room, after two there is none.
        assert_eq!(until_refused(&sidecar, CHAT, &body).await, 2, "streaming {streaming}");
        assert_eq!(sidecar.stop().await, 0);
        assert!(sidecar.audit().intents().iter().all(|intent| intent["reserved_usd"].is_null()));
    }
}

#[tokio::test]
async fn with_prices_usage_replaces_a_missing_cost() {
    let answer = json!({"id": "x", "model": "m", "choices": [], "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}});
    let upstream = Upstream::json(200, answer).start().await;
    let launch = priced(Sidecar::to(&upstream), "0.001").args(["--max-cost-usd", "0.0225"]);
    let sidecar = launch.start().await;

    // Each call uses half a cent and reserves 1.6 cents: the third would reach 2.6 cents.
    assert_eq!(until_refused(&sidecar, CHAT, &declared(16)).await, 2);
    assert_eq!(sidecar.stop().await, 0);
    let costs: Vec<_> = sidecar.audit().calls().iter().map(|call| call.cost().map(str::to_owned)).collect();
    assert_eq!(costs, [None, None], "our own price is not the provider's cost");
}

#[tokio::test]
async fn a_call_without_usage_is_charged_its_reservation() {
    let silent = json!({"id": "x", "model": "m", "choices": []});
    let cut = Script::chat_stream(["a", "b"]).cut_after(1);
    for (name, script, streaming) in
        [("no usage", Script::json(200, silent), false), ("cut", cut, true), ("closed", Script::close(), false)]
    {
        let upstream = Upstream::answering(script).start().await;
        let sidecar = Sidecar::to(&upstream).args(["--max-tokens", "2500"]).start().await;
        let mut body = declared(1000);
        body["stream"] = json!(streaming);

        assert_eq!(until_refused(&sidecar, CHAT, &body).await, 2, "{name}");
    }
}

#[tokio::test]
async fn a_call_that_the_provider_refused_costs_nothing() {
    for status in [400, 404, 413, 429] {
        let upstream = Upstream::answering(Script::error(status, "no")).start().await;
        let launch = priced(Sidecar::to(&upstream), "0.001");
        let sidecar = launch.args(["--max-tokens", "1500", "--max-cost-usd", "1.5"]).start().await;

        for _ in 0..4 {
            sidecar.post(CHAT, declared(1000)).await.expect(status);
        }

        assert_eq!(upstream.requests().len(), 4);
    }
}

/// LiteLLM answers so when its own checks fail after the provider was paid.
#[tokio::test]
async fn a_call_failed_after_the_provider_costs_its_reservation() {
    for (status, message) in [(500, "no"), (422, "no"), (503, "no"), (400, "Invalid request format: no such attribute")]
    {
        let upstream = Upstream::answering(Script::error(status, message)).start().await;
        let launch = priced(Sidecar::to(&upstream), "0.001");
        let sidecar = launch.args(["--max-cost-usd", "2.5"]).start().await;

        for _ in 0..2 {
            sidecar.post(CHAT, declared(1000)).await.expect(status);
        }
        sidecar.post(CHAT, declared(1000)).await.expect_refusal(402, "budget_exceeded");

        assert_eq!(upstream.requests().len(), 2, "{status}");
    }
}

/// Coding agents request their model's maximum: a small cap shortens their answers instead of refusing them.
#[tokio::test]
async fn an_answer_that_does_not_fit_is_bounded() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = priced(Sidecar::to(&upstream), "0.001");
    let sidecar = launch.args(["--max-cost-usd", "5"]).start().await;
    for (path, named, bound) in [
        (CHAT, "max_tokens", "max_tokens"),
        (CHAT, "max_completion_tokens", "max_completion_tokens"),
        (CHAT, "unknown", "max_tokens"),
        ("/v1/completions", "max_tokens", "max_tokens"),
        ("/v1/responses", "max_output_tokens", "max_output_tokens"),
        ("/v1/responses", "max_tokens", "max_output_tokens"),
        ("/v1/messages", "max_tokens", "max_tokens"),
    ] {
        let prompt = if path == "/v1/completions" { "prompt" } else { "input" };
        let body = json!({"model": "m", "messages": [], prompt: "x", named: 64_000, "stream": false});

        let answer = sidecar.post(path, body).await.expect(200);

        let sent = upstream.received().await.json();
        // The bound is half of the rest of the cap; the first call has used a little.
        let granted = sent[bound].as_u64().expect("a bound");
        assert!((2400..=2500).contains(&granted), "{path} {named}: {sent}");
        assert_eq!(answer.header("x-sluice-max-tokens"), Some(granted.to_string().as_str()), "{path} {named}");
        assert!(bound == named || sent.get(named).is_none(), "{path} {named}: {sent}");
    }
    let audit = sidecar.audit();
    for intent in audit.intents() {
        assert!(intent["bound"].as_u64().is_some_and(|bound| bound > 2400) && intent["reserved_strict"] == true);
    }
}

/// A bound in a member that LiteLLM drops has no effect.
#[tokio::test]
async fn a_bound_of_another_route_has_no_effect() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = priced(Sidecar::to(&upstream), "0.001");
    let sidecar = launch.args(["--max-cost-usd", "20"]).start().await;
    for (path, name, value) in [
        ("/v1/responses", "max_tokens", 1),
        ("/v1/responses", "max_completion_tokens", 1),
        ("/v1/messages", "max_output_tokens", 1),
        ("/v1/messages", "max_tokens", 0),
        (CHAT, "max_output_tokens", 1),
        (CHAT, "max_tokens_to_sample", 1),
    ] {
        let body = json!({"model": "m", "messages": [], "input": "x", name: value});
        sidecar.post(path, body).await.expect(200);
        let sent = upstream.received().await.json();
        let bound = if path == "/v1/responses" { "max_output_tokens" } else { "max_tokens" };
        assert_eq!(sent[bound], 8192, "{path} {name}");
        let audit = sidecar.audit();
        assert_eq!(audit.intents().last().expect("an intent")["reserved_usd"], "8.192", "{path} {name}");
    }
}

#[tokio::test]
async fn a_call_that_was_not_sent_is_refunded() {
    let nowhere = ClosedPort::new();
    let launch = priced(Sidecar::to_url(&nowhere.url()), "0.001");
    let launch = launch.args(["--max-calls", "1", "--max-tokens", "1500", "--max-cost-usd", "1.5"]);
    let sidecar = launch.args(["--max-concurrency", "1"]).start().await;
    for _ in 0..3 {
        sidecar.post(CHAT, declared(1000)).await.expect_refusal(502, "upstream_unreachable");
    }

    let upstream = Upstream::chat("hello").start_at(nowhere).await;
    sidecar.post(CHAT, declared(1000)).await.expect(200);

    sidecar.post(CHAT, declared(1)).await.expect_refusal(402, "budget_exceeded");
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn a_call_that_was_refused_is_given_back() {
    let upstream = Upstream::chat("hello").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-calls", "1", "--model", "m"]).start().await;

    for body in [json!({"model": "other", "messages": []}), json!({"model": "m", "messages": [], "api_base": "x"})] {
        assert_eq!(sidecar.post(CHAT, body).await.status, 400);
    }

    sidecar.post(CHAT, undeclared()).await.expect(200);
    sidecar.post(CHAT, undeclared()).await.expect_refusal(402, "budget_exceeded");
}

#[tokio::test]
async fn a_client_that_left_makes_room_for_another() {
    let upstream = Upstream::chat_stream(["a", "b"]).hold_after(1).start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-concurrency", "1", "--abort", "cancel"]).start().await;
    let mut leaver = sidecar.stream(CHAT, json!({"model": "m", "messages": [], "stream": true})).await;
    leaver.read_event().await;
    sidecar.post(CHAT, undeclared()).await.expect_refusal(429, "too_many_calls");
    drop(leaver);
    upstream.closed(0).await;
    upstream.release();

    // The connection to the upstream and the share of the caps are released together.
    sidecar.audit_with("outcome", 1).await;
    sidecar.post(CHAT, undeclared()).await.expect(200);
}

#[tokio::test]
async fn lists_and_counts_cost_no_tokens() {
    let upstream = Upstream::provider("hello").start().await;
    let launch = priced(Sidecar::to(&upstream), "0.001");
    let sidecar = launch.args(["--max-tokens", "1100", "--max-cost-usd", "1.1"]).start().await;

    for _ in 0..3 {
        sidecar.post("/v1/messages/count_tokens", declared(1000)).await.expect(200);
        sidecar.get("/v1/models").await.expect(200);
    }

    sidecar.post(CHAT, declared(1000)).await.expect(200);
    assert_eq!(sidecar.stop().await, 0);
    assert_eq!(sidecar.audit().close()["usage"]["total"], 15);
}

#[tokio::test]
async fn the_callers_dialect_holds_for_caps_too() {
    let upstream = Upstream::provider("hello").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--max-calls", "0"]).start().await;

    let chat = sidecar.post(CHAT, undeclared()).await.expect_refusal(402, "budget_exceeded");
    let messages = sidecar.post("/v1/messages", undeclared()).await.expect_refusal(402, "budget_exceeded");

    assert_eq!(chat.error()["type"], "insufficient_quota");
    assert_eq!(messages.json()["type"], "error");
    assert_eq!(upstream.requests().len(), 0);
}
