use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::chat::frames::chat_frame;

fn chat(contract: Contract) -> Translation {
    Translation::new(contract, RemoteContent::Defang, true)
}

fn event(translation: &mut Translation, event_type: &str, data: &Value) -> Option<ChatEvent> {
    let is_system = !event_type.starts_with("agent.");
    translation.event(TurnEvent { event_type, data, is_system })
}

fn text(text: &str) -> Option<ChatEvent> {
    Some(ChatEvent::Text(text.to_owned()))
}

#[test]
fn messages_of_a_worker_are_paragraphs() {
    let mut chat = chat(Contract::Plain);
    let message = |text: &str| json!({ "text": text });
    assert_eq!(event(&mut chat, "agent.assistant_message", &message("one")), text("one"));
    assert_eq!(event(&mut chat, "agent.message", &json!({ "text": "tw", "partial": true })), text("\n\ntw"));
    assert_eq!(event(&mut chat, "agent.assistant_message", &message("two")), text("o"));
    assert_eq!(event(&mut chat, "agent.message", &json!({ "text": "log", "stream": "stdout" })), None);
    let of_subagent = json!({ "text": "inner", "parent_tool_use_id": "t" });
    assert_eq!(event(&mut chat, "agent.assistant_message", &of_subagent), None);
    assert_eq!(chat.stdout(b"two"), None, "the worker prints the last answer again");
    assert_eq!(chat.last_text(), None);
    assert_eq!(chat.end(&ChatEnd::Success), [ChatEvent::Done { reason: "stop" }]);
}

/// Bug: parts without a whole message were kept without a limit.
#[test]
fn parts_are_kept_up_to_the_size_of_a_message() {
    let mut chat = chat(Contract::Plain);
    let (part, whole) = ("x".repeat(40_000), "x".repeat(90_000));
    for _ in 0..10 {
        event(&mut chat, "agent.message", &json!({ "text": part, "partial": true }));
        assert!(chat.partial.as_ref().is_none_or(|said| said.len() <= EVENT_DATA_MAX));
    }
    assert_eq!(event(&mut chat, "agent.assistant_message", &json!({ "text": whole })), None, "it was told in parts");
    event(&mut chat, "agent.message", &json!({ "text": "a", "partial": true }));
    assert_eq!(event(&mut chat, "agent.assistant_message", &json!({ "text": "ab" })), text("b"));
}

#[test]
fn the_first_source_of_text_stays() {
    let mut chat = chat(Contract::Plain);
    assert_eq!(chat.stdout(b"a <"), text("a "));
    assert_eq!(event(&mut chat, "agent.assistant_message", &json!({ "text": "a" })), None);
    assert_eq!(chat.stdout(b"b>"), text("&lt;b>"));
}

#[test]
fn texts_of_tools_load_nothing() {
    let input = json!({ "command": ["![a](https://evil)", 1], "html": "<img src=x>" });
    let safe = json!({ "command": ["!\\[a](https://evil)", 1], "html": "&lt;img src=x>" });
    let tool_use = json!({ "id": "t", "name": "bash", "input": input });
    for (remote, args) in [(RemoteContent::Defang, &safe), (RemoteContent::Keep, &input)] {
        let mut chat = Translation::new(Contract::Plain, remote, true);
        let started = ChatEvent::ToolStart { id: "t".to_owned(), name: "bash".to_owned(), args: args.clone() };
        assert_eq!(event(&mut chat, "agent.tool_use", &tool_use), Some(started));
        let result = json!({ "tool_use_id": "t", "content": input });
        let ended = ChatEvent::ToolResult { id: "t".to_owned(), result: args.clone(), is_error: false };
        assert_eq!(event(&mut chat, "agent.tool_result", &result), Some(ended));
    }
}

#[test]
fn names_and_ids_of_tools_load_nothing() {
    for (text, safe) in [("![a](https://evil)", "!\\[a](https://evil)"), ("```\n<img src=x>", "```\n&lt;img src=x>")] {
        let mut chat = chat(Contract::Plain);
        let input = json!({ text: { text: 1 } });
        let (used, ended) = (
            event(&mut chat, "agent.tool_use", &json!({ "id": text, "name": text, "input": input })),
            event(&mut chat, "agent.tool_result", &json!({ "tool_use_id": text, "content": input })),
        );
        let (id, value) = (safe.to_owned(), json!({ safe: { safe: 1 } }));
        let start = ChatEvent::ToolStart { id: id.clone(), name: id.clone(), args: value.clone() };
        assert_eq!(used, Some(start), "{text}");
        assert_eq!(ended, Some(ChatEvent::ToolResult { id, result: value, is_error: false }), "{text}");
        for one in [used, ended].into_iter().flatten() {
            let frame = chat_frame(&one, None);
            let frame = std::str::from_utf8(&frame).expect("text");
            assert!(!frame.contains("![") && !frame.contains("<img"), "{frame}");
        }
    }
}

