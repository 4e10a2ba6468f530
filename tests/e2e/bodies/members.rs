//! Members that redirect, re-key, re-price, amplify or hide a call, and the flags that allow them.

use serde_json::{Value, json};
use sluice_testkit::{Sidecar, Upstream};

use super::{WIRES, body, passed, refused};

/// Members that no flag allows: logging, cost, account, host and key.
const NEVER: [&str; 70] = [
    // skip or forge logging
    "no-log", "no_log", "litellm_disabled_callbacks", "callbacks", "success_callback", "failure_callback",
    "service_callback", "logger_fn", "turn_off_message_logging", "standard_logging_object", "proxy_server_request",
    "secret_fields", "litellm_logging_obj", "litellm_call_id", "litellm_params", "litellm_trace_id",
    "litellm_session_id", "user_api_key_dict", // price
    "input_cost_per_token", "output_cost_per_token", "input_cost_per_second", "cache_read_input_token_cost_per_x",
    "model_info", "base_model", "response_cost", // host and credentials
    "api_base", "base_url", "api_key", "api_version", "api_type", "organization", "custom_llm_provider",
    "litellm_credential_name", "model_list", "user_config", "router_settings_override", "aws_access_key_id",
    "aws_region_name", "aws_bedrock_runtime_endpoint", "vertex_project", "vertex_location", "vertex_credentials",
    "azure_ad_token", "azure_endpoint", "some_endpoint", "langfuse_public_key", "langfuse_host", "langsmith_api_key",
    "extra_headers", "headers", "extra_body", "extra_query", "provider_specific_header", "deployment_id",
    "specific_deployment", "allowed_model_region", "client", "shared_session",
    // other calls than this one
    "fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "disable_fallbacks", "weights",
    "litellm_system_prompt", // other spellings
    "NO-LOG", "Api_Base", "api-base", "API_KEY", "Input_Cost_Per_Token", "LiteLLM_Params",
];

/// Members that are refused unless the operator allows them by name.
const REFUSED: [&str; 33] = [
    "num_retries", "max_retries", "stream_timeout", "request_timeout", "cooldown_time", "fastest_response", "priority",
    "mock_response", "mock_tool_calls", "mock_timeout", "mock_testing_fallbacks", "cache", "caching", "ttl",
    "s-maxage", "cache_key", "guardrails", "disable_global_guardrail", "disable_global_guardrails", "guardrail_config",
    "policies", "prompt_id", "prompt_variables", "web_search_options", "mcp_servers", "plugins", "models", "route",
    "provider", "transforms", "container", "previous_response_id", "conversation",
];

