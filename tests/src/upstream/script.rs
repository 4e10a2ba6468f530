//! The upstream's answer to one request, as a function of the request.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::shape::{AnswerFraming, AnswerShape};
use super::{Gate, ReceivedRequest, Step};

/// The upstream's answer to one request.
///
/// Modifiers count *writes of the body*: an event of a stream, or the body of a unary answer. The
/// head and the end of a chunked body are separate writes that do not count.
#[derive(Clone)]
pub struct Script(Arc<dyn Fn(&ReceivedRequest) -> AnswerShape + Send + Sync>);

impl Script {
    /// These steps only.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: Vec<Step> = steps.into_iter().collect();
        Self::shaped(move |_| AnswerShape::raw(steps.clone()))
    }

    /// Exactly these bytes, then FIN.
    pub fn raw(bytes: impl Into<Bytes>) -> Self {
        Self::steps([Step::Send(bytes.into()), Step::Close])
    }

    /// FIN without a byte.
    pub fn close() -> Self {
        Self::steps([Step::Close])
    }

    /// RST without a byte.
    pub fn reset() -> Self {
        Self::steps([Step::Reset])
    }

    /// Never answers.
    pub fn never() -> Self {
        Self::steps([Step::Never])
    }

    pub(super) fn shaped(make: impl Fn(&ReceivedRequest) -> AnswerShape + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(super) fn shape(&self, request: &ReceivedRequest) -> AnswerShape {
        (self.0)(request)
    }

    pub(super) fn edit(self, edit: impl Fn(&mut AnswerShape) + Send + Sync + 'static) -> Self {
        Self::shaped(move |request| {
            let mut shape = self.shape(request);
            edit(&mut shape);
            shape
        })
    }

    /// Waits at `gate` after `count` writes of the body (0: after the head).
    pub fn hold_after(self, count: usize, gate: &Gate) -> Self {
        let gate = gate.clone();
        self.edit(move |shape| shape.body.insert(shape.after(count), Step::Hold(gate.clone())))
    }

    /// Waits at `gate` before the head.
    pub fn hold_head(self, gate: &Gate) -> Self {
        let gate = gate.clone();
        Self::shaped(move |request| {
            let mut steps = self.shape(request).render();
            steps.insert(0, Step::Hold(gate.clone()));
            AnswerShape::raw(steps)
        })
    }

    /// Waits at `gate` before each write of the body: `gate.step()` lets one through.
    pub fn hold_each(self, gate: &Gate) -> Self {
        let gate = gate.clone();
        self.edit(move |shape| {
            let body = std::mem::take(&mut shape.body);
            shape.body = body.into_iter().flat_map(|step| [Step::Hold(gate.clone()), step]).collect();
        })
    }

    /// FIN after `count` writes of the body, also before its declared end.
    pub fn cut_after(self, count: usize) -> Self {
        self.edit(move |shape| shape.end_after(count, Step::Close))
    }

    /// RST after `count` writes of the body.
    pub fn reset_after(self, count: usize) -> Self {
        self.edit(move |shape| shape.end_after(count, Step::Reset))
    }

    /// Silence after `count` writes of the body.
    pub fn silent_after(self, count: usize) -> Self {
        self.edit(move |shape| shape.end_after(count, Step::Never))
    }

    /// FIN after `bytes` bytes of the head.
    pub fn cut_head(self, bytes: usize) -> Self {
        self.edit(move |shape| shape.cut_head = Some(bytes))
    }

    /// The whole answer, then FIN without `connection: close`.
    pub fn then_close(self) -> Self {
        Self::shaped(move |request| {
            let mut steps = self.shape(request).render();
            steps.push(Step::Close);
            AnswerShape::raw(steps)
        })
    }

    /// The whole answer, then RST.
    pub fn then_reset(self) -> Self {
        Self::shaped(move |request| {
            let mut steps = self.shape(request).render();
            steps.push(Step::Reset);
            AnswerShape::raw(steps)
        })
    }

    /// Replaces the status.
    pub fn status(self, status: u16) -> Self {
        self.edit(move |shape| shape.status = Some(status))
    }

    /// Adds a header.
    pub fn header(self, name: &str, value: &str) -> Self {
        let pair = (name.to_owned(), value.to_owned());
        self.edit(move |shape| shape.headers.push(pair.clone()))
    }

    /// Removes a header.
    pub fn without_header(self, name: &str) -> Self {
        let name = name.to_owned();
        self.edit(move |shape| shape.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(&name)))
    }

    /// Adds `count` headers of `size` bytes each: `x-huge-0` and so on.
    pub fn huge_headers(self, count: usize, size: usize) -> Self {
        self.edit(move |shape| {
            shape.headers.extend((0..count).map(|number| (format!("x-huge-{number}"), "h".repeat(size))));
        })
    }

    /// Declares this length, independent of the body. If it is too long, add `.then_close()`, else the peer waits.
    pub fn content_length(self, length: usize) -> Self {
        self.edit(move |shape| shape.framing = AnswerFraming::Length(length))
    }

    /// Chunked coding, one chunk a write.
    pub fn chunked(self) -> Self {
        self.edit(|shape| shape.framing = AnswerFraming::Chunked)
    }

    /// Chunked coding with extensions on every chunk and trailers at the end.
    pub fn odd_chunks(self) -> Self {
        self.edit(|shape| shape.framing = AnswerFraming::OddChunked)
    }

    /// Sends no length: the body ends with the connection.
    pub fn until_close(self) -> Self {
        self.edit(|shape| shape.framing = AnswerFraming::UntilClose)
    }

    /// The head one byte a write.
    pub fn head_byte_by_byte(self) -> Self {
        self.edit(|shape| shape.trickle_head = true)
    }

    /// An interim response (100, 102, 103) before the answer.
    pub fn after_interim(self, status: u16) -> Self {
        self.edit(move |shape| {
            shape.preface.extend_from_slice(format!("HTTP/1.1 {status} Interim\r\nx-interim: 1\r\n\r\n").as_bytes());
        })
    }

    /// The body in writes of `size` bytes, independent of its events.
    pub fn in_pieces(self, size: usize) -> Self {
        self.edit(move |shape| {
            let body = std::mem::take(&mut shape.body);
            shape.body = body.into_iter().flat_map(|step| pieces(step, size)).collect();
        })
    }

    /// Head and body in as few writes as the gates allow.
    pub fn in_a_burst(self) -> Self {
        Self::shaped(move |request| {
            let mut steps: Vec<Step> = Vec::new();
            for step in self.shape(request).render() {
                match (steps.last_mut(), step) {
                    (Some(Step::Send(before)), Step::Send(bytes)) => *before = [&before[..], &bytes].concat().into(),
                    (_, step) => steps.push(step),
                }
            }
            AnswerShape::raw(steps)
        })
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

fn pieces(step: Step, size: usize) -> Vec<Step> {
    match step {
        Step::Send(bytes) => bytes.chunks(size).map(|piece| Step::Send(Bytes::copy_from_slice(piece))).collect(),
        other => vec![other],
    }
}
