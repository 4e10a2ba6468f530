//! The control socket of a sidecar, as far as messages need it.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

/// A sidecar that accepts messages and interrupts, and reports the states of messages that a test sets.
pub(crate) struct FakeSidecar {
    state: Arc<Mutex<FakeState>>,
    serving: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct FakeState {
    messages: Vec<Value>,
    entries: Vec<Value>,
    interrupts: Vec<Value>,
    /// Beginning of the request lines that it does not answer.
    silent: Option<&'static str>,
    /// Beginning of the request lines that it refuses.
    refused: Option<&'static str>,
}

impl FakeSidecar {
    /// Listens at the control socket of a run.
    pub(crate) fn listen(control: &Path) -> Self {
        std::fs::create_dir_all(control.parent().expect("it is in a directory")).expect("there is room");
        let _ = std::fs::remove_file(control);
        let listener = UnixListener::bind(control).expect("the name is free");
        let state = Arc::new(Mutex::new(FakeState::default()));
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                answer(stream, &shared).await;
            }
        });
        Self { state, serving }
    }

    /// Returns the texts of the messages that it has for the next call.
    pub(crate) fn contents(&self) -> Vec<String> {
        let state = self.state.lock().expect("nothing panics");
        state.messages.iter().filter_map(|message| message["content"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the interruptions.
    pub(crate) fn interrupts(&self) -> Vec<Value> {
        self.state.lock().expect("nothing panics").interrupts.clone()
    }

    /// Stops answering requests whose lines begin with this text; `None` answers all again.
    pub(crate) fn silence(&self, line: Option<&'static str>) {
        self.state.lock().expect("nothing panics").silent = line;
    }

    /// Refuses requests whose lines begin with this text; `None` refuses none.
    pub(crate) fn refuse(&self, line: Option<&'static str>) {
        self.state.lock().expect("nothing panics").refused = line;
    }

    /// Reports a step of a message.
    pub(crate) fn report(&self, message_id: &str, status: &str) {
        let mut state = self.state.lock().expect("nothing panics");
        let number = state.entries.len() + 1;
        let anchor = json!({ "chain": "c", "item": "i" });
        state.entries.push(json!({
            "number": number, "message_id": message_id, "status": status, "call_id": "call-1", "anchor": anchor
        }));
    }
}

impl Drop for FakeSidecar {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn answer(mut stream: UnixStream, state: &Mutex<FakeState>) {
    let mut bytes = Vec::new();
    let (head, body) = loop {
        let mut piece = [0; 4096];
        let len = stream.read(&mut piece).await.unwrap_or_default();
        bytes.extend_from_slice(&piece[..len]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
            if body.len() >= length.and_then(|length| length.parse().ok()).unwrap_or(0) {
                break (head.to_owned(), body.to_owned());
            }
        }
        if len == 0 {
            return;
        }
    };
    let (status, answer) = {
        let mut state = state.lock().expect("nothing panics");
        if state.silent.is_some_and(|line| head.starts_with(line)) {
            return;
        }
        if state.refused.is_some_and(|line| head.starts_with(line)) {
            ("503 Unavailable", r#"{"error":{"code":"draining","message":"no"}}"#.to_owned())
        } else {
            ("200 OK", respond(&head, &body, &mut state))
        }
    };
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{answer}", answer.len());
    let _ = stream.write_all(text.as_bytes()).await;
}

fn respond(head: &str, body: &str, state: &mut FakeState) -> String {
    let value = || serde_json::from_str::<Value>(body).expect("it is JSON");
    let line = head.lines().next().unwrap_or_default();
    if line.starts_with("PUT /inject ") {
        state.messages = value()["messages"].as_array().expect("a list").clone();
        return "{}".to_owned();
    }
    if line.starts_with("POST /interrupt ") {
        state.interrupts.push(value());
        return "{}".to_owned();
    }
    let after = line.split("/injected?after=").nth(1).and_then(|rest| rest.split(' ').next());
    let after: u64 = after.and_then(|after| after.parse().ok()).unwrap_or_else(|| panic!("{line}"));
    let entries = state.entries.iter().filter(|entry| entry["number"].as_u64() > Some(after));
    json!({ "entries": entries.collect::<Vec<_>>() }).to_string()
}

/// Waits until a condition is true.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut is_so: impl FnMut() -> F) {
    let begun = Instant::now();
    while !is_so().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
