use std::os::unix::fs::MetadataExt;

use super::manifest::MANIFEST;
use super::*;
use crate::process::Process;
use crate::store::{RunDriver, RunRow};

struct State {
    directory: tempfile::TempDir,
    layout: Layout,
    keys: Keys,
    store: Store,
}

/// A state directory with a run, its audit file, a budget log and a workspace.
async fn state() -> State {
    let directory = tempfile::tempdir().expect("there is room");
    let layout = Layout::open(&directory.path().join("st")).expect("there is room");
    let keys = Keys::open(layout.state()).expect("there is room");
    let store = Store::open(&layout.database()).expect("it is new");
    let owner = Process::current().expect("there is /proc");
    let (account, agent, image) = ("acct".into(), "agent".into(), "image".into());
    let key: RunKey = "r1.0".parse().expect("a run");
    store
        .begin(RunRow { key: key.clone(), account, agent, model: None, image, owner, driver: RunDriver::Once })
        .await
        .expect("it is new");
    fs::write(layout.run(&key).audit, "a line\n").expect("it is ours");
    fs::write(layout.budget_log(), "a change\n").expect("it is ours");
    fs::create_dir(layout.run(&key).root).expect("there is room");
    State { directory, layout, keys, store }
}

impl State {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    async fn back_up(&self, name: &str) -> Result<BackupSummary, BackupError> {
        back_up(&self.layout, &self.keys, &self.store, &self.path(name)).await
    }

