use super::*;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-store-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("it is not there yet");
        Self(path)
    }

    fn database(&self) -> PathBuf {
        self.0.join("sluice.db")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn entry(name: &str) -> RunRow {
    RunRow {
        key: format!("{name}.0").parse().expect("a key"),
        account: "acct".into(),
        agent: "sandbox:agent".into(),
        model: None,
        image: "image".into(),
        owner: Process::current().expect("there is /proc"),
    }
}

#[tokio::test]
async fn a_run_is_open_until_it_is_closed() {
    let scratch = Scratch::new("open");
    let store = Store::open(&scratch.database()).expect("it is new");
    let asked = entry("r1");
    store.begin(asked.clone()).await.expect("it is new");

    let sidecar = Process { pid: 7, start: u64::MAX, boot: "b".into() };
    store.record(&asked.key, 0, &Run::new(), Some(&sidecar)).await.expect("it is ours");
    let open = store.open_runs().await.expect("it is readable");
    assert_eq!(open, [OpenRun { entry: asked.clone(), generation: 0, sidecar: Some(sidecar) }]);

    let closed = Run { phase: Phase::Closed, ..Run::new() };
    store.record(&asked.key, 0, &closed, None).await.expect("it is ours");
    assert_eq!(store.open_runs().await.expect("it is readable"), []);
    assert_eq!(store.phase(&asked.key).await.expect("it is readable").as_deref(), Some("closed"));
}

#[tokio::test]
async fn a_run_id_is_used_once() {
    let scratch = Scratch::new("once");
    let store = Store::open(&scratch.database()).expect("it is new");
    store.begin(entry("r1")).await.expect("it is new");
    assert!(matches!(store.begin(entry("r1")).await, Err(StoreError::Exists(_))));
}

#[tokio::test]
async fn of_several_that_take_over_one_succeeds_and_the_old_owner_is_refused() {
    let scratch = Scratch::new("take-over");
    let stores = [(); 4].map(|()| Store::open(&scratch.database()).expect("it is there"));
    let asked = entry("r1");
    stores[0].begin(asked.clone()).await.expect("it is new");
    let open = stores[0].open_runs().await.expect("it is readable").remove(0);

    let mut won = 0;
    for store in &stores {
        won += usize::from(store.take_over(&open, &asked.owner).await.is_ok());
    }

    assert_eq!(won, 1);
    let stale = stores[0].record(&asked.key, 0, &Run::new(), None).await;
    assert!(matches!(stale, Err(StoreError::Stale(_))));
}

#[tokio::test]
async fn a_newer_database_is_refused() {
    let scratch = Scratch::new("newer");
    drop(Store::open(&scratch.database()).expect("it is new"));
    let connection = Connection::open(scratch.database()).expect("it is there");
    connection.pragma_update(None, "user_version", SCHEMA + 1).expect("it is ours");
    assert!(matches!(Store::open(&scratch.database()), Err(StoreError::Newer { found, .. }) if found == SCHEMA + 1));
}

#[tokio::test]
async fn a_database_of_the_first_schema_is_brought_up_to_date() {
    let scratch = Scratch::new("migrate");
    let connection = Connection::open(scratch.database()).expect("it is new");
    connection.execute_batch(MIGRATIONS[0]).expect("it is right");
    connection.pragma_update(None, "user_version", 1).expect("it is ours");
    drop(connection);
    let store = Store::open(&scratch.database()).expect("it is old, and known");
    assert_eq!(store.witnesses(&entry("r1").key).await.expect("the table is there"), []);
}

#[tokio::test]
async fn what_was_seen_first_of_a_line_stands() {
    let scratch = Scratch::new("witness");
    let store = Store::open(&scratch.database()).expect("it is new");
    let key = entry("r1").key;
    let seen = |seq, text: &[u8]| Witness { seq, head: sluice_contract::Hash::of(text) };
    for witness in [seen(0, b"a"), seen(7, b"b"), seen(7, b"c")] {
        store.witness(&key, witness).await.expect("it is ours");
    }
    assert_eq!(store.witnesses(&key).await.expect("it is readable"), [seen(0, b"a"), seen(7, b"b")]);
}
