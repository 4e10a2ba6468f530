//! The filter of responses: for any response and any split the client gets the same, and never the key.
//!
//! Input: API format, stream and hiding, and split, one byte each, a newline, the response. A judge that splits
//! events and reads JSON by other means decides what may be missing.

#![no_main]

use std::collections::BTreeSet;

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluice_proxy::filter::{Filtered, ResponseFilter};
use sluice_proxy::policy::ApiFormat;
use sluice_proxy::usage::{ObservedResponse, ResponseObserver};
use sluice_proxy_fuzz::{Members, choices_and_input, cut, format_of, object, value};

const KEY: &[u8] = b"sk-secret";

fuzz_target!(|data: &[u8]| {
    let Some(([format, kind, split], answer)) = choices_and_input(data) else { return };
    let format = format_of(format);
    let (is_stream, hide) = (kind != b'u', kind == b'h');
    let whole = run(format, is_stream, hide, [answer]);
    let pieces = run(format, is_stream, hide, cut(answer, split));
    assert_eq!(text(&pieces.all), text(&whole.all), "the split changed the answer");
    assert_eq!(pieces.observed, whole.observed, "the split changed what was seen");
    assert_eq!(pieces.terminal, whole.terminal, "the split moved the end");
    assert!(!contains(&whole.all, KEY) && !contains(&pieces.all, KEY), "the key came through");

    let clean = scrubbed(answer);
    if !hide {
        assert_eq!(text(&whole.all), text(&clean), "the answer was changed");
    } else {
        assert!(
            only_usage_is_missing(&clean, &whole.all),
            "more than usage is missing:\n{}\n--- of\n{}",
            text(&whole.all),
            text(&clean)
        );
    }
    // The event that ends a stream waits, with all bytes after it.
    if let Some(end) = first_end(format, &clean).filter(|_| is_stream) {
        assert!(whole.terminal, "the end was missed");
        assert!(whole.on <= end, "something behind the end did not wait");
    }
    numbers(&whole.observed);
});

struct Out {
    all: Vec<u8>,
    /// Number of bytes that did not wait.
    on: usize,
    terminal: bool,
    observed: ObservedResponse,
}

fn run<'a>(format: ApiFormat, is_stream: bool, hide: bool, pieces: impl IntoIterator<Item = &'a [u8]>) -> Out {
    let mut filter = ResponseFilter::new(ResponseObserver::new(format, is_stream), hide && is_stream);
    let (mut out, mut held, mut terminal) = (Vec::new(), Vec::new(), false);
    let mut take = |filtered: Filtered, terminal: &mut bool| {
        assert!(!*terminal || filtered.ready.is_empty(), "something behind the end went on");
        filtered.ready.iter().for_each(|piece| out.extend_from_slice(piece));
        filtered.held.iter().for_each(|piece| held.extend_from_slice(piece));
        *terminal |= filtered.terminal;
    };
    for piece in pieces {
        let mut filtered = Filtered { terminal, ..Filtered::default() };
        filter.pass(KEY, Bytes::copy_from_slice(piece), &mut filtered);
        take(filtered, &mut terminal);
    }
    let mut filtered = Filtered { terminal, ..Filtered::default() };
    filter.finish(&mut filtered);
    take(filtered, &mut terminal);
    let observed = filter.observed().clone();
    let on = out.len();
    out.extend_from_slice(&held);
    Out { all: out, on, terminal, observed }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

fn scrubbed(answer: &[u8]) -> Vec<u8> {
    let mut clean = answer.to_vec();
    while let Some(at) = clean.windows(KEY.len()).position(|window| window == KEY) {
        clean[at..at + KEY.len()].fill(b'*');
    }
    clean
}

fn numbers(observed: &ObservedResponse) {
    if let Some(usage) = &observed.usage {
        for tokens in [usage.input, usage.output, usage.total, usage.cached_input, usage.cache_write, usage.reasoning] {
            assert!(tokens.is_none_or(|tokens| tokens < 1 << 53));
        }
        assert!(usage.all() > 0, "a placeholder was taken for a usage");
    }
}

/// One event by its lines: its position, and its data, if it has exactly one line of it.
struct SseEvent<'a> {
    bytes: &'a [u8],
    end: usize,
    data: Vec<&'a [u8]>,
    whole: bool,
}