    fn names(&self) -> Vec<String> {
        let entries =
            fs::read_dir(self.directory.path()).expect("it is ours").map(|entry| entry.expect("it is readable"));
        let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

#[tokio::test]
async fn a_restored_backup_has_everything_but_its_name() {
    let state = state().await;
    let made = state.back_up("copy").await.expect("there is room");
    assert_eq!((made.files, made.audit_files), (5, 1));
    for (name, mode) in
        [("", 0o700), ("audit", 0o700), ("keys/signing", 0o600), ("sluice.db", 0o600), (MANIFEST, 0o600)]
    {
        assert_eq!(fs::metadata(state.path("copy").join(name)).expect("it is there").mode() & 0o777, mode, "{name}");
    }

    let restored = restore(&state.path("copy"), &state.path("again")).expect("it is whole");

    assert_eq!((restored.files, restored.bytes), (made.files, made.bytes));
    let again = Layout::at(&state.path("again"));
    let key = "r1.0".parse().expect("a run");
    assert_eq!(fs::read(again.run(&key).audit).expect("it is there"), b"a line\n");
    assert_eq!(fs::read(again.budget_log()).expect("it is there"), b"a change\n");
    assert_eq!(Keys::at(again.state()).current().expect("it is there"), state.keys.current().expect("it is there"));
    let store = Store::open(&again.database()).expect("it is whole");
    assert_eq!(store.phase(&key).await.expect("it is readable").as_deref(), Some("pending"));
    assert_ne!(again.instance().expect("it has one"), state.layout.instance().expect("it has one"));
    assert_eq!(again.runs().expect("it is there"), [], "workspaces are not copied");
    assert!(!again.state().join(STAGE).exists());
}

#[tokio::test]
async fn a_restored_backup_has_what_the_daemon_keeps() {
    use crate::agents::NewAgent;
    use crate::events::{EventFilter, EventQuota, NewLoggedEvent};
    use crate::tokens::{NewToken, TokenLookup, TokenRole, create_value};

    let state = state().await;
    let (owner, agent_id) = ("o".to_owned(), "a".to_owned());
    let value = create_value().expect("there are random bytes");
    let token = NewToken {
        owner: owner.clone(),
        role: TokenRole::Owner,
        accounts: Vec::new(),
        label: None,
        life_us: None,
        runs_per_day: None,
        cost_per_day: None,
    };
    state.store.create_token(&value, token, 1).await.expect("it is writable");
    let (grants, metadata) = ("[]".to_owned(), "{}".to_owned());
    let billing_account_id = "acct".to_owned();
    let (name, zone_id, allow_sandbox) = (None, None, true);
    let agent = NewAgent { owner, agent_id, name, zone_id, billing_account_id, allow_sandbox, grants, metadata };
    state.store.register_agent(agent).await.expect("it is writable");
    let event = NewLoggedEvent::of_run("o", "r1", "llm.call", "{}".to_owned(), 1);
    state.store.append_events(vec![event], EventQuota::default()).await.expect("it is writable");

    state.back_up("copy").await.expect("there is room");
    restore(&state.path("copy"), &state.path("again")).expect("it is whole");

    let store = Store::open(&Layout::at(&state.path("again")).database()).expect("it is whole");
    let found = store.find_token(value.expose(), 2).await.expect("it is readable");
    assert!(matches!(found, TokenLookup::Valid(_)), "{found:?}");
    assert!(store.find_agent("o", "a").await.expect("it is readable").is_some());
    assert_eq!(store.events_after(0, EventFilter::default(), 9).await.expect("it is readable").events.len(), 1);
}

#[tokio::test]
async fn keys_in_files_of_any_name_are_copied() {
    use sluice_contract::PrivateKey;
    let state = state().await;
    let [one, two] = [1, 2].map(|seed| PrivateKey::from_seed(&[seed; 32]).public());
    fs::write(state.layout.state().join("keys/public/ci.pub"), format!("{one}\n{two}\n")).expect("it is ours");
    state.back_up("copy").await.expect("there is room");

    restore(&state.path("copy"), &state.path("again")).expect("it is whole");

    let restored = Keys::at(&state.path("again")).public().expect("they are there");
    assert_eq!(restored, state.keys.public().expect("they are there"));
    assert!(restored.contains(&one) && restored.contains(&two) && restored.len() == 3);
}

#[tokio::test]
async fn existing_directories_are_not_overwritten() {
    let state = state().await;
    state.back_up("copy").await.expect("there is room");
    assert!(matches!(state.back_up("copy").await, Err(BackupError::Exists(_))));
    assert!(matches!(restore(&state.path("copy"), state.layout.state()), Err(BackupError::InUse(_))));
    fs::create_dir(state.path("foreign")).expect("there is room");
    fs::write(state.path("foreign").join("file"), "").expect("it is ours");
    assert!(restore(&state.path("copy"), &state.path("foreign")).is_err());
    assert_eq!(state.names(), ["copy", "foreign", "st"]);
}

#[tokio::test]
async fn a_failed_backup_leaves_nothing() {
    let state = state().await;
    let audit = state.layout.run(&"r1.0".parse().expect("a run")).audit;
    fs::remove_file(&audit).expect("it is there");
    fs::create_dir(&audit).expect("there is room");
    assert!(state.back_up("copy").await.is_err());
    assert_eq!(state.names(), ["st"]);
}

#[tokio::test]
async fn a_backup_with_a_fault_is_not_restored() {
    let state = state().await;
    state.back_up("copy").await.expect("there is room");
    let copy = state.path("copy");
    let signing = copy.join("keys/signing");
    let good = fs::read(&signing).expect("it is there");
    let refused = |words: &str| {
        let error = restore(&copy, &state.path("again")).expect_err("it has a fault").to_string();
        assert!(error.contains(words), "{error}");
        assert!(!state.path("again").exists());
    };
    fs::write(&signing, [&good[1..], &good[..1]].concat()).expect("it is ours");
    refused("keys/signing is not the file");
    fs::remove_file(&signing).expect("it is ours");
    refused("keys/signing is missing");
    fs::write(&signing, good).expect("it is ours");
    fs::write(copy.join("audit/r9.0.jsonl"), "").expect("it is ours");
    refused("audit/r9.0.jsonl is not a file of the backup");
    fs::remove_file(copy.join("audit/r9.0.jsonl")).expect("it is ours");
    restore(&copy, &state.path("again")).expect("it is whole again");

    let manifest = fs::read_to_string(copy.join(MANIFEST)).expect("it is there");
    for strange in ["../escape", "audit/../../x.jsonl", "/etc/passwd", "keys/public/../signing"] {
        fs::write(copy.join(MANIFEST), manifest.replace("budgets.log", strange)).expect("it is ours");
        let error = restore(&copy, &state.path("third")).expect_err("it leads out").to_string();
        assert!(error.contains("a backup has no file"), "{error}");
    }
    fs::remove_file(copy.join(MANIFEST)).expect("it is there");
    assert!(restore(&copy, &state.path("third")).expect_err("it is no backup").to_string().contains("not a backup"));
}
