use super::*;
use crate::refusal::Reason;

mod bounds;
mod content;

fn policy() -> BodyPolicy {
    BodyPolicy { account_json: r#""acct-1""#.to_owned(), ..BodyPolicy::default() }
}

fn read_with(format: ApiFormat, policy: &BodyPolicy, body: &[u8]) -> Result<(ParsedBody, String), Refusal> {
    let mut reader = BodyReader::new(format, policy);
    reader.feed(body)?;
    let parsed = reader.finish()?;
    let mut sent = parsed.edit.prefix.clone();
    for (is_member, from, to) in parsed.edit.ranges() {
        if is_member {
            sent.push(',');
        }
        sent.push_str(std::str::from_utf8(&body[from as usize..to as usize]).expect("UTF-8"));
        sent.push_str(parsed.put_at(to).unwrap_or_default());
    }
    sent.push('}');
    let outgoing: serde_json::Value = serde_json::from_str(&sent).expect("the outgoing body is JSON");
    assert!(outgoing.is_object());
    Ok((parsed, sent))
}

fn read(format: ApiFormat, body: &str) -> Result<(ParsedBody, String), Refusal> {
    read_with(format, &policy(), body.as_bytes())
}

fn reason(format: ApiFormat, body: &str) -> Option<Reason> {
    read(format, body).err().map(|refusal| refusal.reason)
}

#[test]
fn a_plain_chat_passes_unchanged_after_the_account() {
    let (parsed, sent) =
        read(ApiFormat::Chat, r#"{ "model" : "m", "messages":[{"role":"user","content":"hi"}] , "temperature":0.10 }"#)
            .expect("allowed");
    assert_eq!(
        sent,
        r#"{"user":"acct-1","model" : "m", "messages":[{"role":"user","content":"hi"}] , "temperature":0.10}"#
    );
    assert_eq!((parsed.model.as_deref(), parsed.stream, parsed.stripped.len()), (Some("m"), false, 0));
    assert_eq!(parsed.edit.keep.len(), 1);
}

#[test]
fn identity_members_and_unknown_members_are_stripped() {
    let body = r#"{"user":"VICTIM","model":"m","metadata":{"a":{"b":[1]}},"totally_unknown":1,"messages":[],"tags":["t"],"safety_identifier":"s"}"#;
    let (parsed, sent) = read(ApiFormat::Chat, body).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m","messages":[]}"#);
    assert_eq!(parsed.stripped, ["user", "metadata", "totally_unknown", "tags", "safety_identifier"]);
}

#[test]
fn a_refusal_names_the_model_read_before() {
    for (body, model, tool) in [
        (r#"{"model":"m","tools":[{"type":"mcp"}]}"#, Some("m"), Some("mcp")),
        (r#"{"tools":[{"type":"mcp"}],"model":"m"}"#, None, Some("mcp")),
        (r#"{"model":"m","tools":[{"type":"shell"}]}"#, Some("m"), Some("shell")),
        (r#"{"model":"m","tools":[{"name":"web_search_x"}]}"#, Some("m"), Some("web_search_x")),
        (r#"{"model":"m","n":9}"#, Some("m"), None),
        (r#"{"model":"m","#, Some("m"), None),
        (r#"{"model":"a,b"}"#, Some("a,b"), None),
    ] {
        let refusal = read(ApiFormat::Chat, body).expect_err(body);
        assert_eq!((refusal.model.as_deref(), refusal.tool.as_deref()), (model, tool), "{body}");
    }
}

#[test]
fn what_was_dropped_with_a_value_is_told() {
    for (body, dropped) in [
        (r#"{"model":"m","messages":[]}"#, None),
        (r#"{"model":"m","user":"u","metadata":{"a":1},"tags":["t"],"safety_identifier":"s"}"#, None),
        (r#"{"model":"m","min_p":null,"max_tokens":null,"previous_response_id":null}"#, None),
        (r#"{"model":"m","stream":true,"stream_options":{"include_obfuscation":true}}"#, None),
        (r#"{"model":"m","min_p":0.1,"user":"u","chat_template_kwargs":{"a":1}}"#, Some("min_p, chat_template_kwargs")),
        (
            r#"{"model":"m","tools":[{"type":"function","function":{"name":"f"},"server_url":"x"}]}"#,
            Some("tools.server_url"),
        ),
    ] {
        let (parsed, _) = read(ApiFormat::Chat, body).expect("allowed");
        assert_eq!(parsed.dropped.as_deref(), dropped, "{body}");
    }
}

#[test]
fn a_name_in_escapes_is_the_same_name() {
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","n\u006f-log":true}"#), Some(Reason::ParamNotAllowed));
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","mode\u006c":"n"}"#), Some(Reason::DuplicateMember));
    let (_, sent) = read(ApiFormat::Chat, r#"{"model":"m","\u0075ser":"VICTIM"}"#).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m"}"#);
}

#[test]
fn members_that_steer_the_gateway_are_refused_by_name() {
    for name in [
        "no-log", "no_log", "api_base", "base_url", "api_key", "user_config", "model_list", "fallbacks",
        "input_cost_per_token", "mock_response", "num_retries", "extra_headers", "headers", "extra_body", "guardrails",
        "litellm_call_id", "litellm_params", "success_callback", "cache", "web_search_options", "mcp_servers",
        "plugins", "models", "provider", "organization", "aws_access_key_id", "vertex_project", "azure_ad_token",
        "langfuse_public_key", "provider_specific_header", "custom_llm_provider", "turn_off_message_logging",
        "prompt_id", "router_settings_override", "max_retries", "priority", "route", "transforms", "container",
    ] {
        for format in ApiFormat::WITH_BODY {
            for value in ["true", "\"x\"", "{\"a\":1}", "[1]"] {
                let refused = read(format, &format!(r#"{{"model":"m","{name}":{value}}}"#)).expect_err(name);
                assert_eq!(
                    (refused.reason, refused.param.as_deref()),
                    (Reason::ParamNotAllowed, Some(name)),
                    "{format:?} {name} {value}"
                );
            }
        }
    }
}

#[test]
fn deferred_billing_is_refused_and_its_absence_is_not() {
    for (format, name) in
        [(ApiFormat::Chat, "store"), (ApiFormat::Chat, "background"), (ApiFormat::Responses, "background")]
    {
        assert_eq!(reason(format, &format!(r#"{{"model":"m","{name}":true}}"#)), Some(Reason::ParamNotAllowed));
        assert_eq!(reason(format, &format!(r#"{{"model":"m","{name}":1}}"#)), Some(Reason::InvalidParam));
        assert_eq!(reason(format, &format!(r#"{{"model":"m","{name}":false}}"#)), None);
    }
    let (parsed, sent) = read(ApiFormat::Responses, r#"{"model":"m","previous_response_id":null,"input":"x"}"#)
        .expect("null is absence");
    assert_eq!(
        (sent.as_str(), parsed.stripped),
        (r#"{"user":"acct-1","model":"m","input":"x"}"#, vec!["previous_response_id".into()])
    );
}

#[test]
fn duplicates_and_what_is_no_object_are_refused() {
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","model":"m"}"#), Some(Reason::DuplicateMember));
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","x":1,"x":2}"#), Some(Reason::DuplicateMember));
    for bad in [
        "", "[]", "1", "\"x\"", "null", r#"{"model":"m","n":NaN}"#, "\u{feff}{\"model\":\"m\"}", r#"{"model":"m"}{}"#,
        r#"{"model":"m""#,
    ] {
        assert_eq!(reason(ApiFormat::Chat, bad), Some(Reason::InvalidJson), "{bad:?}");
    }
    let utf16: Vec<u8> = r#"{"model":"m"}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    assert_eq!(read_with(ApiFormat::Chat, &policy(), &utf16).expect_err("UTF-16").reason, Reason::InvalidJson);
}

#[test]
fn a_model_is_one_plain_name() {
    for bad in [
        "\"a,b\"", "\"http://x/m\"", "\"m:online\"", "\"m:ONLINE\"", "\"\"", "\"a b\"", "[\"m\"]", "{\"a\":1}", "null",
        "1", "\"é\"", "\"m\\nx\"", "\"a2a/x\"", "\"A2A/x\"",
    ] {
        let refused = reason(ApiFormat::Chat, &format!(r#"{{"model":{bad}}}"#));
        assert!(matches!(refused, Some(Reason::ModelNotAllowed | Reason::InvalidParam)), "{bad}");
    }
    assert_eq!(reason(ApiFormat::Chat, "{}"), Some(Reason::ModelNotAllowed));
    for good in ["gpt-4o-mini", "anthropic/claude-3.5@x", "bedrock/arn:aws:x", "a_b+c"] {
        assert_eq!(reason(ApiFormat::Chat, &format!(r#"{{"model":"{good}"}}"#)), None, "{good}");
    }
    let only = BodyPolicy { models: vec!["m".to_owned()], ..policy() };
    assert!(read_with(ApiFormat::Chat, &only, br#"{"model":"m"}"#).is_ok());
    assert!(read_with(ApiFormat::Chat, &only, br#"{"model":"\u006d"}"#).is_ok());
    assert_eq!(
        read_with(ApiFormat::Chat, &only, br#"{"model":"n"}"#).expect_err("not listed").reason,
        Reason::ModelNotAllowed
    );
}

#[test]
fn usage_is_hidden_unless_the_client_asked() {
    let stream =
        |format, rest: &str| read(format, &format!(r#"{{"model":"m","stream":true{rest}}}"#)).expect("allowed");
    for format in [ApiFormat::Chat, ApiFormat::Completions] {
        let (parsed, sent) = stream(format, "");
        assert!(parsed.hide_usage && sent.contains(r#""stream_options":{"include_usage":true}"#), "{sent}");
        let (parsed, sent) = stream(format, r#","stream_options":{"include_usage":false}"#);
        assert!(parsed.hide_usage && !sent.contains("false"), "{sent}");
        assert_eq!(parsed.stripped, ["stream_options"]);
        let (parsed, sent) = stream(format, r#","stream_options":{"include_usage":true},"temperature":1"#);
        assert!(!parsed.hide_usage && sent.matches("stream_options").count() == 1, "{sent}");
    }
    let (parsed, sent) = stream(ApiFormat::Messages, "");
    assert!(!parsed.hide_usage && !sent.contains("stream_options"), "{sent}");
    let (parsed, sent) = read(ApiFormat::Chat, r#"{"model":"m","stream":false}"#).expect("allowed");
    assert!(!parsed.hide_usage && !sent.contains("stream_options"), "{sent}");
    let twice = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_usage":0}}"#;
    assert!(read(ApiFormat::Chat, twice).expect("allowed").0.hide_usage, "parsers keep the last");
    // The order of members must not matter.
    let (parsed, _) = read(ApiFormat::Chat, r#"{"stream_options":{"include_usage":true},"model":"m","stream":true}"#)
        .expect("allowed");
    assert!(!parsed.hide_usage);
}

#[test]
fn stream_options_pass_with_their_known_members() {
    let own = r#"{"include_usage":true,"include_obfuscation":false}"#;
    let more = r#"{"x":{"include_usage":true},"include_usage":true,"api_base":"http://x","include_obfuscation":false}"#;
    for format in [ApiFormat::Chat, ApiFormat::Completions, ApiFormat::Responses] {
        for stream in [true, false] {
            let read = |options: &str| {
                let body = format!(r#"{{"stream_options":{options},"model":"m","stream":{stream},"top_p":1}}"#);
                read(format, &body)
            };
            for (options, gone) in [(own, &[][..]), (more, &["stream_options.x", "stream_options.api_base"])] {
                let (parsed, sent) = read(options).expect("allowed");
                assert!(sent.matches(own).count() == 1 && !parsed.hide_usage, "{format:?}: {sent}");
                assert_eq!(parsed.stripped, gone, "{format:?}");
            }
            for odd in ["[]", r#"{"include_usage":{}}"#, r#"{"include_obfuscation":[{"api_base":"x"}]}"#] {
                assert_eq!(read(odd).expect_err(odd).reason, Reason::InvalidParam, "{format:?}");
            }
        }
    }
    let with = BodyPolicy { params: vec!["stream_options.x".to_owned()], ..policy() };
    let opened = br#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"x":[1]}}"#;
    assert!(read_with(ApiFormat::Chat, &with, opened).expect("it was opened").1.contains(r#""x":[1]"#));
}

#[test]
fn any_split_reads_the_same() {
    let body = br#"{"user":"V","model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}],"x":1,"stream":true}"#;
    let policy = policy();
    let complete = read_with(ApiFormat::Chat, &policy, body).expect("allowed").0;
    for size in 1..body.len() {
        let mut reader = BodyReader::new(ApiFormat::Chat, &policy);
        for piece in body.chunks(size) {
            reader.feed(piece).expect("allowed");
        }
        assert_eq!(reader.finish().expect("allowed"), complete);
    }
    let image = complete.media.media.first().expect("an image");
    assert_eq!((image.verified, image.range.1 - image.range.0), (true, 28));
}

#[test]
fn an_operator_may_open_a_member_but_never_identity() {
    let open = BodyPolicy { params: vec!["num_retries".to_owned(), "vendor_x".to_owned()], ..policy() };
    let (_, sent) =
        read_with(ApiFormat::Chat, &open, br#"{"model":"m","num_retries":2,"vendor_x":{"a":1}}"#).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m","num_retries":2,"vendor_x":{"a":1}}"#);
    let inner = BodyPolicy { params: vec!["thinking.new".to_owned()], ..policy() };
    let body = br#"{"model":"m","thinking":{"new":{"a":[1]},"newer":1}}"#;
    let (parsed, sent) = read_with(ApiFormat::Chat, &inner, body).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m","thinking":{"new":{"a":[1]}}}"#);
    assert_eq!(parsed.stripped, ["thinking.newer"]);
    assert!(params::may_be_allowed("thinking.new") && !params::may_be_allowed("metadata.tags"));
    assert!(!params::may_be_allowed("response_format.enforce_validation"));
    let storing = BodyPolicy { params: vec!["store".to_owned()], ..policy() };
    assert!(read_with(ApiFormat::Responses, &storing, br#"{"model":"m","store":true}"#).is_ok());
    let (_, sent) =
        read(ApiFormat::Other, r#"{"model":"m","Metadata":1,"USER":"V","safety-identifier":"V"}"#).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m"}"#);
    assert!(!params::may_be_allowed("user") && !params::may_be_allowed("api_base") && !params::may_be_allowed("model"));
}

#[test]
fn members_side_by_side_are_taken_out_together() {
    for (given, want) in [
        (r#"{"type":"text","x":1,"y":2}"#, r#"{"type":"text"}"#),
        (r#"{"type":"text","x":1,"y":{"a":1} , "z":[2] }"#, r#"{"type":"text" }"#),
        (r#"{"x":1,"y":2,"type":"text"}"#, r#"{"type":"text"}"#),
        (r#"{"x":1,"y":2,"type":"text","z":1,"w":2}"#, r#"{"type":"text"}"#),
        (r#"{"x":1,"y":2}"#, "{}"),
    ] {
        let body = format!(r#"{{"model":"m","response_format":{given},"n":1}}"#);
        let (_, sent) = read(ApiFormat::Chat, &body).expect("allowed");
        assert_eq!(sent, format!(r#"{{"user":"acct-1","model":"m","response_format":{want},"n":1}}"#), "{given}");
    }
}

#[test]
fn stored_objects_are_named_for_the_exchange() {
    let names = |body: &str| -> Vec<(String, String)> {
        let (parsed, sent) = read(ApiFormat::Responses, &body.replacen('{', r#"{"model":"m","#, 1)).expect("allowed");
        assert!(sent.ends_with(&body[1..]), "{sent}");
        let stored = parsed.rare.map(|rare| rare.stored).unwrap_or_default();
        stored.into_iter().map(|stored| (stored.member, stored.id)).collect()
    };
    let of = |member: &str, id: &str| (member.to_owned(), id.to_owned());
    assert_eq!(names(r#"{"previous_response_id":"resp_1"}"#), [of("previous_response_id", "resp_1")]);
    assert_eq!(names(r#"{"previous_response_id":"resp\u005f1"}"#), [of("previous_response_id", "resp_1")]);
    assert_eq!(names(r#"{"conversation":"conv_1"}"#), [of("conversation", "conv_1")]);
    assert_eq!(names(r#"{"conversation":{"id":"conv_1"}}"#), [of("conversation", "conv_1")]);
    assert_eq!(names(r#"{"conversation":{"id":"a","id":"b"}}"#), [of("conversation", "a"), of("conversation", "b")]);
    assert_eq!(names(r#"{"store":true}"#), []);
    let long = format!(r#"{{"model":"m","previous_response_id":"{}"}}"#, "x".repeat(769));
    assert_eq!(reason(ApiFormat::Responses, &long), Some(Reason::ParamNotAllowed));
    for body in [
        r#"{"model":"m","previous_response_id":1}"#,
        r#"{"model":"m","previous_response_id":["resp_1"]}"#,
        r#"{"model":"m","previous_response_id":{"id":"resp_1"}}"#,
        r#"{"model":"m","conversation":[{"id":"x"}]}"#,
        r#"{"model":"m","conversation":{"id":["x"]}}"#,
        r#"{"model":"m","conversation":{}}"#,
        r#"{"model":"m","conversation":{"x":"conv_1"}}"#,
    ] {
        assert_eq!(reason(ApiFormat::Responses, body), Some(Reason::ParamNotAllowed), "{body}");
    }
    // Only the Responses API has these members.
    for body in [r#"{"model":"m","previous_response_id":"x"}"#, r#"{"model":"m","conversation":"x"}"#] {
        assert_eq!(reason(ApiFormat::Chat, body), Some(Reason::ParamNotAllowed), "{body}");
    }
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","store":true}"#), Some(Reason::ParamNotAllowed));
}

#[test]
fn an_id_opened_by_the_operator_has_no_bound() {
    let policy = BodyPolicy { params: vec!["previous_response_id".to_owned()], ..policy() };
    let body = br#"{"model":"m","previous_response_id":"resp_x"}"#;
    let (parsed, _) = read_with(ApiFormat::Responses, &policy, body).expect("allowed");
    let rare = parsed.rare.expect("it is noted");
    assert_eq!((rare.stored.len(), rare.stored_tokens), (0, Some(0)));
}

#[test]
fn a_dialect_opens_the_members_of_self_hosted_servers() {
    let vllm = BodyPolicy { server: ServerKind::Vllm, ..policy() };
    let both = r#"{"model":"m","min_p":0.1,"top_k":5,"repetition_penalty":1.1,"stop_token_ids":[1,2],"ignore_eos":true,"min_tokens":3,"skip_special_tokens":false,"guided_json":{"type":"object","$defs":{}},"guided_choice":["a"],"structured_outputs":{"regex":"a+"}}"#;
    for format in [ApiFormat::Chat, ApiFormat::Completions] {
        let (parsed, sent) = read_with(format, &vllm, both.as_bytes()).expect("allowed");
        assert_eq!(
            (parsed.stripped.len(), sent.replacen(r#""user":"acct-1","#, "", 1)),
            (0, both.to_owned()),
            "{format:?}"
        );
    }
    let chat = r#"{"model":"m","chat_template_kwargs":{"enable_thinking":false},"enable_thinking":false,"separate_reasoning":true}"#;
    assert_eq!(read_with(ApiFormat::Chat, &vllm, chat.as_bytes()).expect("allowed").0.stripped.len(), 0);
    assert_eq!(read(ApiFormat::Chat, chat).expect("allowed").0.stripped.len(), 3);
    // Members that run code, read a template, a file or another model, or return more than a response do not pass.
    let hostile = r#"{"model":"m","chat_template":"{{x}}","chat_template_kwargs":{"chat_template":"{{x}}","tokenize":true,"x":1},"custom_logit_processor":"x","kv_transfer_params":{"remote_host":"evil"},"bootstrap_host":"evil","lora_path":"/etc","logits_processors":["os.system"],"vllm_xargs":{},"use_beam_search":true,"prompt_logprobs":20,"structured_outputs":{"backend":"x"}}"#;
    let (_, sent) = read_with(ApiFormat::Chat, &vllm, hostile.as_bytes()).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m","chat_template_kwargs":{},"structured_outputs":{}}"#);
    for body in [
        r#"{"model":"m","guided_json":{"$ref":"http://evil/x"}}"#,
        r#"{"model":"m","structured_outputs":{"json":{"$ref":"http://evil/x"}}}"#,
        r#"{"model":"m","min_p":{"a":1}}"#,
        r#"{"model":"m","stop_token_ids":[{"a":1}]}"#,
        r#"{"model":"m","chat_template_kwargs":{"enable_thinking":{"a":1}}}"#,
        r#"{"model":"m","api_base":"http://evil"}"#,
        r#"{"model":"m","num_retries":3}"#,
        r#"{"model":"m","priority":1}"#,
    ] {
        assert!(read_with(ApiFormat::Chat, &vllm, body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn a_clients_own_timeout_is_dropped_and_named() {
    let (parsed, sent) = read(ApiFormat::Chat, r#"{"model":"m","timeout":600}"#).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m"}"#);
    assert_eq!((parsed.stripped, parsed.dropped.as_deref()), (vec!["timeout".into()], Some("timeout")));
    let (_, sent) = read(ApiFormat::Other, r#"{"model":"m","Timeout":{"read":1}}"#).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m"}"#);
    let opened = BodyPolicy { params: vec!["timeout".to_owned()], ..policy() };
    let (_, sent) = read_with(ApiFormat::Chat, &opened, br#"{"model":"m","timeout":600}"#).expect("allowed");
    assert_eq!(sent, r#"{"user":"acct-1","model":"m","timeout":600}"#);
}
