//! A JSON scanner that takes its text in pieces.
//!
//! Pure. It checks the whole grammar of RFC 8259 (UTF-8 included), holds no part of the text but the first
//! [`TEXT_MAX`] bytes of the string or number at hand, and tells a [`JsonVisitor`] what it passes, with offsets.
//! So a 20 MB body is looked at where it lies, and an answer is read while it goes by.

mod block;
mod grammar;
mod plain;
mod utf8;

use grammar::{decoded, is_number, number_run};
use plain::{plain, plain_or_escaped};
use utf8::Utf8;

/// What a visitor sees of one string, decoded; more is counted and not kept.
pub const TEXT_MAX: usize = 768;

/// Deeper nesting is refused. LiteLLM refuses it too, later.
pub const DEPTH_MAX: usize = 128;

/// Object or array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonContainer {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
}

/// A value that is no container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonScalar<'a> {
    /// A string, decoded.
    String(StrPrefix<'a>),
    /// A number, as written.
    Number(&'a [u8]),
    /// `true` or `false`.
    Bool(bool),
    /// `null`.
    Null,
}

/// The beginning of a decoded string. Bytes, since most are compared with some name, or not looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrPrefix<'a> {
    /// The first [`TEXT_MAX`] bytes at most.
    pub head: &'a [u8],
    /// Whether `head` is all of it.
    pub whole: bool,
}

impl<'a> StrPrefix<'a> {
    /// The string, if all of it was kept.
    #[must_use]
    pub fn whole(self) -> Option<&'a [u8]> {
        self.whole.then_some(self.head)
    }

    /// The head as text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        // It was checked while it was read; only a clipped end can be half a character.
        match std::str::from_utf8(self.head) {
            Ok(head) => head,
            Err(e) => std::str::from_utf8(&self.head[..e.valid_up_to()]).unwrap_or(""),
        }
    }
}

/// Hears what the scanner passes. A depth counts the containers around a key or a value: the top-level
/// value has depth 0, its members 1. Offsets count from the first byte ever fed.
pub trait JsonVisitor {
    /// Why the visitor wants no more; the scanner stops there.
    type Stop: From<JsonError>;

