use super::*;

fn grant<'a>(key: &'a RunKey, models: &'a [String], max_cost: Option<i64>) -> Grant<'a> {
    Grant {
        key,
        instance: "0123456789abcdef",
        account: "acct-1",
        graph_id: "sandbox:agent",
        models,
        max_cost,
        lifetime: Duration::from_millis(300_500),
        upstream: "http://127.0.0.1:4000",
    }
}

#[test]
fn a_key_is_asked_for_what_the_run_needs_and_no_more() {
    let key = "r1.2".parse().expect("a key");
    let models = ["m".to_owned()];
    let text = |grant: Grant<'_>| {
        let budget = grant.max_cost.map(key_budget);
        serde_json::to_string(&generate(&grant, "a", budget)).expect("plain data")
    };
    assert_eq!(
        text(grant(&key, &models, Some(250_000_001))),
        concat!(
            r#"{"key_alias":"a","duration":"300s","models":["m"],"max_budget":25.0000001,"key_type":"llm_api","#,
            r#""metadata":{"made_by":"sluice","run_id":"r1","attempt":2,"account":"acct-1","graph_id":"sandbox:agent"}}"#
        )
    );
    let least = text(grant(&key, &models, Some(1_000)));
    assert!(least.contains(r#""max_budget":10,"#), "{least}");
    let open = text(grant(&key, &[], None));
    assert!(open.contains(r#""models":[],"key_type""#), "{open}");
}

#[test]
fn a_key_counts_as_gone_when_that_is_certain() {
    let asked = Asked {
        alias: "a".into(),
        key: "r1.0".parse().expect("a key"),
        upstream: "u".into(),
        asked_us: 1_000_000_000,
        expires_us: 2_000_000_000,
    };
    let (soon, later, expired) = (1_001_000_000, 1_061_000_000, 2_000_000_000 + 3_601_000_000);
    let status = |status| Err(LitellmError::Status("POST /key/delete".into(), status));
    let late = || Err(LitellmError::Late("POST /key/delete".into(), UNDER_WAY));
    let rows: [(Result<(), LitellmError>, i64, Option<&str>); 9] = [
        (Ok(()), soon, Some("deleted")),
        (status(404), soon, None),
        (status(404), later, Some("not_found")),
        (status(500), later, None),
        (late(), later, None),
        (Err(LitellmError::Denied("x".into(), 401)), later, None),
        (Err(LitellmError::NoDatabase("x".into())), later, None),
        (late(), expired, Some("expired")),
        (Ok(()), expired, Some("deleted")),
    ];
    for (answer, now, expected) in rows {
        let told = format!("{answer:?} at {now}");
        assert_eq!(ended(answer, &asked, now).ok(), expected, "{told}");
    }
}

#[test]
fn a_key_that_may_have_been_made_is_not_forgotten() {
    let status = |status| LitellmError::Status(String::new(), status);
    for (error, refused) in [
        (LitellmError::NoDatabase(String::new()), true),
        (LitellmError::NotMaster(String::new()), true),
        (LitellmError::Denied(String::new(), 403), true),
        (LitellmError::Unreachable(String::new(), std::io::Error::other("x")), true),
        (status(404), true),
        (status(422), true),
        (LitellmError::Bound(String::new(), 400, Bound::Duration), true),
        (status(500), false),
        (status(504), false),
        (LitellmError::Late(String::new(), UNDER_WAY), false),
        (LitellmError::Broken(String::new(), std::io::Error::other("x")), false),
        (LitellmError::TooLong(String::new(), 1), false),
    ] {
        assert_eq!(was_refused(&error), refused, "{error:?}");
    }
}
