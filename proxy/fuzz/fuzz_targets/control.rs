//! Requests of the control socket, and the query of a relayed request: what is read is written as the same again.
//!
//! Input: the kind of the request, one byte, a newline, its body or its query.

#![no_main]

use std::fmt::Debug;

use http::Method;
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde_json::Value;
use sluice_contract::control::{DecideHold, InjectMessages, Interrupt, RaiseCaps, SetClock, SetPause};
use sluice_proxy::policy::RelayQuery;
use sluice_proxy_fuzz::choices_and_input;

fuzz_target!(|data: &[u8]| {
    let Some(([kind], input)) = choices_and_input(data) else { return };
    match kind {
        b'c' => agrees(input, RaiseCaps::from_json),
        b'k' => agrees(input, SetClock::from_json),
        b'p' => agrees(input, SetPause::from_json),
        b'd' => agrees(input, DecideHold::from_json),
        b'm' => agrees(input, InjectMessages::from_json),
        b'i' => agrees(input, Interrupt::from_json),
        _ => query(input),
    }
});

/// Fails unless a body that is read is one JSON object, and its value is read from its own text.
fn agrees<T: Serialize + PartialEq + Debug>(body: &[u8], read: fn(&[u8]) -> serde_json::Result<T>) {
    let Ok(asked) = read(body) else { return };
    let value: Value = serde_json::from_slice(body).expect("only JSON is read");
    assert!(value.is_object(), "{value}");
    let text = serde_json::to_vec(&asked).expect("it has texts and numbers");
    assert_eq!(read(&text).expect("its own text is valid"), asked);
}

/// Fails unless the query that is sent on has known names alone, each once, and is read as the same.
fn query(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let Ok(parsed) = RelayQuery::parse(&Method::GET, Some(text)) else { return };
    let sent = parsed.to_string();
    let rest = sent.strip_prefix('?').unwrap_or_default();
    let names: Vec<_> = rest.split('&').filter_map(|member| member.split_once('=')).map(|(name, _)| name).collect();
    let known = ["wait", "ack", "after", "limit"];
    assert!(names.iter().all(|name| known.contains(name)) && names.len() <= known.len(), "{sent}");
    assert!(sent.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'), "{sent}");
    let again = RelayQuery::parse(&Method::GET, Some(rest)).expect("what is sent on is valid");
    assert_eq!(again.to_string(), sent);
    assert_eq!(again.waits(), parsed.waits());
}
