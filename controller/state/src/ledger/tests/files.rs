//! The ledger compared with its files, filled from them, copied; and files that are not verified.

use super::*;

#[tokio::test]
async fn a_ledger_agrees_with_its_files() {
    let ledger = TestLedger::new();
    for name in ["r1.0", "r1.1", "r2.0"] {
        let run = key(name);
        let bytes = file(&run, &[priced("0.0000054"), unpriced(NullReason::NoCost), open_call()]);
        ledger.put(&run, &bytes);
        ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");
    }
    let rebuilt = ledger.check().await;
    assert_eq!((rebuilt.files, rebuilt.differences), (3, vec![]));
    assert_eq!((rebuilt.by_files.calls, rebuilt.by_files.nano_usd), (9, Some(16_200)));
    assert_eq!(rebuilt.by_ledger, rebuilt.by_files);
}

#[tokio::test]
async fn a_check_names_missing_rows_and_a_rebuild_adds_them() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    ledger.put(&run, &file(&run, &[priced("0.0000054"), open_call()]));
    let missing = |call: u8| (DifferenceKind::NotInLedger, Some(format!("r1/0/call-{call}")));
    assert_eq!(ledger.found().await, [missing(1), missing(2)]);
    assert_eq!(ledger.count("receipts"), 0);

    let rebuilt = ledger.fill().await;

    assert_eq!((rebuilt.added, rebuilt.differences), (Posted { receipts: 2, entries: 2 }, vec![]));
    assert_eq!(ledger.fill().await.added, Posted::default());
}

#[tokio::test]
async fn a_check_finds_changed_ledger_rows() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let bytes = file(&run, &[priced("0.0000054"), priced("1")]);
    ledger.put(&run, &bytes);
    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");
    let first = Some("r1/0/call-1".to_owned());
    for (change, undo) in [
        (
            "UPDATE entries SET nano_usd = 54, cost_usd = '0.000000054' WHERE id = 1",
            "UPDATE entries SET nano_usd = 5400, cost_usd = '0.0000054' WHERE id = 1",
        ),
        ("UPDATE entries SET output = 50 WHERE id = 1", "UPDATE entries SET output = 5 WHERE id = 1"),
        ("UPDATE receipts SET account = 'acct-2' WHERE id = 1", "UPDATE receipts SET account = 'acct-1' WHERE id = 1"),
        ("UPDATE receipts SET model = NULL WHERE id = 1", "UPDATE receipts SET model = 'odd' WHERE id = 1"),
    ] {
        ledger
            .sql(&format!("DROP TRIGGER IF EXISTS entries_stay; DROP TRIGGER IF EXISTS receipts_stay; {change}"))
            .expect("SQL");
        let mut found = ledger.found().await;
        let found_sums = found.len();
        found.retain(|(found, _)| *found != DifferenceKind::WrongSum);
        assert_eq!(found, [(DifferenceKind::Differs, first.clone())], "{change}");
        assert!(found_sums > 1, "the kept sums are those of before: {change}");
        ledger.sql(undo).expect("SQL");
        assert_eq!(ledger.found().await, [], "{undo}");
    }
    let extra = "INSERT INTO receipts (source_system, source_reference, payload_hash, run_id, attempt, call, call_id, account,
            graph_id, method, path, stream, origin_us, origin_day, arrived_us, arrived_day)
        SELECT source_system, 'r1/0/extra', payload_hash, run_id, attempt, 9, 'extra', account, graph_id, method, path, stream,
            origin_us, origin_day, arrived_us, arrived_day FROM receipts WHERE id = 1";
    ledger.sql(extra).expect("SQL");
    assert_eq!(ledger.found().await, [(DifferenceKind::NotInFile, Some("r1/0/extra".to_owned()))]);
}

#[tokio::test]
async fn a_check_names_missing_files() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    ledger.ingest(&run, &file(&run, &[priced("1")]), Writer::Gone).await.expect("it is new");
    assert_eq!(ledger.found().await, [(DifferenceKind::NoFile, None)]);
    // This also holds if none of it was ever posted, and only one line was seen.
    let unposted = key("r0.0");
    let seen = sluice_contract::Witness { seq: 0, head: Hash::of(b"a line") };
    ledger.store.add_witness(&unposted, seen).await.expect("it is ours");
    assert_eq!(ledger.found().await, [(DifferenceKind::NoFile, None), (DifferenceKind::NoFile, None)]);
}

