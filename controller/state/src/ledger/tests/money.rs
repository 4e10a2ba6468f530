//! Totals: exact, and the same in whichever way they are added up.

use super::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn receipts_usage_and_files_have_the_same_totals(runs in prop::collection::vec((0..3u8, prop::collection::vec(made(), 0..8)), 1..5)) {
        let ledger = TestLedger::new();
        let (mut exact, mut tokens) = (0i128, 0i128);
        let mut by_files = 0i128;
        for (number, (account, calls)) in runs.iter().enumerate() {
            let key = key(&format!("r{number}.0"));
            let log = Log::paid_by(&key, &format!("acct-{account}"));
            let bytes = written(log, calls).close();
            let (log, _) = AuditLog::read(&bytes).expect("it was well made");
            by_files += log.totals().nanos;
            ledger.put(&key, &bytes);
            wait(ledger.ingest(&key, &bytes, Writer::Gone)).expect("it is new");
            exact += calls.iter().map(nanos).sum::<i128>();
            let seen = calls.iter().filter(|made| made.seen).filter_map(|made| made.usage?.output);
            tokens += seen.map(i128::from).sum::<i128>();
        }

        let bills = wait(ledger.all()).receipts;
        let whole = total(&bills);

        prop_assert_eq!(whole.nano_usd.unwrap_or(0), exact);
        prop_assert_eq!(by_files, exact);
        prop_assert_eq!(whole.usage.output.unwrap_or(0), tokens);
        for by in [GroupBy::Account, GroupBy::Run, GroupBy::Model, GroupBy::Day] {
            let mut sum = Total::default();
            let groups = grouped(&bills, by);
            groups.values().for_each(|group| sum.merge(group));
            prop_assert_eq!(&sum, &whole, "{:?}", by);
            let kept = wait(ledger.store.usage(by, Filter::default())).expect("it is readable");
            let shown = whole.clone().or_zero(kept.unsettled.is_empty());
            prop_assert_eq!((&kept.groups, &kept.total), (&groups, &shown), "{:?}", by);
            // Summed from all rows, since the time is not a whole day.
            let since = Filter { since_us: Some(1), ..Filter::default() };
            let added_up = wait(ledger.store.usage(by, since)).expect("it is readable");
            prop_assert_eq!((&added_up.groups, &added_up.total), (&groups, &shown), "{:?}", by);
        }
        let open = i128::from(whole.open);
        prop_assert_eq!(whole.reserved, (open > 0).then_some(open * RESERVED_NANOS));
        let lines: i128 = bills.iter().filter_map(|bill| bill.nano_usd).sum();
        prop_assert_eq!(lines, exact);
        let rebuilt = wait(ledger.check());
        prop_assert!(rebuilt.differences.is_empty(), "{:?}", rebuilt.differences);
        prop_assert_eq!((&rebuilt.by_files, &rebuilt.by_ledger), (&whole, &whole));
    }

    #[test]
    fn dollars_equal_their_nano_dollars(nanos in 0..i64::MAX) {
        let one = Total { nano_usd: Some(i128::from(nanos)), ..Total::default() };
        prop_assert_eq!(one.cost_usd(), Some(Usd::from_nanos(nanos).to_string()));
    }
}

#[tokio::test]
async fn no_calls_cost_nothing_once_all_files_are_read() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let bytes = file(&run, &[]);
    ledger.ingest(&run, &bytes[..bytes.len() / 2], Writer::Alive).await.expect("it is new");
    let usage = async || ledger.store.usage(GroupBy::Run, Filter::default()).await.expect("it is readable");
    assert_eq!(usage().await.total.nano_usd, None, "the run is under way");

    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");

    let total = usage().await.total;
    assert_eq!((total.cost_usd().as_deref(), total.usage.total), (Some("0"), Some(0)));
    let tally = crate::receipt::tally(&reading(&run, &bytes, Writer::Gone));
    assert_eq!((tally.cost_usd.as_deref(), tally.usage.total), (Some("0"), Some(0)));
    let cut = crate::receipt::tally(&reading(&run, &[], Writer::Gone));
    assert_eq!((cut.cost_usd, cut.usage.total), (None, None));
}

