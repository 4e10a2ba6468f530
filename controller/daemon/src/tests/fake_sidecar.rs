//! The control socket of a sidecar, with answers that a test sets.

use std::path::Path;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};

/// The control socket of a sidecar. A drop ends it.
pub(crate) struct FakeSidecar {
    script: Arc<Mutex<Script>>,
    task: tokio::task::JoinHandle<()>,
}

struct Script {
    state: Value,
    held: Value,
    requests: Vec<(String, Value)>,
}

impl FakeSidecar {
    /// Listens at this path, with these caps and this usage.
    pub(crate) fn start(path: &Path, caps: Value, used: Value) -> Self {
        std::fs::create_dir_all(path.parent().expect("it is in a directory")).expect("there is room");
        let _ = std::fs::remove_file(path);
        let listener = UnixListener::bind(path).expect("the name is free");
        let mut all = json!({
            "calls": 0, "cost_usd": "0", "reserved_cost_usd": "0", "reserved_tokens": 0, "tokens": 0,
        });
        merge(&mut all, used);
        let mut in_force = json!({ "max_calls": null, "max_cost_usd": null, "max_tokens": null });
        merge(&mut in_force, caps);
        let state = json!({
            "caps": in_force, "used": all, "open_calls": 0, "held_calls": 0, "paused": false, "deadline": null,
            "draining": false,
        });
        let script = Arc::new(Mutex::new(Script { state, held: json!([]), requests: Vec::new() }));
        let served = Arc::clone(&script);
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let script = Arc::clone(&served);
                tokio::spawn(answer(stream, script));
            }
        });
        Self { script, task }
    }

    /// Sets the one call that waits.
    pub(crate) fn hold(&self, hold_id: &str, cause: &str, asked: &str) {
        let held = json!([{
            "hold_id": hold_id, "cause": cause, "asked": asked, "model": "m", "waiting": 1, "attempts": 1, "waited_ms": 5,
        }]);
        self.script.lock().expect("no test panics with it").held = held;
    }

    /// Returns the requests to this path, each with its body.
    pub(crate) fn requests(&self, path: &str) -> Vec<Value> {
        let script = self.script.lock().expect("no test panics with it");
        let of_path = script.requests.iter().filter(|(line, _)| line == path);
        of_path.map(|(_, body)| body.clone()).collect()
    }
}

impl Drop for FakeSidecar {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn merge(into: &mut Value, from: Value) {
    if let Value::Object(members) = from {
        members.into_iter().for_each(|(name, value)| into[name] = value);
    }
}

async fn answer(mut stream: UnixStream, script: Arc<Mutex<Script>>) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    let (line, body) = loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(());
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
        if body.len() >= length.unwrap_or_default() {
            let line = head.lines().next().unwrap_or_default().replace(" HTTP/1.1", "");
            break (line, body.to_owned());
        }
    };
    let answer = {
        let mut script = script.lock().expect("no test panics with it");
        let body: Value = serde_json::from_str(&body).unwrap_or_default();
        if line == "POST /caps" {
            let caps = ["max_calls", "max_tokens", "max_cost_usd"];
            let raised: Vec<_> = caps.iter().filter(|cap| !Value::is_null(&body[**cap])).collect();
            raised.into_iter().for_each(|cap| script.state["caps"][*cap] = body[*cap].clone());
        }
        script.requests.push((line.clone(), body));
        if line == "GET /held" { script.held.to_string() } else { script.state.to_string() }
    };
    stream.write_all(format!("HTTP/1.1 200 OK\r\n\r\n{answer}").as_bytes()).await
}
