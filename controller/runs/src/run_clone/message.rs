//! Bodies of requests and responses of git over HTTP.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::body::{Body, Frame, SizeHint};
use tokio::io::{AsyncRead, ReadBuf};

/// A response body that is complete.
#[derive(Debug)]
pub struct WholeBody(pub(super) Bytes);

/// The bytes of a request body.
pub(super) struct RequestBytes<B> {
    body: B,
    piece: Bytes,
    taken: u64,
}

impl<B> RequestBytes<B> {
    pub(super) fn new(body: B) -> Self {
        Self { body, piece: Bytes::new(), taken: 0 }
    }

    /// Returns the number of bytes that were read so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

impl Body for WholeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let whole = std::mem::take(&mut self.0);
        Poll::Ready((!whole.is_empty()).then(|| Ok(Frame::data(whole))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

impl<B> AsyncRead for RequestBytes<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        while this.piece.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                None => return Poll::Ready(Ok(())),
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                // Trailers have no meaning here.
                Some(Ok(frame)) => this.piece = frame.into_data().unwrap_or_default(),
            }
        }
        let len = this.piece.len().min(buf.remaining());
        buf.put_slice(&this.piece[..len]);
        this.piece.advance(len);
        this.taken += len as u64;
        Poll::Ready(Ok(()))
    }
}
