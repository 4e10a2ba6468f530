use sluice_contract::control::{InjectedMessage, InjectionStatus, PendingMessage};
use sluice_contract::{RunId, RunKey};
use tempfile::TempDir;

use super::*;
use crate::events::{EventFilter, LoggedEvent};
use crate::process::Process;
use crate::sandboxes::{ClaimLimits, NextAttempt, SandboxStep, SandboxVerdict};
use crate::store::Store;
use crate::test_sandbox::new_sandbox;

mod histories;
mod tokens;

/// A store with one run, `r1`, that works.
struct Fixture {
    directory: TempDir,
    store: Store,
}

fn key() -> RunKey {
    "r1.0".parse().expect("a key")
}

fn run_id() -> RunId {
    key().run_id
}

fn new(content: &str) -> MessageToSend {
    MessageToSend {
        id: message_id(),
        content: content.to_owned(),
        message_type: MessageType::UserMessage,
        urgent: false,
        inject_mode: InjectMode::NextTurn,
        steering_type: None,
        source: None,
        sender: "token:alice".to_owned(),
        idempotency: None,
    }
}

impl Fixture {
    async fn new() -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let daemon = Process::current().expect("there is /proc");
        let sandbox = new_sandbox("r1");
        store.create_sandbox(sandbox, 1).await.expect("it can be created");
        let limits = ClaimLimits { host: 9, project: 9, owner: 9 };
        store.claim_next(&daemon, limits, 2).await.expect("it is writable").claimed.expect("it waits");
        let fixture = Self { directory, store };
        fixture.step(SandboxStep::Start).await;
        fixture
    }

    /// Opens the database again, as after a killed process.
    fn reopen(&mut self) {
        self.store = Store::open(&self.directory.path().join("sluice.db")).expect("it is there");
    }

    async fn step(&self, step: SandboxStep) {
        let run = self.store.find_sandbox(None, &run_id()).await.expect("it is readable").expect("it is there");
        self.store.step_sandbox(&run_id(), run.generation, step, "test", 3).await.expect("it is legal");
    }

    async fn add(&self, message: MessageToSend) -> String {
        self.store.add_message(&run_id(), message, 5).await.expect("there is room").id
    }

    async fn take(&self, mode: TakeMode, now_us: i64) -> Vec<String> {
        let taken = self.store.take_messages(&key(), mode, 100, now_us).await.expect("it works");
        taken.into_iter().map(|message| message.content).collect()
    }

    async fn offered(&self) -> Vec<String> {
        let offered = self.store.offer_messages(&key()).await.expect("it works");
        offered.list.into_iter().map(|message| message.content).collect()
    }

    async fn state(&self, id: &str) -> MessageState {
        self.store.find_message(&run_id(), id).await.expect("it is there").state
    }

    async fn events(&self) -> Vec<LoggedEvent> {
        let filter = EventFilter { types: vec!["message.*".to_owned()], ..EventFilter::default() };
        self.store.events_after(0, filter, 1000).await.expect("it is readable").events
    }

    async fn event_types(&self) -> Vec<String> {
        self.events().await.into_iter().map(|event| event.event_type).collect()
    }

    async fn injected(&self, number: u64, id: &str, status: InjectionStatus) {
        let anchor = serde_json::from_str(r#"{"chain":"c","item":"i"}"#).expect("an anchor");
        let message_id = id.to_owned();
        let entry =
            InjectedMessage { number, message_id, status, call_id: Some("call-1".to_owned()), anchor: Some(anchor) };
        self.store.record_injected(&key(), vec![entry], 9).await.expect("it works");
    }
}

#[tokio::test]
async fn urgent_messages_come_first_and_each_group_in_order() {
    let fixture = Fixture::new().await;
    let last = fixture.add(new("1")).await;
    fixture.add(MessageToSend { urgent: true, ..new("2") }).await;
    fixture.add(new("3")).await;
    fixture.add(MessageToSend { message_type: MessageType::Interrupt, ..new("4") }).await;
    let promoted = fixture.add(new("5")).await;
    fixture.store.promote_message(&run_id(), &promoted, 6).await.expect("it waits");
    fixture.store.promote_message(&run_id(), &promoted, 6).await.expect("twice is once");
    fixture.store.delete_message(&run_id(), &last, 6).await.expect("it waits");
    assert_eq!(fixture.take(TakeMode::Consume, 7).await, ["2", "4", "5", "3"]);
    assert_eq!(fixture.take(TakeMode::Consume, 7).await, [""; 0]);
    let refused = fixture.store.delete_message(&run_id(), &promoted, 8).await;
    assert!(matches!(refused, Err(MessageError::NotChangeable("delivered"))), "{refused:?}");
    let refused = fixture.store.promote_message(&run_id(), &last, 8).await;
    assert!(matches!(refused, Err(MessageError::NotChangeable("deleted"))), "{refused:?}");
    let types = fixture.event_types().await;
    assert_eq!(types[..7].join(" "), "message.queued ".repeat(5) + "message.promoted message.deleted");
    assert_eq!(types[7..], ["message.delivered"; 4]);
    let event = &fixture.events().await[7];
    assert!(!event.event_data.contains("\"content\""), "{event:?}");
    assert_eq!((event.attempt, event.owner.as_str()), (Some(0), "o"));
}

