//! The same file again: in pieces, by several processes at once, or with other content.

use super::*;

#[tokio::test]
async fn each_end_of_a_call_has_its_status() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let calls = [
        priced("0.0000054"),
        unpriced(NullReason::NoCost),
        unpriced(NullReason::NotSent),
        unpriced(NullReason::NotBilled),
        Made { result: CallResult::Unknown, usage: None, ..unpriced(NullReason::Cut) },
        open_call(),
    ];
    let log = written(Log::of(&run), &calls);

    ledger.ingest(&run, &log.bytes, Writer::Alive).await.expect("it is new");
    let alive = ledger.all().await;
    ledger.ingest(&run, &log.close(), Writer::Gone).await.expect("it has grown");
    let gone = ledger.all().await;

    let mut expected = ["posted", "pending_cost", "voided", "voided", "unknown", "pending"];
    assert_eq!(statuses(&alive), expected);
    expected[5] = "unknown";
    assert_eq!(statuses(&gone), expected);
    assert_eq!(alive.unsettled, [Unsettled { run: "r1.0".into(), reason: "it is under way".into() }]);
    let reason = "the cost of 3 of its calls is not known".to_owned();
    assert_eq!(gone.unsettled, [Unsettled { run: "r1.0".into(), reason }]);
}

#[tokio::test]
async fn a_run_without_open_calls_is_settled_at_its_end() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let log = written(Log::of(&run), &[priced("1"), unpriced(NullReason::NotSent)]);
    ledger.ingest(&run, &log.bytes, Writer::Alive).await.expect("it is new");
    assert_eq!(ledger.all().await.unsettled.len(), 1);
    ledger.ingest(&run, &log.bytes, Writer::Gone).await.expect("it is the same");
    assert_eq!(ledger.all().await.unsettled, []);
}

#[tokio::test]
async fn the_same_file_twice_changes_nothing() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let bytes = file(&run, &[priced("0.0000054"), open_call()]);
    let first = ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");
    let before = ledger.all().await;
    let counts = || ["receipts", "entries", "outbox", "readings"].map(|table| ledger.count(table));
    let rows = counts();

    let second = ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is the same");

    assert_eq!((first, second), (Posted { receipts: 2, entries: 2 }, Posted::default()));
    assert_eq!((ledger.all().await, counts(), rows), (before, [2, 2, 2, 1], [2, 2, 2, 1]));
}

#[tokio::test]
async fn a_late_outcome_is_posted() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let mut log = Log::of(&run);
    log.intent(1, "m");
    ledger.ingest(&run, &log.bytes, Writer::Gone).await.expect("it is new");
    assert_eq!(statuses(&ledger.all().await), ["unknown"]);

    log.outcome(1, &priced("0.0000054"));
    ledger.ingest(&run, &log.bytes, Writer::Gone).await.expect("late facts are welcome");

    let found = ledger.all().await;
    assert_eq!((statuses(&found), total(&found.receipts).nano_usd), (vec!["posted"], Some(5400)));
    ledger.put(&run, &log.close());
    assert_eq!(ledger.found().await, []);
}

#[tokio::test]
async fn an_outcome_after_a_settlement_leaves_its_receipt_alone() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let mut log = Log::of(&run);
    log.intent(1, "m");
    ledger.ingest(&run, &log.bytes, Writer::Gone).await.expect("it is new");
    ledger
        .sql(
            "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, cost_usd, nano_usd,
                 price_source, origin_us, origin_day, arrived_us, arrived_day)
             SELECT id, 'litellm', 'row-1', payload_hash, 'settled', '1', 1000000000, 'spend_log', 1, '2026-11-20', 1,
                 '2026-11-20' FROM receipts",
        )
        .expect("a settlement is an entry");
    log.outcome(1, &priced("1"));
    log.intent(2, "m");
    log.outcome(2, &priced("2"));
    ledger.put(&run, &log.bytes);

    let archive = AuditArchive { layout: &ledger.layout, store: &ledger.store, keys: &[] };
    let posted = archive.post_files(std::slice::from_ref(&run)).await.expect("it is readable");

    assert_eq!((posted.added, posted.refused), (Posted { receipts: 1, entries: 1 }, vec![]));
    assert_eq!(posted.late, [LateOutcome { receipt: "r1/0/call-1".into(), status: "settled" }]);
    let found = ledger.all().await;
    assert_eq!((statuses(&found), total(&found.receipts).nano_usd), (vec!["settled", "posted"], Some(3_000_000_000)));
    assert_eq!(ledger.found().await, [(DifferenceKind::Differs, Some("r1/0/call-1".to_owned()))]);
}

#[tokio::test]
async fn other_content_under_the_same_name_is_refused() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    ledger.ingest(&run, &file(&run, &[priced("0.0000054")]), Writer::Gone).await.expect("it is new");
    let before = ledger.all().await.receipts;

    // A rewritten file that verifies by itself.
    let cheaper = file(&run, &[priced("0.0000001")]);
    let conflict = ledger.ingest(&run, &cheaper, Writer::Gone).await;
    let account = written(Log::paid_by(&run, "acct-2"), &[priced("0.0000054")]).close();
    let other_payer = ledger.ingest(&run, &account, Writer::Gone).await;

    let reference = match conflict {
        Err(LedgerError::Conflict { reference, .. }) => reference,
        other => panic!("{other:?}"),
    };
    assert_eq!(reference, "r1/0/call-1#outcome");
    assert!(matches!(other_payer, Err(LedgerError::Conflict { .. })), "{other_payer:?}");
    let after = ledger.all().await;
    assert_eq!(after.receipts, before);
    assert!(after.unsettled[0].reason.contains("the ledger has another r1/0/call-1"), "{:?}", after.unsettled);
}

