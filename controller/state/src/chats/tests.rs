use super::*;
use crate::creation::{CreationError, NewSandbox};
use crate::process::Process;
use crate::sandboxes::{NextAttempt, Reopening, SandboxStep, SandboxVerdict};
use crate::test_sandbox::new_sandbox;
use crate::tokens::{NewToken, TokenRole, create_value};

const CAP: i64 = 40;

pub(super) struct Tokens {
    _directory: tempfile::TempDir,
    pub(super) store: Store,
}

impl Tokens {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        Self { _directory: directory, store }
    }

    pub(super) async fn token(&self, runs_per_day: Option<u32>, cost_per_day: Option<i64>) -> String {
        let new = NewToken {
            owner: "o".to_owned(),
            role: TokenRole::Chat,
            accounts: vec!["acct".to_owned()],
            label: None,
            life_us: None,
            runs_per_day,
            cost_per_day,
        };
        let value = create_value().expect("there are random bytes");
        let token = self.store.create_token(&value, new, 1).await.expect("it is writable");
        format!("{TOKEN}{}", token.id)
    }

    async fn chat(&self, run_id: &str, principal: &str, now_us: i64) -> Result<(), CreationError> {
        let chat = NewChat {
            principal: principal.to_owned(),
            end_user: Some("u".to_owned()),
            session_id: None,
            is_resumable: true,
            turn: None,
        };
        self.begin(run_id, chat, now_us).await
    }

    pub(super) async fn begin(&self, run_id: &str, chat: NewChat, now_us: i64) -> Result<(), CreationError> {
        let new =
            NewSandbox { cap: Some(CAP), hold_nano: CAP, max_retries: 0, chat: Some(chat), ..new_sandbox(run_id) };
        self.store.create_sandbox(new, now_us).await.map(|_| ())
    }

    /// Adds a receipt of unknown cost, whose call had this HTTP status.
    async fn open_receipt(&self, run_id: &str, status: u16) {
        let (run_id, hash) = (run_id.to_owned(), "0".repeat(64));
        let written: Result<(), StoreError> = self
            .store
            .write(move |connection| {
                let (reference, day) = (format!("{run_id}/0/1"), "1970-01-01");
                connection.execute(
                    "INSERT INTO receipts (id, source_system, source_reference, payload_hash, run_id, attempt, call,
                         call_id, account, graph_id, method, path, stream, origin_us, origin_day, arrived_us, arrived_day)
                     VALUES (1, 's', ?1, ?2, ?3, 0, 1, 'c', 'acct', 'g', 'POST', '/', 0, 1, ?4, 1, ?4)",
                    params![reference, hash, run_id, day],
                )?;
                connection.execute(
                    "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, http_status,
                         price_source, origin_us, origin_day, arrived_us, arrived_day)
                     VALUES (1, 's', ?1, ?2, 'pending_cost', ?3, 'none', 1, ?4, 1, ?4)",
                    params![reference, hash, status, day],
                )?;
                Ok(())
            })
            .await;
        written.expect("it is writable");
    }

    async fn drop_run(&self, run_id: &str) {
        self.end(run_id, 3).await;
    }

    /// Ends a run that waits.
    pub(super) async fn end(&self, run_id: &str, now_us: i64) {
        let step = SandboxStep::Drop(SandboxVerdict::Cancelled);
        self.store.step_sandbox(&run_id.parse().expect("an id"), 0, step, "test", now_us).await.expect("it waits");
    }
}

