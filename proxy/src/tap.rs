//! The body of an answer: pieces go on at once, and the end once its outcome is durable.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::audit::Ack;
use crate::carried::Carried;
use crate::filter::{Passed, join};
use crate::policy::Wire;
use crate::upstream::UpstreamError;

/// What an upstream sends behind the end of an answer is taken in steps of this size.
const ENOUGH: usize = 64 * 1024;
/// Pieces up to here are given as one: copying them costs less than a chunk of its own.
const SMALL: usize = 1024;

/// The answer cannot be given whole; the connection to the client breaks off here.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut")]
pub struct AnswerCut;

/// The body that the client gets.
#[derive(Debug)]
pub struct Tap {
    carried: Carried,
    state: State,
    /// Bytes that the answer's length still promises.
    left: Option<u64>,
    /// A piece that may be the last one: it waits for the next, or for the outcome.
    held_back: Option<Bytes>,
    /// May go, one behind the other.
    ready: VecDeque<Bytes>,
    is_stream: bool,
}

#[derive(Debug)]
enum State {
    Passing,
    /// The outcome is being written; then these go.
    Closing {
        ack: Ack,
        held: Vec<Bytes>,
        then: Then,
    },
    /// Behind the event that ended the stream.
    Tail,
    /// One turn for what was written to leave, and then the cut.
    Cutting {
        flushed: bool,
    },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Tail,
    Done,
    Cut,
}

impl Tap {
    /// For an answer whose head is known.
    #[must_use]
    pub fn new(carried: Carried, content_length: Option<u64>) -> Self {
        let is_stream = carried.call.head.as_ref().is_some_and(|head| head.is_stream);
        let ready = VecDeque::new();
        Self { carried, state: State::Passing, left: content_length, held_back: None, ready, is_stream }
    }

    /// The next piece, and what it may still have to wait for.
    fn poll_passing(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let mut passed = Passed::default();
        passed.on.extend(self.held_back.take());
        while matches!(self.state, State::Passing) {
            match self.carried.poll_piece(cx, &mut passed) {
                Poll::Pending => {
                    if self.may_be_last() {
                        self.held_back = passed.on.pop();
                    }
                    return if passed.on.is_empty() { Poll::Pending } else { Poll::Ready(passed.on) };
                }
                Poll::Ready(Some(Ok(len))) => {
                    self.left = self.left.map(|left| left.saturating_sub(len as u64));
                    if passed.terminal {
                        let ack = self.carried.complete();
                        self.state = State::Closing { ack, held: mem::take(&mut passed.held), then: Then::Tail };
                    } else if !self.may_be_last() && !passed.on.is_empty() {
                        break;
                    } else if passed.on.len() > 1 {
                        self.held_back = passed.on.pop();
                        break;
                    }
                }
                Poll::Ready(None) => {
                    let ack = self.carried.complete();
                    let held = if self.may_be_last() { mem::take(&mut passed.on) } else { Vec::new() };
                    self.state = State::Closing { ack, held, then: Then::Done };
                }
                Poll::Ready(Some(Err(broken))) => {
                    let ack = self.carried.broke(broken);
                    let held = if self.is_stream { cut_event(self.carried.call.wire, broken) } else { None };
                    self.state = State::Closing { ack, held: held.into_iter().collect(), then: Then::Cut };
                }
            }
        }
        Poll::Ready(passed.on)
    }

    /// The client could take what came last for the whole answer: its length is reached, or, in an answer
    /// without one that is no stream of events, nobody knows.
    fn may_be_last(&self) -> bool {
        self.left.map_or(!self.is_stream, |left| left == 0)
    }