    /// A member's name; `start` is the offset of its opening quote.
    fn key(&mut self, depth: usize, key: StrPrefix<'_>, start: u64) -> Result<(), Self::Stop>;
    /// A container begins.
    fn open(&mut self, depth: usize, kind: JsonContainer, start: u64) -> Result<(), Self::Stop>;
    /// A container ends; `end` is the offset after its last byte.
    fn close(&mut self, depth: usize, kind: JsonContainer, end: u64) -> Result<(), Self::Stop>;
    /// A value that is no container, from `start` up to `end`.
    fn scalar(&mut self, depth: usize, value: JsonScalar<'_>, start: u64, end: u64) -> Result<(), Self::Stop>;
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
enum ScanState {
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

impl ScanState {
    /// Between tokens.
    fn takes_blanks(self) -> bool {
        matches!(
            self,
            Self::Value | Self::ValueOrEnd | Self::KeyOrEnd | Self::Key | Self::Colon | Self::CommaOrEnd | Self::Done
        )
    }
}

/// The scanner: feed it, then finish it.
#[derive(Debug)]
pub struct Scanner {
    at: ScanState,
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
            at: ScanState::Value,
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
        self.become_like(&Self::new());
    }

    /// Goes on where another one stands, keeping the memory.
    pub fn become_like(&mut self, other: &Self) {
        let mut text = std::mem::take(&mut self.text);
        text.clone_from(&other.text);
        *self = Self { text, ..*other };
    }

    /// The text could end here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at == ScanState::Done
    }

    /// Takes the next piece of the text.
    ///
    /// # Errors
    /// The first [`JsonError`], or the visitor's own stop. The scanner is of no use afterwards.
    pub fn feed<V: JsonVisitor>(&mut self, piece: &[u8], visit: &mut V) -> Result<(), V::Stop> {
        let mut i = 0;
        while i < piece.len() {
            i = match self.at {
                ScanState::String => self.string(piece, i, visit)?,
                ScanState::Number => self.number(piece, i, visit)?,
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
    pub fn finish<V: JsonVisitor>(&mut self, visit: &mut V) -> Result<(), V::Stop> {
        if self.at == ScanState::Number && self.depth == 0 {
            self.end_kept_number(self.offset, visit)?;
        }
        if self.at == ScanState::Done { Ok(()) } else { Err(JsonError::Ended(self.offset).into()) }
    }

    /// One structural byte, with the blanks before it, or one byte of an escape or a literal.
    fn token<V: JsonVisitor>(&mut self, piece: &[u8], mut i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        if self.at.takes_blanks() {
            while matches!(piece[i], b' ' | b'\t' | b'\n' | b'\r') {
                i += 1;
                if i == piece.len() {
                    return Ok(i);
                }
            }
        }
        let b = piece[i];
        let here = self.offset + i as u64;
        let unexpected = || JsonError::Unexpected(here).into();
        match self.at {
            ScanState::ValueOrEnd if b == b']' => self.pop(JsonContainer::Array, here, visit)?,
            ScanState::KeyOrEnd if b == b'}' => self.pop(JsonContainer::Object, here, visit)?,
            ScanState::KeyOrEnd | ScanState::Key if b == b'"' => {
                self.start_string(true, here);
                return self.string(piece, i + 1, visit);
            }
            ScanState::Colon if b == b':' => self.at = ScanState::Value,
            ScanState::CommaOrEnd => match (b, self.in_object()) {
                (b',', true) => self.at = ScanState::Key,
                (b',', false) => self.at = ScanState::Value,
                (b'}', true) => self.pop(JsonContainer::Object, here, visit)?,
                (b']', false) => self.pop(JsonContainer::Array, here, visit)?,
                _ => return Err(unexpected()),
            },
            ScanState::Value | ScanState::ValueOrEnd => {
                self.start = here;
                match b {
                    b'"' => {
                        self.start_string(false, here);
                        return self.string(piece, i + 1, visit);
                    }
                    b'{' => self.push(JsonContainer::Object, here, visit)?,
                    b'[' => self.push(JsonContainer::Array, here, visit)?,
                    b'-' | b'0'..=b'9' => {
                        self.text.clear();
                        self.at = ScanState::Number;
                        return self.number(piece, i, visit);
                    }
                    b't' => self.at = ScanState::Literal { word: b"true", seen: 1 },
                    b'f' => self.at = ScanState::Literal { word: b"false", seen: 1 },
                    b'n' => self.at = ScanState::Literal { word: b"null", seen: 1 },
                    _ => return Err(unexpected()),
                }
            }
            ScanState::Literal { word, seen } => {
                if word[seen] != b {
                    return Err(unexpected());
                }
                self.at = ScanState::Literal { word, seen: seen + 1 };
                if seen + 1 == word.len() {
                    let value = if word[0] == b'n' { JsonScalar::Null } else { JsonScalar::Bool(word[0] == b't') };
                    visit.scalar(self.depth, value, self.start, here + 1)?;
                    self.after_value();
                }
            }
            ScanState::Escape => self.escape(b, here)?,
            ScanState::Hex { left, code } => {
                let digit = (b as char).to_digit(16).ok_or(JsonError::String(here))? as u16;
                let code = code << 4 | digit;
                if left > 1 {
                    self.at = ScanState::Hex { left: left - 1, code };
                } else {
                    self.unicode(code, here)?;
                }
            }
            ScanState::LowEscape if b == b'\\' => self.at = ScanState::LowU,
            ScanState::LowU if b == b'u' => self.at = ScanState::Hex { left: 4, code: 0 },
            ScanState::LowEscape | ScanState::LowU => return Err(JsonError::String(here).into()),
            ScanState::KeyOrEnd
            | ScanState::Key
            | ScanState::Colon
            | ScanState::Done
            | ScanState::String
            | ScanState::Number => {
                return Err(unexpected());
            }
        }
        Ok(i + 1)
    }

    fn in_object(&self) -> bool {
        self.stack & 1 == 1
    }

    fn push<V: JsonVisitor>(&mut self, kind: JsonContainer, here: u64, visit: &mut V) -> Result<(), V::Stop> {
        if self.depth == DEPTH_MAX {
            return Err(JsonError::Depth(here).into());
        }
        visit.open(self.depth, kind, here)?;
        self.stack = self.stack << 1 | u128::from(kind == JsonContainer::Object);
        self.depth += 1;
        self.at = if kind == JsonContainer::Object { ScanState::KeyOrEnd } else { ScanState::ValueOrEnd };
        Ok(())
    }

    fn pop<V: JsonVisitor>(&mut self, kind: JsonContainer, here: u64, visit: &mut V) -> Result<(), V::Stop> {
        self.stack >>= 1;
        self.depth -= 1;
        visit.close(self.depth, kind, here + 1)?;
        self.after_value();
        Ok(())
    }

    fn after_value(&mut self) {
        self.at = if self.depth == 0 { ScanState::Done } else { ScanState::CommaOrEnd };
    }

    fn start_string(&mut self, is_key: bool, here: u64) {
        self.is_key = is_key;
        self.start = here;
        self.text.clear();
        self.whole = true;
        self.at = ScanState::String;
    }

    /// Runs to the end of the string, or to the end of the piece.
    fn string<V: JsonVisitor>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let (len, mut ascii) = plain(&piece[i..]);
        let mut end = i + len;
        if piece.get(end) == Some(&b'"') && ascii && self.text.is_empty() && self.whole {
            // The common case: the whole string lies in this piece, without an escape.
            let head = &piece[i..end.min(i + TEXT_MAX)];
            let text = StrPrefix { head, whole: head.len() == len };
            return self.end_string(text, piece, end + 1, visit);
        }
        let mut run = i;
        let stop = loop {
            match piece.get(end) {
                None => break None,
                Some(b'"') => break Some(b'"'),
                // Text is full of escapes: those that lie whole in the piece are taken on the way.
                Some(b'\\') => match decoded(&piece[end..]) {
                    Some((decoded, len)) => {
                        self.keep(&piece[run..end]);
                        self.keep(decoded.encode_utf8(&mut [0; 4]).as_bytes());
                        end += len;
                        run = end;
                    }
                    None => break Some(b'\\'),
                },
                Some(_) => return Err(JsonError::String(self.offset + end as u64).into()),
            }
            let rest = &piece[end..];
            let (len, more_ascii) = if self.text.len() < TEXT_MAX { plain(rest) } else { plain_or_escaped(rest) };
            end += len;
            ascii &= more_ascii;
        };
        // An escape is ASCII, so what stands between two of them is UTF-8 exactly if all of it is.
        if !(ascii && self.utf8.is_whole() || self.utf8.feed(&piece[i..end], stop.is_some())) {
            return Err(JsonError::String(self.offset + i as u64).into());
        }
        self.keep(&piece[run..end]);
        match stop {
            None => Ok(end),
            Some(b'"') => {
                let text = std::mem::take(&mut self.text);
                let ended = self.end_string(StrPrefix { head: &text, whole: self.whole }, piece, end + 1, visit);
                self.text = text;
                ended
            }
            Some(_) => {
                self.at = ScanState::Escape;
                Ok(end + 1)
            }
        }
    }

    /// Behind the closing quote. What mostly comes next is taken on the way.
    fn end_string<V: JsonVisitor>(
        &mut self,
        text: StrPrefix<'_>,
        piece: &[u8],
        i: usize,
        visit: &mut V,
    ) -> Result<usize, V::Stop> {
        if !self.is_key {
            visit.scalar(self.depth, JsonScalar::String(text), self.start, self.offset + i as u64)?;
            self.after_value();
            return Ok(i);
        }
        visit.key(self.depth, text, self.start)?;
        let colon = piece.get(i) == Some(&b':');
        self.at = if colon { ScanState::Value } else { ScanState::Colon };
        Ok(i + usize::from(colon))
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
                self.at = ScanState::Hex { left: 4, code: 0 };
                return Ok(());
            }
            _ => return Err(JsonError::String(here)),
        };
        self.keep(&[decoded]);
        self.at = ScanState::String;
        Ok(())
    }

    fn unicode(&mut self, code: u16, here: u64) -> Result<(), JsonError> {
        let units = match self.high.take() {
            Some(high) => [high, code],
            None if (0xD800..0xDC00).contains(&code) => {
                self.high = Some(code);
                self.at = ScanState::LowEscape;
                return Ok(());
            }
            None => [code, 0],
        };
        let decoded = char::decode_utf16(units).next().and_then(Result::ok).ok_or(JsonError::String(here))?;
        self.keep(decoded.encode_utf8(&mut [0; 4]).as_bytes());
        self.at = ScanState::String;
        Ok(())
    }

    fn number<V: JsonVisitor>(&mut self, piece: &[u8], i: usize, visit: &mut V) -> Result<usize, V::Stop> {
        let rest = &piece[i..];
        let len = number_run(rest);
        if self.text.len() + len > TEXT_MAX {
            return Err(JsonError::Number(self.start).into());
        }
        if self.text.is_empty() && len < rest.len() {
            // The common case: it lies whole in this piece.
            self.end_number(&rest[..len], self.offset + (i + len) as u64, visit)?;
            return Ok(i + len);
        }
        self.text.extend_from_slice(&rest[..len]);
        if len < rest.len() {
            self.end_kept_number(self.offset + (i + len) as u64, visit)?;
        }
        Ok(i + len)
    }

    fn end_kept_number<V: JsonVisitor>(&mut self, end: u64, visit: &mut V) -> Result<(), V::Stop> {
        let text = std::mem::take(&mut self.text);
        let ended = self.end_number(&text, end, visit);
        self.text = text;
        ended
    }

    fn end_number<V: JsonVisitor>(&mut self, text: &[u8], end: u64, visit: &mut V) -> Result<(), V::Stop> {
        if !is_number(text) {
            return Err(JsonError::Number(self.start).into());
        }
        visit.scalar(self.depth, JsonScalar::Number(text), self.start, end)?;
        self.after_value();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
