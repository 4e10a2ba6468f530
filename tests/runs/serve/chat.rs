//! Chats with agents in sandboxes: the catalogue, both forms of an answer, and chats that lose their client.

use sluice_testkit::client::RawClient;
use sluice_testkit::controller::Daemon;
use sluice_testkit::upstream::Script;
use sluice_testkit::{PATIENCE, poll};

use super::http::token;
use super::*;

/// Settings with a model for agents.
const SETTINGS: &str = "model = \"small\"\n";

pub(super) fn sluice_to(upstream: &Upstream) -> Sluice {
    let sluice = Sluice::to(upstream);
    sluice.file("sluice.toml", SETTINGS);
    sluice
}

fn question(model: &str) -> Value {
    json!({ "model": model, "messages": [{ "role": "user", "content": "hi" }] })
}

pub(super) fn streamed() -> Value {
    let mut body = question("sandbox:agent");
    (body["stream"], body["stream_options"]) = (json!(true), json!({ "include_usage": true }));
    body
}

/// Sends a request to `api.sock` with a token.
pub(super) async fn send(
    daemon: &Daemon<'_>,
    token: &str,
    method: &str,
    path: &str,
    body: &Value,
    more: &[(&str, &str)],
) -> RawClient {
    let mut client = RawClient::connect(daemon.sockets().join("api.sock")).await.allowing_any();
    let bearer = format!("Bearer {token}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend_from_slice(more);
    let text = if body.is_null() { String::new() } else { body.to_string() };
    if !text.is_empty() {
        headers.push(("content-type", "application/json"));
    }
    client.send_request(method, path, &headers, text).await;
    client
}

async fn ask(daemon: &Daemon<'_>, token: &str, path: &str, body: &Value) -> ClientAnswer {
    send(daemon, token, "POST", path, body, &[]).await.read_response().await
}

/// The next event of a stream as its name, its id and its data; comments are skipped.
async fn next(client: &mut RawClient) -> Option<(String, String, Value)> {
    loop {
        let event = client.read_event().await?;
        let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned();
        let data = field("data: ");
        if !data.is_empty() {
            let value = serde_json::from_str(&data).unwrap_or(Value::String(data));
            return Some((field("event: "), field("id: "), value));
        }
    }
}

/// The text of a stream up to its end, and the name of the last event.
pub(super) async fn rest(client: &mut RawClient) -> (String, String, Vec<Value>) {
    let (mut text, mut last, mut all) = (String::new(), String::new(), Vec::new());
    while let Some((name, _, data)) = next(client).await {
        text += data["delta"].as_str().unwrap_or_default();
        text += data["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
        last = name;
        all.push(data);
    }
    (text, last, all)
}

#[tokio::test]
async fn an_agent_answers_as_a_model() {
    let upstream = Upstream::provider("hello ![x](https://e)").start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;

    let models =
        send(&daemon, &chat, "GET", "/v1/models", &Value::Null, &[]).await.read_response().await.expect(200).json();
    let ids: Vec<_> =
        models["data"].as_array().expect("a list").iter().filter_map(|model| model["id"].as_str()).collect();
    assert!(ids.contains(&"sandbox:agent") && ids.contains(&"sandbox:agent@small"), "{ids:?}");
    let agents =
        send(&daemon, &chat, "GET", "/ai/agents", &Value::Null, &[]).await.read_response().await.expect(200).json();
    assert_eq!(agents["defaultAgentId"], "sandbox:agent");

    let mut body = question("sandbox:agent@small");
    body["temperature"] = json!(0.1);
    let answer = ask(&daemon, &chat, "/v1/chat/completions", &body).await.expect(200);
    let id = answer.header("x-sluice-run-id").expect("the run").to_owned();
    assert_eq!(answer.header("x-sluice-ignored"), Some("temperature"));
    let answer = answer.json();
    let mut stream = send(&daemon, &chat, "POST", "/v1/chat/completions", &streamed(), &[]).await;
    assert_eq!(stream.read_head().await.status, 200);
    let (text, _, chunks) = rest(&mut stream).await;

    assert_eq!(answer["choices"][0]["message"]["content"], "hello !\\[x](https://e)");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(text, "hello !\\[x](https://e)");
    assert_eq!(chunks.last(), Some(&json!("[DONE]")));
    let usage = &chunks[chunks.len() - 2]["usage"];
    assert_eq!(usage, &answer["usage"]);
    let receipts = daemon.get(&format!("/api/v1/sandboxes/{id}/receipts")).await.expect(200).json();
    let receipt = &receipts["receipts"][0];
    assert!(answer["usage"]["total_tokens"].as_u64() > Some(0), "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], receipt["usage"]["output"], "{receipt}");
    assert_eq!(upstream.requests().len(), 2);
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn text_streams_while_the_agent_works() {
    let upstream = Upstream::chat_stream(["one ", "two"]).hold_after(1).start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;

    let mut stream = send(&daemon, &chat, "POST", "/v1/chat/completions", &streamed(), &[]).await;
    assert_eq!(stream.read_head().await.status, 200);
    let mut text = String::new();
    while text.is_empty() {
        let (_, _, chunk) = next(&mut stream).await.expect("it goes on");
        text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or_default();
    }
    assert_eq!(text, "one ", "the model has not said more");
    upstream.release();
    let (more, _, chunks) = rest(&mut stream).await;

    assert_eq!((more.as_str(), chunks.last()), ("two", Some(&json!("[DONE]"))));
}

#[tokio::test]
async fn a_chat_goes_on_after_its_daemon_was_killed() {
    let upstream = Upstream::chat_stream(["one ", "two"]).hold_after(1).start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let body =
        json!({ "agentId": "sandbox:agent", "messages": question("")["messages"], "metadata": { "user_id": "ann" } });

    let mut stream = send(&daemon, &chat, "POST", "/ai/chat", &body, &[]).await;
    let head = stream.read_head().await;
    let id = head.header("x-sluice-run-id").expect("the run").to_owned();
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    while seen.last().is_none_or(|(name, _)| name != "text_delta") {
        let (name, at, data) = next(&mut stream).await.expect("it goes on");
        cursor = at;
        seen.push((name, data));
    }
    daemon.kill().await;
    let daemon = sluice.serve().await;
    upstream.release();
    let path = format!("/ai/runs/{id}/stream?user_id=ann");
    let resume = async |cursor: &str| {
        let mut stream = send(&daemon, &chat, "GET", &path, &Value::Null, &[("last-event-id", cursor)]).await;
        assert_eq!(stream.read_head().await.status, 200);
        rest(&mut stream).await
    };
    let (text, last, all) = resume(&cursor).await;

    let shows_usage = |data: &Value| ["tokens", "usage", "cost"].iter().any(|word| data.to_string().contains(word));
    assert!(!seen.iter().any(|(_, data)| shows_usage(data)), "usage is not shown: {seen:?}");
    assert_eq!(seen.last().map(|(_, data)| data), Some(&json!({ "delta": "one " })));
    assert_eq!((text.as_str(), last.as_str()), ("two", "done"), "{all:?}");
    assert!(!all.iter().any(shows_usage), "usage is not shown: {all:?}");
    let (text, last, all) = resume("0-0").await;
    assert_eq!((text.as_str(), last.as_str()), ("one two", "done"), "the whole chat again");
    assert!(!all.iter().any(shows_usage), "usage is not shown: {all:?}");

    let other = token(&sluice, "alice", "chat", "acct-1").await;
    for (token, path) in [(&other, path.as_str()), (&chat, &format!("/ai/runs/{id}/stream"))] {
        send(&daemon, token, "GET", path, &Value::Null, &[]).await.read_response().await.expect(404);
    }
    let run = daemon.run(&id).await;
    assert_eq!((&run["outcome"], &run["attempt"]), (&json!("success"), &json!(0)), "{run}");
}

#[tokio::test]
async fn a_client_that_hangs_up_ends_its_run() {
    let upstream = Upstream::never().start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    for body in [streamed(), question("sandbox:agent")] {
        let before = upstream.begun();
        let client = send(&daemon, &chat, "POST", "/v1/chat/completions", &body, &[]).await;
        assert!(poll(PATIENCE, async || upstream.begun() > before).await, "the agent asks its model");

        drop(client);
        let listed = async || daemon.get("/api/v1/sandboxes").await.expect(200).json()["sandboxes"][0].clone();
        let ended = poll(PATIENCE, async || listed().await["state"] == "COMPLETED").await;

        let run = listed().await;
        assert!(ended, "{run}\n{}", daemon.process().stderr());
        assert_eq!((&run["outcome"], &run["owner_id"]), (&json!("cancelled"), &json!("alice")), "{run}");
    }
}

#[tokio::test]
async fn a_key_runs_the_agent_once() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let with_key = async |body: &Value| {
        let key = [("idempotency-key", "k1")];
        send(&daemon, &chat, "POST", "/v1/chat/completions", body, &key).await.read_response().await
    };

    let first = with_key(&question("sandbox:agent")).await.expect(200);
    let again = with_key(&question("sandbox:agent")).await.expect(200);
    let other = with_key(&question("sandbox:agent@small")).await.expect(409).json();
    let of_user = [("idempotency-key", "k1"), ("x-openwebui-user-id", "bob")];
    let mut sent = send(&daemon, &chat, "POST", "/v1/chat/completions", &question("sandbox:agent"), &of_user).await;
    sent.read_response().await.expect(409);

    assert_eq!(first.header("x-sluice-run-id"), again.header("x-sluice-run-id"));
    assert_eq!(first.json()["choices"], again.json()["choices"]);
    assert_eq!(
        (&other["error"]["code"], &other["error"]["type"]),
        (&json!("idempotency_conflict"), &json!("invalid_request_error"))
    );
    assert_eq!(upstream.requests().len(), 1);
}

#[tokio::test]
async fn failures_and_refusals_have_their_status() {
    let upstream = Upstream::answering(Script::json(503, json!({ "error": { "message": "down" } }))).start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let chat = token(&sluice, "alice", "chat", "acct-1").await;
    let with = |name: &str, value: Value| {
        let mut body = question("sandbox:agent");
        body[name] = value;
        body
    };

    let failed = ask(&daemon, &chat, "/v1/chat/completions", &question("sandbox:agent")).await.expect(503);
    assert_eq!(failed.header("x-should-retry"), Some("false"), "a client must not run the agent again by itself");
    assert_eq!(failed.json()["error"]["code"], "provider_unavailable");
    let mut stream =
        send(&daemon, &chat, "POST", "/ai/chat", &json!({ "messages": question("")["messages"] }), &[]).await;
    stream.read_head().await;
    let (_, last, all) = rest(&mut stream).await;
    assert_eq!((last.as_str(), &all[all.len() - 2]["error"]), ("done", &json!("provider_unavailable")), "{all:?}");

    for (body, status, code, param) in [
        (with("n", json!(2)), 400, "unsupported_parameter", "n"),
        (with("tool_choice", json!("required")), 400, "unsupported_parameter", "tool_choice"),
        (with("model", json!("sandbox:nobody")), 404, "not_found", "model"),
        (with("model", json!("sandbox:agent@large")), 404, "not_found", "model"),
        (with("user", json!("")), 400, "invalid_request", "user_id"),
    ] {
        let refused = ask(&daemon, &chat, "/v1/chat/completions", &body).await.expect(status).json();
        assert_eq!((&refused["error"]["code"], &refused["error"]["param"]), (&json!(code), &json!(param)), "{refused}");
    }
    let unknown = ask(&daemon, &chat, "/ai/chat", &json!({ "messages": [], "more": 1 })).await.expect(400).json();
    assert_eq!(unknown["error"]["details"]["field"], "more");
    let refused = ask(&daemon, "slu_none", "/v1/chat/completions", &streamed()).await.expect(401).json();
    assert_eq!(refused["error"]["type"], "authentication_error");
}

#[tokio::test]
async fn a_chat_token_has_chats_alone_and_caps() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = sluice_to(&upstream);
    let daemon = sluice.serve().await;
    let words = "token create --owner alice --role chat --account acct-1 --runs-per-day 1 --json";
    let made = sluice.command(words.split(' ')).finish().await.expect(0).value();
    assert_eq!((&made["tokens"][0]["runs_per_day"], &made["tokens"][0]["cost_per_day_usd"]), (&json!(1), &Value::Null));
    let chat = made["value"].as_str().expect("it is shown once");
    let viewer = token(&sluice, "alice", "viewer", "acct-1").await;

    let answered = ask(&daemon, chat, "/v1/chat/completions", &question("sandbox:agent")).await.expect(200);
    let spent = ask(&daemon, chat, "/v1/chat/completions", &question("sandbox:agent")).await.expect(429);
    assert_eq!(spent.json()["error"]["code"], "chat_runs_spent");
    let id = answered.header("x-sluice-run-id").expect("the run").to_owned();
    for path in ["/api/v1/sandboxes".to_owned(), format!("/api/v1/sandboxes/{id}"), "/api/v1/receipts".to_owned()] {
        send(&daemon, chat, "GET", &path, &Value::Null, &[]).await.read_response().await.expect(403);
    }
    ask(&daemon, &viewer, "/v1/chat/completions", &question("sandbox:agent")).await.expect(403);
    let refused =
        sluice.command(["token", "create", "--owner", "a", "--role", "admin", "--runs-per-day", "1"]).finish().await;
    refused.expect(2);
    let off = sluice.serve_switched_off();
    drop(daemon);
    let daemon = off.await;
    let listed =
        send(&daemon, chat, "GET", "/v1/models", &Value::Null, &[]).await.read_response().await.expect(200).json();
    assert_eq!(listed["data"], json!([]));
    ask(&daemon, chat, "/v1/chat/completions", &question("sandbox:agent")).await.expect(503);
}
