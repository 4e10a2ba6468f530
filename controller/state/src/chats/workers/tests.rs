use super::*;
use crate::chats::tests::Tokens;
use crate::chats::{NewChat, SessionTurn};
use crate::creation::NewSandbox;
use crate::events::{EventQuota, EventSource, NewLoggedEvent};
use crate::messages::{Afterwards, InjectMode, TakeMode, message_id};
use crate::process::Process;
use crate::sandboxes::{ClaimLimits, NextAttempt, Reopening, SandboxStep, SandboxVerdict};
use crate::test_sandbox::new_sandbox;
use sluice_contract::control::MessageType;

fn message(content: &str) -> MessageToSend {
    MessageToSend {
        id: message_id(),
        content: content.to_owned(),
        message_type: MessageType::UserMessage,
        urgent: false,
        inject_mode: InjectMode::NextTurn,
        steering_type: None,
        source: None,
        sender: "uid:0".to_owned(),
        idempotency: None,
    }
}

fn key() -> RunKey {
    "r1.0".parse().expect("a key")
}

impl Tokens {
    async fn worker(&self, principal: &str) {
        let turn = Some(SessionTurn { agent: "a".to_owned(), previous: None, has_worker: true });
        let session_id = Some("s".to_owned());
        let chat = NewChat { principal: principal.to_owned(), end_user: None, session_id, is_resumable: true, turn };
        self.begin("r1", chat, 1).await.expect("the first turn");
        self.claim(2).await;
    }

    /// Claims the next run, and returns its generation.
    async fn claim(&self, now_us: i64) -> u64 {
        let (daemon, limits) =
            (Process::current().expect("there is /proc"), ClaimLimits { host: 9, project: 9, owner: 9 });
        let claimed = self.store.claim_next(&daemon, limits, now_us).await.expect("it is writable").claimed;
        claimed.expect("it waits").sandbox.generation
    }

    /// The worker reports that it waits, after the message of the newest turn.
    async fn waits(&self, now_us: i64) {
        let after = self.the_worker().await.turn.message.map(|(id, _)| id);
        self.reports_waiting(&serde_json::json!({ "after": after }), now_us).await;
    }

    async fn reports_waiting(&self, data: &serde_json::Value, now_us: i64) {
        let new = NewLoggedEvent::of_run("o", "r1", "agent.waiting", data.to_string(), now_us);
        let event = NewLoggedEvent { source: EventSource::Agent, ..new };
        self.store.append_events(vec![event], EventQuota::default()).await.expect("it is writable");
    }

    async fn next_turn(&self, after: u32, now_us: i64) -> Result<i64, ChatTurnError> {
        let message = message("go on");
        let new = NewChatTurn { run_id: run_id("r1"), after, is_resumable: false, message };
        self.store.begin_chat_turn(new, now_us).await
    }

    async fn the_worker(&self) -> ChatWorker {
        self.store.chat_workers().await.expect("it is readable").pop().expect("it lives")
    }

    async fn taken(&self) -> Vec<(MessageType, Option<Afterwards>)> {
        let taken = self.store.take_messages(&key(), TakeMode::Lease, 10, 50).await.expect("it lives");
        let ids = taken.iter().map(|message| message.id.clone()).collect();
        self.store.acknowledge_messages(&key(), ids, 51).await.expect("it lives");
        taken.into_iter().map(|message| (message.message_type, message.afterwards)).collect()
    }

    async fn abandon(&self, number: u32) -> AbandonedTurn {
        self.store.abandon_chat_turn(&run_id("r1"), number, 60).await.expect("it lives")
    }
}

