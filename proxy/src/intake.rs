//! The client's request body: read within limits, and cut into the outgoing body.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{EXPECT, HeaderMap};
use http_body::Body;
use hyper::body::Incoming;

use crate::body::{BodyEdit, BodyPolicy, BodyReader, ParsedBody, put_at};
use crate::body_budget::{BodyBudget, HeldBytes};
use crate::idle_timeout::IdleTimeout;
use crate::policy::ApiFormat;
use crate::refusal::{Reason, Refusal};
use crate::upstream::Outgoing;

/// Size below which a piece is copied to the end of the one before: a client that writes byte by byte must not cost
/// one piece for each byte.
const SMALL: usize = 4096;

/// Maximum number of bytes of a refused body that are still read; a body sent by mistake is smaller.
const LINGER_BYTES: u64 = 64 * 1024 * 1024;
/// Maximum number of bytes left of a refused body after which the connection is used again.
const LINGER_REUSE: u64 = 32 * 1024;
const LINGER_TIME: Duration = Duration::from_secs(5);
const LINGER_IDLE: Duration = Duration::from_secs(1);

/// A request body as it came, in pieces.
#[derive(Debug)]
pub struct BufferedBody {
    pieces: Vec<Bytes>,
    small: BytesMut,
    len: u64,
    held: HeldBytes,
}

/// Limits of a body.
#[derive(Debug, Clone)]
pub struct BodyLimits {
    /// Maximum number of bytes.
    pub max: u64,
    /// Maximum silence between two pieces.
    pub idle: Duration,
    /// Budget for all bodies together.
    pub budget: Arc<BodyBudget>,
}

/// Reads a body to its end, with the facts in it.
///
/// # Errors
/// The refusal, as soon as one is certain; the rest of the body is then not read.
pub async fn read(
    body: &mut Incoming,
    format: ApiFormat,
    policy: &BodyPolicy,
    bounds: &BodyLimits,
) -> Result<(ParsedBody, BufferedBody), Refusal> {
    let mut reader = BodyReader::new(format, policy);
    let text = collect(body, bounds, |piece| reader.feed(piece)).await;
    let text = text.map_err(|refusal| refusal.for_model(reader.model()))?;
    Ok((reader.finish()?, text))
}

/// Reads a body to its end, and shows each piece to `see`.
///
/// # Errors
/// `body_too_large`, `too_many_calls`, `request_timeout`, `bad_request`, or the refusal of `see`.
pub async fn collect(
    body: &mut Incoming,
    bounds: &BodyLimits,
    mut see: impl FnMut(&[u8]) -> Result<(), Refusal>,
) -> Result<BufferedBody, Refusal> {
    if body.size_hint().lower() > bounds.max {
        return Err(too_large(bounds));
    }
    let mut text = BufferedBody { pieces: Vec::new(), small: BytesMut::new(), len: 0, held: bounds.budget.hold() };
    let mut idle = IdleTimeout::new(bounds.idle);
    loop {
        let next = poll_fn(|cx| match Pin::new(&mut *body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => idle.poll_expired(cx).map(Err),
        });
        let Ok(next) = next.await else {
            return Err(Refusal::new(Reason::RequestTimeout, "the body stopped coming"));
        };
        let Some(frame) = next else { break };
        idle.reset();
        let frame = frame
            .map_err(|_| Refusal::new(Reason::BadRequest, "the body ended too early, or its framing is broken"))?;
        // Request trailers are dropped.
        let Ok(piece) = frame.into_data() else { continue };
        if text.len + piece.len() as u64 > bounds.max {
            return Err(too_large(bounds));
        }
        text.held.grow(piece.len() as u64).map_err(|_| too_many_bytes())?;
        see(&piece)?;
        text.push(piece);
    }
    text.settle();
    Ok(text)
}

fn too_many_bytes() -> Refusal {
    let full = Refusal::new(Reason::TooManyCalls, "too many large requests at once; wait for one to end");
    full.retry_after(1)
}

