//! Messages in a conversation: whatever the body, it stays JSON, its own bytes stay, and a second call agrees.
//!
//! Input: API format and split, one byte each, a newline, the body.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluice_proxy::conversation::{MessageStore, NewMessage, scan};
use sluice_proxy::policy::ApiFormat;
use sluice_proxy_fuzz::{choices_and_input, cut};

const TEXT: &str = "a \"message\"\n";

fuzz_target!(|data: &[u8]| {
    let Some(([format, split], body)) = choices_and_input(data) else { return };
    let format = match format {
        b'm' => ApiFormat::Messages,
        b'r' => ApiFormat::Responses,
        b'k' => ApiFormat::Compact,
        _ => ApiFormat::Chat,
    };
    let mut store = MessageStore::default();
    let list = vec![NewMessage { id: "msg-1".into(), content: TEXT.into(), anchor: None }];
    store.replace(list);
    let sent = send(&mut store, format, &cut(body, split));
    assert_eq!(send(&mut store, format, &[body]), sent, "a retry, or a split, changed the body");
    let Some((splices, sent)) = sent else { return };
    let Ok(before) = serde_json::from_slice::<Value>(body) else { panic!("a body that is not JSON was changed") };
    let after: Value = serde_json::from_slice(&sent).expect("the body is JSON still");
    // Two members of one name are refused later, and only one of them is seen here.
    if !splices.is_empty() && serde_json::to_vec(&before).is_ok_and(|text| text.len() >= body.len()) {
        assert!(after.to_string().contains(r#""a \"message\"\n""#));
    }
    assert!(sent.len() < body.len() + 200);
});

type Spliced = Option<(Vec<(u64, String)>, Vec<u8>)>;

/// Returns the bytes that were added, and the body with them; `None` without a conversation.
fn send(store: &mut MessageStore, format: ApiFormat, pieces: &[&[u8]]) -> Spliced {
    let call = scan(format, pieces, &store.anchors())?;
    let splices = store.plan(format, &call, 1 << 20).splices;
    let (body, mut sent, mut from) = (pieces.concat(), Vec::new(), 0);
    for (at, text) in &splices {
        sent.extend_from_slice(&body[from..*at as usize]);
        sent.extend_from_slice(text.as_bytes());
        from = *at as usize;
    }
    sent.extend_from_slice(&body[from..]);
    Some((splices, sent))
}
