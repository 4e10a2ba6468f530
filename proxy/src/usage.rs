//! What an answer says of itself: tokens, cost, ids, errors; read while it goes by.
//!
//! Pure. Later explicit values replace earlier ones and are never added: the Messages API counts
//! cumulatively. A usage of zeros is a placeholder (LiteLLM sends one in every text-completion chunk) and
//! counts for nothing. Which figure may be trusted where is the caller's to decide, by wire format.

mod facts;
mod opening;

use sluice_contract::Usd;
use sluice_contract::record::Usage;

use crate::json::{JsonError, Scanner};
use crate::policy::Wire;
use crate::sse::{Piece, Splitter};
use facts::Facts;
use opening::Opening;

/// What has been seen of an answer so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The provider's id of the answer.
    pub response_id: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// Its tokens.
    pub usage: Option<Usage>,
    /// `usage.cost`, where the wire format's last event may be trusted with it.
    pub cost: Option<Usd>,
    /// An error stood in the answer, whatever its status.
    pub error: bool,
    /// The gateway failed on its own, perhaps after a provider had answered.
    pub gateway_fault: bool,
    /// The event that ends a stream has passed.
    pub terminal: bool,
    /// The answer was not what its content type says.
    pub unreadable: bool,
}

/// One event that ended in the chunk at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// The offset after it in the chunk; that of the chunk's end for the one that ends the stream.
    pub end: usize,
    /// It ends the stream for the client.
    pub terminal: bool,
    /// It carries output.
    pub output: bool,
    /// It carries usage.
    pub usage: UsageIn,
}

/// Where an event's usage stands, for a client that did not ask for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageIn {
    /// There is none.
    None,
    /// It is all that the event carries.
    Alone,
    /// It stands beside output: bytes of the event's data, from and to, with one comma.
    Beside(u64, u64),
}

/// Watches one answer.
#[derive(Debug)]
pub enum Observer {
    /// One JSON document.
    Unary(Box<Document>),
    /// A stream of events.
    Stream(Box<Events>),
    /// Something that has no usage: nothing is read.
    Blind(Seen),
}

/// A JSON document, in pieces.
#[derive(Debug)]
pub struct Document {
    scanner: Scanner,
    facts: Facts,
    seen: Seen,
}

/// A stream of events, in chunks.
#[derive(Debug)]
pub struct Events {
    wire: Wire,
    splitter: Splitter,
    scanner: Scanner,
    facts: Facts,
    opening: Opening,
    data: Data,
    seen: Seen,
}

/// The data of the event at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Data {
    /// None yet.
    Nothing,
    /// JSON.
    Json,
    /// So many bytes of `[DONE]`.
    Done(usize),
    /// Neither: comments, pings.
    Foreign,
}

const DONE: &[u8] = b"[DONE]";

impl Observer {
    /// For an answer of this shape.
    #[must_use]
    pub fn new(wire: Wire, is_stream: bool) -> Self {
        match wire {
            Wire::Models | Wire::CountTokens | Wire::InputTokens | Wire::Stored => Self::Blind(Seen::default()),
            _ if is_stream => Self::Stream(Box::new(Events {
                wire,
                splitter: Splitter::default(),
                scanner: Scanner::new(),
                facts: Facts::default(),
                opening: Opening::default(),
                data: Data::Nothing,
                seen: Seen::default(),
            })),
            _ => Self::Unary(Box::new(Document {
                scanner: Scanner::new(),
                facts: Facts::default(),
                seen: Seen::default(),
            })),
        }
    }

    /// Takes the next bytes of the answer; `events` gets those that ended in them.
    pub fn feed(&mut self, bytes: &[u8], events: &mut Vec<Event>) {
        match self {
            Self::Unary(document) => document.feed(bytes),
            Self::Stream(stream) => stream.feed(bytes, events),
            Self::Blind(_) => {}
        }
    }

    /// The answer is complete: settles what only its end can settle.
    pub fn finish(&mut self) {
        if let Self::Unary(document) = self {
            document.finish();
        }
    }

    /// What has been seen, for the record of a call that is over.
    pub fn take_seen(&mut self) -> Seen {
        let seen = match self {
            Self::Unary(document) => &mut document.seen,
            Self::Stream(stream) => &mut stream.seen,
            Self::Blind(seen) => seen,
        };
        // What decides how the rest is read stays.
        let left = Seen { terminal: seen.terminal, unreadable: seen.unreadable, ..Seen::default() };
        std::mem::replace(seen, left)
    }

