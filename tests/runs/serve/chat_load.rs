//! Many chats at once, by one token.

use std::collections::BTreeSet;
use std::time::Duration;

use sluice_testkit::{Gate, Script, poll};

use super::chat::{rest, send, sluice_to, streamed};
use super::*;

/// Longest time in which a hundred programs begin on a small machine that also does other things.
const LIMIT: Duration = Duration::from_secs(600);

/// Begins `count` chats, of which `running` may work at once, and lets their model answer when all working chats wait
/// for it.
async fn all_answer(count: usize, running: usize) {
    let gate = Gate::new();
    let held = gate.clone();
    let upstream = Upstream::with(move |_| Script::provider("hello").hold_head(&held)).start().await;
    let sluice = sluice_to(&upstream);
    let limits = format!("max_running = {{ host = {running}, owner = {running}, project = {running} }}");
    // The first chat waits for the last one, so the timeout is long.
    sluice.file("sluice.toml", &format!("model = \"small\"\ntimeout = \"{}s\"\n{limits}\n", LIMIT.as_secs()));
    let daemon = sluice.serve().await;
    let words = "token create --owner alice --role chat --account acct-1 --json";
    let made = sluice.command(words.split(' ')).finish().await.expect(0).value();
    let chat = made["value"].as_str().expect("it is shown once");

    // All are under way before the first answer is read.
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(send(&daemon, chat, "POST", "/v1/chat/completions", &streamed(), &[]).await);
    }
    let all_wait = poll(LIMIT, async || upstream.requests().len() >= running).await;
    assert!(all_wait, "{} of {running} chats work\n{}", upstream.requests().len(), daemon.process().stderr());
    assert_eq!(upstream.requests().len(), running, "the others wait in the queue");
    gate.open();
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
    // This host also builds and tests other things.
    all_answer(12, 4).await;
}

#[tokio::test]
#[ignore = "a hundred containers: make test-chat"]
async fn a_hundred_chats_work_at_once() {
    all_answer(100, 100).await;
}