#[tokio::test]
async fn a_report_about_an_earlier_turn_ends_none() {
    let tokens = Tokens::new();
    tokens.worker("uid:0").await;
    tokens.waits(4).await;
    tokens.next_turn(1, 5).await.expect("it waits");
    for (data, now_us) in [("null", 6), (r#""msg-0""#, 7)] {
        let data = serde_json::from_str(&format!(r#"{{"after":{data}}}"#)).expect("JSON");
        tokens.reports_waiting(&data, now_us).await;
        assert_eq!(tokens.the_worker().await.turn.end, None, "{data}");
    }
    let unnamed = serde_json::json!({});
    tokens.reports_waiting(&unnamed, 8).await;
    assert_eq!(tokens.the_worker().await.turn.end, None, "the worker does not have the message");
    assert_eq!(tokens.taken().await.len(), 1);
    assert_eq!(tokens.the_worker().await.turn.end, None, "that was before");
    tokens.reports_waiting(&unnamed, 52).await;
    assert_eq!(tokens.the_worker().await.turn.end, Some(TurnEnd::Waiting(52)));
}

fn is_busy(refused: &Result<i64, ChatTurnError>) -> bool {
    matches!(refused, Err(ChatTurnError::Busy(SessionBusy)))
}

#[tokio::test]
async fn a_worker_has_one_turn_at_a_time() {
    let tokens = Tokens::new();
    tokens.worker("uid:0").await;
    assert!(is_busy(&tokens.next_turn(1, 3).await), "the first turn is at work");
    tokens.waits(4).await;
    let waiting = tokens.the_worker().await;
    assert_eq!((waiting.turn.number, waiting.turn.end), (1, Some(TurnEnd::Waiting(4))));

    assert!(is_busy(&tokens.next_turn(0, 5).await), "its client has not seen the first turn");
    let begin = tokens.next_turn(1, 5).await.expect("it waits");
    assert!(is_busy(&tokens.next_turn(2, 6).await));
    let working = tokens.the_worker().await.turn;
    assert_eq!((working.number, working.end, working.begin_seq), (2, None, begin), "an old report does not count");
    tokens.waits(7).await;
    assert_eq!(tokens.the_worker().await.turn.end, Some(TurnEnd::Waiting(7)));

    let found = async |seq| tokens.store.chat_turn(&run_id("r1"), seq).await.expect("readable").expect("a worker");
    assert_eq!((found(begin).await.number, found(begin + 1).await.number, found(i64::MAX).await.number), (1, 2, 2));
    let (id, _) = found(i64::MAX).await.message.expect("it has one");
    let of_message = tokens.store.chat_turn_of_message(&id).await.expect("readable");
    assert_eq!(of_message, Some((run_id("r1"), begin)));
}

#[tokio::test]
async fn an_abandoned_turn_is_taken_back_or_interrupted() {
    let tokens = Tokens::new();
    tokens.worker("uid:0").await;
    assert_eq!(tokens.abandon(1).await, AbandonedTurn::Interrupted);
    assert_eq!(tokens.the_worker().await.turn.interrupts, 1);
    assert_eq!(tokens.taken().await, [(MessageType::Interrupt, Some(Afterwards::Wait))]);
    tokens.waits(4).await;
    assert_eq!(tokens.abandon(1).await, AbandonedTurn::Over);

    tokens.next_turn(1, 5).await.expect("it waits");
    assert_eq!(tokens.abandon(1).await, AbandonedTurn::Over, "another turn is at work");
    assert_eq!(tokens.abandon(2).await, AbandonedTurn::Withdrawn);
    assert_eq!(tokens.the_worker().await.turn.end, Some(TurnEnd::Withdrawn(60)));
    assert_eq!(tokens.taken().await, []);

    tokens.next_turn(2, 61).await.expect("the worker never had the second");
    tokens.store.take_messages(&key(), TakeMode::Lease, 10, 62).await.expect("it lives");
    assert_eq!(tokens.abandon(3).await, AbandonedTurn::OnItsWay);
}

#[tokio::test]
async fn a_worker_that_ends_gets_no_turn() {
    let tokens = Tokens::new();
    tokens.worker("uid:0").await;
    let end = async || tokens.store.end_chat_worker(&run_id("r1"), 9).await.expect("it lives");
    assert!(!end().await, "it has a turn");
    tokens.waits(4).await;
    assert!(end().await);
    assert!(!end().await, "once");
    assert!(is_busy(&tokens.next_turn(1, 10).await));
    assert_eq!(tokens.the_worker().await.told_to_end_us, Some(9));
    assert_eq!(tokens.taken().await, [(MessageType::Interrupt, Some(Afterwards::End))]);
}

/// Bug: a worker that its owner had started again was cancelled, since the attempt before was requested to end.
#[tokio::test]
async fn a_request_to_end_is_for_its_attempt() {
    let tokens = Tokens::new();
    tokens.worker("uid:0").await;
    tokens.waits(4).await;
    assert!(tokens.store.end_chat_worker(&run_id("r1"), 9).await.expect("it lives"));
    let found =
        async || tokens.store.find_sandbox(None, &run_id("r1")).await.expect("it is readable").expect("it is there");
    for step in [SandboxStep::Decide(SandboxVerdict::Cancelled), SandboxStep::Finish] {
        let generation = found().await.generation;
        tokens.store.step_sandbox(&run_id("r1"), generation, step, "test", 20).await.expect("it can end");
    }
    // Its audit file was read: it has cost nothing.
    let closed: Result<(), StoreError> = tokens
        .store
        .write(|connection| {
            connection.execute_batch(
                "UPDATE runs SET phase = 'closed' WHERE run_id = 'r1';
                 INSERT INTO readings (run_id, attempt, worth, lines, ended, read_us) VALUES ('r1', 0, 'absent', 0, 1, 20);",
            )?;
            Ok(())
        })
        .await;
    closed.expect("it is writable");
    let daemon = Process::current().expect("there is /proc");
    let next = NextAttempt { daemon, next_try_us: 0, reason: "retry".to_owned() };
    let reopening = Reopening { next, queued_max: 10, idempotency: None };
    tokens.store.reopen_sandbox(&run_id("r1"), found().await.generation, reopening, 30).await.expect("it ended");

    tokens.claim(40).await;

    assert_eq!(tokens.the_worker().await.told_to_end_us, None);
}

#[tokio::test]
async fn turns_of_a_worker_count_as_chats() {
    let tokens = Tokens::new();
    let principal = tokens.token(Some(2), None).await;
    tokens.worker(&principal).await;
    tokens.waits(4).await;
    tokens.next_turn(1, 5).await.expect("the second of two");
    tokens.waits(6).await;
    let refused = tokens.next_turn(2, 7).await;
    assert!(matches!(refused, Err(ChatTurnError::Cap(crate::chats::ChatCapError::Runs { max: 2, .. }))), "{refused:?}");
    assert_eq!(tokens.the_worker().await.turn.number, 2, "nothing is changed");
}

#[tokio::test]
async fn runs_that_wait_for_a_place_are_seen() {
    let tokens = Tokens::new();
    tokens.worker("uid:0").await;
    let pressure = async |since| tokens.store.queue_pressure(since).await.expect("readable");
    assert_eq!(pressure(100).await, QueuePressure { active: vec![("o".to_owned(), 1)], waiting: vec![] });
    let chat =
        NewChat { principal: "uid:0".to_owned(), end_user: None, session_id: None, is_resumable: true, turn: None };
    tokens.begin("r2", chat, 50).await.expect("it waits");
    assert_eq!(pressure(100).await.waiting, ["o"]);
    assert!(pressure(49).await.waiting.is_empty());
}

/// Bug: a run with dependencies that had succeeded never made a waiting worker give way.
#[tokio::test]
async fn a_wait_counts_from_the_last_dependency() {
    let tokens = Tokens::new();
    let waiting = async |since| tokens.store.queue_pressure(since).await.expect("readable").waiting;
    tokens.store.create_sandbox(new_sandbox("r1"), 1).await.expect("the dependency");
    let depends_on = [run_id("r1")].into();
    tokens.store.create_sandbox(NewSandbox { depends_on, ..new_sandbox("r2") }, 2).await.expect("it waits");
    let mut generation = tokens.claim(3).await;
    assert!(waiting(100).await.is_empty(), "the dependency goes on");

    for step in [SandboxStep::Decide(SandboxVerdict::Success), SandboxStep::Finish] {
        let stepped = tokens.store.step_sandbox(&run_id("r1"), generation, step, "test", 50).await;
        generation = stepped.expect("it is legal").generation;
    }

    assert!(waiting(49).await.is_empty());
    assert_eq!(waiting(50).await, ["o"]);
}
