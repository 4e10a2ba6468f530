use proptest::prelude::*;

use super::*;

/// Returns a row as LiteLLM 1.106 writes it, with these members replaced.
fn written_row(members: &serde_json::Value) -> String {
    let mut row = serde_json::json!({
        "request_id": "chatcmpl-1", "call_type": "acompletion", "api_key": "hash", "spend": 0, "total_tokens": 15,
        "prompt_tokens": 10, "completion_tokens": 5, "startTime": "2026-11-20T19:34:38.529+00:00",
        "endTime": "2026-11-20T19:34:38.535+00:00", "model": "gpt-4o-mini", "end_user": "acct-1", "cache_hit": "None",
        "status": "success", "litellm_call_id": "cid-1",
        "metadata": {"spend_logs_metadata": {"run_id": "r1", "attempt": 2, "graph_id": "g", "sluice_call_id": "cid-1"}},
    });
    for (name, value) in members.as_object().expect("members") {
        row[name] = value.clone();
    }
    row.to_string()
}

fn answer(rows: &[String]) -> String {
    format!(r#"{{"data":[{}],"total":{},"page":1,"page_size":500,"total_pages":1}}"#, rows.join(","), rows.len())
}

/// Returns the only row of a page, or the reason why it cannot be read.
fn only(text: &str) -> Result<SpendRow, String> {
    let mut page = page(&answer(&[text.to_owned()]), "acct-1").map_err(|error| error.to_string())?;
    match page.unreadable.pop() {
        Some(row) => Err(row.to_string()),
        None => Ok(page.rows.pop().expect("it is the account's")),
    }
}

#[test]
fn a_row_is_read_with_exact_digits() {
    let text = written_row(&serde_json::json!({})).replace(r#""spend":0"#, r#""spend":5.4e-06"#);
    let row = only(&text).expect("it is one");
    let want = SpendRow {
        request_id: "chatcmpl-1".into(),
        sluice_call_id: Some("cid-1".into()),
        run: "r1.2".parse().ok(),
        litellm_call_id: Some("cid-1".into()),
        account: "acct-1".into(),
        spend: "5.4e-06".into(),
        nanos: 5400,
        input: 10,
        output: 5,
        model: Some("gpt-4o-mini".into()),
        is_cache_hit: false,
        is_failure: false,
        start_us: 1_795_203_278_529_000,
        end_us: 1_795_203_278_535_000,
    };
    assert_eq!(row, want);
    let other = only(&text.replace("5.4e-06", "0.0000054")).expect("it is one");
    assert_eq!((other.hash(), other.spend.as_str()), (row.hash(), "0.0000054"));
    assert_ne!(only(&text.replace("5.4e-06", "5.5e-06")).expect("it is one").hash(), row.hash());
}

#[test]
fn rows_of_other_accounts_are_only_counted() {
    let others = [
        written_row(&serde_json::json!({"end_user": "acct-2"})),
        written_row(&serde_json::json!({"end_user": null, "request_id": "b", "spend": "free"})),
        written_row(&serde_json::json!({"end_user": "", "request_id": null})),
        written_row(&serde_json::json!({"end_user": "ACCT-1", "request_id": "c"})),
    ];
    let ours = written_row(&serde_json::json!({"request_id": "ours"}));
    let page = page(&answer(&[others.as_slice(), &[ours]].concat()), "acct-1").expect("it is a page");
    assert_eq!((page.rows.len(), page.foreign, page.distinct, page.total), (1, 4, 5, 5));
    assert_eq!(page.rows[0].request_id, "ours");
}

#[test]
fn optional_members_of_a_row_may_be_missing() {
    let row = only(
        r#"{"request_id":"x_cache_hit1795203278","end_user":"acct-1","spend":0.0,"startTime":"2026-11-20 19:34:38",
            "endTime":"2026-11-20T19:34:39.5Z","metadata":"{\"spend_logs_metadata\":{\"sluice_call_id\":\"cid\"}}"}"#,
    )
    .expect("it is one");
    assert_eq!((row.is_cache_hit, row.names().response_id(), row.sluice_call_id.as_deref()), (true, "x", Some("cid")));
    assert_eq!((row.nanos, row.usage(), row.end_us - row.start_us), (0, None, 1_500_000));
    for metadata in [r#"{}"#, "null", "[]", "7", r#""no JSON""#, r#"{"spend_logs_metadata":[1]}"#] {
        let text = written_row(&serde_json::json!({})).replace(
            r#"{"spend_logs_metadata":{"attempt":2,"graph_id":"g","run_id":"r1","sluice_call_id":"cid-1"}}"#,
            metadata,
        );
        let row = only(&text).unwrap_or_else(|error| panic!("{metadata}: {error}"));
        assert_eq!((row.sluice_call_id, row.run), (None, None), "{metadata}");
    }
}

#[test]
fn the_cache_column_goes_before_the_rows_name() {
    for (column, is_hit) in [("True", true), ("true", true), ("None", false), ("False", false), ("", false)] {
        let row = only(&written_row(&serde_json::json!({"request_id": "x_cache_hit17", "cache_hit": column})));
        assert_eq!(row.map(|row| row.is_cache_hit), Ok(is_hit), "{column}");
    }
}

#[test]
fn a_row_of_an_earlier_attempt_names_its_call() {
    for (id, status, call) in [
        ("c-1-attempt-0", "failure", Some("c-1")),
        ("c-attempt-1-attempt-12", "failure", Some("c-attempt-1")),
        ("c-1-attempt-0", "success", None),
        ("c-1-attempt-", "failure", None),
        ("c-1-attempt-x", "failure", None),
        ("c-1", "failure", None),
    ] {
        let members = serde_json::json!({"litellm_call_id": id, "status": status, "metadata": {}});
        let row = only(&written_row(&members)).expect("it is one");
        assert_eq!(row.retried_call(), call, "{id} {status}");
        assert_eq!(row.call_id(), call.or(Some(id)));
    }
}

#[test]
fn an_unreadable_row_of_the_account_is_named() {
    for (members, why) in [
        (serde_json::json!({"spend": "5"}), "spend"),
        (serde_json::json!({"spend": -1}), "spend"),
        (serde_json::json!({"spend": null}), "spend"),
        (serde_json::json!({"spend": [1]}), "spend"),
        (serde_json::json!({"prompt_tokens": -1}), "chatcmpl-1"),
        (serde_json::json!({"prompt_tokens": 1.5}), "chatcmpl-1"),
        (serde_json::json!({"completion_tokens": u64::MAX}), "completion_tokens"),
        (serde_json::json!({"startTime": "yesterday"}), "startTime"),
        (serde_json::json!({"startTime": 7}), "chatcmpl-1"),
        (serde_json::json!({"request_id": ""}), "request_id"),
        (serde_json::json!({"request_id": null}), "cannot be read"),
    ] {
        let error = only(&written_row(&members)).expect_err("it is none");
        assert!(error.contains(why), "{members}: {error}");
    }
    let error = only(&written_row(&serde_json::json!({"startTime": "\u{1b}[2J"}))).expect_err("it is none");
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn an_answer_that_is_no_page_is_refused() {
    for text in ["", "[]", "{}", r#"{"data":{},"total":0}"#, r#"{"data":[],"total":-1}"#, r#"{"data":[{]},"total":1}"#]
    {
        assert!(page(text, "acct-1").is_err(), "{text}");
    }
}

#[test]
fn an_unreadable_row_leaves_the_others_readable() {
    let bad = written_row(&serde_json::json!({"request_id": "bad", "spend": -0.5, "status": "failure"}));
    let good = written_row(&serde_json::json!({"request_id": "good"}));
    let theirs = written_row(&serde_json::json!({"request_id": "theirs", "end_user": "acct-2", "spend": -0.5}));
    let nameless = written_row(&serde_json::json!({"request_id": ["x"]}));
    let twice = good.replacen('{', r#"{"end_user":"acct-1","#, 1);

    let page = page(&answer(&[bad, good, theirs, nameless, "7".into(), twice]), "acct-1").expect("it is a page");

    assert_eq!((page.rows.len(), page.foreign, page.distinct, page.total), (1, 1, 6, 6));
    assert_eq!(page.rows[0].request_id, "good");
    let names: Vec<_> = page.unreadable.iter().map(|row| row.request_id.as_deref()).collect();
    assert_eq!(names, [Some("bad"), None, None, Some("good")]);
    let of_call = &page.unreadable[0];
    assert_eq!((of_call.names().call_id(), of_call.run.clone()), (Some("cid-1"), "r1.2".parse().ok()));
    assert_eq!((of_call.start_us, of_call.is_failure), (Some(1_795_203_278_529_000), true));
    assert_eq!(page.unreadable[1].names().call_id(), Some("cid-1"));
    // Rows without a name are told apart by their text.
    assert_ne!(page.unreadable[1].key(), page.unreadable[2].key());
    assert!(page.unreadable[2].to_string().starts_with("row without a name of the spend log"), "{page:?}");
}

#[test]
fn an_amount_that_cannot_be_counted_is_refused() {
    let with = |spend: &str| {
        only(&written_row(&serde_json::json!({})).replace(r#""spend":0"#, &format!(r#""spend":{spend}"#)))
    };
    assert_eq!(with("9223372036.854775807").map(|row| row.nanos), Ok(i64::MAX));
    for spend in ["9223372036.854775808", "1e30", "9.3E+9", "1e400"] {
        let error = with(spend).expect_err("it is none");
        assert!(error.contains("row chatcmpl-1") && error.contains(spend), "{error}");
    }
}

#[test]
fn deep_nesting_is_harmless() {
    let deep = "[".repeat(200_000) + &"]".repeat(200_000);
    let row = only(
        &written_row(&serde_json::json!({"metadata": 7})).replace(r#""metadata":7"#, &format!(r#""metadata":{deep}"#)),
    );
    assert_eq!(row.expect("what is in there says nothing").sluice_call_id, None);
    assert!(page(&deep, "acct-1").is_err());
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,200}", spend in "[0-9eE.+-]{1,20}") {
        let _ = page(&text, "acct-1");
        let _ = only(&written_row(&serde_json::json!({})).replace(r#""spend":0"#, &format!(r#""spend":{spend}"#)));
    }
}
