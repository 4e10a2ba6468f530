//! Sessions of chats: the workspace of a turn is the beginning of the next one.

use sluice_testkit::controller::Daemon;
use sluice_testkit::{PATIENCE, poll};

use super::chat::{rest, send};
use super::http::token;
use super::*;

/// An agent that works in its workspace: it adds its message to a file and prints the file. The message `fail` makes it
/// fail after that, and `hold` makes it wait for its end.
const AGENT: &str = r#"
model = "small"
[[agents]]
agentId = "sandbox:notes"
image = "sluice-runtime:latest"
argv = ["sh", "-c", 'for word; do :; done; case "$word" in *fail) word=fail ;; *hold) word=hold ;; *) word=${word##* } ;; esac; echo "$word" >> notes; tr "\n" " " < notes; case $word in fail) exit 3 ;; hold) touch held; sleep 600 ;; esac', "sh", "{message}"]
output = "plain"
"#;

async fn notes() -> (Sluice, Upstream) {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", AGENT);
    (sluice, upstream)
}

fn turn(word: &str, more: &Value) -> Value {
    let mut body = json!({ "model": "sandbox:notes", "messages": [{ "role": "user", "content": word }] });
    for (name, value) in more.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    body
}

/// Asks in the form of OpenAI, and returns status and answer.
async fn ask(daemon: &Daemon<'_>, token: &str, body: &Value, headers: &[(&str, &str)]) -> ClientAnswer {
    send(daemon, token, "POST", "/v1/chat/completions", body, headers).await.read_response().await
}

fn said(answer: ClientAnswer) -> String {
    let answer = answer.expect(200).json();
    answer["choices"][0]["message"]["content"].as_str().unwrap_or_default().trim().to_owned()
}

/// Directories of kept workspaces.
fn kept(sluice: &Sluice) -> usize {
    std::fs::read_dir(sluice.state().join("kept")).map_or(0, Iterator::count)
}

