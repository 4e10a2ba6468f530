//! A proxy of the engine that stops at one request, so that a test can act at exactly that moment, or has requests refused.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinHandle, JoinSet};

use crate::scratch::TempDir;
use crate::upstream::Gate;

const ENGINE: &str = "/var/run/docker.sock";

/// A socket that leads to the engine; one request stops before the engine sees it, or before its answer is seen.
#[derive(Debug)]
pub struct Hold {
    dir: TempDir,
    gate: Gate,
    answered: Gate,
    cut: Gate,
    refuses: Arc<AtomicBool>,
    accepting: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Where {
    Request,
    Answer,
    /// All requests are refused.
    Refused,
}

#[derive(Debug)]
struct HoldState {
    needle: String,
    place: Where,
    gate: Gate,
    /// Holds the first such request; later ones pass.
    armed: AtomicBool,
    /// Has all such requests refused, until the release.
    refuses: Arc<AtomicBool>,
    answered: Gate,
    cut: Gate,
}

impl Hold {
    /// Holds the first request whose first line contains `needle`, such as `/containers/create`: the engine does not
    /// see it before [`Hold::release`]. Then it sees the request even if the client has gone, as with a request that is
    /// under way.
    pub fn request(needle: &str) -> Self {
        Self::new(needle, Where::Request)
    }

    /// Lets the first such request through, and holds the engine's answer.
    pub fn answer(needle: &str) -> Self {
        Self::new(needle, Where::Answer)
    }

    /// Makes the engine refuse each such request before [`Hold::release`]: the engine gets the request with a version
    /// of the API that it lacks.
    pub fn refused(needle: &str) -> Self {
        let hold = Self::new(needle, Where::Refused);
        hold.gate.open();
        hold
    }

    fn new(needle: &str, place: Where) -> Self {
        let (dir, gate, answered, cut) = (TempDir::new(), Gate::new(), Gate::new(), Gate::new());
        answered.open();
        let listener = UnixListener::bind(dir.join("docker.sock")).expect("a fresh directory takes a socket");
        let refuses = Arc::new(AtomicBool::new(place == Where::Refused));
        let watch = HoldState {
            needle: needle.to_owned(),
            place,
            gate: gate.clone(),
            armed: AtomicBool::new(place != Where::Refused),
            refuses: Arc::clone(&refuses),
            answered: answered.clone(),
            cut: cut.clone(),
        };
        Self { dir, gate, answered, cut, refuses, accepting: tokio::spawn(accept(listener, Arc::new(watch))) }
    }

    /// The value of `--docker-host`.
    pub fn host(&self) -> String {
        format!("unix://{}", self.dir.join("docker.sock").display())
    }

    /// Waits until this number of requests was refused.
    pub async fn has_refused(&self, requests: usize) {
        self.gate.reached(requests).await;
    }

    /// Waits until the request, or its answer, is held.
    pub async fn held(&self) {
        self.gate.reached(1).await;
    }

    /// Waits until the engine has answered the request.
    pub async fn answered(&self) {
        self.answered.reached(1).await;
    }

    /// Ends the connection on which the request came; its client gets nothing more from the engine on it, and no held answer.
    pub fn cut(&self) {
        self.cut.open();
    }

    /// Lets the held request or answer pass, and ends refusals.
    pub fn release(&self) {
        self.refuses.store(false, Ordering::SeqCst);
        self.gate.open();
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: UnixListener, watch: Arc<HoldState>) {
    // Aborted with this task.
    let mut relays = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let engine = UnixStream::connect(Path::new(ENGINE)).await.expect("the engine runs");
        let ((from_client, to_client), (from_engine, to_engine)) = (client.into_split(), engine.into_split());
        let asked = Arc::new(AtomicBool::new(false));
        relays.spawn(requests(from_client, to_engine, Arc::clone(&watch), Arc::clone(&asked)));
        relays.spawn(answers(from_engine, to_client, Arc::clone(&watch), asked));
    }
}

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, watch: Arc<HoldState>, asked: Arc<AtomicBool>) {
    let mut piece = vec![0; 64 << 10];
    let mut held = false;
    while let Ok(count @ 1..) = from.read(&mut piece).await {
        // A client writes each request's head at once, and nothing before it.
        let line = piece[..count].split(|byte| *byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let is_request = line.ends_with(" HTTP/1.1");
        let is_wanted = is_request && line.contains(&watch.needle);
        if is_wanted && watch.refuses.load(Ordering::SeqCst) {
            let path = line.find('/').expect("a request has a path");
            let refused = [&piece[..path], b"/v9.99", &piece[path..count]].concat();
            watch.gate.pass().await;
            if to.write_all(&refused).await.is_err() {
                break;
            }
            continue;
        }
        if is_wanted && watch.armed.swap(false, Ordering::SeqCst) {
            if watch.place == Where::Request {
                watch.gate.pass().await;
                held = true;
            }
            asked.store(true, Ordering::SeqCst);
        }
        if to.write_all(&piece[..count]).await.is_err() {
            break;
        }
    }
    // The client has left or half-closed. An engine that had taken a held request in time would not know that yet.
    if !held {
        let _ = to.shutdown().await;
        return;
    }
    std::future::pending().await
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, watch: Arc<HoldState>, asked: Arc<AtomicBool>) {
    let mut piece = vec![0; 64 << 10];
    let mut mine = false;
    loop {
        let read = tokio::select! {
            // Both are cancel-safe: unread bytes are not lost.
            read = from.read(&mut piece) => read,
            () = watch.cut.pass(), if mine => break,
        };
        let Ok(count @ 1..) = read else { break };
        if asked.swap(false, Ordering::SeqCst) {
            mine = true;
            watch.answered.pass().await;
            if watch.place == Where::Answer {
                tokio::select! {
                    () = watch.gate.pass() => {}
                    () = watch.cut.pass() => break,
                }
            }
        }
        if to.write_all(&piece[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