    /// What has been seen.
    #[must_use]
    pub fn seen(&self) -> &Seen {
        match self {
            Self::Unary(document) => &document.seen,
            Self::Stream(stream) => &stream.seen,
            Self::Blind(seen) => seen,
        }
    }
}

impl Document {
    fn feed(&mut self, bytes: &[u8]) {
        if !self.seen.unreadable && self.scanner.feed(bytes, &mut self.facts).is_err() {
            self.seen.unreadable = true;
        }
    }

    fn finish(&mut self) {
        let ended: Result<(), JsonError> = self.scanner.finish(&mut self.facts);
        self.seen.unreadable |= ended.is_err();
        self.facts.take_into(&mut self.seen);
        // A cost in a unary body is nobody's promise; the header's is.
        self.seen.cost = None;
    }
}

impl Events {
    fn feed(&mut self, chunk: &[u8], events: &mut Vec<Event>) {
        let Self { wire, splitter, scanner, facts, opening, data, seen } = self;
        splitter.feed(chunk, |piece| match piece {
            // What stands behind the end is not part of the answer, however the bytes are cut.
            _ if seen.terminal => {}
            Piece::Data(bytes) if *data == Data::Nothing && facts.lines == 0 && bytes.starts_with(b"{") => {
                let known = opening.pass(bytes, scanner, facts);
                *data = if known.is_ok_and(|known| scanner.feed(&bytes[known..], facts).is_ok()) {
                    Data::Json
                } else {
                    Data::Foreign
                };
            }
            Piece::Data(bytes) => *data = read(*data, bytes, scanner, facts),
            Piece::DataEnd => {
                facts.lines += 1;
                if *data == Data::Json && scanner.feed(b"\n", facts).is_err() {
                    *data = Data::Foreign;
                }
                // A client may act on the line; the blank one behind it may come later.
                if ends_stream(*data, scanner, facts) {
                    events.push(close(
                        *wire,
                        chunk.len(),
                        std::mem::replace(data, Data::Nothing),
                        scanner,
                        facts,
                        seen,
                    ));
                }
            }
            Piece::End(end) => {
                events.push(close(*wire, end, std::mem::replace(data, Data::Nothing), scanner, facts, seen))
            }
        });
    }
}

fn read(data: Data, bytes: &[u8], scanner: &mut Scanner, facts: &mut Facts) -> Data {
    match (data, bytes.first()) {
        (_, None) => data,
        (Data::Nothing, Some(b'[')) => read(Data::Done(0), bytes, scanner, facts),
        (Data::Nothing | Data::Json, _) => {
            if scanner.feed(bytes, facts).is_ok() {
                Data::Json
            } else {
                Data::Foreign
            }
        }
        (Data::Done(n), _) if DONE[n..].starts_with(bytes) => Data::Done(n + bytes.len()),
        (Data::Done(_) | Data::Foreign, _) => Data::Foreign,
    }
}

fn ends_stream(data: Data, scanner: &Scanner, facts: &Facts) -> bool {
    match data {
        Data::Done(n) => n == DONE.len(),
        Data::Json => scanner.is_done() && facts.ends_stream(),
        Data::Nothing | Data::Foreign => false,
    }
}

fn close(wire: Wire, end: usize, data: Data, scanner: &mut Scanner, facts: &mut Facts, seen: &mut Seen) -> Event {
    let mut event = Event { end, terminal: false, output: false, usage: UsageIn::None };
    match data {
        Data::Done(n) => event.terminal = n == DONE.len(),
        Data::Json => {
            let whole: Result<(), JsonError> = scanner.finish(facts);
            if whole.is_ok() {
                event.terminal = facts.ends_stream();
                event.output = facts.output;
                event.usage = facts.usage_in();
                let cost_before = seen.cost.take();
                facts.take_into(seen);
                // LiteLLM prices output only in `message_delta`: no cost of a Messages stream can be trusted.
                seen.cost = if wire == Wire::Messages { None } else { seen.cost.take().or(cost_before) };
            } else {
                seen.unreadable = true;
            }
        }
        Data::Nothing | Data::Foreign => {}
    }
    seen.terminal |= event.terminal;
    scanner.reset();
    facts.reset();
    event
}

#[cfg(test)]
mod tests;
