//! What the upstream does with one request: a list of steps, shaped by what was received.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::Received;
use crate::board::Board;

/// A gate in a script: the upstream stands before it until the test opens it.
#[derive(Clone)]
pub struct Gate {
    passes: Arc<Semaphore>,
    arrivals: Arc<Board<usize>>,
}

impl Gate {
    /// A closed gate.
    pub fn new() -> Self {
        Self { passes: Arc::new(Semaphore::new(0)), arrivals: Arc::new(Board::new(0)) }
    }

    /// Opens it for good.
    pub fn open(&self) {
        self.passes.close();
    }

    /// Lets one script through, now or when it arrives.
    pub fn step(&self) {
        self.passes.add_permits(1);
    }

    /// Waits until scripts have arrived at it `count` times in all.
    pub async fn reached(&self, count: usize) {
        self.arrivals.until("the upstream to stand at a gate", |seen| (*seen >= count).then_some(())).await;
    }

    pub(super) async fn pass(&self) {
        self.arrivals.update(|seen| *seen += 1);
        // A closed semaphore is an open gate.
        if let Ok(permit) = self.passes.acquire().await {
            permit.forget();
        }
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.passes.is_closed() { "Gate(open)" } else { "Gate(closed)" })
    }
}

/// One thing that the upstream does.
#[derive(Debug, Clone)]
pub enum Step {
    /// Writes the bytes at once.
    Send(Bytes),
    /// Writes the bytes one by one.
    Trickle(Bytes),
    /// Waits at the gate.
    Hold(Gate),
    /// Writes so many copies, as fast as the reader takes them.
    Flood(Bytes, usize),
    /// Sends FIN, then waits for the other side to close.
    Close,
    /// Sends RST (TCP; a unix socket is just closed).
    Reset,
    /// Does nothing until the other side closes.
    Never,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Framing {
    /// The body's steps are written as they are.
    Bare,
    Length(usize),
    Chunked,
    /// With extensions and trailers.
    OddChunked,
    UntilClose,
}

/// An answer before it becomes bytes.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    pub(super) preface: Vec<u8>,
    /// None: the steps are all there is.
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) cut_head: Option<usize>,
    pub(super) trickle_head: bool,
    pub(super) framing: Framing,
    pub(super) body: Vec<Step>,
}

impl Shape {
    pub(super) fn raw(steps: Vec<Step>) -> Self {
        Self {
            preface: Vec::new(),
            status: None,
            headers: Vec::new(),
            cut_head: None,
            trickle_head: false,
            framing: Framing::Bare,
            body: steps,
        }
    }

    pub(super) fn unary(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let framing = Framing::Length(body.len());
        Self { status: Some(status), headers, framing, body: vec![Step::Send(body.into())], ..Self::raw(Vec::new()) }
    }

    pub(super) fn chunked(content_type: &str, parts: impl IntoIterator<Item = Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let body = parts.into_iter().map(Step::Send).collect();
        Self { status: Some(200), headers, framing: Framing::Chunked, body, ..Self::raw(Vec::new()) }
    }

    /// The place after `count` writes of the body and the gates that stand right behind them.
    pub(super) fn after(&self, count: usize) -> usize {
        let mut left = count;
        for (at, step) in self.body.iter().enumerate() {
            match step {
                Step::Hold(_) => {}
                _ if left == 0 => return at,
                _ => left -= 1,
            }
        }
        self.body.len()
    }

    /// Nothing after `count` writes but `end`.
    pub(super) fn end_after(&mut self, count: usize, end: Step) {
        let at = self.after(count);
        self.body.truncate(at);
        self.body.push(end);
    }

    pub(super) fn render(self) -> Vec<Step> {
        let mut steps = Vec::new();
        let head = self.head();
        match (self.trickle_head, self.cut_head) {
            _ if head.is_empty() => {}
            (_, Some(cut)) => {
                steps.extend([Step::Send(head.slice(..cut.min(head.len()))), Step::Close]);
                return steps;
            }
            (true, None) => steps.push(Step::Trickle(head)),
            (false, None) => steps.push(Step::Send(head)),
        }
        let ends = |step: &Step| matches!(step, Step::Close | Step::Reset | Step::Never);
        let cut = self.body.iter().any(ends);
        let framing = self.framing;
        steps.extend(self.body.into_iter().map(|step| match step {
            Step::Send(bytes) => Step::Send(framed(&bytes, framing)),
            Step::Flood(bytes, count) => Step::Flood(framed(&bytes, framing), count),
            other => other,
        }));
        match framing {
            _ if cut => {}
            Framing::Chunked => steps.push(Step::Send(Bytes::from_static(b"0\r\n\r\n"))),
            Framing::OddChunked => {
                steps.push(Step::Send(Bytes::from_static(b"000;last\r\nx-trailer: leaked\r\nx-two: 2\r\n\r\n")));
            }
            Framing::UntilClose => steps.push(Step::Close),
            Framing::Bare | Framing::Length(_) => {}
        }
        steps
    }