fn refusal(refused: Result<(), CreationError>) -> ChatCapError {
    match refused.expect_err("a cap is exceeded") {
        CreationError::Chat(error) => error,
        other => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_token_begins_no_more_chats_than_its_cap() {
    let tokens = Tokens::new();
    let (one, other) = (tokens.token(Some(2), None).await, tokens.token(None, None).await);

    tokens.chat("r1", &one, 1).await.expect("the first");
    tokens.chat("r2", &one, 2).await.expect("the second");
    assert_eq!(refusal(tokens.chat("r3", &one, 3).await), ChatCapError::Runs { max: 2, wait_us: DAY_US - 3 });
    tokens.chat("r4", &other, 4).await.expect("another token");
    tokens.chat("r5", "uid:0", 5).await.expect("no token, no cap");
    tokens.chat("r6", &one, DAY_US).await.expect("another day");

    let live = tokens.store.live_chats().await.expect("it is readable");
    assert_eq!(live.len(), 5, "a refused chat leaves nothing: {live:?}");
    let found =
        tokens.store.find_chat(&"r1".parse().expect("an id")).await.expect("it is readable").expect("it is there");
    assert_eq!((found.owner.as_str(), found.new.principal, found.new.end_user.as_deref()), ("o", one, Some("u")));
}

#[tokio::test]
async fn live_chats_count_with_their_whole_cap() {
    let tokens = Tokens::new();
    let token = tokens.token(None, Some(2 * CAP)).await;

    tokens.chat("r1", &token, 1).await.expect("the first");
    tokens.chat("r2", &token, 2).await.expect("the second");
    assert_eq!(refusal(tokens.chat("r3", &token, 3).await), ChatCapError::Cost);
    tokens.drop_run("r1").await;
    tokens.chat("r4", &token, 4).await.expect("one that was cancelled cost nothing");
    tokens.drop_run("r2").await;
    let live = tokens.store.live_chats().await.expect("it is readable");
    assert_eq!(live.iter().map(|chat| chat.run_id.as_str()).collect::<Vec<_>>(), ["r4"]);
}

/// Bug: a chat with a call that a rate limit refused counted with its whole cap.
#[tokio::test]
async fn a_refused_call_costs_a_chat_nothing() {
    for (status, fits) in [(429, true), (500, false)] {
        let tokens = Tokens::new();
        let token = tokens.token(None, Some(CAP)).await;
        tokens.chat("r1", &token, 1).await.expect("the first");
        tokens.drop_run("r1").await;
        tokens.open_receipt("r1", status).await;
        assert_eq!(tokens.chat("r2", &token, 5).await.is_ok(), fits, "{status}");
    }
}

/// Bug: the daemon cancelled a chat that its owner had started again, because it had no client.
#[tokio::test]
async fn a_chat_that_was_started_again_expects_no_client() {
    let tokens = Tokens::new();
    let token = tokens.token(None, None).await;
    tokens.chat("r1", &token, 1).await.expect("the first");
    tokens.drop_run("r1").await;
    let run_id = "r1".parse().expect("an id");
    let ended = tokens.store.find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    let daemon = Process::current().expect("there is /proc");
    let next = NextAttempt { daemon, next_try_us: 0, reason: "retry".to_owned() };
    let reopening = Reopening { next, queued_max: 10, idempotency: None };

    tokens.store.reopen_sandbox(&run_id, ended.generation, reopening, 5).await.expect("it failed");

    assert!(tokens.store.live_chats().await.expect("it is readable").is_empty());
    tokens.chat("r2", &token, 6).await.expect("a new one");
    assert_eq!(tokens.store.live_chats().await.expect("it is readable").len(), 1);
}

/// The message advised to try again after midnight, when the same chat is refused again.
#[tokio::test]
async fn a_chat_above_the_cost_of_a_day_names_both() {
    let tokens = Tokens::new();
    let token = tokens.token(None, Some(CAP - 1)).await;

    for now_us in [1, DAY_US] {
        let refused = refusal(tokens.chat("r1", &token, now_us).await);
        assert_eq!(refused, ChatCapError::OneChat { cap: CAP, max: CAP - 1 });
        let message = refused.to_string();
        assert!(message.contains("$0.00000004, ") && message.contains("$0.000000039 "), "{message}");
        assert!(message.contains("--cost-per-day") && !message.contains("midnight"), "{message}");
    }
}
