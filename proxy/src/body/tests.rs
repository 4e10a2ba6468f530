use super::*;
use crate::refusal::Reason;

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
        for format in [
            ApiFormat::Chat,
            ApiFormat::Completions,
            ApiFormat::Embeddings,
            ApiFormat::Responses,
            ApiFormat::Messages,
            ApiFormat::CountTokens,
            ApiFormat::Compact,
            ApiFormat::InputTokens,
            ApiFormat::Other,
        ] {
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
        "1", "\"é\"", "\"m\\nx\"",
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
    let twice = r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"include_usage":{}}}"#;
    assert!(read(ApiFormat::Chat, twice).expect("allowed").0.hide_usage, "parsers keep the last");
    // The order of members must not matter.
    let (parsed, _) = read(ApiFormat::Chat, r#"{"stream_options":{"include_usage":true},"model":"m","stream":true}"#)
        .expect("allowed");
    assert!(!parsed.hide_usage);
}

#[test]
fn only_tools_of_the_agent_pass() {
    let tools = |tools: &str| reason(ApiFormat::Chat, &format!(r#"{{"model":"m","tools":{tools}}}"#));
    for good in [
        r#"[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"type":{"type":"mcp"}}}}}]"#,
        r#"[{"name":"f","input_schema":{"type":"object"}}]"#,
        r#"[{"type":"custom","name":"f","input_schema":{}}]"#,
        r#"[{"type":"namespace","name":"n","tools":[{"type":"function","name":"f","parameters":{}}]}]"#,
        r#"[{"type":"tool_search","execution":"client"},{"type":"local_shell"},{"type":"apply_patch"}]"#,
        r#"[{"type":"shell","environment":{"type":"local"}}]"#,
        r#"[{"type":"bash_20250124","name":"bash"},{"type":"text_editor_20250728","name":"e","max_characters":9}]"#,
        r#"[{"type":"computer_20250124","name":"computer","display_width_px":1,"display_height_px":1}]"#,
        r#"[{"type":"computer_use_preview","environment":"browser","display_width":1,"display_height":1}]"#,
        r#"[{"type":"function","function":{"name":"f","parameters":{"$schema":"http://x/","$id":"http://x"}}}]"#,
        "[]",
        "null",
    ] {
        assert_eq!(tools(good), None, "{good}");
    }
    for bad in [
        r#"[{"type":"mcp","server_url":"litellm_proxy/mcp/x"}]"#,
        r#"[{"type":"web_search_20250305","name":"web_search"}]"#,
        r#"[{"type":"function","function":{}},{"type":"code_interpreter"}]"#,
        r#"[{"type":"function","type":"mcp"}]"#,
        r#"[{"type":"mcp","type":"function"}]"#,
        r#"[{"\u0074ype":"mcp"}]"#,
        r#"[{"googleSearch":{}}]"#,
        r#"[{"type":["function"]}]"#,
        r#"[{"type":null}]"#,
        r#"[{}]"#,
        r#"["mcp"]"#,
        r#"[[]]"#,
        r#"[{"type":"namespace","name":"n","tools":[{"type":"mcp","server_url":"http://evil"}]}]"#,
        r#"[{"type":"namespace","name":"n","tools":[{"type":"namespace","tools":[{"googleSearch":{}}]}]}]"#,
        r#"[{"type":"tool_search"}]"#,
        r#"[{"type":"tool_search","execution":"server"}]"#,
        r#"[{"type":"tool_search","execution":"client","execution":"server"}]"#,
        r#"[{"type":"shell"}]"#,
        r#"[{"type":"shell","execution":"client"}]"#,
        r#"[{"type":"shell","environment":{"type":"container_auto"}}]"#,
        r#"[{"type":"shell","environment":{"type":"local"},"environment":{}}]"#,
        r#"[{"type":"shell","environment":"local"}]"#,
        r#"[{"type":"function","function":{"name":"litellm_web_search"}}]"#,
        r#"[{"type":"function","name":"LiteLLM-code execution"}]"#,
        r#"[{"type":"custom","custom":{"name":"litellm_content_retrieve"}}]"#,
        r#"[{"type":"namespace","name":"n","tools":[{"type":"function","name":" litellm_web_search"}]}]"#,
    ] {
        assert_eq!(tools(bad), Some(Reason::ToolNotAllowed), "{bad}");
    }
    assert_eq!(tools(r#"{"type":"function"}"#), Some(Reason::InvalidParam));
    assert_eq!(
        reason(ApiFormat::Chat, r#"{"model":"m","functions":[{"googleSearch":{}}]}"#),
        Some(Reason::ToolNotAllowed)
    );
    assert_eq!(
        reason(
            ApiFormat::Chat,
            r#"{"model":"m","functions":[{"name":"f","parameters":{}}],"tools":[{"type":"function"}]}"#
        ),
        None
    );
    let hoisted =
        r#"{"model":"m","input":[{"type":"additional_tools","tools":[{"type":"mcp","server_url":"litellm_proxy"}]}]}"#;
    assert_eq!(reason(ApiFormat::Responses, hoisted), Some(Reason::ToolNotAllowed));
    for (item, want) in [
        (r#"{"type":"additional_tools","tools":[{"type":"function","name":"f","parameters":{}}]}"#, None),
        (r#"{"type":"additional_tools","tools":[{"type":"namespace","name":"n","tools":[]}]}"#, None),
        (r#"{"type":"tool_search_output","tools":[{"type":"web_search"}]}"#, Some(Reason::ToolNotAllowed)),
        (r#"{"type":"additional_tools","tools":{"type":"mcp"}}"#, Some(Reason::InvalidParam)),
        (r#"{"type":"x","tools":[{"type":"function","name":"litellm_web_search"}]}"#, Some(Reason::ToolNotAllowed)),
    ] {
        assert_eq!(
            reason(ApiFormat::Responses, &format!(r#"{{"model":"m","input":[{item},{{"role":"user"}}]}}"#)),
            want,
            "{item}"
        );
    }
    for choice in [
        r#""litellm_web_search""#,
        r#"{"type":"function","function":{"name":"litellm_web_search"}}"#,
        r#"{"type":"tool","name":"litellm_web_search"}"#,
        r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"litellm_web_search"}]}"#,
    ] {
        let body = format!(r#"{{"model":"m","tool_choice":{choice}}}"#);
        assert_eq!(reason(ApiFormat::Chat, &body), Some(Reason::ToolNotAllowed), "{choice}");
    }
    let with = BodyPolicy { tools: vec!["web_search_20250305".to_owned()], ..policy() };
    let search = br#"{"model":"m","tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]}"#;
    let (_, sent) = read_with(ApiFormat::Messages, &with, search).expect("it was opened");
    assert_eq!(
        sent,
        r#"{"user":"acct-1","model":"m","tools":[{"type":"web_search_20250305","name":"web_search","max_uses":2}]}"#
    );
    let namespace = BodyPolicy { tools: vec!["namespace".to_owned()], ..policy() };
    let nested = br#"{"model":"m","tools":[{"type":"namespace","tools":[{"type":"mcp","server_url":"http://evil"}]}]}"#;
    assert!(read_with(ApiFormat::Responses, &namespace, nested).is_err(), "what is nested is not opened with it");
    let mixed = br#"{"model":"m","tools":[{"type":"web_search_20250305","type":"function","googleSearch":1}]}"#;
    assert!(read_with(ApiFormat::Messages, &with, mixed).is_err());
}

#[test]
fn media_must_come_with_the_call() {
    let part = |part: &str| format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
    for bad in [
        r#"{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}"#,
        r#"{"type":"image_url","image_url":"https://x"}"#,
        r#"{"type":"image_url","image_url":{"url":"\u0068ttp://x"}}"#,
        r#"{"type":"image_url","image_url":{"url":"data:,x","url":"http://x"}}"#,
        r#"{"type":"image_url","image_url":["http://x"]}"#,
        r#"{"type":"file","file":{"file_id":"https://x/a.pdf"}}"#,
        r#"{"type":"file","file":{"file_id":"file-abc"}}"#,
        r#"{"type":"input_file","file_id":"bGl0ZWxsbV9wcm94eTphcHBsaWNhdGlvbi9wZGY"}"#,
        r#"{"type":"image","source":{"type":"url","url":"https://x"}}"#,
        r#"{"type":"tool_result","content":[{"type":"image","source":{"type":"url","url":"https://x"}}]}"#,
    ] {
        assert_eq!(reason(ApiFormat::Chat, &part(bad)), Some(Reason::RemoteMediaNotAllowed), "{bad}");
        assert_eq!(reason(ApiFormat::Messages, &part(bad)), Some(Reason::RemoteMediaNotAllowed), "{bad}");
        let open = BodyPolicy { remote_media: true, ..policy() };
        assert!(read_with(ApiFormat::Chat, &open, part(bad).as_bytes()).is_ok(), "{bad}");
    }
    for good in [
        r#"{"type":"text","text":"see http://x"}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#,
    ] {
        assert_eq!(reason(ApiFormat::Chat, &part(good)), None, "{good}");
    }
    assert_eq!(
        reason(ApiFormat::Other, r#"{"model":"m","image_url":"https://x"}"#),
        Some(Reason::RemoteMediaNotAllowed)
    );
    assert_eq!(
        reason(ApiFormat::Embeddings, r#"{"model":"m","input":[{"image_url":"https://x"}]}"#),
        Some(Reason::RemoteMediaNotAllowed)
    );
    assert_eq!(
        reason(ApiFormat::Embeddings, r#"{"model":"m","input":"gs://b/o"}"#),
        Some(Reason::RemoteMediaNotAllowed)
    );
    assert_eq!(reason(ApiFormat::Embeddings, r#"{"model":"m","input":["see http://x",[1,2]]}"#), None);
    let tool_use = part(
        r#"{"type":"tool_use","id":"t","name":"fetch","input":{"url":"https://x"}},{"type":"image","source":{"url":"https://x"}}"#,
    );
    assert_eq!(reason(ApiFormat::Messages, &tool_use), Some(Reason::RemoteMediaNotAllowed));
    assert_eq!(
        reason(
            ApiFormat::Messages,
            &part(r#"{"type":"tool_use","id":"t","name":"fetch","input":{"url":"https://x"}}"#)
        ),
        None
    );
    assert_eq!(
        reason(
            ApiFormat::Responses,
            r#"{"model":"m","input":[{"role":"user","content":[{"type":"input_image","image_url":"https://x"}]}]}"#
        ),
        Some(Reason::RemoteMediaNotAllowed)
    );
}

#[test]
fn bounds_are_read_for_the_reservation() {
    let (mut parsed, _) =
        read(ApiFormat::Chat, r#"{"model":"m","max_tokens":5,"max_completion_tokens":7,"n":3}"#).expect("allowed");
    assert_eq!((parsed.max_output, parsed.choices), (Some(7), 3));
    parsed.bound_output(ApiFormat::Chat, 4);
    assert_eq!((parsed.max_output, &parsed.edit.keep[..]), (Some(4), &[(1, 12), (54, 59)][..]));
    assert!(parsed.edit.prefix.ends_with(r#","max_completion_tokens":4"#));
    let other = |format, name: &str| {
        let (parsed, sent) = read(format, &format!(r#"{{"model":"m","{name}":1,"stream":false}}"#)).expect("allowed");
        (parsed.max_output, parsed.stripped == [name], sent.contains(name))
    };
    for (format, own) in [
        (ApiFormat::Chat, &["max_tokens", "max_completion_tokens"][..]),
        (ApiFormat::Completions, &["max_tokens"]),
        (ApiFormat::Messages, &["max_tokens"]),
        (ApiFormat::Responses, &["max_output_tokens"]),
        (ApiFormat::Embeddings, &[]),
    ] {
        for name in ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"] {
            let want = if own.contains(&name) { (Some(1), false, true) } else { (None, true, false) };
            assert_eq!(other(format, name), want, "{format:?} {name}");
        }
    }
    for none in [
        r#""max_tokens":0"#,
        r#""max_tokens":0,"max_completion_tokens":5"#,
        r#""max_tokens":5,"max_completion_tokens":0"#,
    ] {
        let (mut parsed, _) = read(ApiFormat::Chat, &format!(r#"{{"model":"m",{none}}}"#)).expect("allowed");
        assert_eq!(parsed.max_output, None, "{none}");
        parsed.bound_output(ApiFormat::Chat, 9);
        assert_eq!(parsed.edit.keep, [(1, 12)], "{none}: ours stands in its place");
    }
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","n":9}"#), Some(Reason::ParamNotAllowed));
    let (parsed, _) = read(ApiFormat::Completions, r#"{"model":"m","prompt":["a",[1,2]],"n":2}"#).expect("allowed");
    assert_eq!(parsed.choices, 4);
    assert_eq!(
        read(ApiFormat::Completions, r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9]}"#)
            .expect("one prompt of tokens")
            .0
            .choices,
        1
    );
    let many = format!(r#"{{"model":"m","prompt":[{}]}}"#, [r#""a""#; 9].join(","));
    assert_eq!(reason(ApiFormat::Completions, &many), Some(Reason::ParamNotAllowed));
    for bad in [
        r#""max_tokens":-1"#, r#""max_tokens":1.5"#, r#""max_tokens":"5""#, r#""n":[1]"#, r#""stream":"true""#,
        r#""stream":1"#,
    ] {
        assert_eq!(reason(ApiFormat::Chat, &format!(r#"{{"model":"m",{bad}}}"#)), Some(Reason::InvalidParam), "{bad}");
    }
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
fn unknown_nested_members_are_taken_out_and_named() {
    for (value, left, gone) in [
        (r#"{"type":"enabled"}"#, r#"{"type":"enabled"}"#, vec![]),
        (r#"{"type":"enabled", "new":{"a":[1,{"b":2}]} }"#, r#"{"type":"enabled" }"#, vec!["thinking.new"]),
        (r#"{ "new":1 , "type":"enabled"}"#, r#"{"type":"enabled"}"#, vec!["thinking.new"]),
        (
            r#"{"a":1,"b":[],"type":"enabled","c":{}}"#,
            r#"{"type":"enabled"}"#,
            vec!["thinking.a", "thinking.b", "thinking.c"],
        ),
        (r#"{"new":1}"#, "{}", vec!["thinking.new"]),
        (
            r#"{"type":"x","new":1,"budget_tokens":2,"more":3}"#,
            r#"{"type":"x","budget_tokens":2}"#,
            vec!["thinking.new", "thinking.more"],
        ),
        (r#"{"\u0074ype":"x","typ\u0065":"y"}"#, r#"{"\u0074ype":"x","typ\u0065":"y"}"#, vec![]),
    ] {
        let (parsed, sent) =
            read(ApiFormat::Chat, &format!(r#"{{"model":"m","thinking":{value},"top_k":1}}"#)).expect("allowed");
        assert_eq!(sent, format!(r#"{{"user":"acct-1","model":"m","thinking":{left},"top_k":1}}"#), "{value}");
        assert_eq!(parsed.stripped, gone, "{value}");
    }
    let many: Vec<_> = (0..129).map(|i| format!(r#""n{i}":{i}"#)).collect();
    let many = format!(r#"{{"model":"m","thinking":{{{}}}}}"#, many.join(","));
    assert_eq!(reason(ApiFormat::Chat, &many), Some(Reason::InvalidParam));
    for (name, value) in
        [("stop", "{}"), ("temperature", "[1]"), ("logit_bias", "[]"), ("seed", "{}"), ("response_format", "[]")]
    {
        assert_eq!(
            reason(ApiFormat::Chat, &format!(r#"{{"model":"m","{name}":{value}}}"#)),
            Some(Reason::InvalidParam),
            "{name}"
        );
    }
}

#[test]
fn nothing_in_a_schema_makes_the_gateway_act() {
    let chat = |format: &str| (ApiFormat::Chat, format!(r#"{{"model":"m","response_format":{format}}}"#));
    let of = |schema: &str| {
        [
            chat(&format!(r#"{{"type":"json_schema","json_schema":{{"name":"n","strict":true,"schema":{schema}}}}}"#)),
            (
                ApiFormat::Responses,
                format!(r#"{{"model":"m","text":{{"format":{{"type":"json_schema","schema":{schema}}}}}}}"#),
            ),
            (
                ApiFormat::Messages,
                format!(r#"{{"model":"m","output_format":{{"type":"json_schema","schema":{schema}}}}}"#),
            ),
            (
                ApiFormat::Messages,
                format!(r#"{{"model":"m","output_config":{{"format":{{"type":"json_schema","schema":{schema}}}}}}}"#),
            ),
        ]
    };
    for (format, body) in [
        chat(r#"{"type":"json_object","enforce_validation":true,"response_schema":{"type":"integer"}}"#),
        chat(r#"{"type":"json_object","enforce_v\u0061lidation":true}"#),
        chat(r#"{"type":"json_object","response_schema":{"$ref":"http://evil"}}"#),
        chat(r#"{"type":"json_schema","json_schema":{"name":"n","enforce_validation":true}}"#),
        (ApiFormat::Responses, r#"{"model":"m","text":{"enforce_validation":true}}"#.to_owned()),
    ] {
        let refused = read(format, &body).expect_err(&body);
        assert_eq!(refused.reason, Reason::ParamNotAllowed, "{body}");
        assert!(
            refused.param.is_some_and(|param| param.ends_with("_validation") || param.ends_with("_schema")),
            "{body}"
        );
    }
    for schema in
        [r#"{"$ref":"http://evil/x"}"#, r#"{"a":[{"$r\u0065f":"file:///etc/passwd"}]}"#, r#"{"$id":"http://evil"}"#]
    {
        for (format, body) in of(schema) {
            assert_eq!(reason(format, &body), Some(Reason::ParamNotAllowed), "{body}");
        }
    }
    for schema in
        [r##"{"$defs":{"A":{}},"$ref":"#/$defs/A","$schema":"http://json-schema.org/draft-07/schema#"}"##, "{}"]
    {
        for (format, body) in of(schema) {
            let (parsed, sent) = read(format, &body).expect(&body);
            assert!(sent.contains(schema) && parsed.stripped.is_empty() && parsed.cost_factors.instructions, "{sent}");
        }
    }
    let bomb = r##"{"$defs":{"a":{"anyOf":[R,R,R,R]},"b":{"anyOf":[S,S,S,S]},"c":{"anyOf":[T,T,T,T]},"d":{"anyOf":[U,U,U,U]},
        "e":{"anyOf":[V,V,V,V]},"f":{"anyOf":[W,W,W,W]},"g":{"anyOf":[X,X,X,X]},"h":{}},"anyOf":[{"$ref":"#/$defs/a"}]}"##;
    let bomb =
        ["R", "S", "T", "U", "V", "W", "X"].iter().zip("bcdefgh".chars()).fold(bomb.to_owned(), |bomb, (from, to)| {
            bomb.replace(&format!("{from},"), &format!(r##"{{"$ref":"#/$defs/{to}"}},"##))
                .replace(&format!("{from}]"), &format!(r##"{{"$ref":"#/$defs/{to}"}}]"##))
        });
    let tool =
        format!(r#"{{"model":"m","tools":[{{"type":"function","function":{{"name":"f","parameters":{bomb}}}}}]}}"#);
    for (format, body) in of(&bomb).into_iter().chain([(ApiFormat::Chat, tool)]) {
        assert_eq!(reason(format, &body), Some(Reason::ParamNotAllowed), "{body}");
    }
}

#[test]
fn media_are_verified_by_the_part_that_holds_them() {
    let png = "iVBORw0KGgoAAAANSUhEUgAABAAAAAQACAIAAADwf7zUAAAAC0lEQVR4nGNgwAcAAB4AAfb9";
    let found = |part: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{part}]}}]}}"#);
        let parsed = read(ApiFormat::Messages, &body).expect("allowed").0;
        parsed.media.media.iter().map(|medium| (medium.kind, medium.verified)).collect::<Vec<_>>()
    };
    let image = |verified| vec![(media::MediaKind::Image(Some((1024, 1024)), crate::media::Detail::Auto), verified)];
    for part in [
        format!(r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{png}"}}}}"#),
        format!(r#"{{"image_url":{{"url":"data:image/png;base64,{png}"}},"type":"image_url"}}"#),
        format!(r#"{{"type":"input_image","image_url":"data:image/png;base64,{png}"}}"#),
        format!(r#"{{"type":"image","source":{{"type":"base64","media_type":"image/png","data":"{png}"}}}}"#),
        format!(
            r#"{{"type":"tool_result","content":[{{"type":"image","source":{{"data":"{png}","type":"base64"}}}}]}}"#
        ),
    ] {
        assert_eq!(found(&part), image(true), "{part}");
    }
    for part in [
        format!(r#"{{"type":"document","source":{{"type":"text","data":"{png}"}}}}"#),
        format!(r#"{{"type":"image","source":{{"type":"text","data":"{png}"}}}}"#),
        format!(r#"{{"type":"text","image_url":{{"url":"data:image/png;base64,{png}"}}}}"#),
        format!(r#"{{"type":"image","image":"{png}"}}"#),
        format!(r#"{{"data":"{png}"}}"#),
        format!(r#"{{"type":"image_url","image_url":["data:image/png;base64,{png}"]}}"#),
    ] {
        assert!(
            found(&part).iter().all(|(_, verified)| !verified) && found(&part).len() == 1,
            "{part}: {:?}",
            found(&part)
        );
    }
    let input = format!(r#"{{"type":"tool_use","id":"t","name":"f","input":{{"data":"{png}{png}"}}}}"#);
    assert_eq!(found(&input), [], "the arguments of a tool are text");
    let low = format!(
        r#"{{"type":"image_url","image_url":{{"url":"data:image/png;base64,{png}","detail":"low","detail":"high"}}}}"#
    );
    assert_eq!(found(&low), [(media::MediaKind::Image(Some((1024, 1024)), crate::media::Detail::Original), true)]);
    let pdf =
        format!(r#"{{"type":"document","source":{{"type":"base64","media_type":"application/pdf","data":"{png}"}}}}"#);
    assert_eq!(found(&pdf), [(media::MediaKind::Document, true)]);
    let open = BodyPolicy { remote_media: true, ..policy() };
    let stored =
        br#"{"model":"m","messages":[{"role":"user","content":[{"type":"file","file":{"file_id":"file-abc"}}]}]}"#;
    let parsed = read_with(ApiFormat::Chat, &open, stored).expect("opened").0;
    assert_eq!(parsed.media.media.first().map(|medium| medium.kind), Some(media::MediaKind::Stored));
}

#[test]
fn the_lifetime_of_a_prompt_cache_sets_its_price() {
    let long = |body: &str| {
        read(ApiFormat::Messages, body).map(|(parsed, _)| parsed.cost_factors.long_cache).map_err(|it| it.reason)
    };
    let cached = |cache: &str| {
        [
            format!(r#"{{"model":"m","system":[{{"type":"text","text":"x","cache_control":{cache}}}]}}"#),
            format!(r#"{{"model":"m","tools":[{{"name":"f","input_schema":{{}},"cache_control":{cache}}}]}}"#),
            format!(r#"{{"model":"m","cache_control":{cache}}}"#),
        ]
    };
    for (cache, want) in [
        (r#"{"type":"ephemeral"}"#, Ok(false)),
        (r#"{"type":"ephemeral","ttl":"5m"}"#, Ok(false)),
        (r#"{"ttl":"1h","type":"ephemeral"}"#, Ok(true)),
        (r#"{"type":"ephemeral","ttl":"31536000s"}"#, Err(Reason::InvalidParam)),
        (r#"{"type":"ephemeral","ttl":31536000}"#, Err(Reason::InvalidParam)),
        (r#"{"type":"ephemeral","\u0074tl":"2h"}"#, Err(Reason::InvalidParam)),
    ] {
        for body in cached(cache) {
            assert_eq!(long(&body), want, "{body}");
        }
    }
    let own = r#"{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"ttl":"9d","cache_control":{"ttl":"9d"}}}]}]}"#;
    assert_eq!(long(own), Ok(false), "what an agent's tool is called with is its own affair");
}

#[test]
fn a_tool_named_like_a_search_is_refused() {
    let tools = |format, tool: &str| reason(format, &format!(r#"{{"model":"m","tools":[{tool}]}}"#));
    let described = r#"{"name":"web_search","input_schema":{"type":"object"}}"#;
    assert_eq!(tools(ApiFormat::Messages, described), Some(Reason::ToolNotAllowed));
    assert_eq!(
        tools(ApiFormat::Messages, r#"{"type":"custom","name":"web_search","input_schema":{}}"#),
        Some(Reason::ToolNotAllowed)
    );
    assert_eq!(tools(ApiFormat::Messages, r#"{"name":"WebSearch"}"#), Some(Reason::ToolNotAllowed));
    assert_eq!(tools(ApiFormat::Messages, r#"{"name":"WebSearch","input_schema":{"type":"object"}}"#), None);
    assert_eq!(tools(ApiFormat::Chat, r#"{"type":"function","function":{"name":"web_search","parameters":{}}}"#), None);
    assert_eq!(tools(ApiFormat::Responses, r#"{"type":"function","name":"web_search","parameters":{}}"#), None);
}

#[test]
fn a_medium_with_blanks_in_it_is_one_still() {
    let kinds = |content: &str| {
        let body = format!(r#"{{"model":"m","messages":[{{"role":"user","content":[{content}]}}]}}"#);
        let (parsed, _) = read(ApiFormat::Chat, &body).expect("allowed");
        parsed.media.media.iter().map(|medium| (medium.kind, medium.verified)).collect::<Vec<_>>()
    };
    let image = (media::MediaKind::Image(None, crate::media::Detail::Auto), false);
    for url in
        ["data:image/png;base64,iVBORw0KGgo AAAANSUhEUg", "data:image/png;base64,iVBORw0KGgo\\nAAAANSUhEUg", "data:,x"]
    {
        assert_eq!(kinds(&format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#)), [image], "{url}");
        assert_eq!(kinds(&format!(r#"{{"type":"text","image_url":{{"url":"{url}"}}}}"#)), [], "{url}");
    }
    let file = r#"{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBE Ri0xLjQK"}}"#;
    assert_eq!(kinds(file), [(media::MediaKind::Document, false)]);
    let text = r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"some text"}}"#;
    assert_eq!(kinds(text), [], "a provider reads it as text");
    let two = r#"{"type":"image_url","type":7,"image_url":{"url":"data:image/png;base64,iVBORw0KGgoAAAANSUhEUg"}}"#;
    assert_eq!(kinds(two).first().map(|medium| medium.1), Some(false), "the last type is no image's");
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

/// Returns the outgoing body when the sidecar grants this many tokens, and the names of the changed members.
fn fitted(format: ApiFormat, body: &str, bound: u64, is_claude: bool) -> (String, String) {
    let policy = BodyPolicy { account_json: "0".to_owned(), ..BodyPolicy::default() };
    let mut reader = BodyReader::new(format, &policy);
    // One byte at a time: the offsets are those of the whole body.
    body.as_bytes().chunks(1).try_for_each(|piece| reader.feed(piece)).expect("allowed");
    let mut parsed = reader.finish().expect("allowed");
    parsed.bound_output(format, bound);
    parsed.fit_thinking(bound, is_claude);
    let mut sent = parsed.edit.prefix.clone();
    for (is_member, from, to) in parsed.edit.ranges() {
        sent.push_str(if is_member { "," } else { "" });
        sent.push_str(&body[from as usize..to as usize]);
        sent.push_str(parsed.put_at(to).unwrap_or_default());
    }
    let sent = format!("{sent}}}").replacen(r#"{"user":0,"#, "{", 1);
    serde_json::from_str::<serde_json::Value>(&sent).expect("what goes upstream is JSON");
    assert_eq!(parsed.dropped.as_deref().unwrap_or_default(), parsed.stripped.join(", "));
    (sent, parsed.stripped.join(", "))
}

#[test]
fn a_budget_for_thinking_follows_a_lowered_bound() {
    let body = r#"{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens": 31999 ,"display":"omitted"},"messages":[]}"#;
    let sent =
        |bound, thinking: &str| format!(r#"{{"max_tokens":{bound},"model":"m","thinking":{thinking},"messages":[]}}"#);
    for (bound, thinking, names) in [
        (40_000, r#"{"type":"enabled","budget_tokens": 31999 ,"display":"omitted"}"#, ""),
        (32_000, r#"{"type":"enabled","budget_tokens": 31999 ,"display":"omitted"}"#, ""),
        (31_999, r#"{"type":"enabled","budget_tokens": 15999 ,"display":"omitted"}"#, "thinking.budget_tokens"),
        (2048, r#"{"type":"enabled","budget_tokens": 1024 ,"display":"omitted"}"#, "thinking.budget_tokens"),
        (2047, r#"{"type":"disabled"}"#, "thinking"),
        (1024, r#"{"type":"disabled"}"#, "thinking"),
    ] {
        let (upstream, changed) = fitted(ApiFormat::Messages, body, bound, true);
        assert_eq!((upstream, &*changed), (sent(bound, thinking), names), "{bound}");
    }
    // A member that is taken out of another one goes with it, and only then.
    let body = r#"{"thinking":{"a":1,"budget_tokens":9000,"type":"enabled","b":[2]},"model":"m","max_tokens":9999,"messages":[]}"#;
    assert_eq!(
        fitted(ApiFormat::Messages, body, 3000, true).0,
        r#"{"max_tokens":3000,"thinking":{"budget_tokens":1500,"type":"enabled"},"model":"m","messages":[]}"#
    );
    assert_eq!(
        fitted(ApiFormat::Messages, body, 1500, true).0,
        r#"{"max_tokens":1500,"thinking":{"type":"disabled"},"model":"m","messages":[]}"#
    );
    let adaptive = r#"{"model":"m","max_tokens":9999,"thinking":{"type":"adaptive"},"messages":[]}"#;
    assert_eq!(fitted(ApiFormat::Messages, adaptive, 1024, true).1, "");
    // Parsers keep the last of two budgets.
    let twice = r#"{"model":"m","thinking":{"budget_tokens":9000,"budget_tokens":"x"},"messages":[]}"#;
    assert_eq!(fitted(ApiFormat::Messages, twice, 1024, true).1, "");
}

#[test]
fn an_effort_follows_a_lowered_bound_for_a_claude() {
    for (format, body, bound, is_claude, sent, names) in [
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"max","messages":[]}"#,
            9000,
            true,
            r#"{"reasoning_effort":"high","messages":[]}"#,
            "reasoning_effort",
        ),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"max","messages":[]}"#,
            9000,
            false,
            r#"{"reasoning_effort":"max","messages":[]}"#,
            "",
        ),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":{"effort":"high"}}"#,
            4096,
            true,
            r#"{"reasoning_effort":{"effort":"medium"}}"#,
            "reasoning_effort",
        ),
        (ApiFormat::Chat, r#"{"reasoning_effort":"high"}"#, 4097, true, r#"{"reasoning_effort":"high"}"#, ""),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"low"}"#,
            1024,
            true,
            r#"{"reasoning_effort":"none"}"#,
            "reasoning_effort",
        ),
        (ApiFormat::Chat, r#"{"reasoning":{"effort":"max"}}"#, 1024, true, r#"{"reasoning":{"effort":"max"}}"#, ""),
        (
            ApiFormat::Responses,
            r#"{"reasoning":{"effort":"xhigh"},"input":"x"}"#,
            5000,
            true,
            r#"{"reasoning":{"effort":"medium"},"input":"x"}"#,
            "reasoning_effort",
        ),
    ] {
        let (upstream, changed) = fitted(format, &body.replacen('{', r#"{"model":"m","#, 1), bound, is_claude);
        let bounded = upstream.split_once(r#""model":"m","#).map(|(_, rest)| format!("{{{rest}")).expect("the model");
        assert_eq!((&*bounded, &*changed), (sent, names), "{body} {bound}");
    }
}

#[test]
fn thinking_is_needed_where_earlier_answers_have_it() {
    for (format, body, least) in [
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}]}"#,
            Some(2048),
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}]}"#,
            Some(2048),
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[],"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}}"#,
            Some(2048),
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"user","content":"thinking"}]}"#,
            None,
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"adaptive"},"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}]}"#,
            None,
        ),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"low","messages":[{"role":"assistant","thinking_blocks":[]}]}"#,
            Some(2048),
        ),
    ] {
        let (parsed, _) = read(format, &body.replacen('{', r#"{"model":"m","#, 1)).expect("allowed");
        assert_eq!(parsed.rare.and_then(|rare| rare.thinking.least_output(true)), least, "{body}");
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
