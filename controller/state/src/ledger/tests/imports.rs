//! Imported files: receipts that were decided before, and the budgets that a rebuild counts them in.

use std::path::PathBuf;

use sluice_contract::Account;

use super::*;
use crate::budget::BudgetLog;
use crate::decisions::{self, Decision, PrunedRun};
use crate::keys::Keys;

/// A state directory with keys.
struct Host {
    ledger: TestLedger,
    keys: Keys,
}

impl Host {
    fn new() -> Self {
        let ledger = TestLedger::new();
        let keys = Keys::open(ledger.layout.state()).expect("there is room");
        Self { ledger, keys }
    }

    /// Writes a file of another host.
    fn foreign(&self, bytes: &[u8]) -> PathBuf {
        let path = self.ledger.layout.state().join("records/foreign.jsonl");
        std::fs::write(&path, bytes).expect("it is ours");
        path
    }

    async fn import(&self, bytes: &[u8], given: &[sluice_contract::PublicKey]) -> ImportedFile {
        let keys = [self.keys.public().expect("there is one"), given.to_vec()].concat();
        let archive = AuditArchive { layout: &self.ledger.layout, store: &self.ledger.store, keys: &keys };
        let unsigned = if given.is_empty() { UnsignedFiles::Vouched } else { UnsignedFiles::Refused };
        archive.import(&self.foreign(bytes), &self.keys, given, unsigned).await.expect("it is a good file")
    }

    fn decisions(&self) -> usize {
        std::fs::read_to_string(self.ledger.layout.decisions()).map_or(0, |text| text.lines().count())
    }

    async fn set_budget(&self, account: &Account) {
        self.ledger.store.set_budget(account, 5_000_000_000).await.expect("it is writable");
        let log = BudgetLog { layout: &self.ledger.layout, keys: &self.keys, store: &self.ledger.store };
        assert!(log.synchronize().await.expect("both agree").is_none());
    }

    async fn spent(&self) -> i128 {
        let budgets = self.ledger.store.budgets(None).await.expect("it is readable");
        budgets.first().map_or(0, |(_, balance, _)| balance.spent)
    }

    /// Loses the database, and rebuilds it.
    async fn rebuild(&mut self) {
        for end in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(self.ledger.layout.state().join(format!("sluice.db{end}")));
        }
        self.ledger.store = Store::open(&self.ledger.layout.database()).expect("it is new");
        let keys = self.keys.public().expect("there is one");
        let archive = AuditArchive { layout: &self.ledger.layout, store: &self.ledger.store, keys: &keys };
        let log = BudgetLog { layout: &self.ledger.layout, keys: &self.keys, store: &self.ledger.store };
        log.restore(&archive).await.expect("the log is good");
        assert_eq!(archive.fill().await.expect("all is readable").differences, []);
    }
}

#[tokio::test]
async fn a_later_copy_adds_its_calls_beside_a_voided_receipt() {
    let host = Host::new();
    let run = key("r1.0");
    let mut log = written(Log::of(&run), &[open_call(), priced("1")]);
    host.import(&log.bytes, &[]).await;
    void(&host.ledger.layout, &host.keys, &host.ledger.store, "r1/0/call-1", "it is gone").await.expect("it is open");
    log.outcome(1, &priced("2"));
    log.intent(3, "m");
    log.outcome(3, &priced("4"));
    let bytes = log.close();

    let imported = host.import(&bytes, &[]).await;

    assert_eq!(imported.added, Posted { receipts: 1, entries: 1 });
    assert_eq!(imported.late, [LateOutcome { receipt: "r1/0/call-1".into(), status: "voided" }]);
    let found = host.ledger.all().await;
    assert_eq!(
        (statuses(&found), total(&found.receipts).nano_usd),
        (vec!["voided", "posted", "posted"], Some(5_000_000_000))
    );
    assert_eq!(std::fs::read(host.ledger.path(&run)).expect("it was copied"), bytes);
}

/// Bug: a void that came too late, because the receipt was decided meanwhile, was reported as done.
#[tokio::test]
async fn a_void_that_comes_too_late_is_refused() {
    let host = Host::new();
    let log = written(Log::of(&key("r1.0")), &[open_call()]);
    host.import(&log.bytes, &[]).await;
    let (layout, store) = (&host.ledger.layout, &host.ledger.store);
    void(layout, &host.keys, store, "r1/0/call-1", "it is gone").await.expect("it is open");

    let late = void::record(layout, &host.keys, store, "r1/0/call-1", "it was open").await;

    assert!(matches!(late, Err(VoidError::Decided { status: "voided", .. })), "{late:?}");
}