#[test]
fn a_failed_call_is_the_reason_of_a_failed_program() {
    let mut failed = chat(Contract::Envelope);
    event(&mut failed, "llm.call", &json!({ "status": 200 }));
    event(&mut failed, "llm.call", &json!({ "status": 503 }));
    let ends = failed.end(&ChatEnd::Failed("container_failed".to_owned()));
    let [ChatEvent::Failed(failure), ChatEvent::Done { reason: "error" }] = &ends[..] else { panic!("{ends:?}") };
    assert_eq!(failure.kind.as_str(), "provider_unavailable");
    let mut claimed = chat(Contract::Envelope);
    let data = json!({ "to": "RUNNING" });
    assert_eq!(claimed.event(TurnEvent { event_type: "run.state_changed", data: &data, is_system: false }), None);
}

/// An input of a chat.
#[derive(Debug, Clone)]
enum Input {
    Stdout(&'static str),
    Event(&'static str, Value),
    LastText,
    End(ChatEnd),
}

/// Pieces of what an envelope agent prints: deltas, in parts too, an envelope, and lines that are neither.
const PRINTED: [&str; 7] = [
    "{\"delta\": \"t\"}\n",
    "{\"delta\": \"![\"}\n",
    "{\"del",
    "ta\": \"<\"}\n",
    "\n",
    "no envelope\n",
    "{\"payloads\": [{\"text\": \"t and ![more\"}], \"meta\": {}}\n",
];

fn input() -> impl Strategy<Value = Input> {
    let tool = prop_oneof![Just("a"), Just("b")];
    let use_of = |id: &str| json!({ "id": id, "name": "Bash", "input": {} });
    let result_of = |id: &str| json!({ "tool_use_id": id, "content": "x" });
    prop_oneof![
        prop_oneof![Just("t"), Just("<"), Just("![")].prop_map(Input::Stdout),
        proptest::sample::select(&PRINTED[..]).prop_map(Input::Stdout),
        tool.clone().prop_map(move |id| Input::Event("agent.tool_use", use_of(id))),
        tool.prop_map(move |id| Input::Event("agent.tool_result", result_of(id))),
        Just(Input::Event("agent.assistant_message", json!({ "text": "m" }))),
        Just(Input::Event("run.state_changed", json!({ "to": "RUNNING" }))),
        Just(Input::LastText),
        prop_oneof![Just(ChatEnd::Success), Just(ChatEnd::Cancelled), Just(ChatEnd::Failed("timeout".to_owned()))]
            .prop_map(Input::End),
    ]
}

proptest! {
    #[test]
    fn events_keep_their_order(
        contract in prop_oneof![Just(Contract::Plain), Just(Contract::Envelope)],
        inputs in proptest::collection::vec(input(), 0..40),
    ) {
        let mut chat = chat(contract);
        let mut seen = Vec::new();
        for input in inputs {
            match input {
                Input::Stdout(text) => seen.extend(chat.stdout(text.as_bytes())),
                Input::Event(event_type, data) => seen.extend(event(&mut chat, event_type, &data)),
                Input::LastText => seen.extend(chat.last_text()),
                Input::End(end) => seen.extend(chat.end(&end)),
            }
        }
        let mut open = BTreeSet::new();
        for (at, one) in seen.iter().enumerate() {
            match one {
                ChatEvent::ToolStart { id, .. } => prop_assert!(open.insert(id.clone()), "{seen:?}"),
                ChatEvent::ToolResult { id, .. } => prop_assert!(open.remove(id), "{seen:?}"),
                ChatEvent::Failed(_) => prop_assert!(matches!(seen.get(at + 1), Some(ChatEvent::Done { .. })), "{seen:?}"),
                ChatEvent::Done { .. } => prop_assert_eq!(at + 1, seen.len(), "nothing follows"),
                ChatEvent::Text(text) => prop_assert!(!text.is_empty() && !text.contains("![")),
                ChatEvent::Status { .. } => {}
            }
        }
    }

    #[test]
    fn text_does_not_depend_on_other_events(
        parts in proptest::collection::vec(prop_oneof![Just("t"), Just("<"), Just("b"), Just("!"), Just("[")], 0..20),
        tools in proptest::collection::vec(any::<bool>(), 20),
    ) {
        let said = |between: bool| {
            let (mut chat, mut text) = (chat(Contract::Plain), String::new());
            for (part, tool) in parts.iter().zip(&tools) {
                if between && *tool {
                    event(&mut chat, "agent.tool_use", &json!({ "id": "t", "name": "Bash" }));
                }
                let told = chat.stdout(part.as_bytes());
                text.extend(told.into_iter().filter_map(|one| if let ChatEvent::Text(text) = one { Some(text) } else { None }));
            }
            let last = chat.last_text();
            text.extend(last.into_iter().filter_map(|one| if let ChatEvent::Text(text) = one { Some(text) } else { None }));
            text
        };
        prop_assert_eq!(said(true), said(false));
    }
}
