use super::*;

fn usage(input: u64, output: u64, total: Option<u64>) -> Usage {
    Usage { input: Some(input), output: Some(output), total, ..Usage::default() }
}

fn watch(format: ApiFormat, is_stream: bool, answer: &str) -> (ObservedResponse, Vec<SseEvent>) {
    let mut complete = ResponseObserver::new(format, is_stream);
    let mut events = Vec::new();
    complete.feed(answer.as_bytes(), &mut events);
    complete.finish();
    for size in [1, 7] {
        let (mut split, mut observed) = (ResponseObserver::new(format, is_stream), Vec::new());
        for piece in answer.as_bytes().chunks(size) {
            split.feed(piece, &mut observed);
        }
        split.finish();
        assert_eq!((split.observed(), observed.len()), (complete.observed(), events.len()), "pieces of {size}");
    }
    (complete.observed().clone(), events)
}

#[test]
fn a_chat_stream_has_one_usage_event() {
    let (observed, events) = watch(
        ApiFormat::Chat,
        true,
        "data: {\"id\":\"chatcmpl-1\",\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"hi\"}}]}\n\n\
         data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
         data: {\"id\":\"chatcmpl-1\",\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":5,\"total_tokens\":15,\
         \"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":2},\"cost\":5.4e-06}}\n\n\
         data: [DONE]\n\n",
    );
    assert_eq!(observed.usage, Some(Usage { cached_input: Some(4), reasoning: Some(2), ..usage(10, 5, Some(15)) }));
    assert_eq!(observed.cost.map(|cost| cost.to_string()).as_deref(), Some("0.0000054"));
    assert_eq!((observed.response_id.as_deref(), observed.model.as_deref()), (Some("chatcmpl-1"), Some("m")));
    let shape: Vec<_> = events.iter().map(|event| (event.output, event.usage, event.terminal)).collect();
    assert_eq!(
        shape,
        [
            (true, UsageLocation::None, false),
            (true, UsageLocation::None, false),
            (false, UsageLocation::Alone, false),
            (false, UsageLocation::None, true)
        ]
    );
    assert!(observed.terminal && !observed.error);
}

#[test]
fn usage_beside_output_can_be_cut_out_alone() {
    for (data, left) in [
        (
            r#"{"choices":[{"text":"x"}],"usage":{"prompt_tokens":1,"completion_tokens":1},"id":"i"}"#,
            r#"{"choices":[{"text":"x"}],"id":"i"}"#,
        ),
        (
            r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}, "choices":[{"text":"x"}]}"#,
            r#"{"choices":[{"text":"x"}]}"#,
        ),
        (
            r#"{"error":{"message":"x"},"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
            r#"{"error":{"message":"x"}}"#,
        ),
        (
            r#"{"choices":[{"delta":{"role":"assistant"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}"#,
            r#"{"choices":[{"delta":{"role":"assistant"}}]}"#,
        ),
        (
            r#"{"choices":[{"text":"x"}] , "usage": {"prompt_tokens":1,"completion_tokens":1}}"#,
            r#"{"choices":[{"text":"x"}]}"#,
        ),
    ] {
        let (_, events) = watch(ApiFormat::Completions, true, &format!("data: {data}\n\n"));
        let UsageLocation::Beside(from, to) = events[0].usage else { panic!("{:?}", events[0]) };
        assert_eq!(format!("{}{}", &data[..from as usize], &data[to as usize..]), left);
    }
}

#[test]
fn a_usage_of_zeros_is_none() {
    let (observed, _) = watch(
        ApiFormat::Completions,
        true,
        "data: {\"choices\":[{\"text\":\"x\"}],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\"total_tokens\":0}}\n\ndata: [DONE]\n\n",
    );
    assert_eq!(observed.usage, None);
}