#[tokio::test]
async fn a_workspace_goes_on_in_its_session() {
    let (sluice, _upstream) = notes().await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let session = json!({ "session_id": "s1", "user": "ann" });

    assert_eq!(said(ask(&daemon, &chat, &turn("one", &session), &[]).await), "one");
    assert_eq!(said(ask(&daemon, &chat, &turn("two", &session), &[]).await), "one two");
    let failed = ask(&daemon, &chat, &turn("fail", &session), &[]).await;
    assert_eq!(failed.status, 500, "{}", failed.text());
    let in_metadata = json!({ "metadata": { "session_id": "s1", "user_id": "ann" } });
    let answer = said(ask(&daemon, &chat, &turn("three", &in_metadata), &[]).await);
    assert_eq!(answer, "one two three", "a turn that failed leaves no work");
    let headers = [("x-openwebui-chat-id", "s1"), ("x-openwebui-user-id", "ann")];
    assert_eq!(said(ask(&daemon, &chat, &turn("four", &Value::Null), &headers).await), "one two three four");
    assert_eq!(kept(&sluice), 1, "of a session, one workspace is kept");

    let events = json!({
        "agentId": "sandbox:notes", "messages": [{ "role": "user", "content": "five" }], "session_id": "s1",
        "metadata": { "user_id": "ann" }
    });
    let mut stream = send(&daemon, &chat, "POST", "/ai/chat", &events, &[]).await;
    assert_eq!(stream.read_head().await.status, 200);
    let (text, last, all) = rest(&mut stream).await;
    assert_eq!((text.trim(), last.as_str()), ("one two three four five", "done"), "{all:?}");

    let other = token(&sluice, "alice", "chat", "acct-1").await;
    for (token, more) in [
        (&other, session.clone()),
        (&chat, json!({ "session_id": "s1", "user": "bob" })),
        (&chat, json!({ "session_id": "s1" })),
        (&chat, json!({ "session_id": "s2", "user": "ann" })),
        (&chat, json!({ "user": "ann" })),
    ] {
        assert_eq!(said(ask(&daemon, token, &turn("mine", &more), &[]).await), "mine", "{more}");
    }
    assert_eq!(kept(&sluice), 5, "a chat without a session keeps nothing");

    daemon.kill().await;
    let daemon = sluice.serve().await;
    let answer = said(ask(&daemon, &chat, &turn("six", &session), &[]).await);
    assert_eq!(answer, "one two three four five six", "a restart loses no session");
    daemon.stop().await;
    std::fs::remove_dir_all(sluice.state().join("kept")).expect("we are root");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_session_has_one_turn_at_a_time() {
    let (sluice, _upstream) = notes().await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let session = json!({ "session_id": "s1" });
    said(ask(&daemon, &chat, &turn("one", &session), &[]).await);

    let mut live = json!({
        "agentId": "sandbox:notes", "messages": [{ "role": "user", "content": "hold" }], "session_id": "s1"
    });
    let mut stream = send(&daemon, &chat, "POST", "/ai/chat", &live, &[]).await;
    let head = stream.read_head().await;
    let id = head.header("x-sluice-run-id").expect("the run").to_owned();
    daemon.reaches(&id, "RUNNING").await;
    let busy = ask(&daemon, &chat, &turn("two", &session), &[]).await.expect(409);
    assert_eq!(busy.header("retry-after"), Some("2"));
    assert_eq!(busy.json()["error"]["code"], "session_busy");
    live["messages"][0]["content"] = json!("two");
    let busy = send(&daemon, &chat, "POST", "/ai/chat", &live, &[]).await.read_response().await;
    assert_eq!(busy.expect(409).json()["error"]["code"], "session_busy");
    assert_eq!(daemon.run(&id).await["state"], "RUNNING", "its client follows it");

    // A client that came back would have 30 seconds; a new turn of the session does not wait for that.
    drop(stream);
    let mut answer = None;
    let begun = poll(PATIENCE, async || {
        let asked = ask(&daemon, &chat, &turn("two", &session), &[]).await;
        let is_done = asked.status == 200;
        answer = is_done.then(|| said(asked));
        is_done
    });
    assert!(begun.await, "{}", daemon.process().stderr());
    assert_eq!(answer.as_deref(), Some("one two"), "the turn that was cancelled leaves no work");
    assert_eq!(daemon.run(&id).await["outcome"], "cancelled");
}

#[tokio::test]
async fn workspaces_of_sessions_are_bounded() {
    let (sluice, _upstream) = notes().await;
    sluice.file("sluice.toml", &format!("chat_session_max = 2\n{AGENT}"));
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let of = |name: &str| json!({ "session_id": name });
    for name in ["s1", "s2", "s1", "s3"] {
        said(ask(&daemon, &chat, &turn(name, &of(name)), &[]).await);
    }
    assert_eq!(kept(&sluice), 2);
    assert_eq!(said(ask(&daemon, &chat, &turn("again", &of("s1")), &[]).await), "s1 s1 again");
    assert_eq!(said(ask(&daemon, &chat, &turn("again", &of("s2")), &[]).await), "again", "it was the longest unused");
    daemon.stop().await;

    sluice.file("sluice.toml", &format!("chat_session = \"none\"\n{AGENT}"));
    let daemon = sluice.serve().await;
    assert_eq!(said(ask(&daemon, &chat, &turn("new", &of("s1")), &[]).await), "new");
}

#[tokio::test]
async fn names_of_users_may_have_any_letter() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = chat::sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let mut body = turn("hi", &json!({ "user": "Åsa 50%", "session_id": "日" }));
    body["model"] = json!("sandbox:agent");

    let answer = ask(&daemon, &chat, &body, &[]).await.expect(200);

    let id = answer.header("x-sluice-run-id").expect("the run").to_owned();
    let metadata = &daemon.run(&id).await["metadata"];
    assert_eq!((&metadata["user_id"], &metadata["session_id"]), (&json!("%C3%85sa%2050%25"), &json!("%E6%97%A5")));
    let path = format!("/ai/runs/{id}/stream?user_id=%C3%85sa%2050%25");
    let head = send(&daemon, &chat, "GET", &path, &Value::Null, &[]).await.read_head().await;
    assert_eq!(head.status, 200);
    for wrong in ["a\nb", " Åsa"] {
        body["user"] = json!(wrong);
        let refused = ask(&daemon, &chat, &body, &[]).await.expect(400).json();
        assert!(refused["error"]["param"].as_str().is_some_and(|param| param.ends_with("user_id")), "{refused}");
    }
}
