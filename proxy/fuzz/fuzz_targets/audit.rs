//! Audit files of any bytes: read, verified, gone on with.
//!
//! Input: a choice, a newline, the file. `r` takes it as it is; `f` makes the hashes of its lines fit first, so that what
//! lies behind them is reached; `a` puts its first two bytes as an alteration into a good file.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use sluice_contract::chain::{Chain, head_of};
use sluice_contract::recovery::{AuditOwner, plan};
use sluice_contract::{Hash, PublicKey, AuditLog, TrustAnchors, Verdict, verify};
use sluice_proxy_fuzz::choices_and_input;

const SIGNED: &[u8] = include_bytes!("../../contract/tests/golden/signed.jsonl");
const KEY: &str = include_str!("../../contract/tests/golden/key.pub");
const OWNER: AuditOwner<'_> = AuditOwner { run_id: "run-1", attempt: 0, billing_account_id: "acct-1" };

fuzz_target!(|data: &[u8]| {
    let Some(([choice], input)) = choices_and_input(data) else { return };
    match choice {
        b'a' => altered(input),
        b'f' => any(&fitted(input)),
        _ => any(input),
    }
});

fn any(bytes: &[u8]) {
    let verdict = verify(bytes, &TrustAnchors::default());
    if let Some(report) = verdict.report() {
        let (log, torn) = AuditLog::read(bytes).expect("what verifies can be read");
        assert_eq!((log.lines(), torn.len() as u64), (report.lines, report.torn));
        let open: Vec<_> = open_calls(bytes);
        assert_eq!(report.open_calls, open, "open calls are counted otherwise");
        // One cut that depends on the input is enough: the fuzzer makes many.
        let cut = Hash::of(bytes).to_string().bytes().map(usize::from).sum::<usize>() % (bytes.len() + 1);
        let prefix = verify(&bytes[..cut], &TrustAnchors::default());
        assert_ne!(prefix.exit_code(), 1, "cut at {cut}: {prefix}");
    }
    let Ok(plan) = plan(bytes, b"", &OWNER) else { return };
    let keep = plan.keep as usize;
    assert!(keep == 0 || bytes[keep - 1] == b'\n');
    assert!(!bytes[keep..].contains(&b'\n'));
    assert_eq!((plan.torn, plan.sha256), ((bytes.len() - keep) as u64, Hash::of(&bytes[keep..])));
    assert!(plan.log.open_ids().eq(open_calls(bytes)), "open calls are counted otherwise");
    let lines = bytes[..keep].split_inclusive(|byte| *byte == b'\n');
    let mut chain = Chain::default();
    lines.for_each(|line| chain.push(line));
    assert_eq!(plan.chain, chain);
    assert_ne!(verify(&bytes[..keep], &TrustAnchors::default()).exit_code(), 1, "a damaged file goes on");
}

/// By other means: intents without outcomes, in whole lines.
fn open_calls(bytes: &[u8]) -> Vec<String> {
    let mut open = Vec::new();
    for line in bytes.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { return Vec::new() };
        let id = line["call_id"].as_str().unwrap_or_default().to_owned();
        match line["kind"].as_str() {
            Some("intent") => open.push(id),
            Some("outcome") => open.retain(|call| *call != id),
            _ => {}
        }
    }
    open
}

/// Every `prev` and `seq` states what is so, and every head.
fn fitted(input: &[u8]) -> Vec<u8> {
    let (mut bytes, mut chain) = (Vec::new(), Chain::default());
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        let mut line = line.to_vec();
        if let Ok(Value::Object(mut members)) = serde_json::from_slice::<Value>(&line) {
            members.insert("prev".to_owned(), chain.prev.to_string().into());
            members.insert("seq".to_owned(), chain.seq.into());
            if members.get("kind").is_some_and(|kind| kind == "close")
                && let Ok(head) = head_of(Value::Object(members.clone()).to_string().as_bytes())
            {
                members.insert("head".to_owned(), head.to_string().into());
            }
            line = Value::Object(members).to_string().into_bytes();
            line.push(b'\n');
        }
        chain.push(&line);
        bytes.extend_from_slice(&line);
    }
    bytes
}

/// A piece of a signed file is replaced: found, unless it is the same or only the last newline is gone.
fn altered(input: &[u8]) {
    let Some(([at_low, at_high, len], piece)) = input.split_first_chunk::<3>() else { return };
    let at = usize::from(u16::from_le_bytes([*at_low, *at_high])) % SIGNED.len();
    let end = (at + usize::from(*len)).min(SIGNED.len());
    let bytes = [&SIGNED[..at], piece, &SIGNED[end..]].concat();
    let keys = [KEY.parse::<PublicKey>().expect("a golden key")];
    let verdict = verify(&bytes, &TrustAnchors { keys: &keys, seen: &[] });
    assert!(!matches!(verdict, Verdict::Complete(_)) || bytes == SIGNED, "an altered file counts as complete");
    any(&bytes);
}