    /// Waits for the outcome, then lets the end go, together with what came behind it.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let State::Closing { ack, held, then } = &mut self.state else {
            return Poll::Ready(Vec::new());
        };
        let durable = ready!(Pin::new(ack).poll(cx));
        let (mut held, then) = (mem::take(held), *then);
        self.state = match (durable, then) {
            // The client must not see the end of a call of which no outcome is known.
            (Err(_), _) => {
                held.clear();
                State::Cutting { flushed: false }
            }
            (Ok(()), Then::Cut) => State::Cutting { flushed: false },
            (Ok(()), Then::Done) => State::Done,
            (Ok(()), Then::Tail) => {
                self.state = State::Tail;
                return Poll::Ready(held);
            }
        };
        Poll::Ready(held)
    }

    /// What the upstream sends behind the end; its own end frees the connection.
    fn poll_tail(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let mut passed = Passed { terminal: true, ..Passed::default() };
        // The client has the whole answer; how the connection ends is between us and the upstream.
        if !matches!(ready!(self.carried.poll_piece(cx, &mut passed)), Some(Ok(_))) {
            self.state = State::Done;
        }
        Poll::Ready(passed.held)
    }
}

impl Tap {
    /// All that may go by now, as far as one turn takes it; an error instead where the answer breaks off.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), AnswerCut>> {
        let mut taken = 0;
        loop {
            let nothing = self.ready.is_empty();
            let more = match &mut self.state {
                State::Passing => self.poll_passing(cx),
                State::Closing { .. } => self.poll_closing(cx),
                State::Tail => self.poll_tail(cx),
                State::Cutting { flushed } if !nothing || !*flushed => {
                    if nothing {
                        *flushed = true;
                        // hyper drops what it has not written when a body fails: let it write first.
                        cx.waker().wake_by_ref();
                    }
                    Poll::Pending
                }
                State::Cutting { .. } => {
                    self.state = State::Done;
                    return Poll::Ready(Err(AnswerCut));
                }
                State::Done => return Poll::Ready(Ok(())),
            };
            match more {
                Poll::Ready(more) => {
                    taken += more.iter().map(Bytes::len).sum::<usize>();
                    self.queue(more);
                }
                Poll::Pending if nothing => return Poll::Pending,
                Poll::Pending => return Poll::Ready(Ok(())),
            }
            // While passing, what was gathered goes at once; only the end may still join it.
            let enough = match self.state {
                State::Passing => !self.ready.is_empty(),
                State::Tail => taken >= ENOUGH,
                State::Closing { .. } | State::Cutting { .. } | State::Done => false,
            };
            if enough {
                return Poll::Ready(Ok(()));
            }
        }
    }

    fn queue(&mut self, pieces: Vec<Bytes>) {
        for piece in pieces {
            match self.ready.back_mut() {
                Some(last) if last.len() + piece.len() <= SMALL => *last = join(vec![mem::take(last), piece]),
                _ => self.ready.push_back(piece),
            }
        }
    }
}

impl Body for Tap {
    type Data = Bytes;
    type Error = AnswerCut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, AnswerCut>>> {
        if self.ready.is_empty() {
            ready!(self.poll_ready(cx))?;
        }
        Poll::Ready(self.ready.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && matches!(self.state, State::Done)
    }
}

/// The error event of the protocols that have one. A chat stream has none, and is never given a fake end.
fn cut_event(wire: Wire, broken: UpstreamError) -> Option<Bytes> {
    let message = match broken {
        UpstreamError::Timeout => "the upstream went silent in the middle of its answer",
        UpstreamError::Closed | UpstreamError::Cut | UpstreamError::Unreachable => {
            "the upstream broke off in the middle of its answer"
        }
    };
    match wire {
        Wire::Messages => Some(Bytes::from(format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"api_error\",\"message\":\"{message}\"}}}}\n\n"
        ))),
        Wire::Responses => Some(Bytes::from(format!(
            "event: error\ndata: {{\"type\":\"error\",\"code\":\"upstream_cut\",\"message\":\"{message}\",\"param\":null,\"sequence_number\":0}}\n\n"
        ))),
        Wire::Chat
        | Wire::Completions
        | Wire::Embeddings
        | Wire::CountTokens
        | Wire::Compact
        | Wire::InputTokens
        | Wire::Models
        | Wire::Stored
        | Wire::Other => None,
    }
}
