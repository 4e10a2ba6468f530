//! The client's half of HTTP/1.1: an answer in pieces, checked as it arrives. Pure.

use std::fmt;

use sluice_testkit::http1::find;

use crate::upstream::{decimal, header_values};
use crate::wire::{Expected, STAMP, STAMP_DIGITS};

/// A fault of an answer.
#[derive(Debug)]
pub(crate) enum ResponseFault {
    /// The status is not 200; the start of the answer.
    Status(String),
    /// The answer has neither a length nor chunks, or a broken one of them.
    Framing,
    /// Another number of bytes than the upstream has sent.
    Length { got: usize, expected: usize },
    /// The length is right, and the end is not.
    Tail,
}

impl fmt::Display for ResponseFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(start) => write!(out, "not a 200: {start}"),
            Self::Framing => write!(out, "broken framing"),
            Self::Length { got, expected } => write!(out, "body of {got} bytes, expected {expected}"),
            Self::Tail => write!(out, "the body does not end as it must"),
        }
    }
}

/// The data that is collected from a body.
#[derive(Debug)]
pub(crate) enum Watch {
    Nothing,
    /// The upstream's time stamps: microseconds from the upstream to the client, for each chunk.
    Chunks(Vec<u32>),
}

/// The state of the connection after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum After {
    Keep,
    Close,
}

#[derive(Debug)]
enum State {
    Head(Vec<u8>),
    /// A body of known length: the number of missing bytes.
    Fixed(usize),
    /// The line with a chunk's size: the size so far, and whether its digits have ended.
    Size(usize, Digits),
    /// Inside a chunk: the number of missing bytes.
    Data(usize),
    /// The line end after a chunk: the number of missing bytes.
    DataEnd(usize),
    /// After the last chunk: length of the current trailer line so far.
    Trailer(usize),
    Done,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Digits {
    Open,
    Ended,
}

/// An answer that is being read.
#[derive(Debug)]
pub(crate) struct Response {
    state: State,
    length: usize,
    tail: Vec<u8>,
    after: After,
}

impl Response {
    /// Returns an answer of which nothing has arrived yet.
    pub(crate) fn new() -> Self {
        Self { state: State::Head(Vec::new()), length: 0, tail: Vec::with_capacity(32), after: After::Keep }
    }

    /// Takes bytes that were read at `now` (microseconds since the epoch). Returns true at the end.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], now: u64, watch: &mut Watch) -> Result<bool, ResponseFault> {
        while !bytes.is_empty() {
            bytes = match &mut self.state {
                State::Head(_) => self.head(bytes)?,
                State::Fixed(left) => {
                    let (data, rest) = bytes.split_at((*left).min(bytes.len()));
                    *left -= data.len();
                    if *left == 0 {
                        self.state = State::Done;
                    }
                    self.data(data, now, watch);
                    rest
                }
                State::Data(left) => {
                    let (data, rest) = bytes.split_at((*left).min(bytes.len()));
                    *left -= data.len();
                    if *left == 0 {
                        self.state = State::DataEnd(2);
                    }
                    self.data(data, now, watch);
                    rest
                }
                State::Size(..) | State::DataEnd(_) | State::Trailer(_) => {
                    self.framing(bytes[0])?;
                    &bytes[1..]
                }
                State::Done => return Err(ResponseFault::Framing),
            };
        }
        Ok(matches!(self.state, State::Done))
    }

    /// Checks the length and the end of a whole answer.
    pub(crate) fn finish(&self, expected: Expected) -> Result<After, ResponseFault> {
        if self.length != expected.length {
            return Err(ResponseFault::Length { got: self.length, expected: expected.length });
        }
        if !self.tail.ends_with(expected.tail) {
            return Err(ResponseFault::Tail);
        }
        Ok(self.after)
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], ResponseFault> {
        let State::Head(head) = &mut self.state else {
            return Err(ResponseFault::Framing);
        };
        let before = head.len();
        head.extend_from_slice(bytes);
        let Some(end) = find(head, b"\r\n\r\n") else {
            return Ok(&[]);
        };
        if !head.starts_with(b"HTTP/1.1 200 ") {
            let start = &head[..head.len().min(700)];
            return Err(ResponseFault::Status(String::from_utf8_lossy(start).into_owned()));
        }
        let fields = &head[..end + 2];
        if header_values(fields, b"connection").any(|value| value.eq_ignore_ascii_case(b"close")) {
            self.after = After::Close;
        }
        let chunked = header_values(fields, b"transfer-encoding").any(|value| value == b"chunked");
        let length = header_values(fields, b"content-length").next().and_then(decimal);
        self.state = match (chunked, length) {
            (true, None) => State::Size(0, Digits::Open),
            (false, Some(0)) => State::Done,
            (false, Some(length)) => State::Fixed(length),
            _ => return Err(ResponseFault::Framing),
        };
        Ok(&bytes[end + 4 - before..])
    }

    fn framing(&mut self, byte: u8) -> Result<(), ResponseFault> {
        match (&mut self.state, byte) {
            (State::Size(0, _), b'\n') => self.state = State::Trailer(0),
            (State::Size(size, _), b'\n') => self.state = State::Data(*size),
            (State::Size(_, digits @ Digits::Open), b'\r' | b';') => *digits = Digits::Ended,
            (State::Size(_, Digits::Ended), _) => {}
            (State::Size(size, Digits::Open), digit) => {
                let digit = char::from(digit).to_digit(16).ok_or(ResponseFault::Framing)?;
                *size = size.checked_mul(16).ok_or(ResponseFault::Framing)? + digit as usize;
            }
            (State::DataEnd(left @ 2), b'\r') => *left = 1,
            (State::DataEnd(1), b'\n') => self.state = State::Size(0, Digits::Open),
            (State::Trailer(0), b'\n') => self.state = State::Done,
            (State::Trailer(_), b'\r') => {}
            (State::Trailer(line), b'\n') => *line = 0,
            (State::Trailer(line), _) => *line += 1,
            _ => return Err(ResponseFault::Framing),
        }
        Ok(())
    }

    fn data(&mut self, data: &[u8], now: u64, watch: &mut Watch) {
        const TAIL: usize = 32;
        self.length += data.len();
        let kept = &data[data.len().saturating_sub(TAIL)..];
        self.tail.drain(..(self.tail.len() + kept.len()).saturating_sub(TAIL));
        self.tail.extend_from_slice(kept);
        if let Watch::Chunks(latencies) = watch {
            latencies.extend(stamps(data).map(|stamp| u32::try_from(now.saturating_sub(stamp)).unwrap_or(u32::MAX)));
        }
    }
}

/// Returns the time stamps in a piece of a stream. A stamp that is split between two pieces is not found.
fn stamps(mut rest: &[u8]) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        rest = &rest[find(rest, STAMP)? + STAMP.len()..];
        decimal(rest.get(..STAMP_DIGITS)?).and_then(|stamp| u64::try_from(stamp).ok())
    })
}
