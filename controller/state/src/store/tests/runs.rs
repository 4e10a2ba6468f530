//! Runs and their witnesses.

use super::*;

#[tokio::test]
async fn a_run_is_open_until_it_is_closed() {
    let database = Database::new();
    let store = database.open();
    let row = run_row("r1");
    store.begin(row.clone()).await.expect("it is new");

    let sidecar = Process { pid: 7, start: u64::MAX, boot: "b".into() };
    store.record(&row.key, 0, &Run::new(), Some(&sidecar)).await.expect("it is ours");
    let open = store.open_runs().await.expect("it is readable");
    assert_eq!(open, [OpenRun { entry: row.clone(), generation: 0, sidecar: Some(sidecar) }]);

    let closed = Run { phase: RunPhase::Closed, ..Run::new() };
    store.record(&row.key, 0, &closed, None).await.expect("it is ours");
    assert_eq!(store.open_runs().await.expect("it is readable"), []);
    assert_eq!(store.phase(&row.key).await.expect("it is readable").as_deref(), Some("closed"));
}

#[tokio::test]
async fn a_run_id_is_used_once() {
    let database = Database::new();
    let store = database.open();
    store.begin(run_row("r1")).await.expect("it is new");
    assert!(matches!(store.begin(run_row("r1")).await, Err(StoreError::Exists(_))));
}

#[tokio::test]
async fn one_of_several_takes_over_a_run() {
    let database = Database::new();
    let stores = [(); 4].map(|()| database.open());
    let row = run_row("r1");
    stores[0].begin(row.clone()).await.expect("it is new");
    let open = stores[0].open_runs().await.expect("it is readable").remove(0);

    let mut won = 0;
    for store in &stores {
        won += usize::from(store.take_over(&open, &row.owner).await.is_ok());
    }

    assert_eq!(won, 1);
    let stale = stores[0].record(&row.key, 0, &Run::new(), None).await;
    assert!(matches!(stale, Err(StoreError::Stale(_))), "the old owner is refused");
}

#[tokio::test]
async fn a_deleted_run_leaves_no_witness() {
    let database = Database::new();
    let store = database.open();
    let row = run_row("r1");
    store.begin(row.clone()).await.expect("it is new");
    store.add_witness(&row.key, Witness { seq: 0, head: Hash::of(b"a") }).await.expect("it is ours");

    assert!(matches!(store.delete_run(&row.key, 1).await, Err(StoreError::Stale(_))));
    store.delete_run(&row.key, 0).await.expect("it is ours");

    assert_eq!(store.phase(&row.key).await.expect("it is readable"), None);
    assert_eq!(store.witnesses(&row.key).await.expect("it is readable"), []);
}

#[tokio::test]
async fn the_first_witness_of_a_line_stays() {
    let database = Database::new();
    let store = database.open();
    let key = run_row("r1").key;
    let seen = |seq, text: &[u8]| Witness { seq, head: Hash::of(text) };
    for witness in [seen(0, b"a"), seen(7, b"b"), seen(7, b"c")] {
        store.add_witness(&key, witness).await.expect("it is ours");
    }
    assert_eq!(store.witnesses(&key).await.expect("it is readable"), [seen(0, b"a"), seen(7, b"b")]);
}

#[tokio::test]
async fn open_runs_are_told_apart_by_driver() {
    let database = Database::new();
    let store = database.open();
    store.begin(run_row("r1")).await.expect("the id is free");
    let daemon = RunRow { driver: RunDriver::Daemon, ..run_row("r2") };
    store.begin(daemon.clone()).await.expect("the id is free");
    assert_eq!(store.open_runs().await.expect("it is readable").len(), 2);
    let open = store.open_runs_of(RunDriver::Daemon).await.expect("it is readable");
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].entry, daemon);
    let known = store.find_run(&daemon.key).await.expect("it is readable").expect("it is known");
    assert_eq!((known.entry, known.phase.as_str()), (daemon, "pending"));
}