/// Reads the rest of a refused body and discards it: a client that is still sending would find its connection closed
/// before it reads the reason. Limits: 64 MiB, 5 s, and 1 s of silence. Returns true if the body ended after a few
/// more bytes: then the connection may carry another request. Otherwise hyper's buffer has grown, and hyper would
/// keep it as long as the connection.
pub async fn linger(body: &mut Incoming, headers: &HeaderMap) -> bool {
    // A client that waits for `100 Continue` has sent nothing, and a read would ask it to send.
    if headers.contains_key(EXPECT) {
        return false;
    }
    let mut left = LINGER_BYTES;
    let discard = async {
        while let Ok(Some(Ok(frame))) =
            tokio::time::timeout(LINGER_IDLE, poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx))).await
        {
            let len = frame.data_ref().map_or(0, |piece| piece.len() as u64);
            if len > left {
                return;
            }
            left -= len;
        }
    };
    let _ = tokio::time::timeout(LINGER_TIME, discard).await;
    body.is_end_stream() && LINGER_BYTES - left < LINGER_REUSE
}

impl BufferedBody {
    /// Creates a body of these pieces, for tests.
    #[cfg(test)]
    pub(crate) fn of(pieces: &[&'static str]) -> Self {
        let mut text =
            Self { pieces: Vec::new(), small: BytesMut::new(), len: 0, held: BodyBudget::new(1 << 20).hold() };
        pieces.iter().for_each(|piece| text.push(Bytes::from_static(piece.as_bytes())));
        text.settle();
        text
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the body has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the pieces, in their order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|piece| &piece[..])
    }

    /// Returns the body with more bytes in it, each text at its offset; the offsets are in order.
    ///
    /// # Errors
    /// `body_too_large`, or `too_many_calls`.
    pub fn spliced(self, splices: Vec<(u64, String)>, limits: &BodyLimits) -> Result<Self, Refusal> {
        let Self { pieces, mut held, len, .. } = self;
        let added: u64 = splices.iter().map(|(_, text)| text.len() as u64).sum();
        if len + added > limits.max {
            return Err(too_large(limits));
        }
        held.grow(added).map_err(|_| too_many_bytes())?;
        let (mut spliced, mut from) = (Vec::with_capacity(pieces.len() + 2 * splices.len()), 0);
        for (at, text) in splices {
            ranged(&pieces, from, at, |piece| spliced.push(piece));
            spliced.push(Bytes::from(text));
            from = at;
        }
        ranged(&pieces, from, len, |piece| spliced.push(piece));
        Ok(Self { pieces: spliced, small: BytesMut::new(), len: len + added, held })
    }

    /// Returns the bytes of these ranges, in their order.
    pub fn within(&self, ranges: Vec<(u64, u64)>) -> impl Iterator<Item = &[u8]> {
        ranges.into_iter().flat_map(|(from, to)| {
            let mut end = 0;
            self.pieces.iter().map(move |piece| {
                let start = end;
                end += piece.len() as u64;
                let (a, b) = (from.clamp(start, end), to.clamp(start, end));
                &piece[(a - start) as usize..(b - start) as usize]
            })
        })
    }

    /// Returns the body unchanged.
    #[must_use]
    pub fn whole(self) -> Outgoing {
        let mut out = Outgoing::holding(self.held);
        self.pieces.into_iter().for_each(|piece| out.push(piece));
        out
    }