fn events(answer: &[u8]) -> Vec<SseEvent<'_>> {
    let (mut events, mut start, mut at, mut data) = (Vec::new(), 0, 0, Vec::new());
    while at < answer.len() {
        let len = answer[at..].iter().position(|b| matches!(b, b'\n' | b'\r'));
        let Some(len) = len else { break };
        let line = &answer[at..at + len];
        at += len + if answer[at + len..].starts_with(b"\r\n") { 2 } else { 1 };
        if line.is_empty() {
            events.push(SseEvent { bytes: &answer[start..at], end: at, data: std::mem::take(&mut data), whole: true });
            start = at;
        } else if let Some(rest) = line.strip_prefix(b"data:") {
            data.push(rest.strip_prefix(b" ").unwrap_or(rest));
        }
    }
    if start < answer.len() {
        events.push(SseEvent { bytes: &answer[start..], end: answer.len(), data, whole: false });
    }
    events
}

impl SseEvent<'_> {
    fn json(&self) -> Option<Value> {
        value(std::str::from_utf8(&self.data.join(&b'\n')).ok()?)
    }

    fn ends_stream(&self) -> bool {
        let [data] = self.data[..] else { return false };
        let kind = |members: Members<'_>| {
            members
                .0
                .iter()
                .rfind(|(name, _)| name == "type")
                .and_then(|(_, kind)| value(kind.get())?.as_str().map(str::to_owned))
        };
        let known = ["message_stop", "response.completed", "response.incomplete", "response.failed"];
        self.whole
            && (data == b"[DONE]" || object(data).and_then(kind).is_some_and(|kind| known.contains(&kind.as_str())))
    }

    fn has_usage(&self) -> bool {
        let [data] = self.data[..] else { return self.json().is_some_and(|json| json.get("usage").is_some()) };
        self.whole
            && object(data).is_some_and(|members| {
                members.0.iter().any(|(name, value)| name == "usage" && value.get().starts_with('{'))
            })
    }
}

/// Returns true if the output is the input without whole usage events, or without the usage of some.
fn only_usage_is_missing(input: &[u8], output: &[u8]) -> bool {
    let mut reached = BTreeSet::from([0usize]);
    for event in events(input) {
        let mut next = BTreeSet::new();
        let may_go = event.has_usage();
        let less = if may_go { without_usage(&event) } else { Vec::new() };
        for at in reached {
            let rest = &output[at..];
            if rest.starts_with(event.bytes) {
                next.insert(at + event.bytes.len());
            }
            if may_go {
                next.insert(at);
                next.extend(less.iter().filter(|less| rest.starts_with(less)).map(|less| at + less.len()));
            }
        }
        reached = next;
    }
    reached.contains(&output.len())
}

/// Returns the event without its usage: without one of the commas around it, and with all other members unchanged.
fn without_usage(event: &SseEvent<'_>) -> Vec<Vec<u8>> {
    let [data] = event.data[..] else { return Vec::new() };
    let Some(Members(members)) = object(data) else { return Vec::new() };
    let offset = data.as_ptr() as usize - event.bytes.as_ptr() as usize;
    let end_of = |i: usize| members[i].1.get().as_ptr() as usize - data.as_ptr() as usize + members[i].1.get().len();
    // Between two members there are only blanks and a comma, so the next quote begins a name.
    let name_at = |i: usize| {
        let from = i.checked_sub(1).map_or(0, end_of);
        from + data[from..].iter().position(|b| *b == b'"').expect("a member has a name")
    };
    let mut all = Vec::new();
    for i in (0..members.len()).filter(|i| members[*i].0 == "usage") {
        let froms = [Some(name_at(i)), i.checked_sub(1).map(end_of)];
        let tos = [Some(end_of(i)), (i + 1 < members.len()).then(|| name_at(i + 1))];
        for (from, to) in
            froms.into_iter().flatten().flat_map(|from| tos.into_iter().flatten().map(move |to| (from, to)))
        {
            let less = [&data[..from], &data[to..]].concat();
            let others: Vec<_> = members
                .iter()
                .enumerate()
                .filter(|(j, _)| *j != i)
                .map(|(_, (name, raw))| (name.as_str(), raw.get()))
                .collect();
            let Some(Members(left)) = object(&less) else { continue };
            if left.iter().map(|(name, raw)| (name.as_str(), raw.get())).eq(others) {
                all.push([&event.bytes[..offset + from], &event.bytes[offset + to..]].concat());
            }
        }
    }
    all
}

/// Returns the start of the event that ends the stream for the client: nothing after it may pass before the outcome.
fn first_end(format: ApiFormat, answer: &[u8]) -> Option<usize> {
    if matches!(format, ApiFormat::Models | ApiFormat::CountTokens | ApiFormat::InputTokens) {
        return None;
    }
    events(answer).iter().find(|event| event.ends_stream()).map(|event| event.end - event.bytes.len())
}
