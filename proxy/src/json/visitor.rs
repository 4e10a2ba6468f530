//! The calls that the scanner makes to its visitor, with the values in them.
//!
//! Pure.

/// Maximum number of bytes of a decoded string that a visitor gets; more are checked and not kept.
pub const TEXT_MAX: usize = 768;

/// Maximum nesting; LiteLLM refuses deeper nesting too, later.
pub const DEPTH_MAX: usize = 128;

/// Object or array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JsonContainer {
    /// `{…}`
    Object,
    /// `[…]`
    Array,
}

/// A value that is not a container.
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

/// Beginning of a decoded string. Bytes, since most are compared with some name, or not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StrPrefix<'a> {
    /// The first [`TEXT_MAX`] bytes at most.
    pub head: &'a [u8],
    /// True if `head` is the whole string.
    pub complete: bool,
}

impl<'a> StrPrefix<'a> {
    /// Returns the string, if all of it was kept.
    #[must_use]
    pub fn complete(self) -> Option<&'a [u8]> {
        self.complete.then_some(self.head)
    }

    /// Returns the head as text.
    #[must_use]
    pub fn as_str(self) -> &'a str {
        // The text was checked while it was read; only a clipped end can be half a character.
        match std::str::from_utf8(self.head) {
            Ok(head) => head,
            Err(e) => std::str::from_utf8(&self.head[..e.valid_up_to()]).unwrap_or(""),
        }
    }
}

/// Receiver of what the scanner reads. A depth counts the containers around a key or a value: the top-level value has
/// depth 0, its members 1. Offsets count from the first byte ever fed.
pub trait JsonVisitor {
    /// Error by which the visitor stops the scanner.
    type Stop: From<JsonError>;

    /// Takes a member's name; `start` is the offset of its opening quote.
    fn key(&mut self, depth: usize, key: StrPrefix<'_>, start: u64) -> Result<(), Self::Stop>;
    /// Takes the beginning of a container.
    fn open(&mut self, depth: usize, kind: JsonContainer, start: u64) -> Result<(), Self::Stop>;
    /// Takes the end of a container; `end` is the offset after its last byte.
    fn close(&mut self, depth: usize, kind: JsonContainer, end: u64) -> Result<(), Self::Stop>;
    /// Returns true to read the rest of a string value that is longer than what is kept; `head` is the part that is
    /// kept.
    fn wants_rest(&mut self, _depth: usize, _head: &[u8]) -> bool {
        false
    }
    /// Takes more of the string that [`Self::wants_rest`] asked for, decoded; the last piece is followed by the call of
    /// [`Self::scalar`] for it.
    fn rest(&mut self, _text: &[u8]) {}
    /// Takes a value that is not a container, from `start` up to `end`.
    fn scalar(&mut self, depth: usize, value: JsonScalar<'_>, start: u64, end: u64) -> Result<(), Self::Stop>;
}

/// Error in the text, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// A byte that is not valid here.
    #[error("unexpected byte at offset {0}")]
    Unexpected(u64),
    /// The text stops too early.
    #[error("the text ends at offset {0}, inside a value")]
    Ended(u64),
    /// A string that is not Unicode: bad UTF-8, a lone surrogate, a raw control character.
    #[error("a string is not valid at offset {0}")]
    String(u64),
    /// A number outside the grammar, or longer than a number can be.
    #[error("a number is not valid at offset {0}")]
    Number(u64),
    /// More than [`DEPTH_MAX`] containers in each other.
    #[error("nested deeper than {DEPTH_MAX} at offset {0}")]
    Depth(u64),
}