    fn head(&self) -> Bytes {
        let mut head = self.preface.clone();
        if let Some(status) = self.status {
            head.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", phrase(status)).as_bytes());
            let framing = match self.framing {
                Framing::Length(length) => Some(("content-length".to_owned(), length.to_string())),
                Framing::Chunked | Framing::OddChunked => {
                    Some(("transfer-encoding".to_owned(), "chunked".to_owned()))
                }
                Framing::Bare | Framing::UntilClose => None,
            };
            for (name, value) in self.headers.iter().chain(&framing) {
                head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            head.extend_from_slice(b"\r\n");
        }
        head.into()
    }
}

fn framed(bytes: &Bytes, framing: Framing) -> Bytes {
    let extension = match framing {
        Framing::Chunked => "",
        Framing::OddChunked => ";ext=\"a b\";flag",
        Framing::Bare | Framing::Length(_) | Framing::UntilClose => return bytes.clone(),
    };
    let mut chunk = format!("{:X}{extension}\r\n", bytes.len()).into_bytes();
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(b"\r\n");
    chunk.into()
}

fn phrase(status: u16) -> &'static str {
    match status {
        200 => "OK",
        307 => "Temporary Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "Whatever",
    }
}

/// What the upstream does with one request.
///
/// Modifiers count *writes of the body*: an event of a stream, or the body of a unary answer. The
/// head is a write of its own that does not count, and so is the end of a chunked body.
#[derive(Clone)]
pub struct Script(Arc<dyn Fn(&Received) -> Shape + Send + Sync>);

impl Script {
    /// Exactly these steps and nothing else.
    pub fn steps(steps: impl IntoIterator<Item = Step>) -> Self {
        let steps: Vec<Step> = steps.into_iter().collect();
        Self::shaped(move |_| Shape::raw(steps.clone()))
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

    /// No answer, ever.
    pub fn never() -> Self {
        Self::steps([Step::Never])
    }

    pub(super) fn shaped(make: impl Fn(&Received) -> Shape + Send + Sync + 'static) -> Self {
        Self(Arc::new(make))
    }

    pub(super) fn shape(&self, request: &Received) -> Shape {
        (self.0)(request)
    }

    pub(super) fn edit(self, edit: impl Fn(&mut Shape) + Send + Sync + 'static) -> Self {
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
            Shape::raw(steps)
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

    /// FIN after `count` writes of the body, whatever was promised.
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

    /// FIN after so many bytes of the head.
    pub fn cut_head(self, bytes: usize) -> Self {
        self.edit(move |shape| shape.cut_head = Some(bytes))
    }

    /// The whole answer, then FIN, without having said so.
    pub fn then_close(self) -> Self {
        Self::shaped(move |request| {
            let mut steps = self.shape(request).render();
            steps.push(Step::Close);
            Shape::raw(steps)
        })
    }

    /// Another status.
    pub fn status(self, status: u16) -> Self {
        self.edit(move |shape| shape.status = Some(status))
    }

    /// One more header.
    pub fn header(self, name: &str, value: &str) -> Self {
        let pair = (name.to_owned(), value.to_owned());
        self.edit(move |shape| shape.headers.push(pair.clone()))
    }

    /// No such header.
    pub fn without_header(self, name: &str) -> Self {
        let name = name.to_owned();
        self.edit(move |shape| shape.headers.retain(|(key, _)| !key.eq_ignore_ascii_case(&name)))
    }

    /// So many headers of so many bytes each, `x-huge-0` and on.
    pub fn huge_headers(self, count: usize, size: usize) -> Self {
        self.edit(move |shape| {
            shape.headers.extend((0..count).map(|number| (format!("x-huge-{number}"), "h".repeat(size))));
        })
    }

    /// Declares this length, whatever the body is. Too long: add `.then_close()` or the peer waits.
    pub fn content_length(self, length: usize) -> Self {
        self.edit(move |shape| shape.framing = Framing::Length(length))
    }

    /// Chunked coding, one chunk a write.
    pub fn chunked(self) -> Self {
        self.edit(|shape| shape.framing = Framing::Chunked)
    }

    /// Chunked coding with extensions on every chunk and trailers at the end.
    pub fn odd_chunks(self) -> Self {
        self.edit(|shape| shape.framing = Framing::OddChunked)
    }

    /// No length: the end of the connection is the end of the body.
    pub fn until_close(self) -> Self {
        self.edit(|shape| shape.framing = Framing::UntilClose)
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

    /// The body in writes of `size` bytes, whatever its events are.
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
            Shape::raw(steps)
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
