//! The way to the upstream: where it is, and a pool of connections that stay alive.
//!
//! A pooled connection is driven by nobody while it is idle, and by the task that owns the answer while
//! it is used: hyper's usual task of its own would cost a task switch for each chunk.

pub mod flight;
mod outgoing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sluice_upstream::{Connector, Stream};

pub use flight::{Flight, UpstreamError};
pub use outgoing::Outgoing;

/// uvicorn, under LiteLLM, closes idle connections after 5 s and without a notice. One that is reused
/// before that cannot lose the race.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// LiteLLM answers with thirty headers of its own, and with each of the provider's twice.
const HEADERS_MAX: usize = 512;

/// As many as `--max-concurrency` by default: a burst leaves no more.
const POOL_MAX: usize = 64;

/// How long the upstream may be silent, at each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Name, TCP, TLS.
    pub connect: Duration,
    /// Until the head of the answer: a long prefill is legitimate.
    pub first_byte: Duration,
    /// Between two pieces of the answer.
    pub idle: Duration,
}

/// One connection, and both ends of the library's handle on it. Boxed wherever it goes: it has a kilobyte.
#[derive(Debug)]
pub struct Link {
    send: http1::SendRequest<Outgoing>,
    conn: http1::Connection<TokioIo<Stream>, Outgoing>,
    idle_since: Instant,
}

/// A link moves between the pool and its flights; a box moves for less.
#[allow(clippy::vec_box, reason = "see above")]
type Pool = Vec<Box<Link>>;

/// The upstream of this run.
#[derive(Debug)]
pub struct Upstream {
    connector: Connector,
    timeouts: Timeouts,
    idle: Mutex<Pool>,
    reaping: AtomicBool,
}

impl Upstream {
    /// Nothing is connected yet.
    #[must_use]
    pub fn new(connector: Connector, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self { connector, timeouts, idle: Mutex::default(), reaping: AtomicBool::new(false) })
    }

    /// The longest silences allowed.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// A connection that was used before and is still there.
    fn pooled(&self) -> Option<Box<Link>> {
        let mut idle = self.lock();
        while let Some(link) = idle.pop() {
            if link.idle_since.elapsed() < IDLE_MAX && link.send.is_ready() {
                return Some(link);
            }
        }
        None
    }

    /// A new connection.
    async fn connect(&self) -> Result<Box<Link>, UpstreamError> {
        let stream = self.connector.connect(self.timeouts.connect).await.map_err(|error| {
            tracing::warn!(%error, "cannot connect to the upstream");
            UpstreamError::Unreachable
        })?;
        let connected = http1::Builder::new().max_headers(HEADERS_MAX).handshake(TokioIo::new(stream)).await;
        let (send, conn) = connected.map_err(|_| UpstreamError::Unreachable)?;
        Ok(Box::new(Link { send, conn, idle_since: Instant::now() }))
    }

    /// Keeps a connection whose answer was read to its end.
    fn keep(self: &Arc<Self>, mut link: Box<Link>) {
        link.idle_since = Instant::now();
        let mut idle = self.lock();
        if idle.len() < POOL_MAX {
            idle.push(link);
        }
        if !self.reaping.swap(true, Ordering::AcqRel) {
            tokio::spawn(Arc::clone(self).reap());
        }
    }

    /// Closes what nobody used in time, and ends when nothing is left.
    async fn reap(self: Arc<Self>) {
        loop {
            tokio::time::sleep(IDLE_MAX).await;
            let mut idle = self.lock();
            idle.retain(|link| link.idle_since.elapsed() < IDLE_MAX);
            if idle.is_empty() {
                self.reaping.store(false, Ordering::Release);
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