#[tokio::test]
async fn an_altered_file_bills_nothing() {
    let ledger = TestLedger::new();
    let (run, other) = (key("r1.0"), key("r2.0"));
    let bytes = file(&run, &[priced("0.0000054")]);
    let altered = String::from_utf8(bytes.clone()).expect("text").replace("0.0000054", "0.0000001").into_bytes();
    let untimed = String::from_utf8(bytes.clone()).expect("text").replace("2026-11", "2026-99").into_bytes();
    for (key, bytes) in [(&run, &altered), (&run, &untimed), (&other, &bytes)] {
        let reading = reading(key, bytes, Writer::Gone);
        assert_eq!((reading.trust_level, billed(&reading)), (TrustLevel::Tampered, 0));
        assert_eq!(crate::receipt::tally(&reading).receipts, []);
        ledger.put(key, bytes);
        assert_eq!(ledger.fill().await.differences.last().map(|one| one.found), Some(DifferenceKind::Tampered));
    }
    let found = ledger.all().await;
    assert_eq!(found.receipts, []);
    assert!(found.unsettled.iter().all(|run| run.reason.contains("tampered")), "{:?}", found.unsettled);
    assert_eq!(found.unsettled.len(), 2);
    assert!(found.unsettled[1].reason.contains("it is the log of r1.0"), "{:?}", found.unsettled);
}

#[tokio::test]
async fn an_altered_file_bills_its_witnessed_lines() {
    use sluice_contract::{Hash, Witness};
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let mut log = written(Log::of(&run), &[priced("0.0000054"), priced("1")]);
    // After the second intent, whose outcome no witness covers.
    let line = log.bytes.split_inclusive(|byte| *byte == b'\n').nth(3).expect("there are five");
    let seen = Witness { seq: 3, head: Hash::of(line) };
    ledger.store.add_witness(&run, seen).await.expect("it is ours");
    log.intent(3, "m");
    let altered = String::from_utf8(log.close()).expect("text").replace(r#""cost_usd":"1""#, r#""cost_usd":"2""#);
    ledger.put(&run, altered.as_bytes());

    let filled = ledger.fill().await;

    assert_eq!(filled.differences.iter().map(|one| one.found).collect::<Vec<_>>(), [DifferenceKind::Tampered]);
    let found = ledger.all().await;
    assert_eq!((statuses(&found), total(&found.receipts).nano_usd), (vec!["posted", "unknown"], Some(5400)));
    let trust = TrustAnchors { keys: &[], seen: &[seen] };
    let told = crate::receipt::tally(&seen_by(&run, altered.as_bytes(), &trust, Writer::Gone));
    assert_eq!((told.cost_usd.as_deref(), told.receipts.len()), (Some("0.0000054"), 2));
    assert!(found.unsettled[0].reason.contains("tampered"), "{:?}", found.unsettled);
}

#[tokio::test]
async fn posted_rows_stay_when_their_file_is_altered() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let log = written(Log::of(&run), &[priced("0.0000054")]);
    ledger.ingest(&run, &log.bytes, Writer::Alive).await.expect("it is new");
    let altered = String::from_utf8(log.close()).expect("text").replace("0.0000054", "0.0000001").into_bytes();

    ledger.ingest(&run, &altered, Writer::Gone).await.expect("that it was altered is written down");

    let found = ledger.all().await;
    assert_eq!(total(&found.receipts).nano_usd, Some(5400));
    assert!(found.unsettled[0].reason.contains("tampered"), "{:?}", found.unsettled);
}

