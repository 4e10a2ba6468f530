use std::borrow::Cow;

use serde::Serialize;

use super::*;
use crate::encode::WriteJson;
use proptest::prelude::*;
use serde_json::Value;

fn text(s: &str) -> Cow<'_, str> {
    Cow::Borrowed(s)
}

/// One of each, with every member present.
fn samples() -> Vec<String> {
    let usage = Usage {
        cache_write: Some(1),
        cached_input: Some(2),
        input: Some(3),
        output: Some(4),
        reasoning: Some(5),
        total: Some(7),
    };
    let timing = Timing {
        connect: Some(1),
        first_token: Some(2),
        longest_gap: Some(3),
        own: 4,
        queue: 5,
        total: 6,
        ttfb: Some(7),
    };
    vec![
        written(&Open {
            attempt: 0,
            billing_account_id: text("acct-1"),
            boot_id: text("b"),
            build: text("x"),
            graph_id: text("sandbox:agent"),
            kind: text(Open::KIND),
            limits: RunLimits {
                max_cost_usd: Some("0.5".to_owned()),
                max_memory: Some(ByteCount(1 << 20)),
                ..RunLimits::default()
            },
            pid: 1,
            policy: text("sha256:0"),
            prev: text("0"),
            proxy_version: text("0.1.0"),
            run_id: text("r1"),
            seq: 0,
            sync: text("call"),
            ts: text("2026-01-01T00:00:00.000000Z"),
            upstream: text("http://127.0.0.1:4000"),
            v: SCHEMA,
        }),
        written(&Intent {
            attempt: 0,
            bound: Some(TokenCount(1024)),
            call: 1,
            call_id: text("c"),
            injected_message_ids: Some(OptionalTexts(vec![text("msg-1"), text("+2")])),
            kind: text(Intent::KIND),
            method: text("POST"),
            model: Some(text("m")),
            path: text("/v1/messages"),
            peer: Peer { pid: Some(2), uid: 1001 },
            prev: text("0"),
            req_bytes: 10,
            reserved_strict: Some(true),
            reserved_tokens: Some(TokenCount(INTEGER_MAX)),
            reserved_usd: Some(text("0.1")),
            run_id: text("r1"),
            seq: 1,
            stream: true,
            stripped: vec![text("authorization")],
            ts: text("2026-01-01T00:00:00.000000Z"),
            v: SCHEMA,
        }),
        written(&Outcome {
            account: Some(OptionalText(text("a"))),
            attempt: 0,
            budget_limit_usd: Some(OptionalText(text("0.25"))),
            budget_of: Some(OptionalText(text("team"))),
            budget_spent_usd: Some(OptionalText(text("0.3"))),
            cache_hit: Some(true),
            call: 1,
            call_id: text("c"),
            connect_detail: Some(OptionalText(text("no route"))),
            connect_error: Some(OptionalText(text("other"))),
            cost_source: CostSource::Chunk,
            cost_usd: Some(text("0.0000054")),
            drained: Some(true),
            end: End::CutByClient,
            kind: text(Outcome::KIND),
            litellm_call_id: Some(text("c")),
            model: Some(OptionalText(text("m"))),
            model_served: Some(text("m")),
            null_reason: None,
            prev: text("0"),
            resp_bytes: 9,
            response_id: Some(text("msg_1")),
            result: CallResult::ClientAbort,
            run_id: text("r1"),
            seq: 2,
            status: Some(200),
            timing_us: timing,
            ts: text("2026-01-01T00:00:00.000000Z"),
            usage: Some(usage),
            v: SCHEMA,
        }),
        written(&Refused {
            account: Some(OptionalText(text("a"))),
            attempt: 0,
            kind: text(Refused::KIND),
            method: text("GET"),
            model: Some(OptionalText(text("m"))),
            param: Some(OptionalText(text("tools"))),
            path: text("/x"),
            prev: text("0"),
            reason: text("route_not_allowed"),
            run_id: text("r1"),
            seq: 3,
            status: 404,
            tool: Some(OptionalText(text("web_search"))),
            ts: text("2026-01-01T00:00:00.000000Z"),
            v: SCHEMA,
        }),
        written(&Recovered {
            attempt: 0,
            bytes: 7,
            kind: text(Recovered::KIND),
            offset: 100,
            open_calls: vec![text("c")],
            prev: text("0"),
            run_id: text("r1"),
            seq: 4,
            sha256: text("0"),
            ts: text("2026-01-01T00:00:00.000000Z"),
            v: SCHEMA,
        }),
        written(&Epoch {
            attempt: 0,
            boot_id: text("b"),
            build: text("x"),
            kind: text(Epoch::KIND),
            pid: 2,
            policy: text("sha256:0"),
            prev: text("0"),
            run_id: text("r1"),
            seq: 5,
            sync: text("off"),
            ts: text("2026-01-01T00:00:00.000000Z"),
            upstream: text("http://127.0.0.1:4000"),
            v: SCHEMA,
        }),
        written(&Close {
            attempt: 0,
            calls: 1,
            certificate: Some(Certificate { key_id: text("0"), public_key: text("0"), signature: text("0") }),
            cost_usd: text("0.0000054"),
            head: text("0"),
            key_id: Some(text("0")),
            kind: text(Close::KIND),
            prev: text("0"),
            reason: text("sigterm"),
            refused: 1,
            relay: Some(RelayCounts { refused: 2, requests: 3 }),
            run_id: text("r1"),
            seq: 6,
            signature: Some(text("0")),
            ts: text("2026-01-01T00:00:00.000000Z"),
            unknown: 0,
            usage,
            v: SCHEMA,
        }),
        written(&Control {
            attempt: 0,
            by: Some(OptionalText(text("alice"))),
            from: ControlValues {
                deadline_s: Some(ControlCount(60)),
                max_calls: Some(ControlCount(10)),
                max_cost_usd: Some(OptionalText(text("0.5"))),
                max_tokens: Some(ControlCount(1000)),
                messages: Some(MessageDigests(vec![MessageDigest { message_id: text("msg-1"), sha256: text("0") }])),
                open_calls: Some(ControlCount(2)),
                decision: Some(OptionalText(text("deny"))),
                hold_id: Some(OptionalText(text("hold-1"))),
                paused: Some(true),
                stopped: Some(false),
            },
            kind: text(Control::KIND),
            prev: text("0"),
            reason: Some(OptionalText(text("a \"long\" test"))),
            run_id: text("r1"),
            seq: 6,
            to: ControlValues { max_calls: Some(ControlCount(INTEGER_MAX)), ..ControlValues::default() },
            ts: text("2026-01-01T00:00:00.000000Z"),
            v: SCHEMA,
            what: text("caps"),
        }),
        written(&Held {
            asked: Some(OptionalText(text("0.75"))),
            attempt: 0,
            cap: text("max_cost_usd"),
            hold_id: text("hold-1"),
            kind: text(Held::KIND),
            max_wait_s: 240,
            prev: text("0"),
            run_id: text("r1"),
            seq: 8,
            ts: text("2026-01-01T00:00:00.000000Z"),
            v: SCHEMA,
        }),
        written(&Released {
            attempt: 0,
            by: text("alice"),
            decision: ReleaseDecision::Approve,
            hold_id: text("hold-1"),
            kind: text(Released::KIND),
            prev: text("0"),
            run_id: text("r1"),
            seq: 9,
            ts: text("2026-01-01T00:00:00.000000Z"),
            v: SCHEMA,
            waited_ms: 10,
        }),
        // All values are unknown: optional members are null, or left out.
        written(&Outcome {
            account: None,
            attempt: 0,
            budget_limit_usd: None,
            budget_of: None,
            budget_spent_usd: None,
            cache_hit: None,
            call: 1,
            call_id: text("c"),
            connect_detail: None,
            connect_error: None,
            cost_source: CostSource::None,
            cost_usd: None,
            drained: None,
            end: End::CutByUpstream,
            kind: text(Outcome::KIND),
            litellm_call_id: None,
            model: None,
            model_served: None,
            null_reason: Some(NullReason::NotSent),
            prev: text("0"),
            resp_bytes: 0,
            response_id: None,
            result: CallResult::Unknown,
            run_id: text("r1"),
            seq: 7,
            status: None,
            timing_us: Timing::default(),
            ts: text("2026-01-01T00:00:00.000000Z"),
            usage: None,
            v: SCHEMA,
        }),
    ]
}