#[tokio::test]
async fn leased_messages_come_again_until_acknowledged() {
    let mut fixture = Fixture::new().await;
    let (one, two) = (fixture.add(new("1")).await, fixture.add(new("2")).await);
    assert_eq!(fixture.take(TakeMode::Lease, 10).await, ["1", "2"]);
    assert_eq!(fixture.take(TakeMode::Lease, 11).await, [""; 0]);
    let ack = async |store: &Store, ids: &[&str]| {
        let ids = ids.iter().map(ToString::to_string).collect();
        store.acknowledge_messages(&key(), ids, 12).await.expect("it works")
    };
    assert_eq!(ack(&fixture.store, &[&one, "msg-unknown"]).await, std::slice::from_ref(&one));
    fixture.reopen();
    assert!(!fixture.store.has_messages_for_worker(&run_id(), 9 + LEASE_US).await.expect("it is readable"));
    assert!(fixture.store.has_messages_for_worker(&run_id(), 10 + LEASE_US).await.expect("it is readable"));
    assert_eq!(fixture.take(TakeMode::Lease, 10 + LEASE_US).await, ["2"]);
    assert_eq!(ack(&fixture.store, &[&one, &two]).await, [one, two]);
    assert_eq!(fixture.take(TakeMode::Lease, 10 * LEASE_US).await, [""; 0]);
}

#[tokio::test]
async fn text_number_and_state_of_the_run_are_checked() {
    let fixture = Fixture::new().await;
    let add = async |content: &str| fixture.store.add_message(&run_id(), new(content), 5).await;
    assert!(matches!(add("\u{7}").await, Err(MessageError::Content)));
    let nudge = MessageToSend { steering_type: Some("stop".to_owned()), id: intervention_id(), ..new("enough\u{1b}") };
    assert_eq!(
        fixture.store.add_message(&run_id(), nudge, 5).await.expect("there is room").content,
        "[GUARDIAN INTERVENTION - stop] enough"
    );
    for _ in 1..PENDING_MAX {
        add("x").await.expect("there is room");
    }
    assert!(matches!(add("x").await, Err(MessageError::QueueFull)));
    let page = fixture.store.list_messages(&run_id(), MessageFilter::default(), 60).await.expect("it is readable");
    assert_eq!((page.messages.len(), page.messages[0].number, page.next), (60, 100, Some(41)));
    let filter = MessageFilter { interventions: true, before: page.next, ..MessageFilter::default() };
    let rest = fixture.store.list_messages(&run_id(), filter, 60).await.expect("it is readable");
    assert_eq!((rest.messages.len(), rest.next), (1, None));
    let unknown = fixture.store.add_message(&"r2".parse().expect("an id"), new("x"), 5).await;
    assert!(matches!(unknown, Err(MessageError::NoRun(_))));

    fixture.step(SandboxStep::Decide(SandboxVerdict::Success)).await;
    assert!(matches!(add("x").await, Err(MessageError::RunFinished)));
    fixture.step(SandboxStep::Finish).await;
    let types = fixture.event_types().await;
    assert_eq!(types.iter().filter(|name| *name == "message.lost").count(), 100);
    let late = fixture.store.take_messages(&key(), TakeMode::Consume, 9, 6).await;
    assert!(matches!(late, Err(MessageError::RunFinished)));
}

