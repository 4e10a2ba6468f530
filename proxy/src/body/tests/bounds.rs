//! Bounds of an answer, and the thinking budgets that follow them.

use super::*;

#[test]
fn bounds_are_read_for_the_reservation() {
    let (mut parsed, _) =
        read(ApiFormat::Chat, r#"{"model":"m","max_tokens":5,"max_completion_tokens":7,"n":3}"#).expect("allowed");
    assert_eq!((parsed.max_output, parsed.choices), (Some(7), 3));
    parsed.bound_output(ApiFormat::Chat, 4);
    assert_eq!((parsed.max_output, &parsed.edit.keep[..]), (Some(4), &[(1, 12), (54, 59)][..]));
    assert!(parsed.edit.prefix.ends_with(r#","max_completion_tokens":4"#));
    let other = |format, name: &str| {
        let (parsed, sent) = read(format, &format!(r#"{{"model":"m","{name}":1,"stream":false}}"#)).expect("allowed");
        (parsed.max_output, parsed.stripped == [name], sent.contains(name))
    };
    for (format, own) in [
        (ApiFormat::Chat, &["max_tokens", "max_completion_tokens"][..]),
        (ApiFormat::Completions, &["max_tokens"]),
        (ApiFormat::Messages, &["max_tokens"]),
        (ApiFormat::Responses, &["max_output_tokens"]),
        (ApiFormat::Embeddings, &[]),
    ] {
        for name in ["max_tokens", "max_completion_tokens", "max_output_tokens", "max_tokens_to_sample"] {
            let want = if own.contains(&name) { (Some(1), false, true) } else { (None, true, false) };
            assert_eq!(other(format, name), want, "{format:?} {name}");
        }
    }
    for none in [
        r#""max_tokens":0"#,
        r#""max_tokens":0,"max_completion_tokens":5"#,
        r#""max_tokens":5,"max_completion_tokens":0"#,
    ] {
        let (mut parsed, _) = read(ApiFormat::Chat, &format!(r#"{{"model":"m",{none}}}"#)).expect("allowed");
        assert_eq!(parsed.max_output, None, "{none}");
        parsed.bound_output(ApiFormat::Chat, 9);
        assert_eq!(parsed.edit.keep, [(1, 12)], "{none}: ours stands in its place");
    }
    assert_eq!(reason(ApiFormat::Chat, r#"{"model":"m","n":9}"#), Some(Reason::ParamNotAllowed));
    let (parsed, _) = read(ApiFormat::Completions, r#"{"model":"m","prompt":["a",[1,2]],"n":2}"#).expect("allowed");
    assert_eq!(parsed.choices, 4);
    assert_eq!(
        read(ApiFormat::Completions, r#"{"model":"m","prompt":[1,2,3,4,5,6,7,8,9]}"#)
            .expect("one prompt of tokens")
            .0
            .choices,
        1
    );
    let many = format!(r#"{{"model":"m","prompt":[{}]}}"#, [r#""a""#; 9].join(","));
    assert_eq!(reason(ApiFormat::Completions, &many), Some(Reason::ParamNotAllowed));
    for bad in [
        r#""max_tokens":-1"#, r#""max_tokens":1.5"#, r#""max_tokens":"5""#, r#""n":[1]"#, r#""stream":"true""#,
        r#""stream":1"#,
    ] {
        assert_eq!(reason(ApiFormat::Chat, &format!(r#"{{"model":"m",{bad}}}"#)), Some(Reason::InvalidParam), "{bad}");
    }
}

/// Bug: each `service_tier` was reserved at the dearest rate, also the usual one.
#[test]
fn only_another_tier_than_the_usual_one_is_dearer() {
    let is_dearer = |tier: &str| {
        let body = format!(r#"{{"model":"m","service_tier":{tier},"temperature":null}}"#);
        read(ApiFormat::Chat, &body).expect("allowed").0.cost_factors.service_tier
    };
    for (tier, expected) in [
        ("null", false),
        (r#""default""#, false),
        (r#""standard_only""#, false),
        (r#""auto""#, true),
        (r#""priority""#, true),
        (r#""default ""#, true),
    ] {
        assert_eq!(is_dearer(tier), expected, "{tier}");
    }
}

#[test]
fn the_lifetime_of_a_prompt_cache_sets_its_price() {
    let long = |body: &str| {
        read(ApiFormat::Messages, body).map(|(parsed, _)| parsed.cost_factors.long_cache).map_err(|it| it.reason)
    };
    let cached = |cache: &str| {
        [
            format!(r#"{{"model":"m","system":[{{"type":"text","text":"x","cache_control":{cache}}}]}}"#),
            format!(r#"{{"model":"m","tools":[{{"name":"f","input_schema":{{}},"cache_control":{cache}}}]}}"#),
            format!(r#"{{"model":"m","cache_control":{cache}}}"#),
        ]
    };
    for (cache, want) in [
        (r#"{"type":"ephemeral"}"#, Ok(false)),
        (r#"{"type":"ephemeral","ttl":"5m"}"#, Ok(false)),
        (r#"{"ttl":"1h","type":"ephemeral"}"#, Ok(true)),
        (r#"{"type":"ephemeral","ttl":"31536000s"}"#, Err(Reason::InvalidParam)),
        (r#"{"type":"ephemeral","ttl":31536000}"#, Err(Reason::InvalidParam)),
        (r#"{"type":"ephemeral","\u0074tl":"2h"}"#, Err(Reason::InvalidParam)),
        (r#"{"cache_control":0,"ttl":"9d"}"#, Err(Reason::InvalidParam)),
        (r#"{"cache_control":{"ttl":"5m"},"ttl":"9d"}"#, Err(Reason::InvalidParam)),
        (r#"{"x":{"cache_control":{}},"ttl":"9d"}"#, Err(Reason::InvalidParam)),
        (r#"{"cache_control":0,"ttl":"1h"}"#, Ok(true)),
    ] {
        for body in cached(cache) {
            assert_eq!(long(&body), want, "{body}");
        }
    }
    let deep =
        format!(r#"{}"ttl":"9d"{}"#, r#"{"x":"#.repeat(70), "}".repeat(70)).replace(r#"{"x":"ttl""#, r#"{"ttl""#);
    let deep = format!(r#"{{"model":"m","messages":[{{"role":"user","content":{deep}}}]}}"#);
    assert_eq!(long(&deep), Err(Reason::InvalidParam), "what is too deep to be followed is refused");
    let own = r#"{"model":"m","messages":[{"role":"assistant","content":[{"type":"tool_use","input":{"ttl":"9d","cache_control":{"ttl":"9d"}}}]}]}"#;
    assert_eq!(long(own), Ok(false), "what an agent's tool is called with is its own affair");
}

/// Returns the outgoing body when the sidecar grants this many tokens, and the names of the changed members.
fn fitted(format: ApiFormat, body: &str, bound: u64, is_claude: bool) -> (String, String) {
    let policy = BodyPolicy { account_json: "0".to_owned(), ..BodyPolicy::default() };
    let mut reader = BodyReader::new(format, &policy);
    // The reader gets one byte at a time: offsets must refer to the whole body.
    body.as_bytes().chunks(1).try_for_each(|piece| reader.feed(piece)).expect("allowed");
    let mut parsed = reader.finish().expect("allowed");
    parsed.bound_output(format, bound);
    parsed.fit_thinking(bound, is_claude);
    let mut sent = parsed.edit.prefix.clone();
    for (is_member, from, to) in parsed.edit.ranges() {
        sent.push_str(if is_member { "," } else { "" });
        sent.push_str(&body[from as usize..to as usize]);
        sent.push_str(parsed.put_at(to).unwrap_or_default());
    }
    let sent = format!("{sent}}}").replacen(r#"{"user":0,"#, "{", 1);
    serde_json::from_str::<serde_json::Value>(&sent).expect("what goes upstream is JSON");
    assert_eq!(parsed.dropped.as_deref().unwrap_or_default(), parsed.stripped.join(", "));
    (sent, parsed.stripped.join(", "))
}

#[test]
fn a_budget_for_thinking_follows_a_lowered_bound() {
    let body = r#"{"model":"m","max_tokens":32000,"thinking":{"type":"enabled","budget_tokens": 31999 ,"display":"omitted"},"messages":[]}"#;
    let sent =
        |bound, thinking: &str| format!(r#"{{"max_tokens":{bound},"model":"m","thinking":{thinking},"messages":[]}}"#);
    for (bound, thinking, names) in [
        (40_000, r#"{"type":"enabled","budget_tokens": 31999 ,"display":"omitted"}"#, ""),
        (32_000, r#"{"type":"enabled","budget_tokens": 31999 ,"display":"omitted"}"#, ""),
        (31_999, r#"{"type":"enabled","budget_tokens": 15999 ,"display":"omitted"}"#, "thinking.budget_tokens"),
        (2048, r#"{"type":"enabled","budget_tokens": 1024 ,"display":"omitted"}"#, "thinking.budget_tokens"),
        (2047, r#"{"type":"disabled"}"#, "thinking"),
        (1024, r#"{"type":"disabled"}"#, "thinking"),
    ] {
        let (upstream, changed) = fitted(ApiFormat::Messages, body, bound, true);
        assert_eq!((upstream, &*changed), (sent(bound, thinking), names), "{bound}");
    }
    // A member that is taken out of another one goes with it, and only then.
    let body = r#"{"thinking":{"a":1,"budget_tokens":9000,"type":"enabled","b":[2]},"model":"m","max_tokens":9999,"messages":[]}"#;
    assert_eq!(
        fitted(ApiFormat::Messages, body, 3000, true).0,
        r#"{"max_tokens":3000,"thinking":{"budget_tokens":1500,"type":"enabled"},"model":"m","messages":[]}"#
    );
    assert_eq!(
        fitted(ApiFormat::Messages, body, 1500, true).0,
        r#"{"max_tokens":1500,"thinking":{"type":"disabled"},"model":"m","messages":[]}"#
    );
    let adaptive = r#"{"model":"m","max_tokens":9999,"thinking":{"type":"adaptive"},"messages":[]}"#;
    assert_eq!(fitted(ApiFormat::Messages, adaptive, 1024, true).1, "");
    // Parsers keep the last of two budgets.
    let twice = r#"{"model":"m","thinking":{"budget_tokens":9000,"budget_tokens":"x"},"messages":[]}"#;
    assert_eq!(fitted(ApiFormat::Messages, twice, 1024, true).1, "");
}

#[test]
fn an_effort_follows_a_lowered_bound_for_a_claude() {
    for (format, body, bound, is_claude, sent, names) in [
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"max","messages":[]}"#,
            9000,
            true,
            r#"{"reasoning_effort":"high","messages":[]}"#,
            "reasoning_effort",
        ),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"max","messages":[]}"#,
            9000,
            false,
            r#"{"reasoning_effort":"max","messages":[]}"#,
            "",
        ),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":{"effort":"high"}}"#,
            4096,
            true,
            r#"{"reasoning_effort":{"effort":"medium"}}"#,
            "reasoning_effort",
        ),
        (ApiFormat::Chat, r#"{"reasoning_effort":"high"}"#, 4097, true, r#"{"reasoning_effort":"high"}"#, ""),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"low"}"#,
            1024,
            true,
            r#"{"reasoning_effort":"none"}"#,
            "reasoning_effort",
        ),
        (ApiFormat::Chat, r#"{"reasoning":{"effort":"max"}}"#, 1024, true, r#"{"reasoning":{"effort":"max"}}"#, ""),
        (
            ApiFormat::Responses,
            r#"{"reasoning":{"effort":"xhigh"},"input":"x"}"#,
            5000,
            true,
            r#"{"reasoning":{"effort":"medium"},"input":"x"}"#,
            "reasoning_effort",
        ),
    ] {
        let (upstream, changed) = fitted(format, &body.replacen('{', r#"{"model":"m","#, 1), bound, is_claude);
        let bounded = upstream.split_once(r#""model":"m","#).map(|(_, rest)| format!("{{{rest}")).expect("the model");
        assert_eq!((&*bounded, &*changed), (sent, names), "{body} {bound}");
    }
}

#[test]
fn thinking_is_needed_where_earlier_answers_have_it() {
    for (format, body, least) in [
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}]}"#,
            Some(2048),
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"assistant","content":[{"type":"redacted_thinking","data":"x"}]}]}"#,
            Some(2048),
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[],"context_management":{"edits":[{"type":"clear_thinking_20251015"}]}}"#,
            Some(2048),
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"enabled","budget_tokens":2000},"messages":[{"role":"user","content":"thinking"}]}"#,
            None,
        ),
        (
            ApiFormat::Messages,
            r#"{"thinking":{"type":"adaptive"},"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}]}"#,
            None,
        ),
        (
            ApiFormat::Chat,
            r#"{"reasoning_effort":"low","messages":[{"role":"assistant","thinking_blocks":[]}]}"#,
            Some(2048),
        ),
    ] {
        let (parsed, _) = read(format, &body.replacen('{', r#"{"model":"m","#, 1)).expect("allowed");
        assert_eq!(parsed.rare.and_then(|rare| rare.thinking.least_output(true)), least, "{body}");
    }
}