#[tokio::test]
async fn every_route_refuses_each_dangerous_member_by_name() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let values = ["true", "\"x\"", r#"{"a":[1]}"#, "[{}]", "0"];
    for (at, name) in NEVER.iter().chain(&REFUSED).enumerate() {
        for (path, rest) in WIRES {
            let more = format!(r#","{name}":{}"#, values[at % values.len()]);
            refused(&sidecar, path, &body(rest, &more), 400, "param_not_allowed", Some(name)).await;
        }
    }
    let count = (NEVER.len() + REFUSED.len()) * WIRES.len();
    assert_eq!((sidecar.audit().refusals().len(), upstream.begun()), (count, 0));
}

#[tokio::test]
async fn no_value_place_or_spelling_hides_a_dangerous_member() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for value in ["true", "false", "1", "\"true\"", "[]", "{}", "null"] {
            refused(
                &sidecar,
                path,
                &body(rest, &format!(r#","no-log":{value}"#)),
                400,
                "param_not_allowed",
                Some("no-log"),
            )
            .await;
        }
        for sent in [
            format!(r#"{{"no-log":true,"model":"m",{rest}}}"#),
            format!(r#"{{"n\u006f-log":true,"model":"m",{rest}}}"#),
            format!(r#"{{"\u006e\u006F\u002d\u006c\u006f\u0067":true,"model":"m",{rest}}}"#),
            format!(r#"{{"x":{{"y":"}}"}},  "no-log"  :  true,"model":"m",{rest}}}"#),
        ] {
            refused(&sidecar, path, &sent, 400, "param_not_allowed", Some("no-log")).await;
        }
    }
    assert_eq!(upstream.begun(), 0);
}

#[tokio::test]
async fn a_null_dangerous_member_is_dropped() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for name in REFUSED {
            let sent = body(rest, &format!(r#","{name}":null"#));
            let received = passed(&upstream, &sidecar, path, &sent).await;
            let plain = format!(r#"{{"user":"acct-1",{}"#, &body(rest, "")[1..]);
            assert_eq!(received.text(), plain, "{path} {name}");
        }
    }
    let audit = sidecar.audit();
    let stripped: Vec<_> = audit.intents().iter().map(|line| line["stripped"].clone()).collect();
    let each = REFUSED.repeat(WIRES.len()).into_iter().map(|name| json!([name]));
    assert_eq!(stripped, each.collect::<Vec<_>>());
}

#[tokio::test]
async fn deferred_billing_is_refused_and_its_absence_is_not() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for name in ["store", "background"] {
            // OpenAI stores an answer of this route by default.
            if (path, name) == ("/v1/responses", "store") {
                let received = passed(&upstream, &sidecar, path, &body(rest, r#","store":true"#)).await;
                assert_eq!(received.json()[name], true);
                continue;
            }
            for (value, reason) in [
                ("true", "param_not_allowed"),
                ("1", "invalid_param"),
                ("\"true\"", "invalid_param"),
                ("{}", "invalid_param"),
            ] {
                refused(&sidecar, path, &body(rest, &format!(r#","{name}":{value}"#)), 400, reason, Some(name)).await;
            }
            for value in ["false", "null"] {
                let received = passed(&upstream, &sidecar, path, &body(rest, &format!(r#","{name}":{value}"#))).await;
                assert_ne!(received.json()[name], true);
            }
        }
        // A prompt object is stored text at the provider; a prompt of text completions is text.
        let prompt = r#"{"model":"m","prompt":{"id":"pmpt_1"}}"#;
        if path == "/v1/responses" {
            refused(&sidecar, path, prompt, 400, "param_not_allowed", Some("prompt")).await;
        }
    }
}

#[tokio::test]
async fn the_operator_may_open_a_member_by_name() {
    let upstream = Upstream::provider("hi").start().await;
    let open = ["num_retries", "vendor_x", "previous_response_id", "mock_response", "store"];
    let flags = open.iter().flat_map(|name| ["--allow-param", name]);
    let sidecar = Sidecar::to(&upstream).args(flags).start().await;
    for (path, rest) in WIRES {
        for more in [
            r#","num_retries":2"#, r#","vendor_x":{"a":[1,{"b":null}]}"#, r#","previous_response_id":"resp_1""#,
            r#","mock_response":"x""#, r#","store":true"#,
        ] {
            let received = passed(&upstream, &sidecar, path, &body(rest, more)).await;
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, more)[1..]), "{path} {more}");
        }
        refused(&sidecar, path, &body(rest, r#","max_retries":2"#), 400, "param_not_allowed", Some("max_retries"))
            .await;
    }
}

#[tokio::test]
async fn identity_host_key_price_and_log_stay_closed() {
    let identity =
        ["user", "metadata", "litellm_metadata", "safety_identifier", "tags", "model", "stream", "stream_options"];
    for name in identity.iter().chain(&NEVER) {
        let failed = Sidecar::to_url("http://127.0.0.1:1").args(["--allow-param", name]).fail().await;
        assert_eq!(failed.code, 78, "{name}: {}", failed.stderr);
        assert!(failed.stderr.contains("--allow-param") && failed.stderr.contains(name), "{name}: {}", failed.stderr);
    }
}

#[tokio::test]
async fn names_of_the_clients_choice_make_no_long_lines() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let weird: String = (0..120).map(|n| format!(",\"{}{n}\":1", "\\u0001".repeat(60))).collect();
    let plain: String = (0..120).map(|n| format!(",\"{}{n}\":1", "x".repeat(60))).collect();
    let headers: Vec<_> = (0..80).map(|n| (format!("x-{}-{n}", "y".repeat(60)), "1")).collect();
    let mut headers: Vec<_> = headers.iter().map(|(name, value)| (&**name, *value)).collect();
    headers.push(("content-type", "application/json"));
    for (path, rest) in WIRES {
        for more in [&weird, &plain] {
            sidecar.request("POST", path, &headers, body(rest, more)).await.expect(200);
        }
    }
    let path = format!("/v1/{}", "\"".repeat(5000));
    sidecar.request("POST", &path, &headers, body("\"x\":1", "")).await.expect(404);

    let audit = std::fs::read_to_string(sidecar.audit_path()).expect("our own file");
    for line in audit.lines() {
        assert!(line.len() < 2048, "{} bytes: {line}", line.len());
    }
    let last = sidecar.audit().intents().last().map(|intent| intent["stripped"].clone()).expect("an intent");
    let counted = last.as_array().and_then(|names| names.last()).and_then(Value::as_str).expect("a last entry");
    assert!(counted.starts_with('+') && counted.len() == 4, "{last}");
}

#[tokio::test]
async fn a_dialect_opens_what_self_hosted_servers_live_on() {
    let upstream = Upstream::provider("hi").start().await;
    let (path, rest) = WIRES[0];
    let more = r#","min_p":0.1,"chat_template_kwargs":{"enable_thinking":false},"guided_json":{"type":"object"}"#;
    for (flags, passes) in [(&[][..], false), (&["--dialect", "vllm"], true), (&["--dialect", "openai"], false)] {
        let sidecar = Sidecar::to(&upstream).args(flags).start().await;
        let received = passed(&upstream, &sidecar, path, &body(rest, more)).await;
        let sent = if passes { body(rest, more) } else { body(rest, "") };
        assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &sent[1..]), "{flags:?}");
        for more in [r#","guided_json":{"$ref":"http://evil/x"}"#, r#","api_base":"http://evil""#, r#","n":99"#] {
            let answer = sidecar.post(path, body(rest, more)).await;
            assert!(answer.status == 400 || !passes && more.contains("guided"), "{flags:?} {more}");
            if answer.status == 200 {
                upstream.received().await;
            }
        }
    }
}
