//! An upper bound of the tokens of any JSON text, closer than one token for each byte.
//!
//! Pure. The tokenizers cut a text into pieces by a regular expression, and merge bytes only within a piece. So a
//! bound of each piece is enough, and the bounds add up. A piece never has more tokens than bytes. Two kinds of
//! pieces are counted closer:
//!
//! - A run of ASCII letters that is in `tokens/words.txt`. `tokens/words.py` checks each word of that list with every
//!   ASCII byte that may come before it and every contraction that may follow. If something else touches the run (a
//!   byte above 0x7f, a `\u` escape, a contraction before it), each letter counts as one token.
//! - A run of spaces: see `spaces`.
//!
//! The bound holds for cl100k_base and o200k_base, and for the older Claude tokenizer unless a text has characters
//! that Unicode's NFKC makes longer: that tokenizer normalises first, and U+FDFA becomes fifteen tokens. The
//! tokenizers of Claude 3 and later and of Gemini are not public. For them nothing is proven; the slack is that all
//! punctuation, digits, rare words and JSON structure count one token a byte.
//!
//! A text may be JSON inside a JSON string, as a tool call's arguments are. The bound holds for the text that one
//! decoding gives, and for the text that two decodings give. It does not hold for JSON that a gateway parses and writes
//! again in a longer form: with `\u` escapes for non-ASCII text, or with a space after each comma.

use std::mem;

/// Words with their [class](class_tokens), one a line, sorted by length and then as bytes.
const WORDS: &[u8] = include_bytes!("tokens/words.txt");
/// Length of the longest word in [`WORDS`].
const LETTERS_MAX: usize = 16;
const ALPHABET: usize = 52;
/// Offsets in [`WORDS`] at which the words of a length and a first letter begin; the last of a length is the end.
const STARTS: [[u32; ALPHABET + 1]; LETTERS_MAX + 1] = starts();
const KINDS: [CharClass; 256] = kinds();