#[test]
fn a_messages_stream_counts_cumulatively_without_a_cost() {
    let (observed, events) = watch(
        ApiFormat::Messages,
        true,
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"model\":\"c\",\"usage\":{\"input_tokens\":25,\
         \"cache_read_input_tokens\":7,\"cache_creation_input_tokens\":3,\"output_tokens\":1}}}\n\n\
         event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"delta\":{\"type\":\"text_delta\",\"text\":\"x\"}}\n\n\
         event: message_delta\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":15,\"cost\":0.1}}\n\n\
         event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    );
    assert_eq!(observed.usage, Some(Usage { cached_input: Some(7), cache_write: Some(3), ..usage(25, 15, None) }));
    assert_eq!(
        (observed.cost, observed.response_id.as_deref(), observed.model.as_deref()),
        (None, Some("msg_1"), Some("c"))
    );
    assert_eq!(
        events.iter().map(|e| (e.output, e.terminal)).collect::<Vec<_>>(),
        [(false, false), (true, false), (false, false), (false, true)]
    );
}

#[test]
fn a_responses_stream_ends_with_its_usage() {
    let (observed, events) = watch(
        ApiFormat::Responses,
        true,
        "data: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_0\",\"model\":\"m\",\"usage\":null,\"error\":null}}\n\n\
         data: {\"type\":\"response.output_text.delta\",\"delta\":\"x\",\"item_id\":\"i\"}\n\n\
         data: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"model\":\"m\",\"output\":[{\"id\":\"msg\",\"content\":[{\"text\":\"x\"}]}],\
         \"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"cached_tokens\":2},\"output_tokens\":4,\"output_tokens_details\":{\"reasoning_tokens\":1},\
         \"total_tokens\":13,\"cost\":0.001}}}\n\ndata: [DONE]\n\n",
    );
    assert_eq!(observed.usage, Some(Usage { cached_input: Some(2), reasoning: Some(1), ..usage(9, 4, Some(13)) }));
    assert_eq!(
        (observed.response_id.as_deref(), observed.cost.map(|c| c.to_string()).as_deref()),
        (Some("resp_1"), Some("0.001"))
    );
    assert_eq!(events.iter().map(|e| e.terminal).collect::<Vec<_>>(), [false, false, true]);
    assert!(!observed.error);
}

#[test]
fn unary_answers_of_every_wire_format_are_read() {
    let (observed, _) = watch(
        ApiFormat::Chat,
        false,
        r#"{"id":"c","model":"m","choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":999}}"}}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"cost":9}}"#,
    );
    assert_eq!((observed.usage, observed.cost), (Some(usage(10, 5, Some(15))), None));
    let (observed, _) = watch(
        ApiFormat::Embeddings,
        false,
        r#"{"data":[{"embedding":[0.1,-2e-3]}],"model":"e","usage":{"prompt_tokens":8,"total_tokens":8}}"#,
    );
    assert_eq!(observed.usage, Some(Usage { input: Some(8), total: Some(8), ..Usage::default() }));
    let (observed, _) =
        watch(ApiFormat::Embeddings, false, r#"{"usage":{"prompt_tokens":10,"completion_tokens":0,"total_tokens":0}}"#);
    assert_eq!(observed.usage.map(|usage| usage.all()), Some(10), "a total of 0 beside tokens is no total");
    let (observed, _) = watch(
        ApiFormat::Responses,
        false,
        r#"{"id":"resp_1","error":null,"usage":{"input_tokens":1,"output_tokens":2,"total_tokens":3}}"#,
    );
    assert_eq!((observed.usage, observed.error), (Some(usage(1, 2, Some(3))), false));
    let (observed, _) = watch(
        ApiFormat::Messages,
        false,
        r#"{"id":"msg_1","type":"message","usage":{"input_tokens":1,"output_tokens":2}}"#,
    );
    assert_eq!(observed.usage, Some(usage(1, 2, None)));
}

#[test]
fn errors_inside_a_200_are_errors() {
    for (format, event) in [
        (ApiFormat::Chat, r#"{"error":{"message":"x"}}"#),
        (ApiFormat::Messages, r#"{"type":"error","error":{"type":"overloaded_error"}}"#),
        (ApiFormat::Responses, r#"{"type":"error","code":"x","message":"y"}"#),
        (ApiFormat::Responses, r#"{"type":"response.failed","response":{"id":"r","error":{"code":"x"}}}"#),
    ] {
        assert!(watch(format, true, &format!("data: {event}\n\n")).0.error, "{event}");
    }
}

#[test]
fn what_is_no_json_is_unreadable_and_harmless() {
    let (observed, _) = watch(ApiFormat::Chat, false, "<html>");
    assert!(observed.unreadable && observed.usage.is_none());
    let (observed, events) =
        watch(ApiFormat::Chat, true, ": ping\n\ndata: {\"a\":\n\ndata: nonsense\n\ndata: [DONE]\n\n");
    assert!(observed.unreadable);
    assert!(events.len() == 2 && events[1].terminal);
}

/// Bug: a flood of blank lines took 40 bytes of memory for each.
#[test]
fn blank_lines_take_no_memory() {
    let mut observer = ResponseObserver::new(ApiFormat::Chat, true);
    let mut events = Vec::new();
    observer.feed("\n".repeat(400 << 10).as_bytes(), &mut events);
    assert_eq!((events.len(), events[0].end), (1, 400 << 10));
}

#[test]
fn an_event_of_any_size_is_read() {
    let long = "x".repeat(1 << 20);
    let event = format!(
        "data: {{\"type\":\"response.completed\",\"response\":{{\"output\":\"{long}\",\"usage\":{{\"input_tokens\":1,\"output_tokens\":2}}}}}}\n\n"
    );
    let mut observer = ResponseObserver::new(ApiFormat::Responses, true);
    let mut events = Vec::new();
    for piece in event.as_bytes().chunks(4096) {
        observer.feed(piece, &mut events);
    }
    assert_eq!((observer.observed().usage, events.len()), (Some(usage(1, 2, None)), 1));
}

#[test]
fn events_with_a_common_prefix_are_read_completely() {
    let begin = r#"{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1763640000,"model":"m","#;
    let one = |rest: &str| format!("data: {begin}{rest}\n\n");
    let output = one(r#""choices":[{"index":0,"delta":{"content":"x"}}]}"#);
    let empty = one(r#""choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}"#);
    let usage_alone = one(r#""choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#);
    let broken = one(r#""choices":["#);
    let failed = one(r#""error":{"message":"x"}}"#);
    let two_lines = format!("data:\ndata: {begin}\ndata: \"choices\":[]}}\n\n");
    let other = output.replace("chatcmpl-1", "chatcmpl-2");
    for (stream, shape) in [
        (vec![&empty, &output, &output, &output], vec![(false, false), (true, false), (true, false), (true, false)]),
        (vec![&output, &output, &usage_alone], vec![(true, false), (true, false), (false, true)]),
        (vec![&output, &usage_alone, &output], vec![(true, false), (false, true), (true, false)]),
        (vec![&output, &output, &broken, &output], vec![(true, false), (true, false), (false, false), (true, false)]),
        (
            vec![&output, &output, &two_lines, &output],
            vec![(true, false), (true, false), (false, false), (true, false)],
        ),
        (vec![&output, &output, &other], vec![(true, false), (true, false), (true, false)]),
        (vec![&output, &output, &failed], vec![(true, false), (true, false), (false, false)]),
    ] {
        let text: String = stream.iter().map(|event| event.as_str()).collect();
        let (observed, events) = watch(ApiFormat::Chat, true, &text);
        let told: Vec<_> = events.iter().map(|event| (event.output, event.usage != UsageLocation::None)).collect();
        assert_eq!(told, shape, "{text}");
        assert_eq!(observed.unreadable, text.contains(&broken));
        assert_eq!(observed.error, text.contains(&failed));
        assert_eq!(
            observed.response_id.as_deref(),
            Some(if text.contains(&other) { "chatcmpl-2" } else { "chatcmpl-1" })
        );
        assert_eq!(observed.usage.is_some(), text.contains(&usage_alone));
    }
}
