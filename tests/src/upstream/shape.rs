//! An answer as data, and the steps that write it. Pure.

use bytes::Bytes;

use super::Gate;

/// One action of the upstream.
#[derive(Debug, Clone)]
pub enum Step {
    /// Writes the bytes at once.
    Send(Bytes),
    /// Writes the bytes one by one.
    Trickle(Bytes),
    /// Waits at the gate.
    Hold(Gate),
    /// Writes copies of the bytes, as fast as the reader takes them.
    Flood(Bytes, usize),
    /// Sends FIN, then waits for the other side to close.
    Close,
    /// Sends RST (TCP; a unix socket is just closed).
    Reset,
    /// Does nothing until the other side closes.
    Never,
}

/// Marker of a body's end.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AnswerFraming {
    /// The body's steps are written as they are.
    Bare,
    Length(usize),
    Chunked,
    /// Chunked coding with extensions and trailers.
    OddChunked,
    UntilClose,
}

/// An answer before it becomes bytes.
#[derive(Debug, Clone)]
pub(super) struct AnswerShape {
    pub(super) preface: Vec<u8>,
    /// `None`: the answer consists of its steps alone.
    pub(super) status: Option<u16>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) cut_head: Option<usize>,
    pub(super) trickle_head: bool,
    pub(super) framing: AnswerFraming,
    pub(super) body: Vec<Step>,
}

impl AnswerShape {
    pub(super) fn raw(steps: Vec<Step>) -> Self {
        Self {
            preface: Vec::new(),
            status: None,
            headers: Vec::new(),
            cut_head: None,
            trickle_head: false,
            framing: AnswerFraming::Bare,
            body: steps,
        }
    }

    pub(super) fn unary(status: u16, content_type: &str, body: Vec<u8>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let framing = AnswerFraming::Length(body.len());
        Self { status: Some(status), headers, framing, body: vec![Step::Send(body.into())], ..Self::raw(Vec::new()) }
    }

    pub(super) fn chunked(content_type: &str, parts: impl IntoIterator<Item = Bytes>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        let body = parts.into_iter().map(Step::Send).collect();
        Self { status: Some(200), headers, framing: AnswerFraming::Chunked, body, ..Self::raw(Vec::new()) }
    }

    /// Returns the place after `count` writes of the body and the gates that follow them directly.
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

    /// Keeps `count` writes, and ends with `end`.
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
            AnswerFraming::Chunked => steps.push(Step::Send(Bytes::from_static(b"0\r\n\r\n"))),
            AnswerFraming::OddChunked => {
                steps.push(Step::Send(Bytes::from_static(b"000;last\r\nx-trailer: leaked\r\nx-two: 2\r\n\r\n")));
            }
            AnswerFraming::UntilClose => steps.push(Step::Close),
            AnswerFraming::Bare | AnswerFraming::Length(_) => {}
        }
        steps
    }

    fn head(&self) -> Bytes {
        let mut head = self.preface.clone();
        if let Some(status) = self.status {
            head.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", phrase(status)).as_bytes());
            let framing = match self.framing {
                AnswerFraming::Length(length) => Some(("content-length".to_owned(), length.to_string())),
                AnswerFraming::Chunked | AnswerFraming::OddChunked => {
                    Some(("transfer-encoding".to_owned(), "chunked".to_owned()))
                }
                AnswerFraming::Bare | AnswerFraming::UntilClose => None,
            };
            for (name, value) in self.headers.iter().chain(&framing) {
                head.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
            }
            head.extend_from_slice(b"\r\n");
        }
        head.into()
    }
}

fn framed(bytes: &Bytes, framing: AnswerFraming) -> Bytes {
    let extension = match framing {
        AnswerFraming::Chunked => "",
        AnswerFraming::OddChunked => ";ext=\"a b\";flag",
        AnswerFraming::Bare | AnswerFraming::Length(_) | AnswerFraming::UntilClose => return bytes.clone(),
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
