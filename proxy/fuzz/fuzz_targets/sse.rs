//! The answer's way: whatever it is and however it is cut, the client gets the same, and never the key.
//!
//! Input: wire, stream and hiding, and split, one byte each, a newline, the answer. A judge that splits events and reads JSON
//! by other means says what may be missing.

#![no_main]

use std::collections::BTreeSet;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluice_proxy::filter::{Filter, Passed};
use sluice_proxy::policy::Wire;
use sluice_proxy::usage::{Observer, Seen};
use sluice_proxy_fuzz::{choices_and_input, cut, value};

const KEY: &[u8] = b"sk-secret";

fuzz_target!(|data: &[u8]| {
    let Some(([wire, kind, split], answer)) = choices_and_input(data) else { return };
    let wire = wire_of(wire);
    let (is_stream, hide) = (kind != b'u', kind == b'h');
    let whole = run(wire, is_stream, hide, [answer]);
    let pieces = run(wire, is_stream, hide, cut(answer, split));
    assert_eq!(text(&pieces.all), text(&whole.all), "the split changed the answer");
    assert_eq!(pieces.seen, whole.seen, "the split changed what was seen");
    assert_eq!(pieces.terminal, whole.terminal, "the split moved the end");
    assert!(!contains(&whole.all, KEY) && !contains(&pieces.all, KEY), "the key came through");

    let clean = blot(answer);
    if !hide {
        assert_eq!(text(&whole.all), text(&clean), "the answer was changed");
    } else {
        assert!(only_usage_is_missing(&clean, &whole.all), "more than usage is missing:\n{}\n--- of\n{}", text(&whole.all), text(&clean));
    }
    // What ends a stream, and all behind it, waits.
    if let Some(end) = first_end(wire, &clean).filter(|_| is_stream) {
        assert!(whole.terminal, "the end was missed");
        assert!(whole.on <= end, "something behind the end did not wait");
    }
    numbers(&whole.seen);
});

struct Out {
    all: Vec<u8>,
    /// How much of it did not wait.
    on: usize,
    terminal: bool,
    seen: Seen,
}

fn run<'a>(wire: Wire, is_stream: bool, hide: bool, pieces: impl IntoIterator<Item = &'a [u8]>) -> Out {
    let mut filter = Filter::new(Observer::new(wire, is_stream), hide && is_stream);
    let (mut out, mut held, mut terminal) = (Vec::new(), Vec::new(), false);
    let mut take = |passed: Passed, terminal: &mut bool| {
        assert!(!*terminal || passed.on.is_empty(), "something behind the end went on");
        passed.on.iter().for_each(|piece| out.extend_from_slice(piece));
        passed.held.iter().for_each(|piece| held.extend_from_slice(piece));
        *terminal |= passed.terminal;
    };
    for piece in pieces {
        let mut passed = Passed { terminal, ..Passed::default() };
        filter.pass(KEY, Bytes::copy_from_slice(piece), &mut passed);
        take(passed, &mut terminal);
    }
    let mut passed = Passed { terminal, ..Passed::default() };
    filter.finish(&mut passed);
    take(passed, &mut terminal);
    let seen = filter.seen().clone();
    let on = out.len();
    out.extend_from_slice(&held);
    Out { all: out, on, terminal, seen }
}

fn wire_of(choice: u8) -> Wire {
    match choice {
        b'p' => Wire::Completions,
        b'e' => Wire::Embeddings,
        b'r' => Wire::Responses,
        b'm' => Wire::Messages,
        b't' => Wire::CountTokens,
        b'o' => Wire::Other,
        _ => Wire::Chat,
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn blot(answer: &[u8]) -> Vec<u8> {
    let mut clean = answer.to_vec();
    while let Some(at) = clean.windows(KEY.len()).position(|window| window == KEY) {
        clean[at..at + KEY.len()].fill(b'*');
    }
    clean
}

fn numbers(seen: &Seen) {
    if let Some(usage) = &seen.usage {
        for tokens in [usage.input, usage.output, usage.total, usage.cached_input, usage.cache_write, usage.reasoning] {
            assert!(tokens.is_none_or(|tokens| tokens < 1 << 53));
        }
        assert!(usage.all() > 0, "a placeholder was taken for a usage");
    }
}

/// One event by its lines: where it stands, and its data, if it has just one line of it.
struct Event<'a> {
    bytes: &'a [u8],
    end: usize,
    data: Vec<&'a [u8]>,
    whole: bool,
}

fn events(answer: &[u8]) -> Vec<Event<'_>> {
    let (mut events, mut start, mut at, mut data) = (Vec::new(), 0, 0, Vec::new());
    while at < answer.len() {
        let len = answer[at..].iter().position(|b| matches!(b, b'\n' | b'\r'));
        let Some(len) = len else { break };
        let line = &answer[at..at + len];
        at += len + if answer[at + len..].starts_with(b"\r\n") { 2 } else { 1 };
        if line.is_empty() {
            events.push(Event { bytes: &answer[start..at], end: at, data: std::mem::take(&mut data), whole: true });
            start = at;
        } else if let Some(rest) = line.strip_prefix(b"data:") {
            data.push(rest.strip_prefix(b" ").unwrap_or(rest));
        }
    }
    if start < answer.len() {
        events.push(Event { bytes: &answer[start..], end: answer.len(), data, whole: false });
    }
    events
}

