//! Client of the upstream, with a pool of connections that stay alive.
//!
//! An idle connection is not polled. A used connection is polled by the task that owns the answer:
//! hyper's usual task for each connection would cost a task switch for each chunk.

pub mod flight;
mod outgoing;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use sluice_contract::record::ConnectFailure;
use sluice_contract::text::error_chain;
use sluice_upstream::{Connector, Stream};

pub use flight::{Flight, UpstreamError};
pub use outgoing::{BodyFeed, Outgoing};

/// Maximum idle time of a connection. uvicorn, under LiteLLM, closes idle connections after 5 s without a notice; a
/// connection that is reused earlier is not closed at the same moment.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Maximum number of response headers. LiteLLM adds thirty of its own, and repeats each of the provider's.
const HEADERS_MAX: usize = 512;

/// Maximum number of idle connections: the default of `--max-concurrency`, since a burst leaves no more.
const POOL_MAX: usize = 64;

/// Maximum silence of the upstream, at each stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Limit for name, TCP and TLS together.
    pub connect: Duration,
    /// Limit until the head of the answer: a long prefill is legitimate.
    pub first_byte: Duration,
    /// Limit between two pieces of the answer.
    pub idle: Duration,
}

/// Reason why a request was not sent: there is no connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoConnection {
    /// Word for the failure.
    pub failure: ConnectFailure,
    /// Message of the system, for the operator: it may name addresses that no sandbox should see.
    pub detail: String,
}

/// One connection, with both of hyper's handles on it. Always boxed: it takes a kilobyte.
#[derive(Debug)]
pub struct PooledConnection {
    send: http1::SendRequest<Outgoing>,
    conn: http1::Connection<TokioIo<Stream>, Outgoing>,
    idle_since: Instant,
}

/// A connection moves between the pool and its flights; a box is cheaper to move.
#[allow(clippy::vec_box, reason = "see above")]
type Pool = Vec<Box<PooledConnection>>;

/// Client of the upstream of this run.
#[derive(Debug)]
pub struct Upstream {
    connector: Connector,
    timeouts: Timeouts,
    idle: Mutex<Pool>,
    reaping: AtomicBool,
}

impl Upstream {
    /// Returns a client without any connection yet.
    #[must_use]
    pub fn new(connector: Connector, timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self { connector, timeouts, idle: Mutex::default(), reaping: AtomicBool::new(false) })
    }

    /// Returns the limits on silence.
    #[must_use]
    pub fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    /// Takes an idle connection that is still alive from the pool.
    fn pooled(&self) -> Option<Box<PooledConnection>> {
        let mut idle = self.lock();
        while let Some(link) = idle.pop() {
            if link.idle_since.elapsed() < IDLE_MAX && link.send.is_ready() {
                return Some(link);
            }
        }
        None
    }

    /// Opens a new connection.
    async fn connect(&self) -> Result<Box<PooledConnection>, Box<NoConnection>> {
        let stream = self.connector.connect(self.timeouts.connect).await.map_err(|error| {
            let detail = error_chain(&error);
            tracing::warn!(error = detail, "cannot connect to the upstream");
            Box::new(NoConnection { failure: error.failure(), detail })
        })?;
        let connected = http1::Builder::new().max_headers(HEADERS_MAX).handshake(TokioIo::new(stream)).await;
        let (send, conn) = connected
            .map_err(|error| Box::new(NoConnection { failure: ConnectFailure::Other, detail: error_chain(&error) }))?;
        Ok(Box::new(PooledConnection { send, conn, idle_since: Instant::now() }))
    }

    /// Returns a connection to the pool after its answer was read to its end.
    fn keep(self: &Arc<Self>, mut link: Box<PooledConnection>) {
        link.idle_since = Instant::now();
        let mut idle = self.lock();
        if idle.len() < POOL_MAX {
            idle.push(link);
        }
        if !self.reaping.swap(true, Ordering::AcqRel) {
            tokio::spawn(Arc::clone(self).reap());
        }
    }

    /// Closes connections that were idle for too long, and ends when the pool is empty.
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
