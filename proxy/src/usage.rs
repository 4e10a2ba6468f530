//! Facts that a response tells about itself: tokens, cost, ids, errors; read while it passes.
//!
//! Pure. Later explicit values replace earlier ones and are never added: the Messages API counts cumulatively. A
//! usage of zeros is a placeholder (LiteLLM sends one in every text-completion chunk) and counts for nothing. The
//! caller decides which value can be trusted, by API format.

mod common_prefix;
mod response_fields;

use sluice_contract::Usd;
use sluice_contract::record::Usage;

use crate::json::{JsonError, Scanner};
use crate::policy::ApiFormat;
use crate::sse::{SsePiece, SseSplitter};
use common_prefix::CommonPrefix;
use response_fields::ResponseFields;

/// Facts of a response so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObservedResponse {
    /// Id that the provider gave the response.
    pub response_id: Option<String>,
    /// Model that answered.
    pub model: Option<String>,
    /// Tokens of the call.
    pub usage: Option<Usage>,
    /// `usage.cost` of a stream, if it can be trusted in this API format.
    pub cost: Option<Usd>,
    /// True if the response holds an error, with any status.
    pub error: bool,
    /// True if the gateway failed on its own, perhaps after a provider had answered.
    pub gateway_fault: bool,
    /// True once the event that ends a stream has passed.
    pub terminal: bool,
    /// True if the response is not what its content type says.
    pub unreadable: bool,
    /// Progress to the end that the response's format has.
    pub end: ResponseEnd,
}

/// Progress of a response to its end. A stream that ends before this has broken off: LiteLLM ends a stream cleanly even
/// if its provider has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ResponseEnd {
    /// More has to follow.
    #[default]
    Open,
    /// All output of a chat has come, and the usage known so far is from an earlier event.
    Finished,
    /// Nothing has to follow.
    Reached,
}

/// One event that ended in the current chunk, or several without output, usage or end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent {
    /// Offset after the event in the chunk; for the event that ends the stream, the end of the chunk.
    pub end: usize,
    /// True if the event ends the stream for the client.
    pub terminal: bool,
    /// True if the event carries output.
    pub output: bool,
    /// Location of usage in the event.
    pub usage: UsageLocation,
}

impl SseEvent {
    fn is_plain(&self) -> bool {
        !self.terminal && !self.output && self.usage == UsageLocation::None
    }
}

/// Location of an event's usage, for a client that did not ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageLocation {
    /// There is none.
    None,
    /// The event carries nothing else.
    Alone,
    /// The usage is beside output: the bytes of the event's data from and to, with one comma.
    Beside(u64, u64),
}

/// Observer of one response.
#[derive(Debug)]
pub enum ResponseObserver {
    /// One JSON document.
    Unary(Box<JsonDocument>),
    /// A stream of events.
    Stream(Box<EventStream>),
    /// A response without usage: nothing is read.
    Blind(ObservedResponse),
}

/// Reader of a JSON document, in pieces.
#[derive(Debug)]
pub struct JsonDocument {
    scanner: Scanner,
    fields: ResponseFields,
    observed: ObservedResponse,
}

/// Reader of a stream of events, in chunks.
#[derive(Debug)]
pub struct EventStream {
    format: ApiFormat,
    splitter: SseSplitter,
    scanner: Scanner,
    fields: ResponseFields,
    prefix: CommonPrefix,
    data: DataKind,
    observed: ObservedResponse,
}

/// Kind of the current event's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DataKind {
    /// None yet.
    Nothing,
    /// JSON.
    Json,
    /// This many bytes of `[DONE]`.
    Done(usize),
    /// Other data: comments, pings.
    Foreign,
}

const DONE: &[u8] = b"[DONE]";

impl ResponseObserver {
    /// Creates the observer of a response of this format.
    #[must_use]
    pub fn new(format: ApiFormat, is_stream: bool) -> Self {
        match format {
            ApiFormat::Models | ApiFormat::CountTokens | ApiFormat::InputTokens | ApiFormat::Stored => {
                Self::Blind(ObservedResponse::default())
            }
            _ if is_stream => Self::Stream(Box::new(EventStream {
                format,
                splitter: SseSplitter::default(),
                scanner: Scanner::new(),
                fields: ResponseFields::default(),
                prefix: CommonPrefix::default(),
                data: DataKind::Nothing,
                observed: ObservedResponse::default(),
            })),
            _ => Self::Unary(Box::new(JsonDocument {
                scanner: Scanner::new(),
                fields: ResponseFields::default(),
                observed: ObservedResponse::default(),
            })),
        }
    }

    /// Takes the next bytes of the response; the events that ended in them are added to `events`.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<SseEvent>) {
        match self {
            Self::Unary(document) => document.feed(bytes),
            Self::Stream(stream) => stream.feed(bytes, events),
            Self::Blind(_) => {}
        }
    }

    /// Ends the response: settles what only its end can settle.
    pub fn finish(&mut self) {
        match self {
            Self::Unary(document) => document.finish(),
            Self::Stream(stream) => stream.finish(),
            Self::Blind(observed) => observed.end = ResponseEnd::Reached,
        }
    }

    /// Moves the facts out, for the record of a call that is over.
    pub fn take_observed(&mut self) -> ObservedResponse {
        let observed = match self {
            Self::Unary(document) => &mut document.observed,
            Self::Stream(stream) => &mut stream.observed,
            Self::Blind(observed) => observed,
        };
        // The facts that decide how the rest is read stay.
        let left = ObservedResponse {
            terminal: observed.terminal,
            unreadable: observed.unreadable,
            ..ObservedResponse::default()
        };
        std::mem::replace(observed, left)
    }

    /// Returns the facts so far.
    #[must_use]
    pub fn observed(&self) -> &ObservedResponse {
        match self {
            Self::Unary(document) => &document.observed,
            Self::Stream(stream) => &stream.observed,
            Self::Blind(observed) => observed,
        }
    }
}