/// Bug: a rebuild that had listed a file before its removal by `sluice prune` reported it as gone.
#[tokio::test]
async fn a_file_that_is_pruned_meanwhile_is_left_out() {
    let host = Host::new();
    let run = key("r1.0");
    let (account, head) = ("acct-1".to_owned(), None);
    let pruned = PrunedRun { run: run.to_string(), account, lines: 3, head, bytes: 9, receipts: 1, last_us: 1 };
    decisions::record(&host.ledger.layout, &host.keys, Decision::Prune { runs: vec![pruned] }).expect("there is room");
    let keys = host.keys.public().expect("there is one");
    let archive = AuditArchive { layout: &host.ledger.layout, store: &host.ledger.store, keys: &keys };

    let listed = [run, key("r2.0")];
    let readings = archive.read_next(&mut listed.chunks(2)).await.expect("it is readable").expect("there are two");

    let read: Vec<_> = readings.await.expect("it ends").expect("they are readable");
    assert_eq!(read.iter().map(|reading| reading.key.to_string()).collect::<Vec<_>>(), ["r2.0"]);
}

#[tokio::test]
async fn a_rebuild_leaves_an_import_in_the_budget_of_its_time() {
    let account: Account = "acct-1".parse().expect("an account");
    let run = key("r1.0");
    let signer = PrivateKey::from_seed(&[7; 32]);
    let log = || written(Log::of(&run), &[priced("1")]);
    for (bytes, given) in [(log().close(), vec![]), (log().close_with(Some(&signer)), vec![signer.public()])] {
        // The run ended before the budget was set, and its file arrived after that.
        let mut host = Host::new();
        host.set_budget(&account).await;
        host.import(&bytes, &given).await;
        assert_eq!(host.spent().await, 1_000_000_000);

        host.rebuild().await;

        assert_eq!(host.spent().await, 1_000_000_000, "signed: {}", !given.is_empty());
        // An import that adds nothing is not recorded as a decision.
        assert!(host.import(&bytes, &given).await.already_imported);
        assert_eq!(host.decisions(), 1);
    }
}

#[tokio::test]
async fn a_file_without_its_end_is_billed_only_for_a_known_run() {
    let host = Host::new();
    let keys = host.keys.public().expect("there is one");
    let archive = AuditArchive { layout: &host.ledger.layout, store: &host.ledger.store, keys: &keys };
    let [foreign, recorded, pruned] = ["foreign.0", "recorded.0", "pruned.0"].map(key);
    for run in [&foreign, &recorded, &pruned] {
        let log = written(Log::of(run), &[priced("1")]);
        host.ledger.put(run, &log.bytes);
        if run == &pruned {
            let last = log.bytes.split_inclusive(|byte| *byte == b'\n').next_back().expect("there are three");
            let (run, account, head) = (run.to_string(), "acct-1".to_owned(), Some(Hash::of(last).to_string()));
            let run = PrunedRun { run, account, lines: 3, head, bytes: 9, receipts: 1, last_us: 1 };
            decisions::record(&host.ledger.layout, &host.keys, Decision::Prune { runs: vec![run] })
                .expect("there is room");
        }
    }
    host.ledger.layout.records().create(&recorded).expect("there is room");

    let filled = archive.fill().await.expect("all is readable");

    let found: Vec<_> = filled.differences.iter().map(|one| (one.run.as_str(), one.found)).collect();
    assert_eq!(found, [("foreign.0", DifferenceKind::Unsigned)], "{:?}", filled.differences);
    let billed: Vec<_> = host.ledger.all().await.receipts.into_iter().map(|bill| bill.run_id).collect();
    assert_eq!(billed, ["pruned", "recorded"]);
    // A pruned file that comes back has the same lines.
    host.ledger.put(&pruned, &written(Log::of(&pruned), &[priced("2")]).bytes);
    let found = archive.check().await.expect("all is readable").differences;
    assert!(found.iter().any(|one| one.run == "pruned.0" && one.found == DifferenceKind::Tampered), "{found:?}");
}
