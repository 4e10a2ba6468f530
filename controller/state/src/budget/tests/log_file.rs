//! The budget log with a real database: killed between any two steps, lost, cut, forged.

use std::fs;
use std::path::{Path, PathBuf};

use sluice_contract::Account;
use tempfile::TempDir;

use crate::budget::{BudgetLog, LogError};
use crate::decisions::{self, Decision, PrunedRun};
use crate::keys::Keys;
use crate::layout::Layout;
use crate::ledger::AuditArchive;
use crate::store::Store;

struct State {
    _directory: TempDir,
    layout: Layout,
    keys: Keys,
    store: Store,
}

impl State {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let layout = Layout::open(directory.path()).expect("there is room");
        let keys = Keys::open(directory.path()).expect("there is room");
        let store = Store::open(&layout.database()).expect("it is new");
        Self { _directory: directory, layout, keys, store }
    }

    fn log(&self) -> BudgetLog<'_> {
        BudgetLog { layout: &self.layout, keys: &self.keys, store: &self.store }
    }

    /// The database is lost, and a new one is made.
    fn lose(&mut self) {
        for end in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(self.layout.state().join(format!("sluice.db{end}")));
        }
        self.store = Store::open(&self.layout.database()).expect("it is new");
    }

    async fn set(&self, nanos: i64) {
        self.store.set_budget(&acct(), nanos).await.expect("it is writable");
    }

    async fn add(&self, nanos: i64) {
        self.store.add_budget(&acct(), nanos).await.expect("it has a budget");
    }

    async fn synchronize(&self) {
        assert!(self.log().synchronize().await.expect("both agree").is_none());
    }

    async fn restore(&self) -> u64 {
        let keys = self.keys.public().expect("there is one");
        let archive = AuditArchive { layout: &self.layout, store: &self.store, keys: &keys };
        self.log().restore(&archive).await.expect("the log is good")
    }

    async fn granted(&self) -> Option<i128> {
        let budgets = self.store.budgets(None).await.expect("it is readable");
        budgets.first().map(|(_, balance, _)| balance.granted)
    }

    fn lines(&self) -> usize {
        fs::read_to_string(self.path()).map_or(0, |text| text.lines().count())
    }

    fn path(&self) -> PathBuf {
        self.layout.budget_log()
    }

    fn sql(&self, statement: &str) {
        let connection = rusqlite::Connection::open(self.layout.database()).expect("it is there");
        connection.execute_batch(statement).expect("SQL");
    }

    /// Adds a file of a run that this database does not know.
    fn strange_file(&self) {
        fs::write(self.layout.state().join("audit").join("r1.0.jsonl"), "no record\n").expect("it is ours");
    }
}

fn acct() -> Account {
    "acct-1".parse().expect("an account")
}

fn append(path: &Path, text: &str) {
    let before = fs::read_to_string(path).expect("it is there");
    fs::write(path, before + text).expect("it is ours");
}

