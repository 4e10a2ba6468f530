//! Tools and media that a program outside the sandbox would run or fetch.

use serde_json::json;
use sluice_testkit::{Sidecar, Upstream};

use super::{WIRES, body, passed, refused, stripped};

const FUNCTION: &str = r#"{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"type":{"type":"mcp"}}}}}"#;

#[tokio::test]
async fn only_tools_that_the_agent_runs_pass() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for (path, rest) in WIRES {
        for tool in [
            FUNCTION,
            r#"{"type":"function","name":"f","parameters":{},"strict":true}"#,
            r#"{"name":"f","input_schema":{"type":"object"},"cache_control":{"type":"ephemeral"}}"#,
            r#"{"type":"custom","custom":{"name":"f","format":{"type":"text"}}}"#,
            r#"{"type":"custom","name":"f","input_schema":{"type":"object"}}"#,
            r#"{"type":"computer_use_preview","environment":"linux","display_width":8,"display_height":8}"#,
            r#"{"type":"computer_20250124","name":"computer","display_width_px":8,"display_height_px":8}"#,
            r#"{"type":"bash_20250124","name":"bash"}"#,
            r#"{"type":"namespace","name":"n","description":"d","tools":[{"type":"function","name":"f"}]}"#,
            r#"{"type":"shell","environment":{"type":"local"}}"#,
        ] {
            let more = format!(r#","tools":[{tool}]"#);
            let received = passed(&upstream, &sidecar, path, &body(rest, &more)).await;
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, &more)[1..]), "{path} {tool}");
        }
        for tools in [
            r#"[{"type":"mcp","server_url":"http://evil","server_label":"x"}]"#,
            r#"[{"type":"web_search_20250305","name":"web_search"}]"#,
            r#"[{"type":"web_search"}]"#,
            r#"[{"type":"web_search_preview"}]"#,
            r#"[{"type":"file_search","vector_store_ids":["v"]}]"#,
            r#"[{"type":"code_interpreter","container":{"type":"auto"}}]"#,
            r#"[{"type":"code_execution_20250522","name":"code_execution"}]"#,
            r#"[{"type":"image_generation"}]"#,
            r#"[{"type":"url_context"}]"#,
            r#"[{"googleSearch":{}}]"#,
            r#"[{"google_search":{}}]"#,
            r#"[{"urlContext":{}}]"#,
            r#"[{"code_execution":{}}]"#,
            r#"[{"type":"function","function":{"name":"f"}},{"type":"code_interpreter"}]"#,
            r#"[{"type":"function","type":"mcp"}]"#,
            r#"[{"type":"mcp","type":"function"}]"#,
            r#"[{"\u0074ype":"mcp"}]"#,
            r#"[{"type":"\u006dcp"}]"#,
            r#"[{"type":"Function"}]"#,
            r#"[{"type":"function ","function":{}}]"#,
            r#"[{"type":["function"]}]"#,
            r#"[{"type":null,"function":{}}]"#,
            r#"[{}]"#,
            r#"["mcp"]"#,
            r#"[[{"type":"function"}]]"#,
            "[null]",
        ] {
            refused(
                &sidecar,
                path,
                &body(rest, &format!(r#","tools":{tools}"#)),
                400,
                "tool_not_allowed",
                Some("tools"),
            )
            .await;
        }
        let foreign = r#","tools":[{"type":"function","function":{"name":"f"},"server_url":"http://evil"}]"#;
        let received = passed(&upstream, &sidecar, path, &body(rest, foreign)).await;
        assert!(!received.text().contains("evil"), "{path}: {}", received.text());
        assert_eq!(stripped(&sidecar), ["tools.server_url"], "{path}");
        for tools in [r#"{"type":"mcp"}"#, r#""mcp""#, "true"] {
            refused(&sidecar, path, &body(rest, &format!(r#","tools":{tools}"#)), 400, "invalid_param", Some("tools"))
                .await;
        }
    }
}

#[tokio::test]
async fn a_type_of_tool_may_be_opened() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--allow-tool", "web_search_20250305"]).start().await;
    for (path, rest) in WIRES {
        let search = r#"{"type":"web_search_20250305","name":"web_search","max_uses":2,"allowed_domains":["a"]}"#;
        let more = format!(r#","tools":[{search},{FUNCTION}]"#);
        let received = passed(&upstream, &sidecar, path, &body(rest, &more)).await;
        assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &body(rest, &more)[1..]), "{path}");
        for other in [
            r#"{"type":"web_search_20260101","name":"web_search"}"#,
            r#"{"type":"mcp","server_url":"x"}"#,
            r#"{"type":"web_search_20250305","type":"mcp","server_url":"x"}"#,
            r#"{"googleSearch":{}}"#,
        ] {
            let more = format!(r#","tools":[{search},{other}]"#);
            refused(&sidecar, path, &body(rest, &more), 400, "tool_not_allowed", Some("tools")).await;
        }
    }
}

/// Parts of a message that a provider or LiteLLM would fetch.
const REMOTE: [&str; 26] = [
    r#"{"type":"image_url","image_url":{"url":"http://169.254.169.254/latest/meta-data"}}"#,
    r#"{"type":"image_url","image_url":{"url":"HTTPS://evil.example/x.png","detail":"low"}}"#,
    r#"{"type":"image_url","image_url":"https://evil.example/x.png"}"#,
    r#"{"type":"image_url","image_url":{"url":" \t\nhttp://evil.example"}}"#,
    r#"{"type":"image_url","image_url":{"url":"\u0068ttp://evil.example"}}"#,
    r#"{"type":"image_url","image_url":{"\u0075rl":"http://evil.example"}}"#,
    r#"{"type":"image_url","image_url":{"url":"data:,x","url":"http://evil.example"}}"#,
    r#"{"type":"image_url","image_url":{"url":"http://evil.example","url":"data:,x"}}"#,
    r#"{"type":"image_url","image_url":["http://evil.example"]}"#,
    r#"{"type":"image_url","image_url":{"url":"file:///etc/passwd"}}"#,
    r#"{"type":"image_url","image_url":{"url":"gs://bucket/object"}}"#,
    r#"{"type":"image_url","image_url":{"url":"//evil.example/x"}}"#,
    r#"{"type":"image_url","image_url":{"url":"ftp://evil.example/x"}}"#,
    r#"{"type":"video_url","video_url":{"url":"http://evil.example"}}"#,
    r#"{"type":"file","file":{"file_id":"https://evil.example/a.pdf"}}"#,
    r#"{"type":"file","file":{"file_data":"https://evil.example/a.pdf"}}"#,
    r#"{"type":"input_image","image_url":"https://evil.example/x.png"}"#,
    r#"{"type":"input_file","file_url":"https://evil.example/a.pdf"}"#,
    r#"{"type":"image","source":{"type":"url","url":"https://evil.example"}}"#,
    r#"{"type":"document","source":{"type":"url","url":"https://evil.example/a.pdf"}}"#,
    r#"{"type":"document","source":{"type":"content","content":[{"type":"image","source":{"type":"url","url":"http://x"}}]}}"#,
    r#"{"type":"tool_result","tool_use_id":"t","content":[{"type":"image","source":{"type":"url","url":"https://evil.example"}}]}"#,
    r#"{"type":"tool_use","id":"t","name":"f","input":{"a":1}},{"type":"image","source":{"url":"https://evil.example"}}"#,
    r#"{"type":"media","file_uri":"https://evil.example/x"}"#,
    r#"{"type":"file","file":{"file_id":"file-abc123"}}"#,
    r#"{"type":"image_url","image_url":{"url":"data:image/png,https://evil.example/x.png"}}"#,
];

/// Parts that are not fetched.
const LOCAL: [&str; 7] = [
    r#"{"type":"text","text":"see http://example.com and \"url\":\"http://x\""}"#,
    r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#,
    r#"{"type":"image_url","image_url":{"url":"DATA:image/png;base64,AAAA"}}"#,
    r#"{"type":"input_audio","input_audio":{"data":"AAAA","format":"wav"}}"#,
    r#"{"type":"image","source":{"type":"base64","media_type":"image/png","data":"AAAA"}}"#,
    r#"{"type":"document","source":{"type":"text","media_type":"text/plain","data":"http://x"}}"#,
    r#"{"type":"search_result","source":"kb-17","title":"t","content":[{"type":"text","text":"http://x"}]}"#,
];

/// Bodies whose content holds these parts, for each route that takes content.
fn with_parts(parts: &str) -> Vec<(&'static str, String)> {
    let messages = format!(r#""messages":[{{"role":"user","content":"x"}},{{"role":"user","content":[{parts}]}}]"#);
    vec![
        ("/v1/chat/completions", body(&messages, "")),
        ("/v1/messages", body(&messages, r#","max_tokens":9"#)),
        ("/v1/messages", body(r#""max_tokens":9,"messages":[]"#, &format!(r#","system":[{parts}]"#))),
        ("/v1/messages/count_tokens", body(&messages, "")),
        ("/v1/responses", body(&format!(r#""input":[{{"role":"user","content":[{parts}]}}]"#), "")),
    ]
}

#[tokio::test]
async fn media_with_fetched_urls_are_refused() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let open = Sidecar::to(&upstream).arg("--allow-remote-media").start().await;
    for parts in REMOTE {
        for (path, sent) in with_parts(parts) {
            refused(&sidecar, path, &sent, 400, "remote_media_not_allowed", None).await;
            let received = passed(&upstream, &open, path, &sent).await;
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &sent[1..]));
        }
    }
    assert_eq!(sidecar.audit().intents().len(), 0);
}

#[tokio::test]
async fn media_that_come_with_the_call_pass() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for parts in LOCAL {
        for (path, sent) in with_parts(parts) {
            let received = passed(&upstream, &sidecar, path, &sent).await;
            assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &sent[1..]));
        }
    }
    // The sidecar does not check URLs in the arguments of the agent's own tools.
    for (path, sent) in [
        (
            "/v1/messages",
            r#"{"model":"m","max_tokens":9,"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"fetch","input":{"url":"https://x"}}]}]}"#,
        ),
        (
            "/v1/chat/completions",
            r#"{"model":"m","messages":[{"role":"assistant","tool_calls":[{"id":"t","type":"function","function":{"name":"f","arguments":"{\"url\":\"https://x\"}"}}]}]}"#,
        ),
    ] {
        passed(&upstream, &sidecar, path, sent).await;
    }
}

#[tokio::test]
async fn tools_in_other_members_are_refused_too() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let mcp = r#"{"type":"mcp","server_url":"litellm_proxy","require_approval":"never"}"#;
    let items = [
        format!(r#"{{"type":"additional_tools","role":"developer","tools":[{mcp}]}}"#),
        r#"{"type":"additional_tools","role":"developer","tools":[{"type":"web_search"}]}"#.to_owned(),
        format!(r#"{{"type":"tool_search_output","tools":[{mcp}]}}"#),
    ];
    for item in items {
        let sent = body(&format!(r#""input":[{{"role":"user","content":"x"}},{item}]"#), "");
        refused(&sidecar, "/v1/responses", &sent, 400, "tool_not_allowed", None).await;
    }
    let messages = r#""messages":[]"#;
    for function in
        [r#"{"googleSearch":{}}"#, r#"{"urlContext":{}}"#, r#"{"codeExecution":{}}"#, r#"{"type":"web_search"}"#, mcp]
    {
        let sent = body(messages, &format!(r#","functions":[{function}]"#));
        refused(&sidecar, "/v1/chat/completions", &sent, 400, "tool_not_allowed", None).await;
    }
    let own = body(messages, r#","functions":[{"name":"f","description":"d","parameters":{"type":"object"}}]"#);
    let received = passed(&upstream, &sidecar, "/v1/chat/completions", &own).await;
    assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &own[1..]));
}

/// Texts that a later parser may accept as a URL are refused, even if a strict URL parser rejects them.
#[tokio::test]
async fn a_host_is_found_in_any_spelling() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let blanks = format!("{}http://evil.example/", " ".repeat(300));
    for url in [
        "http:/169.254.169.254/", "http:evil.example", r"https:\\evil.example", r"http:\t//evil.example",
        r"ht\ntp:\n//evil.example", r"\\\\evil.example\\share", "gs:bucket/object", &blanks,
    ] {
        let part = format!(r#"{{"type":"image_url","image_url":{{"url":"{url}"}}}}"#);
        for (path, sent) in with_parts(&part) {
            refused(&sidecar, path, &sent, 400, "remote_media_not_allowed", None).await;
        }
    }
    assert_eq!(upstream.begun(), 0);
}

/// The scanner keeps the first 768 bytes of a string.
#[tokio::test]
async fn a_host_is_found_in_a_long_string() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    let (blanks, base64) = (" ".repeat(767), "A".repeat(20_000));
    let call = |path: &str, url: &str| match path {
        "/v1/messages" => json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [
            {"type": "image", "source": {"type": "url", "url": url}}]}]}),
        "/v1/responses" => json!({"model": "m", "input": [{"role": "user", "content": [
            {"type": "input_file", "file_url": url}]}]}),
        "/v1/embeddings" => json!({"model": "m", "input": [url]}),
        _ => json!({"model": "m", "messages": [{"role": "user", "content": [
            {"type": "image_url", "image_url": {"url": url}}]}]}),
    };
    for path in ["/v1/chat/completions", "/v1/messages", "/v1/responses"] {
        for url in [
            format!("{blanks}http://evil.example/exfil"),
            format!("{blanks}      http://evil.example/exfil"),
            format!("data:image/png;base64,{base64}https://evil.example/exfil"),
        ] {
            refused(&sidecar, path, &call(path, &url).to_string(), 400, "remote_media_not_allowed", None).await;
        }
        let image = format!("data:image/png;base64,{base64}+/==");
        passed(&upstream, &sidecar, path, &call(path, &image).to_string()).await;
    }
    for input in [format!("{blanks}   gs://bucket/x"), format!("{base64}gs://bucket/x.png")] {
        let sent = call("/v1/embeddings", &input).to_string();
        refused(&sidecar, "/v1/embeddings", &sent, 400, "remote_media_not_allowed", None).await;
    }
    for input in
        ["A text that names http://x and gs://b/o. ".repeat(100), format!("{blanks}   def f(): 'gs://b/o'"), base64]
    {
        passed(&upstream, &sidecar, "/v1/embeddings", &call("/v1/embeddings", &input).to_string()).await;
    }
}

#[tokio::test]
async fn an_embedding_of_something_remote_is_refused() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).start().await;
    for input in [
        r#"[{"type":"image_url","image_url":"https://evil.example/x.png"}]"#,
        r#"[{"content":[{"type":"image_url","image_url":{"url":"https://evil.example/x.png"}}]}]"#,
        r#"[{"image":"https://evil.example/x.png"}]"#,
    ] {
        let sent = body(&format!(r#""input":{input}"#), "");
        refused(&sidecar, "/v1/embeddings", &sent, 400, "remote_media_not_allowed", None).await;
    }
    for input in [r#""see https://example.com""#, r#"["a","https://example.com"]"#, "[1,2,3]", "[[1,2],[3]]"] {
        let sent = body(&format!(r#""input":{input}"#), "");
        let received = passed(&upstream, &sidecar, "/v1/embeddings", &sent).await;
        assert_eq!(received.text(), format!(r#"{{"user":"acct-1",{}"#, &sent[1..]));
    }
}

#[tokio::test]
async fn allowed_routes_may_have_media_at_the_top() {
    let upstream = Upstream::provider("hi").start().await;
    let sidecar = Sidecar::to(&upstream).args(["--allow", "POST /v1/ocr"]).start().await;
    for name in ["url", "image_url", "file_url", "document_url", "image"] {
        for value in [r#""https://evil.example""#, r#"["https://evil.example"]"#, r#"{"url":"https://evil.example"}"#] {
            let sent = format!(r#"{{"model":"m","{name}":{value}}}"#);
            refused(&sidecar, "/v1/ocr", &sent, 400, "remote_media_not_allowed", None).await;
        }
    }
    assert_eq!(upstream.begun(), 0);
}
