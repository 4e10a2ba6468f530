//! Messages of a run that does not start or does not end well: the value, the cause and the flag.

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

use crate::agents::without_calls;

const RUNS: &str = "SELECT count(*) FROM runs";

/// One call, whatever its answer.
const CALL: &str = "curl -s -o /dev/null -H 'content-type: application/json' \
    -d '{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}' $OPENAI_BASE_URL/chat/completions";

#[tokio::test]
async fn a_wrong_flag_spends_no_run_id() {
    let (sluice, _upstream) = without_calls().await;
    sluice.run(["-q", "--", "true"]).finish().await.expect(0);
    let prices = sluice.file("prices.json", "{}");
    for (flags, words) in [
        (["--rate", "5/m"], "sluice: invalid value '5/m' for '--rate <N/s>': want calls a second, such as 5/s"),
        (["--upstream", "ftp://x"], "sluice: --upstream 'ftp://x' is not an address of an upstream"),
        (["--prices", &prices], "sluice: --prices: want the JSON of LiteLLM's GET /model/info"),
        (["--timeout", "abc"], "sluice: --timeout: 'abc' is not a time"),
        (["--memory", "512"], "sluice: --memory: '512' is 512 bytes, which is too little; give at least 6m"),
        (["--model", ""], "error: invalid value '' for '--model <NAME>'"),
    ] {
        let ran = sluice.run(["-q"]).args(flags).args(["--", "true"]).finish().await.expect(125);
        assert!(ran.stderr.contains(words), "{flags:?}: {}", ran.stderr);
        assert!(!ran.stderr.contains("sluice-proxy"), "{flags:?}: {}", ran.stderr);
    }
    assert_eq!(sluice.sql(RUNS).await, "[[1]]");
}

#[tokio::test]
async fn a_limit_that_ended_a_run_is_named() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let two_calls = format!("{CALL}; {CALL}; exit 1");
    let each = r#"{"input_cost_per_token":1e-6,"output_cost_per_token":1e-6}"#;
    let prices = sluice.file("prices.json", &format!(r#"{{"data":[{{"model_name":"m","model_info":{each}}}]}}"#));
    let memory = "data = bytearray(200 << 20)\nfor at in range(0, len(data), 4096): data[at] = 1";
    for (words, code, message) in [
        (&["--timeout", "1s", "--", "sleep", "60"][..], 124, "timeout: the run took longer than 1s (--timeout), and"),
        (&["--memory", "40m", "--", "python3", "-c", memory], 137, "more memory than 40m (--memory), and was killed"),
        (&["--output-max", "10", "hello"], 1, "output_truncated: the answer of the agent was longer than 10 bytes"),
        (&["--max-calls", "0", "--", "sh", "-c", &two_calls], 121, "too little left of 0 calls (--max-calls; 0 made)"),
        (&["--max-calls", "1", "--", "sh", "-c", &two_calls], 121, "too little left of 1 calls (--max-calls; 1 made)"),
        (
            &["--max-tokens", "3", "--", "sh", "-c", &two_calls],
            121,
            "too little left of 3 tokens (--max-tokens; 0 used)",
        ),
        // The account has no budget.
        (
            &["--max-cost-usd", "0.000001", "--prices", &prices, "--", "sh", "-c", &two_calls],
            121,
            "$0.000001 ($0 used; a higher --max-cost-usd raises the cap; if account default has a budget, that amount",
        ),
    ] {
        let ran = sluice.run(["-q", "--model", "m"]).args(words).finish().await.expect(code);
        assert!(ran.stderr.contains(message), "{words:?}: {}", ran.stderr);
    }
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_agents_error_without_code_is_readable() {
    let (sluice, _upstream) = without_calls().await;
    let entry = "[[agents]]\nagentId = \"sandbox:mine\"\nargv = [\"sh\", \"-c\", \"echo \\\"$ENVELOPE\\\"\"]\n";
    sluice.file("sluice.toml", entry);
    for (error, message) in [
        (json!({"kind": "x", "message": "went wrong"}), "container_failed: went wrong"),
        (json!({"code": "c", "message": "went wrong"}), "container_failed: c: went wrong"),
        (json!({}), "container_failed: the agent reported an error without a code and a message"),
    ] {
        let envelope = format!("ENVELOPE={}", json!({"payloads": [], "meta": {"error": error}}));
        let run = sluice.run(["-q", "--model", "m", "--agent", "mine", "-e", &envelope, "hello"]);
        let ran = run.finish().await.expect(1);
        assert_eq!(ran.stderr, format!("sluice: {message}\n"));
    }
}