#[tokio::test]
async fn a_truncated_file_reverses_nothing() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let mut log = Log::of(&run);
    log.intent(1, "m");
    let cut = log.bytes.clone();
    log.outcome(1, &priced("0.0000054"));
    ledger.ingest(&run, &log.close(), Writer::Gone).await.expect("it is new");

    let late = ledger.ingest(&run, &cut, Writer::Gone).await;

    assert!(matches!(late, Err(LedgerError::Late { status: "posted", .. })), "{late:?}");
    assert_eq!(statuses(&ledger.all().await), ["posted"]);
    // The database's own witness exposes the file itself.
    ledger.put(&run, &cut);
    let found = ledger.found().await;
    assert_eq!(found[0], (DifferenceKind::Tampered, None));
}

#[tokio::test]
async fn ledger_rows_are_never_changed_or_removed() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    ledger.ingest(&run, &file(&run, &[priced("0.0000054")]), Writer::Gone).await.expect("it is new");
    for statement in [
        "UPDATE receipts SET account = 'acct-2'",
        "DELETE FROM receipts",
        "UPDATE entries SET nano_usd = 0, cost_usd = '0'",
        "DELETE FROM entries",
        "UPDATE outbox SET kind = 'receipt.voided'",
        "DELETE FROM outbox",
        "UPDATE readings SET worth = 'tampered'",
        "DELETE FROM readings",
        "INSERT OR REPLACE INTO receipts SELECT * FROM receipts",
        "INSERT OR REPLACE INTO entries SELECT * FROM entries",
        "INSERT OR REPLACE INTO outbox SELECT * FROM outbox",
        "INSERT OR REPLACE INTO readings SELECT * FROM readings",
    ] {
        let done = ledger.sql(statement);
        assert!(done.is_err(), "{statement}");
    }
    assert_eq!(total(&ledger.all().await.receipts).nano_usd, Some(5400));
}

#[tokio::test]
async fn each_change_has_one_event() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let mut log = Log::of(&run);
    log.intent(1, "m");
    ledger.ingest(&run, &log.bytes, Writer::Alive).await.expect("it is new");
    log.outcome(1, &priced("0.0000054"));
    ledger.ingest(&run, &log.bytes, Writer::Alive).await.expect("it has grown");
    let bytes = log.close();
    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it has grown");
    let conflict = ledger.ingest(&run, &file(&run, &[priced("2"), priced("3")]), Writer::Gone).await;
    assert!(conflict.is_err());

    let connection = rusqlite::Connection::open(ledger.layout.database()).expect("it is there");
    let mut query = connection
        .prepare("SELECT kind, nano_usd FROM outbox LEFT JOIN entries ON entries.id = entry ORDER BY outbox.id")
        .expect("SQL");
    let events: Vec<(String, Option<i64>)> =
        query.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).expect("SQL").map(|row| row.expect("SQL")).collect();

    let told = |kind: &str, nanos| (kind.to_owned(), nanos);
    assert_eq!(events, [told("receipt.pending", None), told("receipt.posted", Some(5400))]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_file_in_any_pieces_gives_the_same_ledger(
        calls in prop::collection::vec(made(), 0..6),
        cuts in prop::collection::vec((0.0..1.0f64, any::<bool>()), 0..6),
    ) {
        let run = key("r1.0");
        let bytes = file(&run, &calls);
        let (whole, pieces) = (TestLedger::new(), TestLedger::new());
        wait(whole.ingest(&run, &bytes, Writer::Gone)).expect("it is new");

        let mut ends: Vec<_> = cuts.iter().map(|(at, again)| ((at * bytes.len() as f64) as usize, *again)).collect();
        ends.sort_unstable();
        for (end, again) in ends {
            for _ in 0..=u8::from(again) {
                // Its writer lives, or this controller considers it dead by mistake.
                let writer = if again { Writer::Gone } else { Writer::Alive };
                wait(pieces.ingest(&run, &bytes[..end], writer)).expect("it only grows");
            }
        }
        wait(pieces.ingest(&run, &bytes, Writer::Gone)).expect("it only grows");

        let (whole, pieces) = (wait(whole.all()), wait(pieces.all()));
        prop_assert_eq!(statuses(&whole), statuses(&pieces));
        prop_assert_eq!(total(&whole.receipts), total(&pieces.receipts));
        prop_assert_eq!(whole.unsettled, pieces.unsettled);
    }
}

#[test]
fn concurrent_writers_post_each_call_once() {
    let ledger = TestLedger::new();
    let runs: Vec<_> = (0..6).map(|number| key(&format!("r{number}.0"))).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                // A handle, a thread and a connection of its own, as another process has.
                let store = Store::open(&ledger.layout.database()).expect("it is there");
                for run in &runs {
                    let bytes = file(run, &[priced("0.0000054"), priced("1e-9"), open_call()]);
                    wait(store.ingest(reading(run, &bytes, Writer::Gone)).done()).expect("all say the same");
                }
            });
        }
    });
    let found = wait(ledger.all());
    let whole = total(&found.receipts);
    assert_eq!((whole.calls, whole.open, whole.nano_usd), (18, 6, Some(6 * 5401)));
    assert_eq!([ledger.count("entries"), ledger.count("outbox"), ledger.count("readings")], [18, 18, 6]);
}