#[tokio::test]
async fn unread_runs_are_posted_once() {
    use crate::process::Process;
    use crate::run::{Run, RunPhase};
    use crate::store::{RunDriver, RunRow};
    let ledger = TestLedger::new();
    let closed = Run { phase: RunPhase::Closed, ..Run::new() };
    for name in ["read.0", "nothing.0", "open.0"] {
        let entry = RunRow {
            key: key(name),
            account: "acct-1".into(),
            agent: "sandbox:agent".into(),
            model: None,
            image: "image".into(),
            owner: Process::current().expect("there is /proc"),
            driver: RunDriver::Once,
        };
        ledger.store.begin(entry).await.expect("it is new");
        if name != "open.0" {
            ledger.store.record(&key(name), 0, &closed, None).await.expect("it is ours");
        }
    }
    ledger.put(&key("read.0"), &file(&key("read.0"), &[priced("1")]));
    ledger.put(&key("open.0"), &written(Log::of(&key("open.0")), &[open_call()]).bytes);
    let unread = ledger.store.unread_runs(9).await.expect("it is readable");
    assert_eq!(unread, [key("read.0"), key("nothing.0")], "the oldest is first");
    assert_eq!(ledger.all().await.unsettled.len(), 3);

    AuditArchive { layout: &ledger.layout, store: &ledger.store, keys: &[] }.catch_up().await.expect("all is readable");

    let found = ledger.all().await;
    assert_eq!(statuses(&found), ["posted"]);
    assert_eq!(found.unsettled, [Unsettled { run: "open.0".into(), reason: "it is under way".into() }]);
    assert_eq!(ledger.store.unread_runs(9).await.expect("it is readable"), []);
    let checked = ledger.check().await;
    assert_eq!((checked.under_way, checked.differences), (1, vec![]));
}

#[tokio::test]
async fn a_backup_is_complete_and_never_overwritten() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let bytes = file(&run, &[priced("0.0000054")]);
    ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");
    let copy = ledger.layout.state().join("copy.db");
    let writer = rusqlite::Connection::open(ledger.layout.database()).expect("it is there");
    writer
        .execute_batch("BEGIN IMMEDIATE; INSERT INTO witnesses VALUES ('x', 0, 0, hex(zeroblob(32)), 0)")
        .expect("SQL");

    ledger.store.back_up(&copy).await.expect("a writer does not hold up readers");
    writer.execute_batch("COMMIT").expect("SQL");
    let again = ledger.store.back_up(&copy).await;
    let nowhere = ledger.store.back_up(&ledger.layout.state().join("no/copy.db")).await;

    assert!(matches!(again, Err(LedgerError::Backup(..))), "{again:?}");
    assert!(matches!(nowhere, Err(LedgerError::Backup(..))), "{nowhere:?}");
    let restored = Store::open(&copy).expect("it is a database of ours");
    let there = restored.select(Filter::default()).await.expect("it is readable");
    assert_eq!(there.receipts, ledger.all().await.receipts);
    drop(restored);
    let names =
        std::fs::read_dir(ledger.layout.state()).expect("it is ours").map(|entry| entry.expect("a name").file_name());
    assert!(names.into_iter().all(|name| !name.to_string_lossy().ends_with(".part")));
}

#[tokio::test]
async fn each_filter_selects_its_receipts() {
    let ledger = TestLedger::new();
    for (name, account) in [("r1.0", "acct-1"), ("r1.1", "acct-2"), ("r2.0", "acct-2")] {
        let run = key(name);
        let bytes = written(Log::paid_by(&run, account), &[priced("1")]).close();
        ledger.ingest(&run, &bytes, Writer::Gone).await.expect("it is new");
    }
    let none = Filter::default();
    let r1 = Some("r1".to_owned());
    let now = crate::store::now_us();
    for (filter, found) in [
        (none.clone(), &["r1.0", "r1.1", "r2.0"][..]),
        (Filter { run_id: r1.clone(), ..none.clone() }, &["r1.0", "r1.1"]),
        (Filter { run_id: r1, attempt: Some(1), ..none.clone() }, &["r1.1"]),
        (Filter { account: Some("acct-2".into()), ..none.clone() }, &["r1.1", "r2.0"]),
        (Filter { account: Some("acct".into()), ..none.clone() }, &[]),
        (Filter { since_us: Some(now - 60_000_000), ..none.clone() }, &["r1.0", "r1.1", "r2.0"]),
        (Filter { since_us: Some(now + 60_000_000), ..none }, &[]),
    ] {
        let bills = ledger.store.select(filter.clone()).await.expect("it is readable").receipts;
        let names: Vec<_> = bills.iter().map(|bill| format!("{}.{}", bill.run_id, bill.attempt)).collect();
        assert_eq!(names, found, "{filter:?}");
    }
}

#[tokio::test]
async fn an_integrity_check_finds_damage() {
    let ledger = TestLedger::new();
    assert!(ledger.store.check_integrity().await.is_ok());
    ledger
        .sql(
            "PRAGMA foreign_keys = OFF;
             INSERT INTO outbox (kind, receipt, made_us) VALUES ('receipt.posted', 99, 0)",
        )
        .expect("SQL");
    assert!(matches!(ledger.store.check_integrity().await, Err(LedgerError::Damaged(_))));
}
