use super::*;

fn read(body: Value) -> Result<CompletionRequest, (String, Value)> {
    let Value::Object(body) = body else { panic!("an object") };
    CompletionRequest::of(body).map_err(|error| (error.code().to_owned(), error.details().cloned().unwrap_or_default()))
}

fn with(name: &str, value: Value) -> Value {
    let mut body = json!({ "model": "sandbox:agent", "messages": [{ "role": "user", "content": "hi" }] });
    body[name] = value;
    body
}

#[test]
fn members_that_change_the_answer_are_refused_by_name() {
    for (name, value) in [
        ("n", json!(2)),
        ("tool_choice", json!("required")),
        ("tool_choice", json!({ "type": "function", "function": { "name": "f" } })),
        ("function_call", json!({ "name": "f" })),
        ("response_format", json!({ "type": "json_object" })),
        ("logprobs", json!(true)),
        ("modalities", json!(["text", "audio"])),
        ("stop", json!(["END"])),
        ("audio", json!({})),
        ("no_such_parameter", json!(1)),
    ] {
        let refused = read(with(name, value)).expect_err(name);
        assert_eq!(refused, ("unsupported_parameter".to_owned(), json!({ "field": name })));
    }
    for (name, value) in [
        ("model", json!(1)),
        ("messages", json!("hi")),
        ("messages", json!([])),
        ("stream", json!("yes")),
        ("stream_options", json!(1)),
        ("metadata", json!(1)),
        ("user", json!(1)),
        ("metadata", json!({ "user_id": 5 })),
        ("metadata", json!({ "session_id": ["s"] })),
    ] {
        let (code, _) = read(with(name, value)).expect_err(name);
        assert_eq!(code, "invalid_request", "{name}");
    }
}

#[test]
fn members_that_tune_a_model_are_ignored_and_named() {
    let mut body = with("temperature", json!(0.5));
    for (name, value) in [
        ("max_tokens", json!(10)),
        ("tools", json!([{ "type": "function", "function": { "name": "f" } }])),
        ("functions", json!([])),
        ("function_call", json!("auto")),
        ("tool_choice", json!("auto")),
        ("response_format", json!({ "type": "text" })),
        ("n", json!(1)),
        ("logprobs", json!(false)),
        ("seed", Value::Null),
        ("metadata", json!({ "user_id": "u", "chat": "c" })),
    ] {
        body[name] = value;
    }
    let request = read(body).expect("nothing is refused");
    let mut ignored = request.ignored.clone();
    ignored.sort();
    assert_eq!(ignored, ["logprobs", "max_tokens", "metadata.chat", "temperature", "tool_choice", "tools"]);
    assert_eq!(request.chat.end_user(), Some("u"));
}

#[test]
fn a_model_names_an_agent_and_its_model() {
    let mut body = with("model", json!("sandbox:coder@gpt/x@1"));
    body["stream"] = json!(true);
    body["stream_options"] = json!({ "include_usage": true });
    body["user"] = json!("ann");
    let request = read(body).expect("it is right");
    assert_eq!((request.chat.agent.as_str(), request.chat.model.as_deref()), ("sandbox:coder", Some("gpt/x@1")));
    assert_eq!((request.is_stream, request.has_usage, request.chat.end_user()), (true, true, Some("ann")));
    assert_eq!(request.model, "sandbox:coder@gpt/x@1");
}

/// Bug: two users got one session, because a null hid the name in the other member.
#[test]
fn a_null_names_no_user() {
    let mut body = with("metadata", json!({ "user_id": null, "session_id": null }));
    (body["user"], body["session_id"]) = (json!("ann"), json!("s1"));
    let request = read(body).expect("it is right").chat;
    assert_eq!((request.end_user(), request.session_id()), (Some("ann"), Some("s1")));

    let agent_chat = |metadata: Value| {
        let body =
            json!({ "messages": [{ "role": "user", "content": "hi" }], "session_id": "s1", "metadata": metadata });
        serde_json::from_value::<AgentChatRequest>(body).expect("it is right").checked()
    };
    let request = agent_chat(json!({ "user_id": null, "session_id": null })).expect("it is right");
    assert_eq!((request.end_user(), request.session_id()), (None, Some("s1")));
    assert_eq!(request.metadata.get("user_id"), None);
    let refused = agent_chat(json!({ "user_id": 5 })).expect_err("it is no text");
    assert_eq!(refused.details(), Some(&json!({ "field": "metadata.user_id" })));
}

#[test]
fn messages_keep_role_and_content_alone() {
    let said = json!([
        { "role": "developer", "content": "be brief", "name": "x" },
        { "role": "assistant", "content": null, "refusal": null },
        { "role": "user", "content": [{ "type": "text", "text": "hi", "cache_control": {} }] },
    ]);
    let request = read(with("messages", said)).expect("it is right");
    let expected = json!([
        { "role": "system", "content": "be brief" },
        { "role": "assistant", "content": "" },
        { "role": "user", "content": [{ "type": "text", "text": "hi" }] },
    ]);
    assert_eq!(Value::Array(request.chat.messages), expected);
    for bad in [
        json!({ "role": "tool", "content": "x" }),
        json!({ "role": "assistant", "content": null, "tool_calls": [{}] }),
        json!({ "role": "user" }),
        json!({ "role": "robot", "content": "x" }),
        json!({ "role": "user", "content": [{ "type": "image_url", "image_url": { "url": "https://e" } }] }),
        json!("hi"),
    ] {
        read(with("messages", json!([bad]))).expect_err("it is refused");
    }
}
