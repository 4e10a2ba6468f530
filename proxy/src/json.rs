//! A JSON scanner that takes its text in pieces.
//!
//! Pure. The scanner checks the whole grammar of RFC 8259 (UTF-8 included), keeps only the first [`TEXT_MAX`] bytes of
//! the current string or number, and reports what it reads to a [`JsonVisitor`], with offsets. A visitor can read the
//! rest of a longer string while it passes. So a 20 MB body is read where it lies, and a response while it passes.

mod block;
mod grammar;
mod plain;
mod text;
mod utf8;
mod visitor;

use utf8::Utf8;

pub use visitor::{DEPTH_MAX, JsonContainer, JsonError, JsonScalar, JsonVisitor, StrPrefix, TEXT_MAX};

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
    /// Returns true between tokens.
    fn takes_blanks(self) -> bool {
        matches!(
            self,
            Self::Value | Self::ValueOrEnd | Self::KeyOrEnd | Self::Key | Self::Colon | Self::CommaOrEnd | Self::Done
        )
    }
}

/// The scanner: to be fed, and then finished.
#[derive(Debug)]
pub struct Scanner {
    at: ScanState,
    /// One bit for each container, the innermost in bit 0: 1 is an object.
    stack: u128,
    depth: usize,
    offset: u64,
    start: u64,
    is_key: bool,
    text: Vec<u8>,
    complete: bool,
    /// True if the visitor reads the rest of the current string; it means nothing before the string is too long to
    /// keep.
    reads_rest: bool,
    high: Option<u16>,
    utf8: Utf8,
}

impl Default for Scanner {
    fn default() -> Self {
        Self::new()
    }
}

impl Scanner {
    /// Creates a scanner before the first byte.
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
            complete: true,
            reads_rest: false,
            high: None,
            utf8: Utf8::default(),
        }
    }

    /// Starts over, keeping the memory.
    pub fn reset(&mut self) {
        self.clone_from(&Self::new());
    }

    /// Takes over the state of another scanner, keeping the memory.
    pub fn clone_from(&mut self, other: &Self) {
        let mut text = std::mem::take(&mut self.text);
        text.clone_from(&other.text);
        *self = Self { text, ..*other };
    }

    /// Returns true if the text could end here.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.at == ScanState::Done
    }

    /// Takes the next piece of the text.
    ///
    /// # Errors
    /// The first [`JsonError`], or the error of the visitor. The scanner cannot be used afterwards.
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

    /// Ends the text.
    ///
    /// # Errors
    /// [`JsonError::Ended`], if a value is still open.
    pub fn finish<V: JsonVisitor>(&mut self, visit: &mut V) -> Result<(), V::Stop> {
        if self.at == ScanState::Number && self.depth == 0 {
            self.end_kept_number(self.offset, visit)?;
        }
        if self.at == ScanState::Done { Ok(()) } else { Err(JsonError::Ended(self.offset).into()) }
    }

    /// Reads one structural byte, with the blanks before it, or one byte of an escape or a literal.
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
            ScanState::Escape => self.escape(b, here, visit)?,
            ScanState::Hex { left, code } => {
                let digit = (b as char).to_digit(16).ok_or(JsonError::String(here))? as u16;
                let code = code << 4 | digit;
                if left > 1 {
                    self.at = ScanState::Hex { left: left - 1, code };
                } else {
                    self.unicode(code, here, visit)?;
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
}

#[cfg(test)]
mod tests;
