//! The load generator: raw HTTP/1.1 over unix sockets, every answer checked.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use crate::modes::{Connections, Mode};
use crate::response::{After, Response, Watch};
use crate::wire::{CallKind, Expected};

/// Maximum time of an answer. A contender that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// Each connection ends its part of a round after this number of failed calls.
const TOO_MANY: usize = 20;

/// The figures of one round. Times are sorted.
#[derive(Debug, Default)]
pub(crate) struct LoadResult {
    /// Nanoseconds from the first byte sent to the last received, per call.
    pub(crate) calls_ns: Vec<u64>,
    /// Nanoseconds from the first byte sent to the first received, per call.
    pub(crate) firsts_ns: Vec<u64>,
    /// Microseconds from the upstream's stamp to the client, per chunk; paced streams only.
    pub(crate) chunks_us: Vec<u32>,
    pub(crate) wall: Duration,
    /// Faults of failed calls, and of wrong answers.
    pub(crate) faults: Vec<String>,
}

/// One mode against one socket.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    socket: PathBuf,
    request: Arc<[u8]>,
    expected: Expected,
    ask: CallKind,
    connections: Connections,
}

/// A connection and its read buffer.
#[derive(Debug)]
pub(crate) struct Client {
    stream: Option<UnixStream>,
    buffer: Vec<u8>,
    /// Time at which the answer to the last call began.
    first: Instant,
}

impl Load {
    pub(crate) fn new(mode: &Mode, socket: &Path) -> Self {
        Self {
            socket: socket.to_owned(),
            request: mode.ask.request().into(),
            expected: mode.ask.expected(),
            ask: mode.ask,
            connections: mode.connections,
        }
    }

    /// Opens the connections and uses each once, so that a round finds them warm.
    pub(crate) async fn open(&self) -> Result<Vec<Client>, String> {
        let mut clients = Vec::new();
        for _ in 0..self.connections.count() {
            let mut client = Client::new();
            if let Connections::Kept(_) = self.connections {
                let chat = Self {
                    request: CallKind::Chat.request().into(),
                    expected: CallKind::Chat.expected(),
                    ..self.clone()
                };
                client.call(&chat, &mut Watch::Nothing).await?;
            }
            clients.push(client);
        }
        Ok(clients)
    }

    /// Makes one call outside a round; its answer must be exactly this.
    pub(crate) async fn once(&self, request: &[u8], answer: &'static [u8]) -> Result<(), String> {
        let load =
            Self { request: request.into(), expected: Expected { length: answer.len(), tail: answer }, ..self.clone() };
        Client::new().call(&load, &mut Watch::Nothing).await
    }

    /// Makes `calls` calls, shared among the connections: each connection takes the next call as soon as it is free.
    pub(crate) async fn round(&self, clients: Vec<Client>, calls: usize) -> LoadResult {
        let taken = Arc::new(AtomicUsize::new(0));
        let started = Instant::now();
        let mut workers = JoinSet::new();
        for client in clients {
            workers.spawn(self.clone().work(client, Arc::clone(&taken), calls));
        }
        let mut seen = LoadResult::default();
        for part in workers.join_all().await {
            seen.calls_ns.extend(part.calls_ns);
            seen.firsts_ns.extend(part.firsts_ns);
            seen.chunks_us.extend(part.chunks_us);
            seen.faults.extend(part.faults);
        }
        seen.wall = started.elapsed();
        seen.calls_ns.sort_unstable();
        seen.firsts_ns.sort_unstable();
        seen.chunks_us.sort_unstable();
        seen
    }

    async fn work(self, mut client: Client, taken: Arc<AtomicUsize>, calls: usize) -> LoadResult {
        let mut seen = LoadResult::default();
        let mut watch = match self.ask {
            CallKind::Paced(_) => Watch::Chunks(Vec::new()),
            CallKind::Chat | CallKind::Burst(_) | CallKind::Body(_) => Watch::Nothing,
        };
        while taken.fetch_add(1, Ordering::Relaxed) < calls && seen.faults.len() < TOO_MANY {
            let started = Instant::now();
            match client.call(&self, &mut watch).await {
                Ok(()) => {
                    seen.calls_ns.push(nanos(started.elapsed()));
                    seen.firsts_ns.push(nanos(client.first.duration_since(started)));
                }
                Err(fault) => seen.faults.push(fault),
            }
        }
        if let Watch::Chunks(latencies) = watch {
            seen.chunks_us = latencies;
        }
        seen
    }
}

impl Client {
    fn new() -> Self {
        Self { stream: None, buffer: vec![0; 64 * 1024], first: Instant::now() }
    }

    /// Makes one call, to the last byte of its answer. After a fault the connection is dropped.
    async fn call(&mut self, load: &Load, watch: &mut Watch) -> Result<(), String> {
        let done = tokio::time::timeout(PATIENCE, self.exchange(load, watch)).await;
        let after = match done {
            Ok(Ok(after)) => after,
            Ok(Err(fault)) => {
                self.stream = None;
                return Err(fault);
            }
            Err(_) => {
                self.stream = None;
                return Err(format!("no whole answer within {} s", PATIENCE.as_secs()));
            }
        };
        if after == After::Close || matches!(load.connections, Connections::Fresh(_)) {
            self.stream = None;
        }
        Ok(())
    }

    async fn exchange(&mut self, load: &Load, watch: &mut Watch) -> Result<After, String> {
        let stream = match &mut self.stream {
            Some(stream) => stream,
            closed => {
                let stream = UnixStream::connect(&load.socket).await;
                closed.insert(stream.map_err(|error| format!("cannot connect: {error}"))?)
            }
        };
        stream.write_all(&load.request).await.map_err(|error| format!("cannot send: {error}"))?;
        let mut response = Response::new();
        let mut has_begun = false;
        loop {
            let read = stream.read(&mut self.buffer).await.map_err(|error| format!("cannot read: {error}"))?;
            if read == 0 {
                return Err("closed before the end of the answer".to_owned());
            }
            if !std::mem::replace(&mut has_begun, true) {
                self.first = Instant::now();
            }
            let now = match watch {
                Watch::Nothing => 0,
                Watch::Chunks(_) => micros_now(),
            };
            match response.feed(&self.buffer[..read], now, watch) {
                Ok(true) => break,
                Ok(false) => {}
                Err(fault) => return Err(fault.to_string()),
            }
        }
        response.finish(load.expected).map_err(|fault| fault.to_string())
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn micros_now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}