impl Event<'_> {
    fn json(&self) -> Option<Value> {
        value(std::str::from_utf8(&self.data.join(&b'\n')).ok()?)
    }

    fn has_usage(&self) -> bool {
        // Twice the same name: the first may be the usage and the last not. Both are the upstream's own doing.
        self.whole && self.json().is_some_and(|json| json.is_object()) && contains(self.bytes, b"usage") | contains(self.bytes, b"\\u")
    }
}

/// Whether the output is the input without whole usage events, or without the usage of some.
fn only_usage_is_missing(input: &[u8], output: &[u8]) -> bool {
    let mut reached = BTreeSet::from([0usize]);
    for event in events(input) {
        let mut next = BTreeSet::new();
        for at in reached {
            let rest = &output[at..];
            if rest.starts_with(event.bytes) {
                next.insert(at + event.bytes.len());
            }
            if event.has_usage() {
                next.insert(at);
                next.extend(without_usage(&event).filter(|less| rest.starts_with(less)).map(|less| at + less.len()));
            }
        }
        reached = next;
    }
    reached.contains(&output.len())
}

/// The event without its usage: all ways to cut one stretch out so that the data are what they were, less the usage.
fn without_usage<'a>(event: &'a Event<'a>) -> Box<dyn Iterator<Item = Vec<u8>> + 'a> {
    let [data] = event.data[..] else { return Box::new(std::iter::empty()) };
    let (Some(Value::Object(mut want)), true) = (event.json(), data.len() < 400) else { return Box::new(std::iter::empty()) };
    want.remove("usage");
    let want = Value::Object(want);
    let offset = data.as_ptr() as usize - event.bytes.as_ptr() as usize;
    let commas = (0..data.len()).filter(move |at| data[*at] == b',' || *at > 0 && matches!(data[*at - 1], b'{' | b'}' | b']' | b'"' | b'0'..=b'9' | b'e' | b'l') || data[*at] == b'"');
    let ends = move |from: usize| (from + 9..=data.len()).filter(move |to| matches!(data[*to - 1], b'}' | b',' | b' ' | b'"'));
    Box::new(commas.flat_map(move |from| ends(from).map(move |to| (from, to))).filter_map(move |(from, to)| {
        let less = [&data[..from], &data[to..]].concat();
        let same = value(std::str::from_utf8(&less).ok()?)? == want;
        same.then(|| [&event.bytes[..offset + from], &event.bytes[offset + to..]].concat())
    }))
}

/// Where the event begins that ends the stream for the client: behind it nothing may go on unheld.
fn first_end(wire: Wire, answer: &[u8]) -> Option<usize> {
    if matches!(wire, Wire::Models | Wire::CountTokens) {
        return None;
    }
    let ends = |event: &&Event<'_>| {
        let done = event.data.len() == 1 && event.data[0] == b"[DONE]";
        let kind = event.json().and_then(|json| {
            // Twice the same name: no judgement.
            let twice = event.data.iter().any(|data| data.windows(6).filter(|window| *window == b"\"type\"").count() > 1 || contains(data, b"\\u"));
            let kind = json.get("type")?.as_str()?.to_owned();
            (!twice).then_some(kind)
        });
        event.whole && (done || kind.is_some_and(|kind| matches!(kind.as_str(), "message_stop" | "response.completed" | "response.incomplete" | "response.failed")))
    };
    events(answer).iter().find(ends).map(|event| event.end - event.bytes.len()).or(None)
}
