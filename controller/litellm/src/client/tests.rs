use sluice_upstream::Upstream;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::*;

const KEY: &str = "sk-secret-0123456789";

/// Answers one request with these bytes; the task returns the request.
async fn answering(answer: &'static str) -> (Litellm, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let url = format!("http://{}/base/", listener.local_addr().expect("it is bound"));
    let served = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("a client connects");
        let mut request = vec![0; 4096];
        let read = stream.read(&mut request).await.expect("it can be read");
        stream.write_all(answer.as_bytes()).await.expect("it can be written");
        String::from_utf8_lossy(&request[..read]).into_owned()
    });
    (Litellm::new(&Upstream::at(url), ApiKey::new(KEY.into()).expect("a key")).expect("an address"), served)
}

#[tokio::test]
async fn the_key_is_sent_as_a_header() {
    let (litellm, served) = answering("HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"data\":[]}").await;

    let body = litellm.get("/model/info?x=1").await.expect("it answers");

    assert_eq!(body.as_slice(), b"{\"data\":[]}");
    let request = served.await.expect("it was asked");
    assert!(request.starts_with("GET /base/model/info?x=1 HTTP/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("authorization: Bearer {KEY}\r\n")), "{request}");
}

#[tokio::test]
async fn an_answer_without_a_length_ends_with_its_connection() {
    let (litellm, _served) = answering("HTTP/1.1 200 OK\r\n\r\n{}").await;
    assert_eq!(litellm.post("/key/delete", &["x"]).await.expect("it answers").as_slice(), b"{}");
}

#[tokio::test]
async fn a_failure_repeats_no_text_of_the_answer() {
    let rows = [
        ("HTTP/1.1 401 x\r\ncontent-length: 20\r\n\r\nsk-secret-0123456789", "Denied"),
        ("HTTP/1.1 302 x\r\nlocation: http://evil/\r\ncontent-length: 0\r\n\r\n", "Status"),
        ("HTTP/1.1 500 x\r\ncontent-length: 20\r\n\r\nsk-secret-0123456789", "Status"),
        ("HTTP/1.1 500 x\r\ncontent-length: 34\r\n\r\n{\"error\":\"DB not connected. See..\"}", "NoDatabase"),
        ("HTTP/1.1 500 x\r\ncontent-length: 35\r\n\r\n{\"error\":\"Database not connected.\"}", "NoDatabase"),
        ("HTTP/1.1 400 x\r\ncontent-length: 31\r\n\r\n{\"error\":\"No connected db. Sec\"}", "NotMaster"),
        ("HTTP/1.1 503 x\r\ncontent-length: 27\r\n\r\n{\"type\":\"no_db_connection\"}", "Status"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nsk-secret-0123456789", "Broken"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 45\r\n\r\nsk-secret-0123456789-------------------------", "TooLong"),
        ("sk-secret-0123456789 not HTTP at all\r\n\r\n", "Broken"),
        ("", "Broken"),
    ];
    for (answer, expected) in rows {
        let (litellm, _served) = answering(answer).await;
        let error = litellm.at_most(40).get("/model/info?secret").await.expect_err(answer);
        let text = format!("{error:?} {}", sluice_contract::text::error_chain(&error));
        assert!(text.starts_with(expected), "{expected}: {text}");
        assert!(text.contains("GET /model/info") && !text.contains("secret"), "{text}");
    }
}

#[test]
fn a_refusal_names_its_remedy() {
    let message =
        |status, text: &str| sluice_contract::text::error_chain(&failure("POST /key/generate".into(), status, text));
    let error = |message: &str, kind: &str| {
        serde_json::json!({"error": {"message": message, "type": kind, "param": null, "code": "422"}}).to_string()
    };
    let detail = |text: &str| serde_json::json!({"detail": {"error": text}}).to_string();
    let over = "is over max limit set in config - user_value=25.0; max_value=5.0";
    for (status, text, words) in [
        (
            422,
            error("Budget has been exceeded! Team=t-secret Current cost: 2, Max budget: 1", "budget_exceeded"),
            "the team of",
        ),
        (
            422,
            error("Budget has been exceeded! Team=t-secret Current cost: 2, Max budget: 1", "budget_exceeded"),
            "$2 spent",
        ),
        (422, error("Budget has been exceeded! Team=t-secret", "other"), "status 422"),
        (400, detail(&format!("max_budget {over}")), "max_budget in upperbound_key_generate_params"),
        (400, detail("max_budget (25.0) cannot exceed the caller's own max_budget (5.0)."), "of the key of key_file"),
        (400, detail(&format!("duration {over}")), "shorten --timeout"),
        (400, detail(&format!("rpm_limit {over}")), "upperbound_key_generate_params"),
        (403, detail("You must be a LiteLLM Enterprise user to use this feature. sk-secret"), "licence"),
        (400, detail("sk-secret"), "status 400"),
    ] {
        let said = message(status, &text);
        assert!(said.contains(words) && !said.contains("secret"), "{words}: {said}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_litellm_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("there is a port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let litellm = Litellm::new(&Upstream::at(&url), ApiKey::new(KEY.into()).expect("a key")).expect("an address");
    assert!(matches!(litellm.get("/model/info").await, Err(LitellmError::Late(..))));
    drop(listener);
    let unreachable = litellm.get("/model/info").await.expect_err("it is gone");
    assert!(matches!(unreachable, LitellmError::Unreachable(..)));
    assert!(unreachable.to_string().ends_with(&format!(" at {url} for GET /model/info")), "{unreachable}");
}

#[test]
fn an_error_never_repeats_a_password() {
    for url in ["http://me:pw-secret@host", "me:pw-secret@host", "http://me:pw/secret@host", "http://host/?k=secret"] {
        let error = Litellm::new(&Upstream::at(url), ApiKey::new(KEY.into()).expect("a key")).expect_err(url);
        let text = format!("{error:?} {}", sluice_contract::text::error_chain(&error));
        assert!(!text.contains("secret") && text.contains("host"), "{text}");
    }
}
