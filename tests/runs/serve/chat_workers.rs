//! Sessions of chats with an agent that lives between the turns: the image's worker gets each later turn as a message.

use sluice_testkit::client::RawClient;
use sluice_testkit::controller::Daemon;
use sluice_testkit::upstream::Script;
use sluice_testkit::{Gate, PATIENCE, poll};

use super::chat::{rest, send};
use super::http::token;
use super::*;

/// An agent that the image's worker starts in place of Claude Code, with the same streams: it asks the model for each
/// turn, and prints all earlier messages from its memory and from a file of its workspace.
const AGENT: &str = r#"
model = "small"
chat_session = "worker"
[[agents]]
agentId = "sandbox:memory"
image = "sluice-runtime:latest"
argv = ["sh", "-c", 'printf %s "$PROGRAM" > /tmp/agent.mjs; exec sluice-worker claude --program node /tmp/agent.mjs -- "$1"', "sh", "{message}"]
output = "plain"
[agents.env]
PROGRAM = '''
import { appendFileSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
const tell = (item) => process.stdout.write(JSON.stringify({ session_id: "s", ...item }) + "\n");
const memory = [];
let call, last = Promise.resolve();
async function turn({ message, uuid }) {
  const word = message.content.split(/\s/).at(-1);
  tell({ type: "system", subtype: "init" });
  tell({ type: "user", isReplay: true, uuid, message });
  memory.push(word);
  appendFileSync("notes", word + " ");
  call = new AbortController();
  const body = JSON.stringify({ model: "small", messages: [{ role: "user", content: word }] });
  const request = { method: "POST", headers: { "content-type": "application/json" }, body, signal: call.signal };
  try {
    const answer = await fetch(process.env.OPENAI_BASE_URL + "/chat/completions", request).then((all) => all.json());
    const text = answer.choices[0].message.content + " " + memory.join("+") + " of " + readFileSync("notes", "utf8").trim();
    tell({ type: "assistant", message: { content: [{ type: "text", text }] } });
    tell({ type: "result", subtype: "success", is_error: false, result: text });
  } catch (error) {
    tell({ type: "result", subtype: "error_during_execution", is_error: true, result: String(error) });
  }
}
createInterface({ input: process.stdin }).on("line", (line) => {
  const item = JSON.parse(line);
  if (item.type === "user") last = last.then(() => turn(item));
  else if (item.request?.subtype === "interrupt") call?.abort();
}).on("close", () => last.then(() => process.exit(0)));
'''
"#;

async fn memory(settings: &str) -> (Sluice, Upstream) {
    memory_behind(&Gate::new(), settings).await
}

/// Prepares the agent and its upstream; turns that wait for their model go on when the gate opens.
async fn memory_behind(gate: &Gate, settings: &str) -> (Sluice, Upstream) {
    let gate = gate.clone();
    let upstream = Upstream::with(move |request| {
        let answer = Script::provider("ok");
        if request.text().contains("hold") { answer.hold_head(&gate) } else { answer }
    });
    let upstream = upstream.start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &format!("{settings}\n{AGENT}"));
    (sluice, upstream)
}

fn turn(word: &str, session: &str) -> Value {
    let earlier = json!({ "role": "user", "content": "earlier" });
    let messages = json!([earlier, { "role": "assistant", "content": "x" }, { "role": "user", "content": word }]);
    json!({ "model": "sandbox:memory", "session_id": session, "messages": messages })
}

async fn ask(daemon: &Daemon<'_>, token: &str, body: &Value) -> ClientAnswer {
    send(daemon, token, "POST", "/v1/chat/completions", body, &[]).await.read_response().await
}

/// Text and run of an answer.
fn said(answer: ClientAnswer) -> (String, String) {
    let answer = answer.expect(200);
    let run = answer.header("x-sluice-run-id").expect("the run").to_owned();
    let json = answer.json();
    let text = json["choices"][0]["message"]["content"].as_str().unwrap_or_default();
    // The text comes from the program's output, which ends with a newline, or from its events, whichever came first.
    (text.trim_end().to_owned(), run)
}

/// Asks until the session is not busy any more.
async fn ask_again(daemon: &Daemon<'_>, token: &str, body: &Value) -> (String, String) {
    let mut answer = None;
    let begun = poll(PATIENCE, async || {
        let asked = ask(daemon, token, body).await;
        let is_done = asked.status != 409;
        answer = is_done.then(|| said(asked));
        is_done
    });
    assert!(begun.await, "{}", daemon.process().stderr());
    answer.expect("it was asked")
}

/// Begins a turn that waits for its model.
async fn hold(daemon: &Daemon<'_>, upstream: &Upstream, token: &str, session: &str) -> (RawClient, String) {
    let before = upstream.requests().len();
    let mut body = turn("hold", session);
    body["stream"] = json!(true);
    let mut stream = send(daemon, token, "POST", "/v1/chat/completions", &body, &[]).await;
    let id = stream.read_head().await.header("x-sluice-run-id").expect("the run").to_owned();
    let asked = poll(PATIENCE, async || upstream.requests().len() > before);
    assert!(asked.await, "{}", daemon.process().stderr());
    (stream, id)
}