#[tokio::test]
async fn a_call_that_no_provider_bills_reserves_nothing() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    // The first was refused for its key; the second failed.
    let mut made = Log::of(&run);
    for (call, status) in [(1, 401), (2, 500)] {
        made.intent(call, "m");
        made.outcome_with(call, &Made { usage: None, ..unpriced(NullReason::NoCost) }, status);
    }
    let bytes = made.close();
    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");

    let found = ledger.all().await;
    assert_eq!(statuses(&found), ["pending_cost", "pending_cost"]);
    let total = total(&found.receipts);
    assert_eq!((total.open, total.reserved), (1, Some(RESERVED_NANOS)));
    let kept = ledger.store.usage(GroupBy::Run, Filter::default()).await.expect("it is readable");
    assert_eq!((kept.total.open, kept.total.reserved), (1, Some(RESERVED_NANOS)));
    assert_eq!(kept.unsettled[0].reason, "the cost of 1 of its calls is not known");
    let tally = crate::receipt::tally(&reading(&run, &bytes, Writer::Gone));
    assert_eq!(tally.receipts.iter().map(|one| one.could_be_billed).collect::<Vec<_>>(), [false, true]);
}

#[test]
fn sums_may_exceed_one_amount() {
    let whole = Total { nano_usd: Some(i128::from(i64::MAX) * 3), ..Total::default() };
    assert_eq!(whole.cost_usd().as_deref(), Some("27670116110.564327421"));
    assert_eq!(Total { nano_usd: Some(-5400), ..Total::default() }.cost_usd().as_deref(), Some("-0.0000054"));
    assert_eq!(Total::default().cost_usd(), None);
    let held = Total { reserved: Some(5400), ..Total::default() };
    assert!(serde_json::to_string(&held).expect("plain data").contains(r#""reserved_usd":"0.0000054""#));
    let text = serde_json::to_string(&whole).expect("plain data");
    assert!(text.contains(r#""nano_usd":"27670116110564327421""#), "{text}");
}

#[tokio::test]
async fn a_reversed_entry_counts_no_more() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let calls = [priced("0.0000054"), priced("1.05e-05")];
    ledger.ingest(&run, &file(&run, &calls), Writer::Gone).await.expect("it is new");
    let reverse = "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, reverses, cause,
            input, output, total, cost_usd, nano_usd, price_source, origin_us, origin_day, arrived_us, arrived_day)
        SELECT receipt, 'operator', source_reference || '#reversed', payload_hash, 'reversed', id, 'the provider gave it back',
            -input, -output, -total, cost_usd, SIGN * nano_usd, 'operator', 1, '2026-12-01', 1, '2026-12-01'
        FROM entries WHERE id = 1";

    let wrong = ledger.sql(&reverse.replace("SIGN", "-2"));
    ledger.sql(&reverse.replace("SIGN", "-1")).expect("it takes back one entry, whole");
    let again = ledger.sql(&reverse.replace("SIGN", "-1").replace("#reversed", "#again"));

    assert!(wrong.expect_err("half of it").to_string().contains("whole"));
    assert!(again.is_err(), "an entry was taken back twice");
    let found = ledger.all().await;
    assert_eq!(statuses(&found), ["reversed", "posted"]);
    let whole = total(&found.receipts);
    assert_eq!((whole.calls, whole.open, whole.nano_usd, whole.usage.total), (2, 0, Some(10_500), Some(15)));
    let days = grouped(&found.receipts, GroupBy::Day);
    // Late entries count in the period in which they arrive.
    assert_eq!(days["2026-12-01"].nano_usd, Some(-5400));
    assert_eq!(days.len(), 2);
    let kept = ledger.store.usage(GroupBy::Day, Filter::default()).await.expect("it is readable");
    assert_eq!((kept.groups, kept.total), (days, whole));
}

#[tokio::test]
async fn a_late_amount_settles_the_run() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    ledger.ingest(&run, &file(&run, &[unpriced(NullReason::NoCost)]), Writer::Gone).await.expect("it is new");
    let before = ledger.all().await;
    assert_eq!((statuses(&before), before.unsettled.len()), (vec!["pending_cost"], 1));

    ledger
        .sql(
            "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, cause, cost_usd, nano_usd,
                 price_source, origin_us, origin_day, arrived_us, arrived_day)
             SELECT id, 'litellm', 'row-1', payload_hash, 'settled', 'matched', '5.4e-06', 5400, 'spend_log', 1,
                 '2026-11-20', 1, '2026-11-20' FROM receipts",
        )
        .expect("a settlement is an entry");

    let found = ledger.all().await;
    assert_eq!((statuses(&found), found.unsettled), (vec!["settled"], vec![]));
    let bill = &found.receipts[0];
    assert_eq!((bill.cost_usd.as_deref(), bill.nano_usd), (Some("5.4e-06"), Some(5400)));
    // The amount counts on the day of its entry.
    assert_eq!(bill.last_booked_on(), Some("2026-11-20"));
    // Its tokens come from the outcome, once.
    assert_eq!(bill.usage.and_then(|usage| usage.total), Some(15));
    assert_eq!(total(&found.receipts).usage.total, Some(15));
    // Entries from other sources do not affect the files.
    ledger.put(&run, &file(&run, &[unpriced(NullReason::NoCost)]));
    assert_eq!(ledger.found().await, []);
}

