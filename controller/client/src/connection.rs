//! One HTTP request over a connection of its own.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use sluice_upstream::Connector;
use tokio::task::JoinHandle;

use crate::server::Server;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Maximum size of the header block of an answer in bytes.
const HEAD_MAX: usize = 64 << 10;

/// Reason that a request has no answer.
#[derive(Debug)]
pub(crate) enum ApiSendError {
    /// The failure happened before any byte of the request was sent.
    BeforeSending(io::Error),
    /// The request may have been sent in part.
    Interrupted(io::Error),
}

/// Sends a request, and returns the head of its answer and the body that follows.
pub(crate) async fn send(server: &Server, request: Request<OneBody>) -> Result<(u16, AnswerBody), ApiSendError> {
    let connector = Connector::new(server.address.clone(), server.ca.as_deref())
        .map_err(|error| ApiSendError::BeforeSending(io::Error::other(error)))?;
    let stream = connector.connect(CONNECT_WITHIN).await.map_err(|error| ApiSendError::BeforeSending(error.into()))?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| ApiSendError::BeforeSending(io::Error::other(error)))?;
    let connection = ConnectionTask(tokio::spawn(async move { drop(connection.await) }));
    let response = sender.send_request(request).await.map_err(|error| ApiSendError::Interrupted(broken(error)))?;
    let (head, body) = Response::into_parts(response);
    Ok((head.status.as_u16(), AnswerBody { body, _connection: connection }))
}

/// The task that drives a connection; it ends with its owner.
struct ConnectionTask(JoinHandle<()>);

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The body of an answer.
pub(crate) struct AnswerBody {
    body: Incoming,
    _connection: ConnectionTask,
}

impl AnswerBody {
    /// Returns the next bytes; `None` at the end.
    pub(crate) async fn next(&mut self) -> io::Result<Option<Bytes>> {
        loop {
            match std::future::poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                None => return Ok(None),
                Some(Err(error)) => return Err(broken(error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }
}

fn broken(error: hyper::Error) -> io::Error {
    io::Error::other(error)
}

/// The body of a request, in one piece.
pub(crate) struct OneBody(Option<Bytes>);

impl OneBody {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }
}

impl Body for OneBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
