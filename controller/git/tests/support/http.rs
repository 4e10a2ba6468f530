//! An HTTP/1.1 server of a few lines: one request at a time on each connection, bodies as streams.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Body of an answer.
pub(crate) struct Whole(Option<Bytes>);

impl Whole {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Self(Some(bytes.into()))
    }
}

impl Body for Whole {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// Body of a request as a reader.
pub(crate) struct BodyReader {
    body: Incoming,
    piece: Bytes,
}

impl BodyReader {
    pub(crate) fn new(body: Incoming) -> Self {
        Self { body, piece: Bytes::new() }
    }
}

impl AsyncRead for BodyReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while self.piece.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(std::io::Error::other(error))),
                Poll::Ready(Some(Ok(frame))) => self.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let count = self.piece.len().min(buffer.remaining());
        buffer.put_slice(&self.piece[..count]);
        self.piece.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// A server that stops when this value is dropped.
pub(crate) struct Server {
    pub(crate) address: String,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves on a port of its own.
pub(crate) async fn serve<F, A>(answer: F) -> Server
where
    F: Fn(Request<Incoming>) -> A + Send + Sync + 'static,
    A: Future<Output = Response<Whole>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let answer = Arc::new(answer);
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            tokio::spawn(async move {
                let service = service_fn(move |request| {
                    let future = answer(request);
                    async move { Ok::<_, std::convert::Infallible>(future.await) }
                });
                let _ =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Server { address, task }
}
