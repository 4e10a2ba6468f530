use tempfile::TempDir;

use super::*;
use crate::events::{EventQuota, NewLoggedEvent};
use crate::store::Store;

fn open() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("there is room");
    let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
    (directory, store)
}

fn new(seq: i64) -> NewWebhookMessage {
    NewWebhookMessage {
        id: format!("msg_{seq}"),
        seq,
        event_type: "run.state_changed".to_owned(),
        body: format!("{{\"seq\":{seq}}}"),
    }
}

async fn take(store: &Store, name: &str, range: (i64, i64)) -> bool {
    let messages = (range.0 + 1..=range.1).map(new).collect();
    store.take_webhook_events(name, range, messages, 10).await.expect("it is writable")
}

async fn due(store: &Store, name: &str, now_us: i64) -> Vec<WebhookMessage> {
    store.due_webhook_messages(name, now_us, 100).await.expect("it is readable")
}

fn ids(messages: &[WebhookMessage]) -> Vec<&str> {
    messages.iter().map(|message| message.id.as_str()).collect()
}

#[tokio::test]
async fn a_new_webhook_begins_after_the_newest_event() {
    let (_directory, store) = open();
    assert_eq!(store.begin_webhook("early", 1).await.expect("it is writable"), 0);
    let event = NewLoggedEvent::of_run("o", "r1", "sandbox.created", "{}".to_owned(), 1);
    store.append_events(vec![event.clone(), event], EventQuota::default()).await.expect("it is writable");
    assert_eq!(store.begin_webhook("late", 1).await.expect("it is writable"), 2);
    assert_eq!(store.begin_webhook("early", 2).await.expect("it is writable"), 0, "a known one goes on");
}

#[tokio::test]
async fn events_are_taken_once() {
    let (_directory, store) = open();
    store.begin_webhook("w", 1).await.expect("it is writable");
    assert!(take(&store, "w", (0, 3)).await);
    assert!(!take(&store, "w", (0, 3)).await, "another reader was there");
    assert!(take(&store, "w", (3, 4)).await);
    assert!(!take(&store, "unknown", (0, 1)).await);
    assert_eq!(ids(&due(&store, "w", 10).await), ["msg_1", "msg_2", "msg_3", "msg_4"]);
    assert_eq!(store.waiting_webhook_messages("w").await.expect("it is readable"), 4);
    assert_eq!(due(&store, "w", 9).await, []);
}

#[tokio::test]
async fn a_clock_that_jumps_back_stalls_no_message() {
    let (_directory, store) = open();
    store.begin_webhook("w", 1).await.expect("it is writable");
    assert!(take(&store, "w", (0, 1)).await);
    let [message] = &due(&store, "w", 10).await[..] else { panic!("one waits") };
    let next_us = 2 * WAIT_MAX_US;
    store.webhook_failed(message, "timeout", NextTry::At(next_us), 10, next_us).await.expect("it is writable");
    assert_eq!(due(&store, "w", next_us - WAIT_MAX_US).await, [], "the longest wait is kept");
    assert_eq!(ids(&due(&store, "w", 10).await), ["msg_1"], "it would wait for hours more");
}

#[tokio::test]
async fn a_message_that_fails_lets_others_pass() {
    let (_directory, store) = open();
    for name in ["a", "b"] {
        store.begin_webhook(name, 1).await.expect("it is writable");
        assert!(take(&store, name, (0, 2)).await);
    }
    let poison = due(&store, "a", 10).await.remove(0);
    store.webhook_failed(&poison, "status_500", NextTry::At(50), 9, 11).await.expect("it is writable");
    assert_eq!(
        (ids(&due(&store, "a", 20).await), ids(&due(&store, "b", 20).await)),
        (vec!["msg_2"], vec!["msg_1", "msg_2"])
    );
    let other = due(&store, "a", 20).await.remove(0);
    store.webhook_delivered(&other, 21).await.expect("it is writable");
    assert_eq!(store.next_webhook_try("a").await.expect("it is readable"), Some(50));
    let again = due(&store, "a", 50).await.remove(0);
    assert_eq!((again.id, again.body, again.attempts), (poison.id, poison.body, 1), "each try has the same bytes");
    let rows = store.webhook_rows().await.expect("it is readable");
    assert_eq!((rows[0].waiting, rows[0].position, rows[1].waiting), (1, 2, 2));
    assert_eq!((rows[0].last_success_us, rows[0].last_failure_us, &rows[0].fault), (Some(21), Some(11), &None));
}

#[tokio::test]
async fn messages_that_were_given_up_are_bounded() {
    let (_directory, store) = open();
    store.begin_webhook("w", 1).await.expect("it is writable");
    assert!(take(&store, "w", (0, 5)).await);
    let mut dropped = 0;
    for (message, now_us) in due(&store, "w", 10).await.iter().zip(100..) {
        dropped += store.webhook_failed(message, "timeout", NextTry::Never, 3, now_us).await.expect("it is writable");
    }
    let dead = store.dead_webhook_messages(MessageChoice::default()).await.expect("it is readable");
    assert_eq!((dropped, ids(&dead)), (2, vec!["msg_3", "msg_4", "msg_5"]));
    assert_eq!(
        (due(&store, "w", 1000).await, dead[0].fault.as_deref(), dead[0].dead_us),
        (vec![], Some("timeout"), Some(102))
    );
    // 3 and 4 are too old.
    assert_eq!(store.remove_old_webhook_messages(vec!["w".into()], 104).await.expect("it is writable"), 2);
    let choice = |webhook: &str, id: &str| MessageChoice { webhook: Some(webhook.into()), id: Some(id.into()) };
    for (wrong, count) in [(choice("v", "msg_5"), 0), (choice("w", "msg_1"), 0), (choice("w", "msg_5"), 1)] {
        assert_eq!(store.retry_webhook_messages(wrong, 200).await.expect("it is writable"), count);
    }
    assert_eq!(due(&store, "w", 200).await[0].attempts, 0);
}

#[tokio::test]
async fn webhooks_without_settings_are_forgotten_after_a_time() {
    let (_directory, store) = open();
    for name in ["kept", "gone"] {
        store.begin_webhook(name, 1).await.expect("it is writable");
        assert!(take(&store, name, (0, 1)).await);
    }
    let remove = async |before_us| store.remove_old_webhook_messages(vec!["kept".into()], before_us).await;
    assert_eq!(remove(10).await.expect("it is writable"), 0);
    assert_eq!(remove(11).await.expect("it is writable"), 1);
    assert_eq!((due(&store, "kept", 10).await.len(), due(&store, "gone", 10).await.len()), (1, 0));
}