/// A record as we write it, which is how serde_json does.
fn written(record: &(impl WriteJson + Serialize)) -> String {
    let mut line = Vec::new();
    record.write(&mut line);
    let line = String::from_utf8(line).expect("a record is text");
    assert_eq!(line, serde_json::to_string(record).expect("a record serialises"));
    line
}

fn assert_canonical(value: &Value) {
    match value {
        Value::Object(members) => members.values().for_each(assert_canonical),
        Value::Array(items) => items.iter().for_each(assert_canonical),
        Value::Number(n) => assert!(n.as_u64().is_some_and(|n| n < 1 << 53), "{n}"),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

#[test]
fn every_record_is_written_canonically() {
    for line in samples() {
        let value: Value = serde_json::from_str(&line).expect("a record is JSON");
        assert_canonical(&value);
        assert!(crate::canon::members(line.as_bytes()).is_ok(), "{line}");
    }
}

#[test]
fn every_record_carries_the_stamp() {
    for line in samples() {
        let value: Value = serde_json::from_str(&line).expect("a record is JSON");
        for key in ["v", "seq", "ts", "kind", "run_id", "attempt", "prev"] {
            assert!(value.get(key).is_some(), "{key} in {line}");
        }
    }
}

#[test]
fn a_reader_ignores_members_it_does_not_know() {
    let line = r#"{"attempt":0,"kind":"refused","method":"GET","new":1,"path":"/","prev":"0","reason":"x","run_id":"r","seq":0,"status":404,"ts":"t","v":1}"#;
    let refused: Refused<'_> = serde_json::from_str(line).expect("additive changes are fine");
    assert_eq!(refused.status, 404);
}

#[test]
fn a_missing_total_is_the_sum_of_its_classes() {
    let chat = Usage { input: Some(10), output: Some(5), cached_input: Some(8), total: Some(15), ..Usage::default() };
    let messages = Usage { input: Some(10), output: Some(5), cached_input: Some(8), ..Usage::default() };
    assert_eq!((chat.all(), messages.all()), (15, 23));
}

#[test]
fn counts_of_both_kinds_are_read_as_one() {
    let parts = Usage { output: Some(100), cached_input: Some(400), cache_write: Some(50), ..Usage::default() };
    let messages = Usage { input: Some(1000), ..parts };
    let all = Usage { input: Some(1450), total: Some(1550), ..parts };
    assert_eq!((messages.inclusive(), all.inclusive()), (all, all));
    assert_eq!(Usage::default().inclusive(), Usage::default());
    let absurd = Usage { input: Some(INTEGER_MAX), cached_input: Some(u64::MAX), ..Usage::default() };
    assert_eq!(absurd.inclusive().total, Some(INTEGER_MAX));
}

proptest! {
    #[test]
    fn any_text_is_escaped_as_serde_json_does(text in "\\PC{0,20}[\"\\\\\u{0}-\u{20}\u{7f}é😀x]{0,12}", names in prop::collection::vec(any::<String>(), 0..3)) {
        written(&text);
        written(&names);
    }
}

#[test]
fn sums_of_absurd_counts_still_fit_into_a_line() {
    let absurd = Usage { output: Some(INTEGER_MAX), ..Usage::default() };
    let mut sum = absurd;
    sum.add(&absurd);
    assert_eq!(sum, absurd);
}
