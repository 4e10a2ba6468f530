//! A request body made of pieces that are never copied.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::intake::Held;

/// Request body as a queue of pieces.
#[derive(Debug, Default)]
pub struct Outgoing {
    pieces: VecDeque<Bytes>,
    left: u64,
    /// Part of the body budget, returned when the body is dropped.
    _held: Option<Held>,
}

impl Outgoing {
    /// Returns an empty body, as in a GET.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// Returns an empty body that holds this part of the body budget.
    #[must_use]
    pub fn holding(held: Held) -> Self {
        Self { _held: Some(held), ..Self::default() }
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
        let piece = self.pieces.pop_front();
        self.left -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
