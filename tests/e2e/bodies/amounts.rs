//! Model and amounts: the cost of a call is bounded before the call.

use sluice_testkit::{Sidecar, Upstream};

use super::{WIRES, body, passed, refused};

#[tokio::test]
async fn a_model_is_one_that_the_run_may_use() {
    let upstream = Upstream::provider("hi").start().await;
    let listed = Sidecar::to(&upstream).args(["--model", "m", "--model", "openai/m-2"]).start().await;
    let free = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        let ask = |model: &str| format!(r#"{{"model":{model},{rest}}}"#);
        for good in [r#""m""#, r#""openai/m-2""#, r#""\u006d""#] {
            let received = passed(&upstream, &listed, path, &ask(good)).await;
            assert!(received.json()["model"] == "m" || received.json()["model"] == "openai/m-2");
        }
        for bad in [r#""n""#, r#""M""#, r#""m ""#, r#"" m""#, r#""m,m""#, r#""m\u0000""#, r#""openai/m""#, r#""""#] {
            refused(&listed, path, &ask(bad), 400, "model_not_allowed", Some("model")).await;
        }
        for good in [r#""gpt-4o-mini""#, r#""anthropic/claude-3.5@x""#, r#""bedrock/arn:aws:x""#, r#""a_b+c""#] {
            passed(&upstream, &free, path, &ask(good)).await;
        }
        let long = format!(r#""{}""#, "m".repeat(5000));
        for bad in [
            r#""a,b""#, r#""http://x/m""#, r#""m:online""#, r#""m:ONLINE""#, r#""m:x:online""#, r#""""#, r#""a b""#,
            r#""é""#, &long,
        ] {
            refused(&free, path, &ask(bad), 400, "model_not_allowed", Some("model")).await;
        }
        for sidecar in [&listed, &free] {
            for bad in ["null", "1", "true", r#"["m"]"#, r#"{"m":1}"#] {
                refused(sidecar, path, &ask(bad), 400, "invalid_param", Some("model")).await;
            }
            refused(sidecar, path, &format!("{{{rest}}}"), 400, "model_not_allowed", Some("model")).await;
            refused(sidecar, path, &body(rest, r#","model":"m""#), 400, "duplicate_member", Some("model")).await;
            refused(sidecar, path, &body(rest, r#","mode\u006c":"m""#), 400, "duplicate_member", Some("model")).await;
        }
    }
}

#[tokio::test]
async fn answers_per_call_are_few() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for ((path, rest), names) in WIRES[..2].iter().zip([&["n"][..], &["n", "best_of"]]) {
        for name in names {
            for (value, reason) in [
                ("9", "param_not_allowed"),
                ("1000000", "param_not_allowed"),
                ("-1", "invalid_param"),
                ("1.5", "invalid_param"),
                ("1e9", "invalid_param"),
                ("\"2\"", "invalid_param"),
                ("[2]", "invalid_param"),
            ] {
                refused(&sidecar, path, &body(rest, &format!(r#","{name}":{value}"#)), 400, reason, Some(name)).await;
            }
            for value in ["1", "8", "null"] {
                passed(&upstream, &sidecar, path, &body(rest, &format!(r#","{name}":{value}"#))).await;
            }
        }
    }
}

/// Each prompt of a list is answered, and billed.
#[tokio::test]
async fn prompts_per_call_are_few() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let ask = |prompts: &str, more: &str| body(&format!(r#""prompt":{prompts}"#), more);
    let many = format!("[{}\"p\"]", "\"p\",".repeat(99));
    let tokens = format!("[{}[1]]", "[1,2],".repeat(99));
    for (prompts, more) in [(&*many, ""), (&*tokens, ""), (r#"["a","b"]"#, r#","n":8"#)] {
        let sent = ask(prompts, more);
        let answer = sidecar.post("/v1/completions", &sent).await;
        assert_eq!((answer.status, answer.reason()), (400, "param_not_allowed"), "{}", answer.text());
    }
    let one = format!("[{}1]", "1,".repeat(999));
    for prompts in [r#""p""#, r#"["p"]"#, r#"["p","q"]"#, &one, "[[1,2],[3]]"] {
        passed(&upstream, &sidecar, "/v1/completions", &ask(prompts, "")).await;
    }
}