#[tokio::test]
async fn the_sidecar_has_the_messages_of_agents_without_workers() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.add(new("1")).await, fixture.add(new("2")).await);
    assert!(fixture.store.has_injection(&key()).await.expect("it is readable"));
    assert_eq!(fixture.offered().await, ["1", "2"]);
    assert_eq!(fixture.state(&one).await, MessageState::Offered);
    assert_eq!(fixture.take(TakeMode::Consume, 6).await, [""; 0], "nobody gets it twice");
    fixture.injected(1, &one, InjectionStatus::Sent).await;
    assert!(matches!(fixture.store.delete_message(&run_id(), &one, 6).await, Err(MessageError::NotChangeable("sent"))));

    fixture.store.note_worker(&key(), 7).await.expect("it is writable");
    let urgent = fixture.add(MessageToSend { inject_mode: InjectMode::Immediate, ..new("3") }).await;
    let injection = fixture.store.offer_messages(&key()).await.expect("it works");
    let listed: Vec<_> = injection.list.iter().map(|PendingMessage { content, .. }| content.as_str()).collect();
    assert_eq!((listed, &injection.withdrawn), (vec!["1", "3"], &vec![two]));
    assert!(injection.list[0].anchor.is_some() && injection.list[1].anchor.is_none());
    fixture.store.take_back_messages(injection.withdrawn).await.expect("it is writable");
    assert_eq!(fixture.take(TakeMode::Consume, 8).await, ["2"]);

    fixture.injected(2, &one, InjectionStatus::Acknowledged).await;
    fixture.injected(2, &one, InjectionStatus::Lost).await;
    assert_eq!(fixture.state(&one).await, MessageState::Delivered, "an entry is read once");
    fixture.injected(3, &one, InjectionStatus::Lost).await;
    assert_eq!(fixture.state(&one).await, MessageState::Lost);
    assert_eq!(fixture.state(&urgent).await, MessageState::Offered);
}

#[tokio::test]
async fn a_large_queue_is_offered_in_parts() {
    let fixture = Fixture::new().await;
    for _ in 0..4 {
        fixture.add(new(&"x".repeat(CONTENT_MAX))).await;
    }
    assert_eq!(fixture.offered().await.len(), 3);
    let first = fixture.add(MessageToSend { urgent: true, ..new("first") }).await;
    let injection = fixture.store.offer_messages(&key()).await.expect("it works");
    assert_eq!((injection.list[0].message_id.as_str(), injection.list.len()), (first.as_str(), 4));
    let large = Fixture::new().await;
    large.add(new(&"𝄞".repeat(CONTENT_MAX))).await;
    assert_eq!(large.offered().await.len(), 1, "a single one is always offered");
}

#[tokio::test]
async fn a_worker_takes_no_more_than_the_sidecar_passes() {
    let fixture = Fixture::new().await;
    for _ in 0..30 {
        fixture.add(new(&"x".repeat(CONTENT_MAX))).await;
    }
    assert_eq!(fixture.take(TakeMode::Consume, 6).await.len(), TAKEN_BYTES_MAX / CONTENT_MAX);
    assert_eq!(fixture.take(TakeMode::Consume, 7).await.len(), 30 - TAKEN_BYTES_MAX / CONTENT_MAX);
}

#[tokio::test]
async fn messages_for_a_worker_leave_room_for_others() {
    let fixture = Fixture::new().await;
    fixture.store.note_worker(&key(), 5).await.expect("it is writable");
    for _ in 0..4 {
        fixture.add(new(&"x".repeat(CONTENT_MAX))).await;
    }
    for text in ["a", "b"] {
        fixture.add(MessageToSend { inject_mode: InjectMode::Immediate, ..new(text) }).await;
    }
    assert_eq!(fixture.offered().await, ["a", "b"]);
}

#[tokio::test]
async fn another_attempt_gets_what_the_first_did_not_deliver() {
    let fixture = Fixture::new().await;
    let (sent, delivered) = (fixture.add(new("1")).await, fixture.add(new("2")).await);
    fixture.offered().await;
    fixture.injected(1, &sent, InjectionStatus::Sent).await;
    fixture.injected(2, &delivered, InjectionStatus::Acknowledged).await;
    let failed = SandboxVerdict::Failed { code: "internal".to_owned(), message: None };
    fixture.step(SandboxStep::Decide(failed)).await;
    let run = fixture.store.find_sandbox(None, &run_id()).await.expect("it is readable").expect("it is there");
    let daemon = Process::current().expect("there is /proc");
    let next = NextAttempt { daemon, next_try_us: 0, reason: "test".to_owned() };
    fixture.store.retry_sandbox(&run_id(), run.generation, next, 9).await.expect("it has retries");

    assert!(matches!(fixture.store.offer_messages(&key()).await, Err(MessageError::RunFinished)));
    let next: RunKey = "r1.1".parse().expect("a key");
    let offered = fixture.store.offer_messages(&next).await.expect("it works");
    assert_eq!((offered.list.len(), &offered.list[0].message_id), (1, &sent));
    assert_eq!(offered.list[0].anchor, None, "its place is gone");
    assert!(!offered.is_watched);
}

#[tokio::test]
async fn the_result_is_that_of_the_present_attempt() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.store.agent_result(&run_id()).await.expect("it is readable"), None);
    for result in ["1", "{\"success\":true}"] {
        fixture.store.record_agent_result(&key(), result.to_owned()).await.expect("it is writable");
    }
    let result = fixture.store.agent_result(&run_id()).await.expect("it is readable");
    assert_eq!(result.as_deref(), Some("{\"success\":true}"));
    assert_eq!(fixture.store.conversation(&key()).await.expect("it is readable"), StoredConversation::default());
}
