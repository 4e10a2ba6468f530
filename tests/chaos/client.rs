//! The client that is killed: it makes several calls at once until its end, and records each complete answer.
//!
//! A hidden subcommand of this program, so that it is a separate process.

use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use serde::de::IgnoredAny;
use serde_json::json;
use sluice_testkit::http1::{Body, find, first, take_head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::LocalSet;

use crate::answers::{Route, text};
use crate::fault::ChaosFault;
use crate::random::pick;
use crate::record::CallRecord;
use crate::single_threaded;
use fastrand::Rng;

/// Pause before the next attempt when the sidecar or its upstream is down.
const AGAIN: Duration = Duration::from_millis(2);

/// Makes calls until it or its parent is killed.
pub(crate) fn drive(socket: &str, record: &str, run: &str, seed: &str, workers: &str) -> Result<(), ChaosFault> {
    crate::process::die_with_parent()?;
    let record = Rc::new(CallRecord::open(Path::new(record))?);
    let (mut seed, workers): (Rng, u64) = (Rng::with_seed(seed.parse()?), workers.parse()?);
    let tasks = LocalSet::new();
    for _ in 0..workers {
        let random = seed.fork();
        let worker = Worker { socket: socket.into(), run: run.to_owned(), record: Rc::clone(&record), random };
        tasks.spawn_local(worker.work());
    }
    single_threaded()?.block_on(tasks);
    Ok(())
}

struct Worker {
    socket: PathBuf,
    run: String,
    record: Rc<CallRecord>,
    random: Rng,
}

/// A call as it is made.
struct ClientCall {
    route: Route,
    is_stream: bool,
    /// The client hangs up in the middle.
    leaves: bool,
    bytes: Vec<u8>,
}

impl Worker {
    async fn work(mut self) {
        loop {
            let Ok(mut stream) = UnixStream::connect(&self.socket).await else {
                tokio::time::sleep(AGAIN).await;
                continue;
            };
            for _ in 0..1 + self.random.u64(..6) {
                let call = self.call();
                // An error means that the sidecar was killed.
                if !self.exchange(&mut stream, &call).await.unwrap_or(false) {
                    break;
                }
            }
        }
    }

    fn call(&mut self) -> ClientCall {
        let route = pick(&mut self.random, &Route::ALL);
        let is_stream = self.random.u64(..3) > 0;
        let words = text(pick(&mut self.random, &[10, 10, 1_000, 30_000]));
        let mut body = match route {
            Route::Chat => json!({"model": "m", "messages": [{"role": "user", "content": words}]}),
            Route::Responses => json!({"model": "m", "input": words}),
            Route::Messages => {
                json!({"model": "m", "max_tokens": 64, "messages": [{"role": "user", "content": words}]})
            }
        };
        if is_stream {
            body["stream"] = json!(true);
        }
        let body = body.to_string();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            route.path(),
            body.len()
        );
        ClientCall { route, is_stream, leaves: self.random.u64(..24) == 0, bytes: (head + &body).into_bytes() }
    }

    /// Makes one call. Returns false if no other call can follow on this connection.
    async fn exchange(&mut self, stream: &mut UnixStream, call: &ClientCall) -> io::Result<bool> {
        stream.write_all(&call.bytes).await?;
        let mut input = BytesMut::new();
        let head = loop {
            match take_head(&mut input) {
                Err(fault) => return self.refuse(&format!("malformed answer head: {fault}")),
                Ok(Some(head)) => break head,
                Ok(None) if stream.read_buf(&mut input).await? == 0 => return Ok(false),
                Ok(None) => {}
            }
        };
        let status = head.first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let mut body = match Body::of_response(status, &head.headers) {
            Ok(body) => body,
            Err(fault) => return self.refuse(&fault),
        };
        let call_id = first(&head.headers, "x-litellm-call-id").unwrap_or_default();
        let (mut text, mut noted) = (Vec::new(), false);
        loop {
            let ended = match body.take(&mut input, &mut text) {
                Err(fault) => return self.refuse(&format!("malformed answer body: {fault}")),
                Ok(ended) => ended,
            };
            if status == 200 && !noted && is_complete(call, &text, ended) {
                noted = true;
                self.record.call(call_id, &self.run)?;
            }
            if ended && status == 200 && !noted {
                return self.refuse(&format!("an answer that ended without its end: {call_id}"));
            }
            if ended {
                if status != 200 {
                    tokio::time::sleep(AGAIN).await;
                }
                return Ok(true);
            }
            if call.leaves && !text.is_empty() {
                return Ok(false);
            }
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(false);
            }
        }
    }

    fn refuse(&self, what: &str) -> io::Result<bool> {
        self.record.fault(what);
        Ok(false)
    }
}

/// Returns true if the answer is complete, as far as an agent can see.
fn is_complete(call: &ClientCall, text: &[u8], ended: bool) -> bool {
    if call.is_stream {
        find(text, call.route.last_line().as_bytes()).is_some()
    } else {
        ended && serde_json::from_slice::<IgnoredAny>(text).is_ok()
    }
}