#[tokio::test]
async fn turns_of_a_session_go_to_one_worker() {
    let (sluice, upstream) = memory("").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;

    let (opening, key) = (turn("one", "s1"), [("idempotency-key", "k0")]);
    let open =
        async || send(&daemon, &chat, "POST", "/v1/chat/completions", &opening, &key).await.read_response().await;
    let first = open().await.expect(200);
    let usage = first.json()["usage"].clone();
    let (text, run) = said(first);
    assert_eq!(text, "ok one of one");
    let second = ask(&daemon, &chat, &turn("two", "s1")).await.expect(200);
    assert!(usage["total_tokens"].as_u64() > Some(0), "{usage}");
    assert_eq!(second.json()["usage"], usage, "each turn has one call");
    assert_eq!(second.json()["id"], json!(format!("chatcmpl-{run}-2")));
    assert_eq!(said(second), ("ok one+two of one two".to_owned(), run.clone()));
    assert_eq!(daemon.run(&run).await["state"], "RUNNING");

    let body = json!({ "agentId": "sandbox:memory", "session_id": "s1", "messages": turn("three", "s1")["messages"] });
    let headers = [("idempotency-key", "k1")];
    let mut stream = send(&daemon, &chat, "POST", "/ai/chat", &body, &headers).await;
    assert_eq!(stream.read_head().await.status, 200);
    let (text, last, all) = rest(&mut stream).await;
    assert_eq!((text.as_str(), last.as_str()), ("ok one+two+three of one two three", "done"), "{all:?}");
    let mut again = send(&daemon, &chat, "POST", "/ai/chat", &body, &headers).await;
    assert_eq!(again.read_head().await.header("x-sluice-run-id"), Some(run.as_str()));
    assert_eq!(rest(&mut again).await.0, text, "a repeated request follows the same turn");
    assert_eq!(said(open().await), ("ok one of one".to_owned(), run.clone()), "of several");
    let path = format!("/ai/runs/{run}/stream");
    let mut resumed = send(&daemon, &chat, "GET", &path, &Value::Null, &[]).await;
    assert_eq!(resumed.read_head().await.status, 200);
    assert_eq!(rest(&mut resumed).await.0, text, "the newest turn is resumed");

    let (text, other) = said(ask(&daemon, &chat, &turn("mine", "s2")).await);
    assert_eq!(text, "ok mine of mine");
    assert_ne!(other, run);
    let mut image = turn("x", "s1");
    image["messages"][2]["content"] =
        json!([{ "type": "image_url", "image_url": { "url": "data:image/png;base64,AA==" } }]);
    ask(&daemon, &chat, &image).await.expect(400);
    assert_eq!(upstream.requests().len(), 4);
}

#[tokio::test]
async fn a_client_that_hangs_up_interrupts_its_turn() {
    let (sluice, upstream) = memory("").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let (_, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);

    let (stream, held) = hold(&daemon, &upstream, &chat, "s1").await;
    assert_eq!(held, run);
    let busy = ask(&daemon, &chat, &turn("two", "s1")).await.expect(409);
    assert_eq!(busy.json()["error"]["code"], "session_busy");
    drop(stream);

    let answer = ask_again(&daemon, &chat, &turn("two", "s1")).await;
    assert_eq!(answer, ("ok one+hold+two of one hold two".to_owned(), run.clone()), "its worker lives");
    let interrupted = daemon.events(&run).await;
    let interrupted = interrupted.iter().filter(|event| event["event_type"] == "agent.interrupted");
    assert_eq!(interrupted.count(), 1);

    let (stream, first) = hold(&daemon, &upstream, &chat, "s2").await;
    drop(stream);
    let answer = ask_again(&daemon, &chat, &turn("two", "s2")).await;
    assert_eq!(answer, ("ok hold+two of hold two".to_owned(), first), "a first turn is interrupted, too");
}

