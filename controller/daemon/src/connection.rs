//! One connection of a client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use axum::response::Response;
use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::access::RemotePeer;
use crate::connection_clock::ConnectionClock;
use crate::limits::HttpLimits;
use crate::stop_signal::StopSignal;

/// Maximum size of hyper's buffer for one connection; at least the size of a request head.
const BUFFER_MAX: usize = 64 << 10;

/// Answers the requests of connections.
pub(crate) trait Respond: Send + Sync + 'static {
    /// Returns the limits of a connection.
    fn limits(&self) -> HttpLimits;

    /// Answers a request. `local` is the address that the client has reached.
    fn answer(
        &self,
        peer: RemotePeer,
        local: Option<SocketAddr>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response> + Send;
}

/// Serves a connection until it ends, a time limit is reached, or the daemon stops. The last request is finished.
pub(crate) async fn serve<S, F>(
    stream: S,
    peer: RemotePeer,
    local: Option<SocketAddr>,
    front: Arc<F>,
    mut stop: StopSignal,
) where
    F: Respond,
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = front.limits();
    let clock = ConnectionClock::new(limits.head_time, limits.idle_time, limits.write_time);
    let stream = TokioIo::new(clock.watch(stream));
    let service = service_fn(|request| {
        clock.head_ended();
        let (front, clock) = (Arc::clone(&front), clock.clone());
        async move {
            let response = Respond::answer(&*front, peer, local, request).await;
            Ok::<_, Infallible>(response.map(|body| clock.watch_body(body)))
        }
    });
    let mut builder = http1::Builder::new();
    // The connection clock limits the time of a head instead of hyper.
    builder
        .header_read_timeout(None)
        .max_header_size(limits.head_bytes)
        .max_buf_size(BUFFER_MAX.max(limits.head_bytes));
    let mut connection = pin!(builder.serve_connection(stream, service));
    let mut is_stopping = false;
    loop {
        tokio::select! {
            // An error is caused by the client: it left, or did not send HTTP.
            _ = connection.as_mut() => return,
            () = clock.expired() => return,
            () = stop.stopped(), if !is_stopping => {
                is_stopping = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}
