//! A request body made of pieces that are never copied.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::body_budget::HeldBytes;

/// Request body as a queue of pieces.
#[derive(Debug, Default)]
pub struct Outgoing {
    pieces: VecDeque<Bytes>,
    left: u64,
    /// Part of the body budget, returned when the body is dropped.
    _held: Option<HeldBytes>,
    /// Source of further pieces, for a body that is sent while it still comes.
    feed: Option<Arc<BodyFeed>>,
}

/// Channel for a body that is sent while it still comes: it holds one piece, so that a slow reader slows the writer
/// down. The task that puts a piece also polls the connection that takes it.
#[derive(Debug, Default)]
pub struct BodyFeed(Mutex<FedPiece>);

#[derive(Debug, Default)]
enum FedPiece {
    #[default]
    None,
    Next(Bytes),
    End,
}

impl BodyFeed {
    /// Returns true if the next piece can be put.
    #[must_use]
    pub fn is_free(&self) -> bool {
        matches!(*self.lock(), FedPiece::None)
    }

    /// Puts the next piece; `None` is the end.
    pub fn put(&self, piece: Option<Bytes>) {
        *self.lock() = piece.map_or(FedPiece::End, FedPiece::Next);
    }

    #[cold]
    #[inline(never)]
    fn poll_take(&self) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let mut piece = self.lock();
        match std::mem::take(&mut *piece) {
            FedPiece::None => Poll::Pending,
            FedPiece::Next(next) => Poll::Ready(Some(Ok(Frame::data(next)))),
            FedPiece::End => {
                *piece = FedPiece::End;
                Poll::Ready(None)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FedPiece> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Outgoing {
    /// Returns an empty body, as in a GET.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns an empty body that holds this part of the body budget.
    #[must_use]
    pub fn holding(held: HeldBytes) -> Self {
        Self { _held: Some(held), ..Self::default() }
    }

    /// Returns a body whose pieces come from a feed.
    #[must_use]
    pub fn fed(feed: Arc<BodyFeed>) -> Self {
        Self { feed: Some(feed), ..Self::default() }
    }

    /// Returns the pieces that are left.
    #[must_use]
    pub fn into_pieces(self) -> VecDeque<Bytes> {
        self.pieces
    }

    /// Reserves capacity for more pieces.
    pub fn reserve(&mut self, pieces: usize) {
        self.pieces.reserve(pieces);
    }

    /// Adds a piece.
    pub fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.left += piece.len() as u64;
            self.pieces.push_back(piece);
        }
    }

    /// Returns the number of bytes left to send.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Returns true if no byte is left to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(feed) = &self.feed {
            return feed.poll_take();
        }
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0 && self.feed.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        if self.feed.is_some() { SizeHint::default() } else { SizeHint::with_exact(self.left) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;

    fn poll(body: &mut Outgoing) -> Poll<Option<Bytes>> {
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(Waker::noop()));
        polled.map(|frame| frame.map(|frame| frame.expect("no way to fail").into_data().expect("a piece")))
    }

    #[test]
    fn a_fed_body_has_one_piece_at_a_time() {
        let feed = Arc::<BodyFeed>::default();
        let mut body = Outgoing::fed(Arc::clone(&feed));
        assert!(!body.is_end_stream() && body.size_hint().exact().is_none(), "its length is not known");
        assert_eq!(poll(&mut body), Poll::Pending);
        for piece in ["a", "b"] {
            assert!(feed.is_free());
            feed.put(Some(Bytes::from(piece)));
            assert!(!feed.is_free());
            assert_eq!(poll(&mut body), Poll::Ready(Some(Bytes::from(piece))));
        }
        feed.put(None);
        for _ in 0..2 {
            assert_eq!(poll(&mut body), Poll::Ready(None));
        }
    }
}