    /// Returns the body as the policy wants it: slices of the original, after and between the sidecar's own bytes.
    #[must_use]
    pub fn edited(self, mut edit: BodyEdit, put: &[(u64, String)]) -> Outgoing {
        let Self { pieces, held, .. } = self;
        let mut out = Outgoing::holding(held);
        out.reserve(2 + 2 * (edit.keep.len() + edit.cut.len()) + pieces.len());
        out.push(Bytes::from(std::mem::take(&mut edit.prefix)));
        for (is_member, from, to) in edit.ranges() {
            if is_member {
                out.push(Bytes::from_static(b","));
            }
            slice(&pieces, from, to, &mut out);
            if let Some(text) = put_at(put, to) {
                out.push(Bytes::copy_from_slice(text.as_bytes()));
            }
        }
        out.push(Bytes::from_static(b"}"));
        out
    }

    fn push(&mut self, piece: Bytes) {
        self.len += piece.len() as u64;
        let first = self.pieces.is_empty() && self.small.is_empty();
        if piece.len() < SMALL && !first {
            self.small.extend_from_slice(&piece);
        } else {
            self.settle();
            self.pieces.push(piece);
        }
    }

    fn settle(&mut self) {
        if !self.small.is_empty() {
            self.pieces.push(self.small.split().freeze());
        }
    }
}

fn slice(pieces: &[Bytes], from: u64, to: u64, out: &mut Outgoing) {
    let mut start = 0;
    for piece in pieces {
        let end = start + piece.len() as u64;
        let (a, b) = (from.clamp(start, end), to.clamp(start, end));
        out.push(piece.slice((a - start) as usize..(b - start) as usize));
        start = end;
    }
}

fn ranged(pieces: &[Bytes], from: u64, to: u64, mut take: impl FnMut(Bytes)) {
    let mut out = Outgoing::empty();
    slice(pieces, from, to, &mut out);
    out.into_pieces().into_iter().for_each(&mut take);
}

fn too_large(limits: &BodyLimits) -> Refusal {
    Refusal::new(Reason::BodyTooLarge, format!("the body is over the run's limit of {} bytes", limits.max))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pieces: &[&'static str]) -> BufferedBody {
        BufferedBody::of(pieces)
    }

    fn sent(out: Outgoing) -> String {
        let len = out.len();
        let sent: String = out.into_pieces().iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect();
        assert_eq!(sent.len() as u64, len);
        sent
    }

    #[test]
    fn an_edit_is_made_of_slices_whatever_the_pieces() {
        let edit = || BodyEdit { prefix: "{\"u\":1".to_owned(), keep: vec![(1, 4), (6, 9)], ..BodyEdit::default() };
        for pieces in
            [vec!["0abc45def9"], vec!["0a", "bc45d", "ef9"], vec!["0", "a", "b", "c", "4", "5", "d", "e", "f", "9"]]
        {
            assert_eq!(sent(text(&pieces).edited(edit(), &[])), "{\"u\":1,abc,def}", "{pieces:?}");
            assert_eq!(sent(text(&pieces).whole()), "0abc45def9");
            assert_eq!(text(&pieces).within(edit().keep).collect::<Vec<_>>().concat(), b"abcdef");
        }
    }

    #[test]
    fn a_spliced_body_keeps_the_bytes_that_came() {
        let limits = |max| BodyLimits { max, idle: Duration::from_secs(1), budget: BodyBudget::new(100) };
        let splices = || vec![(0, "<".to_owned()), (3, "+".to_owned()), (3, "-".to_owned()), (6, ">".to_owned())];
        for pieces in [vec!["abcdef"], vec!["abc", "def"], vec!["a", "b", "c", "d", "e", "f"]] {
            let spliced = text(&pieces).spliced(splices(), &limits(10)).expect("it fits");
            assert_eq!((spliced.len(), sent(spliced.whole())), (10, "<abc+-def>".to_owned()), "{pieces:?}");
            let refused = text(&pieces).spliced(splices(), &limits(9)).expect_err("a byte too many");
            assert_eq!(refused.reason, Reason::BodyTooLarge);
        }
    }

    #[test]
    fn small_pieces_become_one() {
        let pieces = vec!["x"; 1000];
        assert_eq!(text(&pieces).pieces.len(), 2);
    }
}
