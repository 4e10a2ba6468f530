//! The least that the library costs: a reverse proxy that consists only of hyper's HTTP/1 server and client.
//!
//! It passes calls from a unix socket to kept TCP connections, without a task between them: as in the sidecar, the
//! owner of an answer drives the connection that carries it. It changes only what every proxy must change, and has no
//! policy, key, log or time limits.

use std::error::Error;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};

use ::hyper::body::{Body, Frame, Incoming};
use ::hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::hyper::{Request, Response, client::conn::http1 as client, server::conn::http1 as server, service::service_fn};
use bytes::{Bytes, BytesMut};
use hyper_util::rt::TokioIo;
use nix::sys::{prctl, signal::Signal};
use tokio::net::{TcpStream, UnixListener};

use crate::{Outcome, single_threaded};

/// Largest piece in which ready bytes of an answer are forwarded.
const GATHER: usize = 64 * 1024;
/// Headers of one connection, in addition to those that `Connection` names.
const HOP_BY_HOP: [HeaderName; 4] = [header::TE, header::TRAILER, header::TRANSFER_ENCODING, header::UPGRADE];

/// One connection to the upstream, and both ends of hyper's handle on it.
struct Link {
    send: client::SendRequest<Incoming>,
    conn: client::Connection<TokioIo<TcpStream>, Incoming>,
}

struct Upstream {
    port: u16,
    host: HeaderValue,
    #[allow(clippy::vec_box, reason = "a link has a kilobyte, and moves twice a call")]
    idle: Mutex<Vec<Box<Link>>>,
}

/// The hidden subcommand: serves until it or its parent is killed.
pub(crate) fn serve(socket: &str, port: &str) -> Outcome<ExitCode> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    let host = format!("127.0.0.1:{port}").try_into()?;
    let upstream = Arc::new(Upstream { port: port.parse()?, host, idle: Mutex::default() });
    single_threaded()?.block_on(async move {
        let listener = UnixListener::bind(socket)?;
        loop {
            let (client, _) = listener.accept().await?;
            let upstream = Arc::clone(&upstream);
            tokio::spawn(async move {
                let service = service_fn(|request| upstream.pass(request));
                // A peer that leaves ends its own connection only.
                let _gone = server::Builder::new().serve_connection(TokioIo::new(client), service).await;
            });
        }
    })
}

impl Upstream {
    /// Makes one call, up to the head of its answer.
    async fn pass(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response<TimedAnswer>, Box<dyn Error + Send + Sync>> {
        end_to_end(request.headers_mut());
        request.headers_mut().insert(header::HOST, self.host.clone());
        let kept = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        let mut link = if let Some(link) = kept {
            link
        } else {
            let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.set_nodelay(true)?;
            let (send, conn) = client::handshake(TokioIo::new(stream)).await?;
            Box::new(Link { send, conn })
        };
        let mut sent = pin!(link.send.send_request(request));
        let mut answer = TimedAnswer { upstream: Arc::clone(self), link: Some(link), body: None };
        let mut head = std::future::poll_fn(|cx| {
            answer.drive(cx);
            sent.as_mut().poll(&mut unwoken())
        })
        .await?;
        end_to_end(head.headers_mut());
        Ok(head.map(|body| {
            answer.body = Some(body);
            answer.keep_at_end();
            answer
        }))
    }
}

/// An answer that is read at its client's pace.
struct TimedAnswer {
    upstream: Arc<Upstream>,
    /// `None` once the connection is closed or kept.
    link: Option<Box<Link>>,
    /// `None` before the body begins and after its end.
    body: Option<Incoming>,
}

impl TimedAnswer {
    fn drive(&mut self, cx: &mut Context<'_>) {
        // An error shows in the head or the body as well.
        if self.link.as_mut().is_some_and(|link| Pin::new(&mut link.conn).poll(cx).is_ready()) {
            self.link = None;
        }
    }

    /// Keeps the connection at the end of the body. An empty body, or one of known length, is not polled for its end.
    fn keep_at_end(&mut self) {
        if self.body.as_ref().is_some_and(|body| !body.is_end_stream()) {
            return;
        }
        self.body = None;
        if let Some(link) = self.link.take().filter(|link| link.send.is_ready())
            && let Ok(mut idle) = self.upstream.idle.lock()
        {
            idle.push(link);
        }
    }

    /// Takes the next piece that the connection has read.
    fn take(&mut self) -> Poll<Option<::hyper::Result<Bytes>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(&mut unwoken())).transpose()?;
        if frame.is_none() {
            self.body = None;
        }
        self.keep_at_end();
        // Trailers are dropped here: hyper skips an empty piece.
        Poll::Ready(frame.map(|frame| Ok(frame.into_data().unwrap_or_default())))
    }

    /// Polls for the next piece. Taking a piece wakes the task that drove the connection last, so a waiting task drives it again.
    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<::hyper::Result<Bytes>>> {
        self.drive(&mut unwoken());
        let taken = self.take();
        if taken.is_pending() {
            self.drive(cx);
            return self.take();
        }
        taken
    }
}

impl Body for TimedAnswer {
    type Data = Bytes;
    type Error = ::hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<::hyper::Result<Frame<Bytes>>>> {
        let first = match self.take() {
            Poll::Pending => ready!(self.poll_piece(cx)),
            Poll::Ready(taken) => taken,
        };
        let Some(first) = first.transpose()? else { return Poll::Ready(None) };
        let mut joined = BytesMut::new();
        while first.len().max(joined.len()) < GATHER
            && let Poll::Ready(Some(next)) = self.poll_piece(cx)
        {
            if joined.is_empty() {
                joined.reserve(GATHER / 4);
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&next?);
        }
        Poll::Ready(Some(Ok(Frame::data(if joined.is_empty() { first } else { joined.freeze() }))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_none()
    }
}

/// Removes the headers that belong to one connection only.
fn end_to_end(headers: &mut HeaderMap) {
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
    let Some(named) = headers.remove(header::CONNECTION) else { return };
    for name in named.to_str().unwrap_or_default().split(',') {
        headers.remove(name.trim());
    }
}

/// A context that wakes no task: for ends of hyper's channels whose other end has just been driven.
fn unwoken() -> Context<'static> {
    Context::from_waker(Waker::noop())
}