#[tokio::test]
async fn a_worker_ends_when_no_turn_comes() {
    let (sluice, _upstream) = memory("chat_session_idle = \"1s\"").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;

    let (_, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);
    let ended = daemon.reaches(&run, "COMPLETED").await;
    assert_eq!((&ended["outcome"], &ended["exit_code"]), (&json!("success"), &json!(0)), "{ended}");
    let (text, next) = said(ask(&daemon, &chat, &turn("two", "s1")).await);

    assert_eq!(text, "ok two of one two", "another worker begins with the workspace");
    assert_ne!(next, run);
    daemon.reaches(&next, "COMPLETED").await;
    daemon.stop().await;
    std::fs::remove_dir_all(sluice.state().join("kept")).expect("we are root");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_token_has_so_many_workers() {
    let (sluice, upstream) = memory("chat_session_max = 1").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let other = token(&sluice, "alice", "chat", "acct-1").await;

    let (_, of_other) = said(ask(&daemon, &other, &turn("one", "s1")).await);
    let (_, first) = said(ask(&daemon, &chat, &turn("one", "s1")).await);
    let (stream, second) = hold(&daemon, &upstream, &chat, "s2").await;
    let ended = daemon.reaches(&first, "COMPLETED").await;
    assert_eq!(ended["outcome"], "success", "{ended}");
    let full = ask(&daemon, &chat, &turn("one", "s3")).await.expect(429);
    assert_eq!(full.json()["error"]["code"], "too_many_workers");

    assert_eq!(daemon.run(&second).await["state"], "RUNNING");
    assert_eq!(daemon.run(&of_other).await["state"], "RUNNING", "the limit is that of a token");
    drop(stream);
}

#[tokio::test]
async fn an_idle_worker_gives_way_to_other_runs() {
    let (sluice, _upstream) = memory("max_running = 1").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;

    let (_, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);
    let other = daemon.create(shell("true")).await;
    daemon.reaches(&other, "COMPLETED").await;

    assert_eq!(daemon.run(&run).await["outcome"], "success");
}

#[tokio::test]
async fn a_worker_outlives_a_daemon_that_is_killed() {
    let (sluice, _upstream) = memory("").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let (_, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);

    daemon.kill().await;
    let daemon = sluice.serve().await;
    let (text, next) = said(ask(&daemon, &chat, &turn("two", "s1")).await);

    assert_eq!((text.as_str(), &next), ("ok one+two of one two", &run));
    daemon.stop().await;
    // Sessions of the kind `workspace` have no workers, so live workers end.
    sluice.file("sluice.toml", &AGENT.replace("\"worker\"", "\"workspace\""));
    let daemon = sluice.serve().await;
    assert_eq!(daemon.reaches(&run, "COMPLETED").await["outcome"], "success");
    assert_eq!(said(ask(&daemon, &chat, &turn("three", "s1")).await).0, "ok three of one two three");
}

#[tokio::test]
async fn a_turn_outlives_a_daemon_that_is_killed() {
    let gate = Gate::new();
    let (sluice, upstream) = memory_behind(&gate, "").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let (_, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);
    let (stream, held) = hold(&daemon, &upstream, &chat, "s1").await;
    assert_eq!(held, run);

    daemon.kill().await;
    drop(stream);
    let daemon = sluice.serve().await;
    let path = format!("/ai/runs/{run}/stream");
    let mut resumed = send(&daemon, &chat, "GET", &path, &Value::Null, &[]).await;
    assert_eq!(resumed.read_head().await.status, 200);
    gate.open();

    let (text, last, all) = rest(&mut resumed).await;
    assert_eq!((text.as_str(), last.as_str()), ("ok one+hold of one hold", "done"), "{all:?}");
    drop(resumed);
    let answer = ask_again(&daemon, &chat, &turn("two", "s1")).await;
    assert_eq!(answer, ("ok one+hold+two of one hold two".to_owned(), run));
    assert_eq!(upstream.requests().len(), 3, "each turn was worked on once");
}

#[tokio::test]
async fn a_turn_without_its_client_ends_after_a_kill() {
    let (sluice, upstream) = memory("").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let (stream, run) = hold(&daemon, &upstream, &chat, "s1").await;

    daemon.kill().await;
    drop(stream);
    let daemon = sluice.serve().await;

    let answer = ask_again(&daemon, &chat, &turn("two", "s1")).await;
    assert_eq!(answer, ("ok hold+two of hold two".to_owned(), run.clone()), "its worker lives");
    let events = daemon.events(&run).await;
    let interrupted = events.iter().filter(|event| event["event_type"] == "agent.interrupted");
    assert_eq!(interrupted.count(), 1);
}

#[tokio::test]
async fn a_cancelled_worker_hands_on_its_workspace() {
    let (sluice, upstream) = memory("").await;
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let (_, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);
    let (stream, _) = hold(&daemon, &upstream, &chat, "s1").await;

    daemon.request("DELETE", &format!("/api/v1/sandboxes/{run}"), &Value::Null).await.expect(202);
    assert_eq!(daemon.reaches(&run, "COMPLETED").await["outcome"], "cancelled");
    drop(stream);
    let (text, next) = said(ask(&daemon, &chat, &turn("two", "s1")).await);

    assert_eq!(text, "ok two of one hold two", "an answer of it was given");
    assert_ne!(next, run);
}

#[tokio::test]
async fn an_agent_without_a_worker_hands_on_its_workspace() {
    let (sluice, _upstream) = memory("").await;
    let plain = r#"["sh", "-c", 'echo x >> notes; grep -c x notes', "sh", "{message}"]"#;
    let begin = AGENT.find("argv = ").expect("it has one");
    let end = AGENT.find("output").expect("it has one");
    sluice.file("sluice.toml", &format!("{}argv = {plain}\n{}", &AGENT[..begin], &AGENT[end..]));
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;

    let (text, run) = said(ask(&daemon, &chat, &turn("one", "s1")).await);
    assert_eq!((text.trim(), &daemon.run(&run).await["state"]), ("1", &json!("COMPLETED")));
    let (text, next) = said(ask(&daemon, &chat, &turn("two", "s1")).await);
    assert_eq!(text.trim(), "2");
    assert_ne!(next, run);
}