/// Returns the settlement of a call by a row of the spend log: one dollar.
fn settlement(call: u64) -> Settlement {
    Settlement {
        receipt: format!("r1/0/call-{call}"),
        reference: format!("r1/0/call-{call}#row"),
        hash: Hash::of(&[1]),
        cost_usd: Some("1".into()),
        nano_usd: Some(1_000_000_000),
        price_source: PriceSource::SpendLog,
        usage: None,
        null_reason: None,
        litellm_call_id: None,
        model_served: None,
        origin_us: 0,
        replaces: Vec::new(),
        cause: None,
    }
}

#[tokio::test]
async fn an_unknown_value_has_a_reason() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let cut = Made { usage: None, ..unpriced(NullReason::Cut) };
    let calls = [unpriced(NullReason::NoCost), cut, unpriced(NullReason::NotBilled)];
    ledger.ingest(&run, &file(&run, &calls), Writer::Gone).await.expect("it is new");

    ledger.store.settle(vec![settlement(1), settlement(2)]).await.expect("both are open");

    let bills = ledger.all().await.receipts;
    let reasons: Vec<_> = bills.iter().map(|bill| bill.null_reason.as_deref()).collect();
    // The tokens of the second are not counted yet.
    assert_eq!(reasons, [None, Some("cut"), Some("not_billed")]);
    assert_eq!(statuses(&ledger.all().await), ["settled", "settled", "voided"]);
}

#[tokio::test]
async fn usage_is_selected_by_time_account_and_model() {
    let ledger = TestLedger::new();
    for (run, account) in [("r1.0", "acct-1"), ("r2.0", "acct-2")] {
        let log = Log::paid_by(&key(run), account);
        let bytes = written(log, &[priced("0.0000001")]).close();
        ledger.ingest(&key(run), &bytes, Writer::Gone).await.expect("it is new");
    }
    let now = crate::store::now_us();
    let day = now - now % 86_400_000_000;
    let all = Filter::default;
    for (filter, calls, nanos) in [
        (all(), 2, Some(200)),
        (Filter { account: Some("acct-1".into()), ..all() }, 1, Some(100)),
        (Filter { run_id: Some("r2".into()), attempt: Some(0), ..all() }, 1, Some(100)),
        (Filter { model: Some("no-such-model".into()), ..all() }, 0, Some(0)),
        (Filter { since_us: Some(day), ..all() }, 2, Some(200)),
        (Filter { since_us: Some(day), until_us: Some(day + 86_400_000_000), ..all() }, 2, Some(200)),
        (Filter { until_us: Some(day), ..all() }, 0, Some(0)),
        (Filter { since_us: Some(now - 60_000_001), ..all() }, 2, Some(200)),
        (Filter { until_us: Some(now - 60_000_001), ..all() }, 0, Some(0)),
        (Filter { since_us: Some(now + 60_000_001), account: Some("acct-1".into()), ..all() }, 0, Some(0)),
    ] {
        let usage = ledger.store.usage(GroupBy::Account, filter.clone()).await.expect("it is readable");
        assert_eq!((usage.total.calls, usage.total.nano_usd), (calls, nanos), "{filter:?}");
        let list = ledger.store.select(filter.clone()).await.expect("it is readable");
        assert_eq!(list.receipts.len() as u64, calls, "{filter:?}");
    }
}

#[tokio::test]
async fn high_costs_have_one_exact_total() {
    const NANOS: i64 = 9_000_000_000_000_000_000;
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let bytes = file(&run, &[priced("9000000000"), priced("9000000000")]);
    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");

    let usage = ledger.store.usage(GroupBy::Run, Filter::default()).await.expect("it is readable");
    assert_eq!(usage.total.cost_usd().as_deref(), Some("18000000000"));
    let tally = crate::receipt::tally(&reading(&run, &bytes, Writer::Gone));
    assert_eq!(tally.cost_usd.as_deref(), Some("18000000000"));
    let (log, _) = AuditLog::read(&bytes).expect("it was well made");
    assert_eq!(log.totals().cost().to_string(), "18000000000");

    // An earlier try of the first call cost as much again.
    let retry = Settlement {
        cost_usd: Some("9e9".into()),
        nano_usd: Some(NANOS),
        price_source: PriceSource::Retry,
        ..settlement(1)
    };
    ledger.store.settle(vec![retry]).await.expect("the call is posted");
    let found = ledger.all().await;
    let bill = &found.receipts[0];
    assert_eq!((bill.nano_usd, bill.cost_usd.as_deref()), (Some(2 * i128::from(NANOS)), Some("18000000000")));
}
