//! The body of a response: pieces go to the client at once, and the end once its outcome is durable.

use std::collections::VecDeque;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::active_call::ActiveCall;
use crate::audit::Ack;
use crate::filter::{Filtered, join};
use crate::upstream_failure;

/// Number of bytes after the end of a stream that are taken in one turn.
const ENOUGH: usize = 64 * 1024;
/// Size up to which pieces are joined: a copy costs less than a chunk of its own.
const SMALL: usize = 1024;

/// Error that breaks the connection to the client: the response cannot be completed.
#[derive(Debug, thiserror::Error)]
#[error("the answer was cut")]
pub struct ResponseCut;

/// Body that the client gets.
#[derive(Debug)]
pub struct Tap {
    active: ActiveCall,
    state: State,
    /// Number of bytes that the length of the response still promises.
    left: Option<u64>,
    /// A piece that may be the last one: it waits for the next, or for the outcome.
    held_back: Option<Bytes>,
    /// Pieces that may go, in their order.
    ready: VecDeque<Bytes>,
    is_stream: bool,
}

#[derive(Debug)]
enum State {
    Passing,
    /// The outcome is being written; then these pieces go.
    Closing {
        ack: Ack,
        held: Vec<Bytes>,
        then: AfterClosing,
    },
    /// After the event that ended the stream.
    Tail,
    /// One turn for hyper to write, and then the cut.
    Cutting {
        flushed: bool,
    },
    Done,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterClosing {
    Tail,
    Done,
    Cut,
}

impl Tap {
    /// Creates the body of a response whose head is known.
    #[must_use]
    pub fn new(active: ActiveCall, content_length: Option<u64>) -> Self {
        let is_stream = active.call.head.as_ref().is_some_and(|head| head.is_stream);
        let ready = VecDeque::new();
        Self { active, state: State::Passing, left: content_length, held_back: None, ready, is_stream }
    }

    /// Returns the next pieces, except one that has to wait.
    fn poll_passing(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let mut filtered = Filtered::default();
        filtered.ready.extend(self.held_back.take());
        while matches!(self.state, State::Passing) {
            match self.active.poll_piece(cx, &mut filtered) {
                Poll::Pending => {
                    if self.may_be_last() {
                        self.held_back = filtered.ready.pop();
                    }
                    return if filtered.ready.is_empty() { Poll::Pending } else { Poll::Ready(filtered.ready) };
                }
                Poll::Ready(Some(Ok(len))) => {
                    self.left = self.left.map(|left| left.saturating_sub(len as u64));
                    if filtered.terminal {
                        let ack = self.active.complete();
                        self.state =
                            State::Closing { ack, held: mem::take(&mut filtered.held), then: AfterClosing::Tail };
                    } else if !self.may_be_last() && !filtered.ready.is_empty() {
                        break;
                    } else if filtered.ready.len() > 1 {
                        self.held_back = filtered.ready.pop();
                        break;
                    }
                }
                Poll::Ready(None) => {
                    let ack = self.active.complete();
                    let held = if self.may_be_last() { mem::take(&mut filtered.ready) } else { Vec::new() };
                    self.state = State::Closing { ack, held, then: AfterClosing::Done };
                }
                Poll::Ready(Some(Err(error))) => {
                    let ack = self.active.upstream_failed(error);
                    let held =
                        if self.is_stream { upstream_failure::event(self.active.call.format, error) } else { None };
                    self.state = State::Closing { ack, held: held.into_iter().collect(), then: AfterClosing::Cut };
                }
            }
        }
        Poll::Ready(filtered.ready)
    }

    /// Returns true if the client could take the last piece for the end of the response: its length is reached, or it
    /// has no length and is not a stream of events.
    fn may_be_last(&self) -> bool {
        self.left.map_or(!self.is_stream, |left| left == 0)
    }

    /// Waits for the outcome, then returns the end, together with the bytes that came after it.
    fn poll_closing(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let State::Closing { ack, held, then } = &mut self.state else {
            return Poll::Ready(Vec::new());
        };
        let durable = ready!(Pin::new(ack).poll(cx));
        let (mut held, then) = (mem::take(held), *then);
        self.state = match (durable, then) {
            // The client must not see the end of a call without a recorded outcome.
            (Err(_), _) => {
                held.clear();
                State::Cutting { flushed: false }
            }
            (Ok(()), AfterClosing::Cut) => State::Cutting { flushed: false },
            (Ok(()), AfterClosing::Done) => State::Done,
            (Ok(()), AfterClosing::Tail) => {
                self.state = State::Tail;
                return Poll::Ready(held);
            }
        };
        Poll::Ready(held)
    }

    /// Returns bytes that the upstream sends after the end. The end of the response frees the upstream's connection.
    fn poll_tail(&mut self, cx: &mut Context<'_>) -> Poll<Vec<Bytes>> {
        let mut filtered = Filtered { terminal: true, ..Filtered::default() };
        // The client has the whole response; the end of the connection concerns only the upstream.
        if !matches!(ready!(self.active.poll_piece(cx, &mut filtered)), Some(Ok(_))) {
            self.state = State::Done;
        }
        Poll::Ready(filtered.held)
    }
}

impl Tap {
    /// Collects the pieces that may go by now, in one turn; returns the error if the response breaks off.
    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ResponseCut>> {
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
                        // hyper drops unwritten bytes when a body fails: it gets a turn to write them.
                        cx.waker().wake_by_ref();
                    }
                    Poll::Pending
                }
                State::Cutting { .. } => {
                    self.state = State::Done;
                    return Poll::Ready(Err(ResponseCut));
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
            // While passing, the pieces go at once; only the end may still join them.
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
    type Error = ResponseCut;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseCut>>> {
        if self.ready.is_empty() {
            ready!(self.poll_ready(cx))?;
        }
        Poll::Ready(self.ready.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.ready.is_empty() && matches!(self.state, State::Done)
    }
}