/// Counter of a text that arrives in pieces. The memory is constant, and the cuts between pieces do not matter.
#[derive(Debug)]
pub struct TokenBound {
    tokens: u64,
    /// Class of the text before the open run of letters, or before the next byte.
    front: Front,
    /// Beginning of the open run, as far as a word can reach; `letters` is the whole length.
    run: [u8; LETTERS_MAX],
    letters: u64,
    /// Number of spaces that are not counted yet.
    spaces: u64,
    escape: Escape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Space,
    Apostrophe,
    /// Any other ASCII byte that is not a letter, or nothing.
    Ascii,
    /// A byte that may be a letter, or join one: then a run of ASCII letters is not a word of its own.
    Foreign,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    None,
    /// After a backslash. The run before it is still open: `\u` may continue it.
    Open,
    /// After an escaped backslash. The run before it is still open, as `\u` may follow in the text.
    Backslash,
    /// In the digits of `\u`, with this many missing.
    Unicode(u8),
    /// In the digits of a `\u` in the text.
    UnicodeInText(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CharClass {
    Letter,
    Space,
    Apostrophe,
    Backslash,
    Other,
    Foreign,
}

impl TokenBound {
    /// Creates a counter at zero.
    #[must_use]
    pub fn new() -> Self {
        let run = [0; LETTERS_MAX];
        Self { tokens: 0, front: Front::Ascii, run, letters: 0, spaces: 0, escape: Escape::None }
    }

    /// Counts the next bytes of the text: raw JSON, with its structure and its escapes.
    pub fn feed(&mut self, piece: &[u8]) {
        let mut rest = piece;
        while let [byte, behind @ ..] = rest {
            if self.escape != Escape::None && self.escaped(*byte) {
                rest = behind;
                continue;
            }
            let kind = KINDS[usize::from(*byte)];
            if kind == CharClass::Letter {
                let len = rest.iter().position(|b| KINDS[usize::from(*b)] != CharClass::Letter).unwrap_or(rest.len());
                self.letters(&rest[..len]);
                rest = &rest[len..];
                continue;
            }
            self.other(kind);
            rest = behind;
        }
    }

    /// Returns the bound: never more than the bytes fed.
    #[must_use]
    pub fn finish(mut self) -> u64 {
        self.close_word();
        self.close_spaces();
        self.tokens + u64::from(self.escape == Escape::Open)
    }

    /// Takes a byte that belongs to an escape. Returns false for another byte, which is still to be counted.
    fn escaped(&mut self, byte: u8) -> bool {
        match (mem::replace(&mut self.escape, Escape::None), byte) {
            (Escape::Open, b'u') => {
                self.close_letters();
                (self.front, self.escape) = (Front::Foreign, Escape::Unicode(4));
                self.tokens += 2;
            }
            // Two tokens, because inside a string of JSON it begins an escape of its own.
            (Escape::Open, b'\\') => {
                self.escape = Escape::Backslash;
                self.tokens += 2;
            }
            (Escape::Open, _) => {
                self.close_word();
                self.front = Front::Ascii;
                self.tokens += 1;
            }
            // Three tokens with the two of `\u`: no character of four digits has more bytes in UTF-8, and half of a
            // surrogate pair has two.
            (Escape::Unicode(missing), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => match missing {
                1 => self.tokens += 1,
                _ => self.escape = Escape::Unicode(missing - 1),
            },
            (Escape::UnicodeInText(missing), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => {
                self.tokens += 1;
                if missing > 1 {
                    self.escape = Escape::UnicodeInText(missing - 1);
                }
            }
            (Escape::Backslash, b'u') => {
                self.close_letters();
                (self.front, self.escape) = (Front::Foreign, Escape::UnicodeInText(4));
                self.tokens += 1;
            }
            (Escape::Backslash, _) => {
                self.close_word();
                self.front = Front::Ascii;
                match byte {
                    // Decoded once, this letter is before the run; decoded twice, a control character is. The words
                    // are checked for both.
                    b'n' | b'r' | b't' => self.tokens += 1,
                    _ => {
                        if byte.is_ascii_alphabetic() {
                            self.front = Front::Foreign;
                        }
                        return false;
                    }
                }
            }
            _ => return false,
        }
        true
    }

    fn letters(&mut self, letters: &[u8]) {
        self.close_spaces();
        if let Some(room) = self.run.get_mut(self.letters as usize..) {
            let len = room.len().min(letters.len());
            room[..len].copy_from_slice(&letters[..len]);
        }
        self.letters += letters.len() as u64;
    }

    fn other(&mut self, kind: CharClass) {
        if kind == CharClass::Space {
            self.close_word();
            (self.front, self.spaces) = (Front::Space, self.spaces + 1);
            return;
        }
        self.close_spaces();
        if kind == CharClass::Backslash {
            self.escape = Escape::Open;
            return;
        }
        if kind == CharClass::Foreign {
            self.close_letters();
        } else {
            self.close_word();
        }
        self.front = match kind {
            CharClass::Apostrophe => Front::Apostrophe,
            CharClass::Foreign => Front::Foreign,
            _ => Front::Ascii,
        };
        self.tokens += 1;
    }

    /// Ends the open run at an ASCII byte that is not a letter.
    fn close_word(&mut self) {
        if self.letters == 0 {
            return;
        }
        match word_tokens(&self.run, self.letters as usize, self.front) {
            Some(tokens) => (self.tokens, self.letters) = (self.tokens + tokens, 0),
            None => self.close_letters(),
        }
    }

    /// Ends the open run, and counts each of its letters.
    fn close_letters(&mut self) {
        self.tokens += mem::take(&mut self.letters);
    }

    fn close_spaces(&mut self) {
        if self.spaces != 0 {
            self.tokens += spaces(mem::take(&mut self.spaces));
        }
    }
}

impl Default for TokenBound {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the tokens of a run of spaces, between any text.
///
/// A run is one piece, or one without its last space, which goes with the text after it; other white space may be in
/// the piece too. Merges happen in the order of the tokenizer's list. Only merges that come before any merge of a
/// space with other white space are used here. They leave the run with the same tokens beside any text, and all later
/// merges only make fewer. The Claude tokenizer has the fewest such merges: up to eight spaces.
fn spaces(run: u64) -> u64 {
    let rest = run % 8;
    run / 8 + u64::from(run != 0) + u64::from(rest >= 2) + u64::from(rest >= 6)
}

/// Returns the tokens of a word that is on the list, and `None` for any other. The word is the first letters of
/// `run`.
fn word_tokens(run: &[u8; LETTERS_MAX], letters: usize, front: Front) -> Option<u64> {
    let starts = STARTS.get(letters)?;
    match front {
        Front::Foreign => return None,
        // cl100k_base splits a contraction off here: the rest would be another word.
        Front::Apostrophe if matches!(run[0] | 0x20, b's' | b'd' | b'm' | b't' | b'l' | b'v' | b'r') => return None,
        Front::Apostrophe | Front::Space | Front::Ascii => {}
    }
    let (first, stride) = (letter_index(run[0]), letters + 2);
    let lines = &WORDS[starts[first] as usize..starts[first + 1] as usize];
    // Letters of the same length compare as numbers. The longest words end the list, so there are always enough
    // bytes.
    let mask = u128::MAX << (8 * (LETTERS_MAX - letters));
    let word = u128::from_be_bytes(*run) & mask;
    let word_at = |line: usize| {
        let bytes = WORDS.get(starts[first] as usize + line * stride..)?.first_chunk()?;
        Some(u128::from_be_bytes(*bytes) & mask)
    };
    let (mut low, mut high) = (0, lines.len() / stride);
    while low < high {
        let middle = low.midpoint(high);
        let found = word_at(middle)?;
        if found == word {
            return Some(class_tokens(lines[middle * stride + letters], front));
        }
        if found < word {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    None
}

/// Returns the tokens of a word by its class in the list. A space before it is one token already, which the word may
/// share.
const fn class_tokens(class: u8, front: Front) -> u64 {
    match (class, front) {
        (b'1' | b'2', Front::Space) => 0,
        (b'1', _) | (b'3', Front::Space) => 1,
        (b'2' | b'3', _) | (_, Front::Space) => 2,
        _ => 3,
    }
}

const fn letter_index(letter: u8) -> usize {
    (if letter < b'a' { letter - b'A' } else { letter - b'a' + 26 }) as usize
}

const fn starts() -> [[u32; ALPHABET + 1]; LETTERS_MAX + 1] {
    let mut starts = [[0; ALPHABET + 1]; LETTERS_MAX + 1];
    let (mut line, mut end) = (0, 0);
    while end < WORDS.len() {
        if WORDS[end] == b'\n' {
            // The length for now; the start is computed below.
            starts[end - line - 1][letter_index(WORDS[line])] += (end + 1 - line) as u32;
            line = end + 1;
        }
        end += 1;
    }
    let (mut at, mut letters) = (0, 0);
    while letters <= LETTERS_MAX {
        let mut letter = 0;
        while letter <= ALPHABET {
            let len = starts[letters][letter];
            starts[letters][letter] = at;
            at += len;
            letter += 1;
        }
        letters += 1;
    }
    starts
}

const fn kinds() -> [CharClass; 256] {
    let mut kinds = [CharClass::Other; 256];
    let mut byte = 0;
    while byte < 256 {
        kinds[byte] = match byte as u8 {
            b'a'..=b'z' | b'A'..=b'Z' => CharClass::Letter,
            b' ' => CharClass::Space,
            b'\'' => CharClass::Apostrophe,
            b'\\' => CharClass::Backslash,
            0x80.. => CharClass::Foreign,
            _ => CharClass::Other,
        };
        byte += 1;
    }
    kinds
}

#[cfg(test)]
mod tests;
