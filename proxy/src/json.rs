//! A JSON scanner that takes its text in pieces.
//!
//! Pure. It checks the whole grammar of RFC 8259 (UTF-8 included), holds no part of the text but the first
//! [`TEXT_MAX`] bytes of the string or number at hand, and tells a [`Visit`] what it passes, with offsets.
//! So a 20 MB body is looked at where it lies, and an answer is read while it goes by.

mod grammar;
mod utf8;

use memchr::memchr2;

use grammar::{is_number, short_escape};
use utf8::Utf8;

/// What a visitor sees of one string, decoded; more is counted and not kept.
pub const TEXT_MAX: usize = 512;

/// Deeper nesting is refused. LiteLLM refuses it too, later.
pub const DEPTH_MAX: usize = 128;

/// Object or array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Container {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
}

/// A value that is no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scalar<'a> {
    /// A string, decoded.
    String(Text<'a>),
    /// A number, as written.
    Number(&'a str),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// The beginning of a decoded string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a> {
    /// The first [`TEXT_MAX`] bytes at most.
    pub head: &'a str,
    /// Whether `head` is all of it.
    pub whole: bool,
}

impl<'a> Text<'a> {
    /// The string, if all of it was kept.
    #[must_use]
    pub fn whole(self) -> Option<&'a str> {
        self.whole.then_some(self.head)
    }
}

/// Hears what the scanner passes. A depth counts the containers around a key or a value: the top-level
/// value has depth 0, its members 1. Offsets count from the first byte ever fed.
pub trait Visit {
    /// Why the visitor wants no more; the scanner stops there.
    type Stop: From<JsonError>;

