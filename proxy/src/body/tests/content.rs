//! Content of messages, tools and schemas.

use super::*;

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
        r#"[{"type":"function","function":{"name":"headroom_retrieve"}}]"#,
        r#"[{"name":"compresr_retrieve","input_schema":{}}]"#,
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
        r#"{"type":"input_audio","input_audio":{"data":"https://x/?q=1","format":"mp3"}}"#,
        r#"{"type":"input_audio","input_audio":{"format":"mp3","x":{"y":1},"data":["https://x"]}}"#,
        r#"{"type":"input_audio","input_audio":{"input_audio":{"x":1},"data":"https://x"}}"#,
        r#"{"type":"input_audio","input_audio":"https://x"}"#,
    ] {
        assert_eq!(reason(ApiFormat::Chat, &part(bad)), Some(Reason::RemoteMediaNotAllowed), "{bad}");
        assert_eq!(reason(ApiFormat::Messages, &part(bad)), Some(Reason::RemoteMediaNotAllowed), "{bad}");
        let open = BodyPolicy { remote_media: true, ..policy() };
        assert!(read_with(ApiFormat::Chat, &open, part(bad).as_bytes()).is_ok(), "{bad}");
    }
    for good in [
        r#"{"type":"text","text":"see http://x"}"#,
        r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#,
        r#"{"type":"input_audio","input_audio":{"data":"UklGRiQAAABXQVZF","format":"wav"}}"#,
        r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"see http://x"}}"#,
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
    for stored in [
        r#""https://generativelanguage.googleapis.com/v1beta/files/ID""#,
        r#"[["https://generativelanguage.googleapis.com/v1beta/files/ID"]]"#,
        r#"[{"type":"file","file":{"file_data":"files/ID"}}]"#,
        r#"[{"image":{"gcsUri":"gs://bucket/my scan.png"}}]"#,
    ] {
        let body = format!(r#"{{"model":"m","input":{stored}}}"#);
        assert_eq!(reason(ApiFormat::Embeddings, &body), Some(Reason::RemoteMediaNotAllowed), "{stored}");
    }
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
fn a_long_string_is_no_hiding_place() {
    let remote = Some(Reason::RemoteMediaNotAllowed);
    let a = "A".repeat(900);
    let blanks = |n: usize, rest: &str| format!("{}{rest}", " ".repeat(n));
    let urls = [
        (blanks(767, "http://host/exfil"), remote),
        (blanks(900, "http://host/exfil"), remote),
        (format!("data:image/png;base64,{a}https://host/"), remote),
        (format!("data:image/png;base64,{a}\\u003a//host/"), remote),
        (format!("data:image/png;base64,{a}"), None),
        (format!("data:image\\/png;base64,{a}\\u002B\\/\\n{a}=="), None),
        (a.clone(), None),
    ];
    for (url, want) in &urls {
        for (format, body) in [
            (
                ApiFormat::Chat,
                format!(r#"{{"model":"m","messages":[{{"content":[{{"image_url":{{"url":"{url}"}}}}]}}]}}"#),
            ),
            (
                ApiFormat::Messages,
                format!(r#"{{"model":"m","messages":[{{"content":[{{"source":{{"url":"{url}"}}}}]}}]}}"#),
            ),
            (ApiFormat::Responses, format!(r#"{{"model":"m","input":[{{"content":[{{"file_url":"{url}"}}]}}]}}"#)),
            (ApiFormat::Other, format!(r#"{{"model":"m","image_url":["{url}"]}}"#)),
        ] {
            assert_eq!(reason(format, &body), *want, "{format:?} {}", body.replace("AAA", "").trim());
            let open = BodyPolicy { remote_media: true, ..policy() };
            let parsed = read_with(format, &open, body.as_bytes()).expect("it was opened").0;
            let stored = parsed.media.media.iter().any(|medium| medium.kind == media::MediaKind::Stored);
            assert_eq!(stored, want.is_some(), "{format:?}: a remote medium has no size");
        }
    }
    for (input, want) in [
        (blanks(770, "gs://b/x"), remote),
        (format!("{a}gs://b/o.png"), remote),
        (blanks(770, "print('see http://host/ and gs://b/o')"), None),
        (format!("see http://host/{a}gs://b/o.png"), None),
        (a.clone(), None),
    ] {
        for value in [format!(r#""{input}""#), format!(r#"["plain","{input}"]"#)] {
            assert_eq!(reason(ApiFormat::Embeddings, &format!(r#"{{"model":"m","input":{value}}}"#)), want, "{input}");
        }
    }
    let text = format!(r#"{{"model":"m","messages":[{{"content":"{}http://host {a}"}}]}}"#, " ".repeat(900));
    assert_eq!(reason(ApiFormat::Chat, &text), None, "a text may name any host");
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

/// Bug: LiteLLM's interception of searches took these tools for its own, since it looks for other members.
#[test]
fn a_tool_taken_for_a_search_is_refused() {
    for (format, tool, expected) in [
        (ApiFormat::Messages, r#"{"name":"WebSearch","parameters":{}}"#, Some(Reason::ToolNotAllowed)),
        (ApiFormat::Messages, r#"{"name":"WebSearch","format":{}}"#, Some(Reason::ToolNotAllowed)),
        (
            ApiFormat::Chat,
            r#"{"type":"function","name":"WebSearch","function":{"name":"f"}}"#,
            Some(Reason::ToolNotAllowed),
        ),
        (
            ApiFormat::Chat,
            r#"{"type":"function","name":"web_search","function":{"name":"f"}}"#,
            Some(Reason::ToolNotAllowed),
        ),
        (ApiFormat::Chat, r#"{"type":"function","function":{"name":"WebSearch","parameters":{}}}"#, None),
        (ApiFormat::Chat, r#"{"name":"web_search","parameters":{}}"#, None),
        (ApiFormat::Responses, r#"{"type":"function","name":"WebSearch","parameters":{}}"#, None),
    ] {
        assert_eq!(reason(format, &format!(r#"{{"model":"m","tools":[{tool}]}}"#)), expected, "{tool}");
    }
}

/// Bug: the parts of a `prompt` passed unread, and LiteLLM makes them the content of a message, with its media.
#[test]
fn a_prompt_is_text_or_token_ids() {
    let prompt = |prompt: &str| reason(ApiFormat::Completions, &format!(r#"{{"model":"m","prompt":{prompt}}}"#));
    for good in [r#""x""#, r#"["x","y"]"#, r#"["x",[1,2]]"#, "[1,2]", "[[1],[2]]", "[]", "null"] {
        assert_eq!(prompt(good), None, "{good}");
    }
    for bad in [
        r#"["x",[{"type":"image_url","image_url":{"url":"http://169.254.169.254/"}}]]"#,
        r#"["x",{"type":"image_url"}]"#,
        r#"["x",["y"]]"#,
        r#"["x",[[1]]]"#,
        r#"["x",[null]]"#,
        r#"["x",null]"#,
        r#"{"a":1}"#,
        "7",
        "true",
    ] {
        assert_eq!(prompt(bad), Some(Reason::InvalidParam), "{bad}");
    }
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
