//! Many chats at once, by one token.

use std::collections::BTreeSet;

use super::chat::{rest, send, sluice_to, streamed};
use super::*;

async fn all_answer(count: usize) {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = sluice_to(&upstream);
    // Others wait in the queue: this host also builds and tests other things.
    sluice.file("sluice.toml", "model = \"small\"\nmax_running = { host = 4, owner = 4, project = 4 }\n");
    let daemon = sluice.serve().await;
    let words = "token create --owner alice --role chat --account acct-1 --json";
    let made = sluice.command(words.split(' ')).finish().await.expect(0).value();
    let chat = made["value"].as_str().expect("it is shown once");

    // All are under way before the first answer is read.
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(send(&daemon, chat, "POST", "/v1/chat/completions", &streamed(), &[]).await);
    }
    let mut runs = BTreeSet::new();
    for mut client in clients {
        let head = client.read_head().await;
        assert_eq!(head.status, 200);
        runs.insert(head.header("x-sluice-run-id").expect("the run").to_owned());
        let (text, _, chunks) = rest(&mut client).await;
        assert_eq!((text.as_str(), chunks.last()), ("hello", Some(&json!("[DONE]"))), "{chunks:?}");
    }

    assert_eq!((runs.len(), upstream.requests().len()), (count, count));
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn several_chats_at_once_are_answered() {
    all_answer(12).await;
}

#[tokio::test]
#[ignore = "long: cargo test --test runs -- --ignored chat_load"]
async fn a_hundred_chats_at_once_are_answered() {
    all_answer(100).await;
}
