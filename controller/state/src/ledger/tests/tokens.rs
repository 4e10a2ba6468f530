//! The meaning of tokens from every writer; calls that a cache answered; calls with earlier attempts.

use rusqlite::{Connection, params};

use super::*;

/// Counts of the Messages API, and the same counts with their common meaning.
const FRESH: Usage = Usage {
    cache_write: Some(50),
    cached_input: Some(400),
    input: Some(1000),
    output: Some(100),
    reasoning: None,
    total: None,
};
const ALL: Usage = Usage { input: Some(1450), total: Some(1550), ..FRESH };

#[tokio::test]
async fn tokens_of_older_files_are_converted() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let calls = [FRESH, ALL].map(|usage| Made { usage: Some(usage), ..priced("0.0000054") });
    let file = file(&run, &calls);
    ledger.put(&run, &file);
    ledger.ingest(&run, &file, Writer::Gone).await.expect("it is new");

    let selection = ledger.all().await;

    assert!(selection.receipts.iter().all(|bill| bill.usage == Some(ALL)), "{:?}", selection.receipts);
    let sums = total(&selection.receipts).usage;
    assert_eq!(
        (sums.input, sums.cached_input, sums.cache_write, sums.total),
        (Some(2900), Some(800), Some(100), Some(3100))
    );
    let tally = crate::receipt::tally(&reading(&run, &file, Writer::Gone));
    assert_eq!((tally.usage.input, tally.usage.total), (Some(2900), Some(3100)));
}

#[tokio::test]
async fn tokens_of_older_rows_are_converted_in_sums() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let file = file(&run, &[Made { usage: Some(FRESH), ..priced("0.0000054") }]);
    ledger.put(&run, &file);
    ledger.ingest(&run, &file, Writer::Gone).await.expect("it is new");
    // As an earlier build has posted it.
    ledger
        .sql("DROP TRIGGER entries_stay; UPDATE entries SET input = 1000, total = NULL")
        .expect("nothing protects it");

    let selection = ledger.all().await;

    assert_eq!(selection.receipts[0].usage, Some(ALL));
    assert_eq!(ledger.found().await, []);
    let raw = Connection::open(ledger.layout.database()).expect("it is there").query_row(
        "SELECT input, total, all_input, all_tokens FROM entries",
        [],
        |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)),
    );
    assert_eq!(raw, Ok((1000, None::<i64>, 1450, 1550)));
}

#[test]
fn database_and_contract_convert_tokens_alike() {
    let connection = Connection::open_in_memory().expect("memory");
    connection
        .execute_batch("CREATE TABLE entries (input INTEGER, output INTEGER, cached_input INTEGER, cache_write INTEGER, total INTEGER)")
        .expect("it is right");
    connection.execute_batch(include_str!("../../store/migrations/6-tokens.sql")).expect("it is right");
    for known in 0..32 {
        let count = |bit: u32, tokens: u64| (known >> bit & 1 == 1).then_some(tokens);
        let usage = Usage {
            input: count(0, 1000),
            output: count(1, 100),
            cached_input: count(2, 400),
            cache_write: count(3, 50),
            total: count(4, 1550),
            reasoning: None,
        };
        let tokens = BookedTokens::from(usage);
        let columns = connection
            .execute(
                "INSERT INTO entries VALUES (?1, ?2, ?3, ?4, ?5)",
                params![tokens.input, tokens.output, tokens.cached_input, tokens.cache_write, tokens.total],
            )
            .and_then(|_| {
                connection.query_row(
                    "SELECT all_input, all_tokens FROM entries ORDER BY rowid DESC LIMIT 1",
                    [],
                    |row| Ok((row.get::<_, Option<i64>>(0)?, row.get::<_, Option<i64>>(1)?)),
                )
            });
        let want = BookedTokens::from(usage.inclusive());
        assert_eq!(columns, Ok((want.input, want.total)), "{usage:?}");
    }
}