    /// A member's name; `start` is the offset of its opening quote.
    fn key(&mut self, depth: usize, key: Text<'_>, start: u64) -> Result<(), Self::Stop>;
    /// A container begins.
    fn open(&mut self, depth: usize, kind: Container, start: u64) -> Result<(), Self::Stop>;
    /// A container ends; `end` is the offset after its last byte.
    fn close(&mut self, depth: usize, kind: Container, end: u64) -> Result<(), Self::Stop>;
    /// A value that is no container, from `start` up to `end`.
    fn scalar(&mut self, depth: usize, value: Scalar<'_>, start: u64, end: u64) -> Result<(), Self::Stop>;
}

/// What is wrong with the text, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// A byte that cannot stand here.
    #[error("unexpected byte at offset {0}")]
    Unexpected(u64),
    /// The text stops too early.
    #[error("the text ends at offset {0}, inside a value")]
    Ended(u64),
    /// A string that is no Unicode: bad UTF-8, a lone surrogate, a raw control character.
    #[error("a string is not valid at offset {0}")]
    String(u64),
    /// A number outside the grammar, or longer than any number need be.
    #[error("a number is not valid at offset {0}")]
    Number(u64),
    /// More than [`DEPTH_MAX`] containers in each other.
    #[error("nested deeper than {DEPTH_MAX} at offset {0}")]
    Depth(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    Value,
    ValueOrEnd,
    KeyOrEnd,
    Key,
    Colon,
    CommaOrEnd,
    String,
    Escape,
    Hex { left: u8, code: u16 },
    LowEscape,
    LowU,
    Number,
    Literal { word: &'static [u8], seen: usize },
    Done,
}

/// The scanner: feed it, then finish it.
#[derive(Debug)]
pub struct Scanner {
    at: At,
    /// One bit a container, the innermost in bit 0: 1 is an object.
    stack: u128,
    depth: usize,
    offset: u64,
    start: u64,
    is_key: bool,
    text: Vec<u8>,
    whole: bool,
    high: Option<u16>,
    utf8: Utf8,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Before the first byte.
    #[must_use]
    pub fn new() -> Self {
        Self {
            at: At::Value,
            stack: 0,
            depth: 0,
            offset: 0,
            start: 0,
            is_key: false,
            text: Vec::new(),
            whole: true,
            high: None,
            utf8: Utf8::default(),
        }
    }

    /// Starts over, keeping the memory.
    pub fn reset(&mut self) {
        let text = std::mem::take(&mut self.text);
        *self = Self { text, ..Self::new() };
    }

    /// The text could end here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at == At::Done
    }

    /// Takes the next piece of the text.
    ///
    /// # Errors
    /// The first [`JsonError`], or the visitor's own stop. The scanner is of no use afterwards.
    pub fn feed<V: Visit>(&mut self, piece: &[u8], visit: &mut V) -> Result<(), V::Stop> {
        let mut i = 0;
        while i < piece.len() {
            i = match self.at {
                At::String => self.string(piece, i, visit)?,
                At::Number => self.number(piece, i, visit)?,
                _ => self.token(piece, i, visit)?,
            };
        }
        self.offset += piece.len() as u64;
        Ok(())
    }

    /// The text is over.
    ///
    /// # Errors
    /// [`JsonError::Ended`] if a value is still open.
    pub fn finish<V: Visit>(&mut self, visit: &mut V) -> Result<(), V::Stop> {
        if self.at == At::Number && self.depth == 0 {
            self.end_number(self.offset, visit)?;
        }
        if self.at == At::Done { Ok(()) } else { Err(JsonError::Ended(self.offset).into()) }
    }

    /// One structural byte, or one byte of an escape or a literal.
    fn token<V: Visit>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let b = piece[i];
        let here = self.offset + i as u64;
        let unexpected = || JsonError::Unexpected(here).into();
        let blank = matches!(b, b' ' | b'\t' | b'\n' | b'\r');
        match self.at {
            At::Value | At::ValueOrEnd | At::KeyOrEnd | At::Key | At::Colon | At::CommaOrEnd | At::Done if blank => {}
            At::ValueOrEnd if b == b']' => self.pop(Container::Array, here, visit)?,
            At::KeyOrEnd if b == b'}' => self.pop(Container::Object, here, visit)?,
            At::KeyOrEnd | At::Key if b == b'"' => self.start_string(true, here),
            At::Colon if b == b':' => self.at = At::Value,
            At::CommaOrEnd => match (b, self.in_object()) {
                (b',', true) => self.at = At::Key,
                (b',', false) => self.at = At::Value,
                (b'}', true) => self.pop(Container::Object, here, visit)?,
                (b']', false) => self.pop(Container::Array, here, visit)?,
                _ => return Err(unexpected()),
            },
            At::Value | At::ValueOrEnd => {
                self.start = here;
                match b {
                    b'{' => self.push(Container::Object, here, visit)?,
                    b'[' => self.push(Container::Array, here, visit)?,
                    b'"' => self.start_string(false, here),
                    b'-' | b'0'..=b'9' => {
                        self.text.clear();
                        self.at = At::Number;
                        return Ok(i);
                    }
                    b't' => self.at = At::Literal { word: b"true", seen: 1 },
                    b'f' => self.at = At::Literal { word: b"false", seen: 1 },
                    b'n' => self.at = At::Literal { word: b"null", seen: 1 },
                    _ => return Err(unexpected()),
                }
            }
            At::Literal { word, seen } => {
                if word[seen] != b {
                    return Err(unexpected());
                }
                self.at = At::Literal { word, seen: seen + 1 };
                if seen + 1 == word.len() {
                    let value = if word[0] == b'n' { Scalar::Null } else { Scalar::Bool(word[0] == b't') };
                    visit.scalar(self.depth, value, self.start, here + 1)?;
                    self.after_value();
                }
            }
            At::Escape => self.escape(b, here)?,
            At::Hex { left, code } => {
                let digit = (b as char).to_digit(16).ok_or(JsonError::String(here))? as u16;
                let code = code << 4 | digit;
                if left > 1 {
                    self.at = At::Hex { left: left - 1, code };
                } else {
                    self.unicode(code, here)?;
                }
            }
            At::LowEscape if b == b'\\' => self.at = At::LowU,
            At::LowU if b == b'u' => self.at = At::Hex { left: 4, code: 0 },
            At::LowEscape | At::LowU => return Err(JsonError::String(here).into()),
            At::KeyOrEnd | At::Key | At::Colon | At::Done | At::String | At::Number => {
                return Err(unexpected());
            }
        }
        Ok(i + 1)
    }

    fn in_object(&self) -> bool {
        self.stack & 1 == 1
    }

    fn push<V: Visit>(&mut self, kind: Container, here: u64, visit: &mut V) -> Result<(), V::Stop> {
        if self.depth == DEPTH_MAX {
            return Err(JsonError::Depth(here).into());
        }
        visit.open(self.depth, kind, here)?;
        self.stack = self.stack << 1 | u128::from(kind == Container::Object);
        self.depth += 1;
        self.at = if kind == Container::Object { At::KeyOrEnd } else { At::ValueOrEnd };
        Ok(())
    }

    fn pop<V: Visit>(&mut self, kind: Container, here: u64, visit: &mut V) -> Result<(), V::Stop> {
        self.stack >>= 1;
        self.depth -= 1;
        visit.close(self.depth, kind, here + 1)?;
        self.after_value();
        Ok(())
    }

    fn after_value(&mut self) {
        self.at = if self.depth == 0 { At::Done } else { At::CommaOrEnd };
    }

    fn start_string(&mut self, is_key: bool, here: u64) {
        self.is_key = is_key;
        self.start = here;
        self.text.clear();
        self.whole = true;
        self.at = At::String;
    }

    /// Runs to the end of the string, or to the end of the piece.
    fn string<V: Visit>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let (mut run, mut at) = (i, i);
        let stop = loop {
            match quote_or_escape(&piece[at..]) {
                None => break None,
                Some(n) if piece[at + n] == b'"' => break Some(at + n),
                // Text is full of escapes: those that lie whole in the piece are taken on the way.
                Some(n) => match short_escape(&piece[at + n..]) {
                    Some((decoded, len)) => {
                        self.keep(&piece[run..at + n]);
                        self.keep(decoded.encode_utf8(&mut [0; 4]).as_bytes());
                        at += n + len;
                        run = at;
                    }
                    None => break Some(at + n),
                },
            }
        };
        let end = stop.unwrap_or(piece.len());
        // An escape is ASCII, so what stands between two of them is UTF-8 exactly if all of it is.
        if !self.is_text(&piece[i..end], stop.is_some()) {
            return Err(JsonError::String(self.offset + i as u64).into());
        }
        if run == i && stop.is_some_and(|stop| piece[stop] == b'"') && self.text.is_empty() && self.whole {
            // The common case: the whole string lies in this piece, without an escape.
            self.end_string(Some(clip(&piece[i..end])), self.offset + end as u64 + 1, visit)?;
            return Ok(end + 1);
        }
        self.keep(&piece[run..end]);
        match stop {
            None => return Ok(end),
            Some(stop) if piece[stop] == b'"' => self.end_string(None, self.offset + end as u64 + 1, visit)?,
            Some(_) => self.at = At::Escape,
        }
        Ok(end + 1)
    }

