//! Settlements and corrections.

use super::*;

#[test]
fn a_settled_receipt_keeps_its_class_and_needs_nothing() {
    let cached =
        SpendRow { is_cache_hit: true, nanos: 0, spend: "0".into(), request_id: "resp-1_cache_hit17".into(), ..row() };
    for (known, row, period, class) in [
        (open(ReceiptStatus::PendingCost), row(), "2026-11-20", FindingClass::Settled),
        (open(ReceiptStatus::PendingCost), row(), "2026-11-21", FindingClass::Late),
        (unknown(), row(), "2026-11-20", FindingClass::UnknownSettled),
        (unknown(), row(), "2026-11-21", FindingClass::UnknownSettled),
        (open(ReceiptStatus::PendingCost), cached.clone(), "2026-11-20", FindingClass::CacheHit),
        (known(|e| e.nano_usd = Some(9999)), row(), "2026-11-20", FindingClass::Settled),
        (open(ReceiptStatus::PendingCost), SpendRow { input: 99, ..row() }, "2026-11-20", FindingClass::Settled),
    ] {
        let before = join(&input(vec![known.clone()], vec![row.clone()]));
        let settled = after(known, remedy(&before[0]), period);
        assert_eq!(settled.receipt.nano_usd, Some(i128::from(row.nanos)));
        assert_eq!(
            settled.receipt.usage.map(|usage| (usage.input, usage.output)),
            Some((Some(row.input), Some(row.output)))
        );
        let again = join(&input(vec![settled], vec![row]));
        assert_eq!((again[0].class, &again[0].remedy), (class, &None), "{again:?}");
    }
}

#[test]
fn a_difference_is_corrected_only_with_permission() {
    let findings = join(&input(vec![known(|e| e.nano_usd = Some(9000))], vec![row()]));
    let Some(Remedy::Correct(settlement)) = &findings[0].remedy else { panic!("{findings:?}") };
    let want = Settlement {
        receipt: "r1/0/c1".into(),
        reference: "r1/0/c1#resp-1".into(),
        hash: row().hash(),
        cost_usd: Some("5.4e-06".into()),
        nano_usd: Some(5400),
        price_source: PriceSource::SpendLog,
        usage: Some(usage(10, 5)),
        null_reason: None,
        litellm_call_id: Some("l1".into()),
        model_served: None,
        origin_us: OLD,
        replaces: vec![1],
        cause: Some("row resp-1 of the spend log: 9000 here, 5400 there, in nano-USD".into()),
    };
    assert_eq!(*settlement, want);
}

#[test]
fn a_row_that_changed_after_settlement_is_a_mismatch() {
    let before = join(&input(vec![open(ReceiptStatus::PendingCost)], vec![row()]));
    let settled = after(open(ReceiptStatus::PendingCost), remedy(&before[0]), "2026-11-20");
    let changed = SpendRow { nanos: 6000, spend: "6e-06".into(), ..row() };
    let findings = join(&input(vec![settled], vec![changed]));
    let Some(Remedy::Correct(settlement)) = &findings[0].remedy else { panic!("{findings:?}") };
    assert_eq!((findings[0].class, settlement.reference.as_str()), (FindingClass::AmountDiffers, "r1/0/c1#resp-1#1"));
    assert_eq!(settlement.replaces, [1, 200]);
}

#[test]
fn a_late_row_settles_a_receipt_without_cost() {
    let free = failed(Some(429));
    let before = join(&input(vec![free.clone()], vec![]));
    let free = after(free, remedy(&before[0]), "2026-11-20");
    assert_eq!(classes(vec![free.clone()], vec![]), [FindingClass::NotBilled]);
    let findings = join(&input(vec![free.clone()], vec![row()]));
    assert!(matches!(&findings[0].remedy, Some(Remedy::Settle(_))), "{findings:?}");
    assert_eq!(after(free, remedy(&findings[0]), "2026-11-20").receipt.nano_usd, Some(5400));
}

#[test]
fn a_failed_call_that_could_be_billed_stays_open() {
    let cut = |status| {
        let mut known = failed(status);
        known.receipt.end = Some("cut_by_upstream".into());
        known
    };
    let errors = [408, 409, 422, 499, 500, 502, 503, 504, 529].map(|status| failed(Some(status)));
    // An error event in a stream that began well, a stream that broke, and a call without an answer.
    for known in errors.into_iter().chain([failed(Some(200)), cut(Some(200)), failed(None), cut(None)]) {
        let findings = join(&input(vec![known.clone()], vec![]));
        assert_eq!(
            (findings[0].class, &findings[0].remedy),
            (FindingClass::MissingThere, &None),
            "{:?}",
            known.receipt
        );
        let way_out = "; if no row will come, sluice ledger void r1/0/c1 --reason TEXT closes it";
        assert!(findings[0].reason.contains(way_out), "{}", findings[0].reason);

        // LiteLLM's row for the call settles it, however late it arrives.
        for (row, source) in [(failure_row(), PriceSource::FailureRow), (row(), PriceSource::SpendLog)] {
            let settlement = remedy(&join(&input(vec![known.clone()], vec![row.clone()]))[0]).clone();
            assert_eq!((settlement.nano_usd, settlement.price_source), (Some(row.nanos), source));
            assert!(!after(known.clone(), &settlement, "2026-11-20").receipt.is_open());
        }
    }
    let young = ReceiptInQuestion { heard_us: NOW - GRACE_US + 1, ..failed(Some(500)) };
    assert_eq!(classes(vec![young], vec![]), [FindingClass::NotYet]);
}

#[test]
fn a_failed_call_without_a_bill_is_settled() {
    for (status, _) in sluice_contract::billing::NEVER_BILLED {
        let findings = join(&input(vec![failed(Some(status))], vec![]));
        let settlement = remedy(&findings[0]);
        assert_eq!((findings[0].class, settlement.nano_usd), (FindingClass::NotBilled, None), "{status}");
        assert_eq!(settlement.null_reason.as_deref(), Some("not_billed"));
    }
}

#[test]
fn a_receipt_settled_by_a_failure_names_it() {
    let settlement = remedy(&join(&input(vec![failed(Some(500))], vec![failure_row()]))[0]).clone();
    let known = after(failed(Some(500)), &settlement, "2026-11-20");
    assert_eq!(known.receipt.price_source.as_deref(), Some("spend_log_failure"));
    let again = join(&input(vec![known.clone()], vec![failure_row()]));
    assert_eq!((again[0].class, &again[0].remedy), (FindingClass::Settled, &None));
    assert_eq!(again[0].reason, "its cost is the spend log's; LiteLLM logged it as failed");
    // A row with money, after all, is reported.
    let paid = SpendRow { request_id: "late".into(), ..row() };
    assert_eq!(classes(vec![known], vec![failure_row(), paid]), [FindingClass::Settled, FindingClass::Duplicate]);
}
