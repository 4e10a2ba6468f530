//! Answers from a cache, and earlier attempts of a call.

use super::*;

#[test]
fn a_call_that_a_cache_answered_costs_nothing() {
    let hit = SpendRow {
        is_cache_hit: true,
        nanos: 0,
        spend: "0.0".into(),
        request_id: "resp-1_cache_hit17".into(),
        ..row()
    };
    let in_band = || {
        known(|entry| {
            (entry.nano_usd, entry.cost_usd) = (Some(0), Some("0".into()));
            entry.price_source = sluice_state::ledger::CACHE_HIT.into();
        })
    };
    // The tokens of an answer from a cache are not billed: LiteLLM counts those of streams again.
    for row in [hit.clone(), SpendRow { input: 99, output: 1, ..hit.clone() }] {
        for (known, posts) in [
            (in_band(), false),
            (known(|_| ()), true),
            (open(ReceiptStatus::PendingCost), true),
            (unknown(), true),
            (failed(Some(429)), true),
        ] {
            let findings = join(&input(vec![known.clone()], vec![row.clone()]));
            assert_eq!(findings[0].class, FindingClass::CacheHit, "{:?}", known.receipt);
            assert_eq!(matches!(findings[0].remedy, Some(Remedy::Settle(_))), posts, "{findings:?}");
            assert!(!matches!(findings[0].remedy, Some(Remedy::Correct(_))));
            if posts {
                let settlement = remedy(&findings[0]);
                assert_eq!((settlement.nano_usd, settlement.price_source), (Some(0), PriceSource::CacheHit));
                assert_eq!(settlement.replaces.is_empty(), known.receipt.is_open());
                let again = join(&input(vec![after(known, settlement, "2026-11-20")], vec![row.clone()]));
                assert_eq!((again[0].class, &again[0].remedy), (FindingClass::CacheHit, &None), "{again:?}");
            }
        }
    }
    // Between a paid row and a cached one, a receipt does not match the cheaper one.
    let other = SpendRow { nanos: 7000, spend: "7e-06".into(), ..row() };
    assert_eq!(
        classes(vec![known(|_| ())], vec![SpendRow { start_us: 0, ..hit.clone() }, other]),
        [FindingClass::AmountDiffers]
    );
    // The sidecar took a call for a cache hit, but it was not one.
    assert_eq!(classes(vec![in_band()], vec![row()]), [FindingClass::AmountDiffers]);
    // A hit that LiteLLM charges is a call like any other.
    let charged = SpendRow { nanos: 7000, spend: "7e-06".into(), ..hit };
    assert_eq!(classes(vec![known(|_| ())], vec![charged]), [FindingClass::AmountDiffers]);
}

#[test]
fn earlier_attempts_of_a_call_belong_to_its_receipt() {
    // As LiteLLM writes them: with the sidecar's id, or without any of its metadata.
    let attempt = |number: u32, ours: bool| SpendRow {
        request_id: format!("c1-attempt-{number}"),
        sluice_call_id: ours.then(|| "c1".into()),
        run: None,
        litellm_call_id: Some(format!("c1-attempt-{number}")),
        nanos: 100,
        spend: "1e-07".into(),
        input: 3,
        output: 1,
        is_failure: true,
        ..row()
    };
    for start in [open(ReceiptStatus::PendingCost), unknown(), known(|_| ())] {
        let rows = vec![attempt(0, false), row(), attempt(1, true)];
        let first = join(&input(vec![start.clone()], rows.clone()));
        let of =
            |row: &str| first.iter().position(|f| f.request_ids == [row.to_owned()]).expect("each row has its own");
        assert_eq!((first.len(), of("resp-1")), (3, 0), "{first:?}");
        let mut settled = start.clone();
        for finding in first.iter().filter(|finding| finding.remedy.is_some()) {
            assert!(matches!(finding.remedy, Some(Remedy::Settle(_))), "{finding:?}");
            settled = after(settled, remedy(finding), "2026-11-20");
        }
        assert_eq!(settled.receipt.nano_usd, Some(5600));
        assert_eq!(settled.receipt.cost_usd.as_deref(), Some("0.0000056"));
        assert_ne!(settled.receipt.price_source.as_deref(), Some("spend_log_retry"));
        assert_eq!(settled.receipt.usage.and_then(|usage| usage.total), Some(23));

        let again = join(&input(vec![settled.clone()], rows));
        assert!(again.iter().all(|finding| finding.remedy.is_none() && !finding.class.is_mismatch()), "{again:?}");
        let sum = |side: fn(&Finding) -> Option<&SideAmounts>| -> i128 {
            again.iter().filter_map(|finding| side(finding)?.nano_usd).sum()
        };
        assert_eq!((sum(|f| f.ledger.as_ref()), sum(|f| f.spend_log.as_ref())), (5600, 5600));

        // Another price of the call itself reverses only that price.
        let dearer = SpendRow { nanos: 9000, spend: "9e-06".into(), ..row() };
        let changed = join(&input(vec![settled.clone()], vec![attempt(0, false), dearer, attempt(1, true)]));
        let corrected = after(settled, remedy(&changed[0]), "2026-11-20");
        assert_eq!(corrected.receipt.nano_usd, Some(9200));
    }
}

#[test]
fn an_earlier_attempt_waits_for_its_call() {
    let attempt = SpendRow {
        request_id: "x".into(),
        sluice_call_id: None,
        run: None,
        litellm_call_id: Some("c1-attempt-0".into()),
        is_failure: true,
        ..row()
    };
    // An open receipt holds the reserved amount until its own row exists.
    let waits = join(&input(vec![open(ReceiptStatus::PendingCost)], vec![attempt.clone()]));
    assert_eq!(waits.iter().map(|f| f.class).collect::<Vec<_>>(), [FindingClass::MissingThere, FindingClass::NotYet]);
    assert!(waits.iter().all(|finding| finding.remedy.is_none()));
    // A free try is one more row of the call.
    let free = SpendRow { nanos: 0, spend: "0".into(), ..attempt.clone() };
    assert_eq!(classes(vec![known(|_| ())], vec![row(), free]), [FindingClass::Matched]);
    for (what, row) in [
        ("another account's", SpendRow { account: "acct-2".into(), ..attempt.clone() }),
        ("of an unknown call", SpendRow { litellm_call_id: Some("c9-attempt-0".into()), ..attempt.clone() }),
        ("no number", SpendRow { litellm_call_id: Some("c1-attempt-".into()), ..attempt.clone() }),
        ("a success", SpendRow { is_failure: false, ..attempt.clone() }),
    ] {
        let found = join(&input(vec![known(|_| ())], vec![row]));
        let found: Vec<_> = found.iter().map(|finding| finding.class).collect();
        assert_eq!(found, [FindingClass::MissingThere, FindingClass::MissingHere], "{what}");
    }
    // A call that is not in question has it all the same.
    let mut elsewhere = input(vec![], vec![attempt]);
    elsewhere.elsewhere = [("c1".to_owned(), "acct-1".to_owned())].into();
    assert_eq!(join(&elsewhere), []);
}