    /// No control character, and UTF-8, which ASCII is without a further look.
    fn is_text(&mut self, run: &[u8], ends: bool) -> bool {
        // A fold without a branch, so that the compiler makes it wide.
        let (control, bits) = run.iter().fold((false, 0), |(control, bits), b| (control | (*b < 0x20), bits | *b));
        !control && (bits < 0x80 && self.utf8.is_whole() || self.utf8.feed(run, ends))
    }

    fn end_string<V: Visit>(&mut self, inline: Option<(&[u8], bool)>, end: u64, visit: &mut V) -> Result<(), V::Stop> {
        let (head, whole) = inline.unwrap_or((&self.text, self.whole));
        // Both were checked as UTF-8; only a clipped end can be half a character.
        let head = match std::str::from_utf8(head) {
            Ok(head) => head,
            Err(e) => std::str::from_utf8(&head[..e.valid_up_to()]).unwrap_or(""),
        };
        let text = Text { head, whole };
        if self.is_key {
            visit.key(self.depth, text, self.start)?;
            self.at = At::Colon;
        } else {
            visit.scalar(self.depth, Scalar::String(text), self.start, end)?;
            self.after_value();
        }
        Ok(())
    }

    fn keep(&mut self, run: &[u8]) {
        let room = TEXT_MAX - self.text.len();
        self.whole &= run.len() <= room;
        if room == 0 || run.is_empty() {
            return;
        }
        self.text.extend_from_slice(&run[..run.len().min(room)]);
    }

    fn escape(&mut self, b: u8, here: u64) -> Result<(), JsonError> {
        let decoded = match b {
            b'"' | b'\\' | b'/' => b,
            b'b' => 8,
            b'f' => 12,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                self.at = At::Hex { left: 4, code: 0 };
                return Ok(());
            }
            _ => return Err(JsonError::String(here)),
        };
        self.keep(&[decoded]);
        self.at = At::String;
        Ok(())
    }

    fn unicode(&mut self, code: u16, here: u64) -> Result<(), JsonError> {
        let units = match self.high.take() {
            Some(high) => [high, code],
            None if (0xD800..0xDC00).contains(&code) => {
                self.high = Some(code);
                self.at = At::LowEscape;
                return Ok(());
            }
            None => [code, 0],
        };
        let decoded = char::decode_utf16(units).next().and_then(Result::ok).ok_or(JsonError::String(here))?;
        self.keep(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        self.at = At::String;
        Ok(())
    }

    fn number<V: Visit>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let rest = &piece[i..];
        let len = rest
            .iter()
            .position(|b| !matches!(b, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E'))
            .unwrap_or(rest.len());
        if self.text.len() + len > TEXT_MAX {
            return Err(JsonError::Number(self.start).into());
        }
        self.text.extend_from_slice(&rest[..len]);
        if len < rest.len() {
            self.end_number(self.offset + (i + len) as u64, visit)?;
        }
        Ok(i + len)
    }

    fn end_number<V: Visit>(&mut self, end: u64, visit: &mut V) -> Result<(), V::Stop> {
        if !is_number(&self.text) {
            return Err(JsonError::Number(self.start).into());
        }
        let text = std::str::from_utf8(&self.text).unwrap_or("");
        visit.scalar(self.depth, Scalar::Number(text), self.start, end)?;
        self.after_value();
        Ok(())
    }
}

/// The next byte that ends a run of plain text. Escapes stand close together or far apart: a short look by
/// hand costs less than a wide one.
fn quote_or_escape(text: &[u8]) -> Option<usize> {
    const NEAR: usize = 16;
    let near = text.iter().take(NEAR).position(|b| matches!(b, b'"' | b'\\'));
    near.or_else(|| memchr2(b'"', b'\\', text.get(NEAR..)?).map(|n| n + NEAR))
}

fn clip(run: &[u8]) -> (&[u8], bool) {
    (&run[..run.len().min(TEXT_MAX)], run.len() <= TEXT_MAX)
}

#[cfg(test)]
mod tests;