impl JsonDocument {
    fn feed(&mut self, bytes: &[u8]) {
        if !self.observed.unreadable && self.scanner.feed(bytes, &mut self.fields).is_err() {
            self.observed.unreadable = true;
        }
    }

    fn finish(&mut self) {
        let ended: Result<(), JsonError> = self.scanner.finish(&mut self.fields);
        self.observed.unreadable |= ended.is_err();
        self.fields.take_into(&mut self.observed);
        self.observed.end = ResponseEnd::Reached;
        // A cost in a unary body cannot be trusted; the header's can.
        self.observed.cost = None;
    }
}

impl EventStream {
    fn feed(&mut self, chunk: &[u8], events: &mut Vec<SseEvent>) {
        let Self { format, splitter, scanner, fields, prefix, data, observed } = self;
        splitter.feed(chunk, |piece| match piece {
            // Bytes after the end are not part of the response, for any split.
            _ if observed.terminal => {}
            SsePiece::Data(bytes) if *data == DataKind::Nothing && fields.lines == 0 && bytes.starts_with(b"{") => {
                let known = prefix.pass(bytes, scanner, fields);
                *data = if known.is_ok_and(|known| scanner.feed(&bytes[known..], fields).is_ok()) {
                    DataKind::Json
                } else {
                    DataKind::Foreign
                };
            }
            SsePiece::Data(bytes) => *data = read(*data, bytes, scanner, fields),
            SsePiece::DataEnd => {
                fields.lines += 1;
                if *data == DataKind::Json && scanner.feed(b"\n", fields).is_err() {
                    *data = DataKind::Foreign;
                }
                // A client may act on the line; the blank line after it may come later.
                if ends_stream(*data, scanner, fields) {
                    let data = std::mem::replace(data, DataKind::Nothing);
                    add(events, close(*format, chunk.len(), data, scanner, fields, observed));
                }
            }
            SsePiece::End(end) => {
                let data = std::mem::replace(data, DataKind::Nothing);
                add(events, close(*format, end, data, scanner, fields, observed));
            }
        });
    }

    /// Ends the stream: its last event may lack the end of its line, and a format that is not known may end anywhere.
    fn finish(&mut self) {
        let Self { format, scanner, fields, data, observed, .. } = self;
        if !observed.terminal && ends_stream(*data, scanner, fields) {
            close(*format, 0, std::mem::replace(data, DataKind::Nothing), scanner, fields, observed);
        }
        if *format == ApiFormat::Other {
            observed.end = ResponseEnd::Reached;
        }
    }
}

fn read(data: DataKind, bytes: &[u8], scanner: &mut Scanner, fields: &mut ResponseFields) -> DataKind {
    match (data, bytes.first()) {
        (_, None) => data,
        (DataKind::Nothing, Some(b'[')) => read(DataKind::Done(0), bytes, scanner, fields),
        (DataKind::Nothing | DataKind::Json, _) => {
            if scanner.feed(bytes, fields).is_ok() {
                DataKind::Json
            } else {
                DataKind::Foreign
            }
        }
        (DataKind::Done(n), _) if DONE[n..].starts_with(bytes) => DataKind::Done(n + bytes.len()),
        (DataKind::Done(_) | DataKind::Foreign, _) => DataKind::Foreign,
    }
}

fn ends_stream(data: DataKind, scanner: &Scanner, fields: &ResponseFields) -> bool {
    match data {
        DataKind::Done(n) => n == DONE.len(),
        DataKind::Json => scanner.is_done() && fields.ends_stream(),
        DataKind::Nothing | DataKind::Foreign => false,
    }
}

/// Adds an event. Events without output, usage or end that follow each other become one: a flood of blank lines must not
/// take memory.
fn add(events: &mut Vec<SseEvent>, event: SseEvent) {
    match events.last_mut() {
        Some(last) if last.is_plain() && event.is_plain() => last.end = event.end,
        _ => events.push(event),
    }
}

fn close(
    format: ApiFormat,
    end: usize,
    data: DataKind,
    scanner: &mut Scanner,
    fields: &mut ResponseFields,
    observed: &mut ObservedResponse,
) -> SseEvent {
    let mut event = SseEvent { end, terminal: false, output: false, usage: UsageLocation::None };
    let has_own_end = matches!(format, ApiFormat::Messages | ApiFormat::Responses | ApiFormat::Compact);
    match data {
        DataKind::Done(n) => {
            event.terminal = n == DONE.len();
            // LiteLLM sends `[DONE]` on every route, also after a stream of its provider that broke off.
            if event.terminal && !has_own_end {
                observed.end = ResponseEnd::Reached;
            }
        }
        DataKind::Json => {
            let complete: Result<(), JsonError> = scanner.finish(fields);
            if complete.is_ok() {
                event.terminal = fields.ends_stream();
                event.output = fields.output;
                event.usage = fields.usage_in();
                let cost_before = observed.cost.take();
                fields.take_into(observed);
                observed.end = fields.end_after(observed, has_own_end);
                // LiteLLM prices output only in `message_delta`: no cost of a Messages stream can be trusted.
                observed.cost = if format == ApiFormat::Messages { None } else { observed.cost.take().or(cost_before) };
            } else {
                observed.unreadable = true;
            }
        }
        DataKind::Nothing | DataKind::Foreign => {}
    }
    observed.terminal |= event.terminal;
    scanner.reset();
    fields.reset();
    event
}

#[cfg(test)]
mod tests;