#[tokio::test]
async fn a_cached_call_has_its_own_price_source() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let file = file(&run, &[Made { is_cache_hit: true, ..priced("0") }, priced("0.0000054")]);
    ledger.ingest(&run, &file, Writer::Gone).await.expect("it is new");
    let bills = ledger.all().await.receipts;
    let found: Vec<_> = bills.iter().map(|bill| (bill.status, bill.nano_usd, bill.price_source.as_deref())).collect();
    assert_eq!(
        found,
        [(ReceiptStatus::Posted, Some(0), Some(CACHE_HIT)), (ReceiptStatus::Posted, Some(5400), Some("header"))]
    );
}

#[tokio::test]
async fn an_earlier_try_is_added_after_its_call_settled() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let file = file(&run, &[unpriced(NullReason::UpstreamError)]);
    ledger.put(&run, &file);
    ledger.ingest(&run, &file, Writer::Gone).await.expect("it is new");
    let settlement = |name: &str, nanos: i64, price_source| Settlement {
        receipt: "r1/0/call-1".into(),
        reference: format!("r1/0/call-1#{name}"),
        hash: Hash::of(name.as_bytes()),
        cost_usd: Some(Usd::from_nanos(nanos).to_string()),
        nano_usd: Some(nanos),
        price_source,
        usage: None,
        null_reason: None,
        litellm_call_id: None,
        model_served: None,
        origin_us: 1,
        replaces: Vec::new(),
        cause: None,
    };
    let retry = settlement("retry", 100, PriceSource::Retry);
    let own = settlement("own", 5400, PriceSource::FailureRow);

    // A retry alone would close the receipt, and release its reservation.
    assert_eq!(ledger.store.settle(vec![retry.clone()]).await.expect("it is open").receipts, 0);
    assert_eq!(ledger.all().await.receipts[0].status, ReceiptStatus::PendingCost);
    for receipts in [2, 0] {
        let settled = ledger.store.settle(vec![own.clone(), retry.clone()]).await.expect("it is ours");
        assert_eq!(settled.receipts, receipts);
    }
    let bill = ledger.all().await.receipts.remove(0);
    assert_eq!((bill.nano_usd, bill.cost_usd.as_deref()), (Some(5500), Some("0.0000055")));
    assert_eq!(bill.price_source.as_deref(), Some("spend_log_failure"));
    assert_eq!(bill.entries.iter().filter(|entry| entry.price_source == RETRY).count(), 1);

    // A correction takes back the call's own amount, and leaves the try.
    let own_entry = bill.entries.iter().find(|entry| entry.nano_usd == Some(5400)).expect("it was posted").id;
    let dearer = Settlement {
        replaces: vec![own_entry],
        cause: Some("it is dearer".into()),
        ..settlement("dearer", 9000, PriceSource::SpendLog)
    };
    assert_eq!(ledger.store.settle(vec![dearer]).await.expect("it is ours").reversed, 1);
    assert_eq!(ledger.all().await.receipts[0].nano_usd, Some(9100));
    assert_eq!(ledger.found().await, []);
}

#[tokio::test]
async fn a_damaged_database_is_reported_with_advice() {
    let ledger = TestLedger::new();
    let run = key("r1.0");
    let calls = vec![priced("0.0000054"); 200];
    ledger.ingest(&run, &file(&run, &calls), Writer::Gone).await.expect("it is new");
    let path = ledger.layout.database();
    ledger.sql("PRAGMA wal_checkpoint(TRUNCATE)").expect("no reader is active");
    let mut bytes = std::fs::read(&path).expect("it is there");
    // The first page determines the others.
    let whole = bytes.clone();
    for byte in bytes.iter_mut().skip(4096 * 2) {
        *byte ^= 0x5a;
    }
    let broken = ledger.layout.state().join("broken.db");
    std::fs::write(&broken, &bytes).expect("the directory is ours");
    let told = match Store::open(&broken) {
        Ok(store) => store.select(Filter::default()).await.expect_err("it is broken").to_string(),
        Err(error) => error.to_string(),
    };
    assert!(told.contains("is damaged: ") && told.ends_with("sluice ledger rebuild"), "{told}");

    std::fs::write(&broken, [&b"no database at all, whatever its name says"[..], &whole[42..]].concat())
        .expect("it is ours");
    let told = Store::open(&broken).expect_err("it is none").to_string();
    assert!(told.contains("broken.db is damaged: ") && told.ends_with("sluice ledger rebuild"), "{told}");
}
