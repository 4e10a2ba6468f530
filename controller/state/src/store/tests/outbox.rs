//! Events and their consumers.

use super::*;

async fn append(store: &Store, subject: &str) -> i64 {
    store.append_outbox_event("run.closed", subject, "{}").await.expect("it is writable")
}

async fn subjects_after(store: &Store, id: i64, limit: u32) -> Vec<String> {
    let events = store.outbox_events_after(id, limit).await.expect("it is readable");
    events.into_iter().map(|event| event.subject).collect()
}

async fn acknowledged(store: &Store, consumer: &str) -> i64 {
    store.consumer_position(consumer).await.expect("it is readable").acknowledged
}

#[tokio::test]
async fn events_are_read_in_the_order_of_commits() {
    let database = Database::new();
    let stores = [database.open(), database.open()];
    let mut ids = Vec::new();
    for number in 0..6 {
        ids.push(append(&stores[number % 2], &format!("r{number}")).await);
    }
    assert!(ids.is_sorted());
    assert_eq!(subjects_after(&stores[0], 0, 4).await, ["r0", "r1", "r2", "r3"]);
    assert_eq!(subjects_after(&stores[0], ids[3], 4).await, ["r4", "r5"]);
    assert_eq!(subjects_after(&stores[0], ids[5], 4).await, [""; 0]);
}

#[tokio::test]
async fn an_event_exists_only_with_its_change() {
    let database = Database::new();
    let store = database.open();
    for is_committed in [false, true] {
        let done: Result<(), StoreError> = store
            .write(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                insert_run(&transaction, &run_row("r1"))?;
                let content = EventContent::Payload { subject: "r1.0", payload: "{}" };
                append_event(&transaction, NewEvent { kind: "run.pending", content }, 1)?;
                if is_committed { Ok(transaction.commit()?) } else { Ok(transaction.rollback()?) }
            })
            .await;
        done.expect("it is writable");
        let found = (subjects_after(&store, 0, 9).await.len(), store.open_runs().await.expect("it is readable").len());
        assert_eq!(found, (usize::from(is_committed), usize::from(is_committed)));
    }
}

#[tokio::test]
async fn an_event_is_delivered_until_it_is_acknowledged() {
    let database = Database::new();
    let store = database.open();
    let first = append(&store, "r1").await;
    append(&store, "r2").await;
    // A consumer that ended before its acknowledgement, and began again.
    for _ in 0..2 {
        let from = acknowledged(&store, "webhook").await;
        assert_eq!(subjects_after(&store, from, 9).await, ["r1", "r2"]);
    }
    store.acknowledge_events("webhook", first).await.expect("it is writable");
    let from = acknowledged(&store, "webhook").await;
    assert_eq!(subjects_after(&store, from, 9).await, ["r2"]);
    store.acknowledge_events("webhook", 0).await.expect("it is writable");
    assert_eq!(acknowledged(&store, "webhook").await, first, "a position never goes back");
}

#[tokio::test]
async fn two_consumers_have_their_own_positions() {
    let database = Database::new();
    let store = database.open();
    let (first, second) = (append(&store, "r1").await, append(&store, "r2").await);
    store.acknowledge_events("fast", second).await.expect("it is writable");
    store.acknowledge_events("slow", first).await.expect("it is writable");
    drop(store);
    let store = database.open();
    assert_eq!((acknowledged(&store, "fast").await, acknowledged(&store, "slow").await), (second, first));
    assert_eq!(acknowledged(&store, "new").await, 0);
}

#[tokio::test]
async fn failed_deliveries_are_counted_until_one_succeeds() {
    let database = Database::new();
    let store = database.open();
    let id = append(&store, "r1").await;
    for time in [10, 20] {
        store.record_failed_delivery("webhook", "status 500", time).await.expect("it is writable");
    }
    let failed =
        ConsumerPosition { acknowledged: 0, attempts: 2, next_try_us: 20, fault: Some("status 500".to_owned()) };
    assert_eq!(store.consumer_position("webhook").await.expect("it is readable"), failed);

    store.acknowledge_events("webhook", id).await.expect("it is writable");

    let done = ConsumerPosition { acknowledged: id, ..ConsumerPosition::default() };
    assert_eq!(store.consumer_position("webhook").await.expect("it is readable"), done);
}

#[tokio::test]
async fn invalid_events_are_refused() {
    let database = Database::new();
    let store = database.open();
    let long = "k".repeat(101);
    for (kind, subject, payload) in
        [("", "s", "{}"), ("a b", "s", "{}"), (long.as_str(), "s", "{}"), ("a", "", "{}"), ("a", "s", "{")]
    {
        assert!(store.append_outbox_event(kind, subject, payload).await.is_err(), "{kind} {subject} {payload}");
    }
}