#[tokio::test]
async fn a_kill_between_any_two_steps_loses_no_change() {
    for killed in ["before the log", "in the middle of a line", "before the line was noted", "not at all"] {
        let mut state = State::new();
        state.set(5).await;
        state.synchronize().await;
        state.add(2).await;
        match killed {
            "in the middle of a line" => append(&state.path(), r#"{"account":"acct-1","key"#),
            "before the line was noted" => {
                state.synchronize().await;
                state.sql("DELETE FROM budget_log WHERE seq = 2");
            }
            "not at all" => state.synchronize().await,
            _ => {}
        }

        assert!(state.log().check_admission("acct-1").await.expect("the database has it").is_none(), "{killed}");

        assert_eq!(state.lines(), 3, "{killed}");
        state.lose();
        assert!(
            matches!(state.log().check_admission("other").await, Err(LogError::Ahead { lines: 2, .. })),
            "{killed}"
        );
        assert_eq!(state.restore().await, 2, "{killed}");
        assert_eq!(state.granted().await, Some(7), "{killed}");
        assert!(state.log().check_admission("acct-1").await.expect("they agree").is_none(), "{killed}");
        assert_eq!((state.restore().await, state.lines()), (0, 3), "{killed}");
    }
}

#[tokio::test]
async fn a_killed_restore_is_continued() {
    let mut state = State::new();
    for nanos in 1..=4 {
        state.set(nanos).await;
    }
    state.synchronize().await;
    state.lose();
    assert_eq!(state.restore().await, 4);
    state.sql(
        "DROP TRIGGER budgets_last;
         DELETE FROM budget_log WHERE seq > 2; DELETE FROM budgets WHERE id > 2;",
    );
    assert_eq!(state.granted().await, Some(2));
    assert!(matches!(state.log().check_admission("acct-1").await, Err(LogError::Ahead { lines: 2, .. })));

    assert_eq!((state.restore().await, state.granted().await), (2, Some(4)));
}

#[tokio::test]
async fn without_database_and_log_budgets_must_be_confirmed() {
    let state = State::new();
    state.strange_file();
    assert!(matches!(state.log().check_admission("acct-1").await, Err(LogError::Lost(_))));
    state.set(5).await;
    assert!(matches!(state.log().synchronize().await, Err(LogError::Lost(_))));
    assert_eq!(state.log().confirm().await.expect("there is room"), None);
    // The spending of the account is not known yet.
    assert!(matches!(state.log().check_admission("acct-1").await, Err(LogError::Behind { runs: 1, .. })));
    assert!(state.log().check_admission("other").await.expect("it has no budget").is_none());

    let keys = state.keys.public().expect("there is one");
    let archive = AuditArchive { layout: &state.layout, store: &state.store, keys: &keys };
    archive.fill().await.expect("all is readable");

    assert!(state.log().check_admission("acct-1").await.expect("all is known").is_none());
}

#[tokio::test]
async fn lost_receipts_of_pruned_files_stop_their_account_until_its_budget_is_set() {
    let state = State::new();
    state.set(5).await;
    state.synchronize().await;
    let run = PrunedRun {
        run: "r1.0".into(),
        account: "acct-1".into(),
        lines: 4,
        head: None,
        bytes: 900,
        receipts: 1,
        last_us: crate::store::now_us(),
    };
    decisions::record(&state.layout, &state.keys, Decision::Prune { runs: vec![run] }).expect("there is room");

    let refused = state.log().check_admission("acct-1").await.expect_err("its receipt is gone");

    assert!(matches!(refused, LogError::Pruned { runs: 1, .. }), "{refused:?}");
    assert!(state.log().check_admission("other").await.expect("it has no budget").is_none());
    // Each remedy that the error names works.
    state.set(5).await;
    assert!(state.log().check_admission("acct-1").await.expect("it starts anew").is_none());
}

#[tokio::test]
async fn a_cut_or_forged_log_is_reported() {
    let mut state = State::new();
    state.set(5).await;
    state.set(1).await;
    state.synchronize().await;
    let good = fs::read_to_string(state.path()).expect("it is there");
    let lines: Vec<_> = good.split_inclusive('\n').collect();
    let dearer = good.replace(r#""nano_usd":"1""#, r#""nano_usd":"9""#);

    // The database has all budgets.
    let foreign = ["more\n".to_owned() + &good, good.clone() + "more\n\n"];
    for bad in [lines[..2].concat(), dearer.clone(), String::new()].into_iter().chain(foreign) {
        fs::write(state.path(), &bad).expect("it is ours");
        let told = state.log().check_admission("acct-1").await.expect("the database knows");
        assert!(matches!(told, Some(LogError::Damaged { .. })), "{bad}: {told:?}");
    }
    // It has none.
    state.lose();
    for bad in [dearer, lines[1..].concat(), good.clone() + "more\n", "more\n".to_owned()] {
        fs::write(state.path(), &bad).expect("it is ours");
        assert!(matches!(state.log().check_admission("acct-1").await, Err(LogError::Forged(..))), "{bad}");
    }
    fs::write(state.path(), &good).expect("it is ours");
    assert_eq!((state.restore().await, state.granted().await), (2, Some(1)));
    // A log that cannot be restored.
    fs::write(state.path(), "").expect("it is ours");
    let aside = state.log().confirm().await.expect("there is room");
    assert!(aside.is_some_and(|path| path.exists()));
    assert!(state.log().check_admission("acct-1").await.expect("they agree").is_none());
}

#[tokio::test]
async fn confirmation_alone_replaces_a_log_with_unknown_records() {
    let state = State::new();
    state.set(5).await;
    state.synchronize().await;
    let good = fs::read_to_string(state.path()).expect("it is there");
    // A record that is repeated, one of another version, and an altered one that the database never had.
    let last = good.lines().next_back().expect("it has lines").to_owned() + "\n";
    for more in [last, "{}\n".to_owned(), "more\n{\"account\":\n".to_owned()] {
        fs::write(state.path(), good.clone() + &more).expect("it is ours");
        assert!(matches!(state.log().check_admission("other").await, Err(LogError::Forged(..))), "{more}");
    }

    assert!(state.log().confirm().await.expect("there is room").is_some());

    assert!(state.log().check_admission("acct-1").await.expect("they agree").is_none());
    assert_eq!(state.granted().await, Some(5));
}

/// Runs on one thread: a task that blocked it while waiting for the lock would stop the lock's holder from continuing.
#[tokio::test]
async fn tasks_that_synchronize_at_once_block_no_thread() {
    let state = State::new();
    state.set(5).await;
    let log = state.log();
    let all =
        tokio::join!(log.synchronize(), log.synchronize(), log.check_admission("acct"), log.check_admission("acct"));
    for damage in [all.0, all.1, all.2, all.3] {
        assert!(damage.expect("both agree").is_none());
    }
    assert_eq!(state.lines(), 2);
}
