//! Addresses in the strings of the content, which the gateway or the provider would fetch.
//!
//! Pure. The scanner keeps only the beginning of a string. A longer string is judged by its head and its rest, and is
//! refused where the rules of shorter ones cannot be applied to all of it: see [`LongString`].

use memchr::memchr;

use crate::json::StrPrefix;

/// Returns true for any text that some parser may take for a URL of another host. URL parsers drop blanks and control
/// characters anywhere. Base64, file ids and file names have no colon.
///
/// `rest` is the verdict on a string that is not complete.
pub(super) fn is_remote(text: StrPrefix<'_>, rest: LongString) -> bool {
    if !text.complete {
        return rest.may_be_address();
    }
    let url: String = text.as_str().chars().filter(|c| !c.is_whitespace() && !c.is_control()).collect();
    let inline = is_data_url(&url);
    let slashes = url.bytes().take_while(|b| matches!(b, b'/' | b'\\')).count();
    // LiteLLM's adapter for Gemini looks for a scheme anywhere.
    inline && url.contains("://") || !inline && (url.contains(':') || slashes > 1)
}

/// Beginnings of an embedding's input that is an address whatever follows: names in a bucket may have blanks.
const BEGINNINGS: [&str; 3] = ["gs://", "s3://", FILES_API];
/// Where Gemini's stored files are. The key for them is the operator's.
const FILES_API: &str = "https://generativelanguage.googleapis.com/";

/// Returns true for an embedding's input that names a bucket, which Vertex reads with the operator's credentials, or
/// a stored file, which Gemini reads. LiteLLM looks for a bucket's scheme anywhere; a text with blanks is an address only
/// if it begins like one.
///
/// `rest` is the verdict on a string that is not complete.
pub(super) fn is_stored(text: StrPrefix<'_>, rest: LongString) -> bool {
    if !text.complete {
        return rest.may_be_address();
    }
    let word = word_of(text.as_str());
    let names_one = word.contains("gs://") || word.contains("s3://") || word.starts_with("files/");
    begins_as_address(&word) || names_one && !word.contains(char::is_whitespace)
}

/// Returns a text in lower case, without what some parser may take for blanks around it.
fn word_of(text: &str) -> String {
    text.trim_matches(|c: char| c.is_whitespace() || c.is_control()).to_ascii_lowercase()
}

fn begins_as_address(word: &str) -> bool {
    BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
}

/// Returns true for a text that begins as the name of a file that Gemini stores.
pub(super) fn is_file_name(text: &[u8]) -> bool {
    text.get(..6).is_some_and(|beginning| beginning.eq_ignore_ascii_case(b"files/"))
}

/// Returns true for text that Gemini and Cohere read as an image or as sound in an embedding's input.
pub(super) fn is_data_url(text: &str) -> bool {
    text.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case("data:"))
}

/// Verdict on a string that is longer than what the scanner keeps, so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum LongString {
    /// The string was not read: it may be an address.
    #[default]
    Unread,
    /// The string is not an address, whatever follows.
    Text,
    /// The string is, or may be, an address, whatever follows.
    Address,
    /// The head is base64, after the type of a `data:` URL or from the first byte, and no colon has followed: it is not
    /// an address.
    Base64,
    /// An embedding's input that was one word so far.
    Word(Word),
}

impl LongString {
    /// Returns the verdict on the head of a string that would be fetched if it were a URL.
    ///
    /// Only a `data:` URL in base64, and base64 alone, are as long as this. The rest may not have a colon, so there is
    /// no other scheme; more is not checked in the megabytes of an image.
    pub(super) fn of_url(head: &[u8]) -> Self {
        let is_inline = head.get(..5).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"data:"));
        let base64 = if is_inline { base64_of(head) } else { Some(head).filter(|head| begins_bare(head)) };
        if base64.is_some_and(is_base64) { Self::Base64 } else { Self::Address }
    }

    /// Returns the verdict on the head of an embedding's input.
    pub(super) fn of_input(head: &[u8]) -> Self {
        if begins_as_address(&word_of(&String::from_utf8_lossy(head))) {
            return Self::Address;
        }
        Word::default().then(head)
    }

    /// Returns true if the rest of the string decides.
    pub(super) fn is_open(self) -> bool {
        matches!(self, Self::Base64 | Self::Word(_))
    }

    /// Returns the verdict after some more of the string.
    pub(super) fn then(self, text: &[u8]) -> Self {
        match self {
            Self::Base64 if memchr(b':', text).is_some() => Self::Address,
            Self::Word(word) => word.then(text),
            same => same,
        }
    }

    /// Returns true if the whole string may be an address.
    fn may_be_address(self) -> bool {
        match self {
            Self::Unread | Self::Address => true,
            Self::Text | Self::Base64 => false,
            Self::Word(word) => word.names_one,
        }
    }
}

/// An embedding's input without a blank between two visible characters, so far.
///
/// Only visible ASCII characters on both sides of an ASCII blank make it a text: all other characters may be blanks to
/// some parser, and an input without such a blank is an address where it names a bucket or a file anywhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Symbols of the last bytes, the last one lowest.
    last: u32,
    /// True after a visible character.
    has_begun: bool,
    /// True after a visible character and a blank.
    may_end: bool,
    /// Number of visible characters, up to a bound.
    visible: u8,
    /// True if the name of a bucket is its beginning: what follows may have blanks.
    begins: bool,
    /// Number of visible characters that it has in common with [`FILES_API`], from its beginning.
    of_url: u8,
    /// True if it names a bucket or a stored file.
    names_one: bool,
}

impl Word {
    fn then(mut self, text: &[u8]) -> LongString {
        const FIVE: u32 = (1 << 20) - 1;
        const SEVEN: u32 = (1 << 28) - 1;
        const BUCKETS: [u32; 2] = [symbols(b"gs://"), symbols(b"s3://")];
        // A file is named at the beginning, or after what may be a blank.
        const FILE: u32 = symbols(b" files/");
        for byte in text {
            let is_visible = byte.is_ascii_graphic();
            if is_visible && self.may_end {
                return if self.begins { LongString::Address } else { LongString::Text };
            }
            self.may_end |= self.has_begun && byte.is_ascii_whitespace();
            self.has_begun |= is_visible;
            self.visible = self.visible.saturating_add(u8::from(is_visible));
            self.last = self.last << 4 | symbol(*byte);
            let next =
                FILES_API.as_bytes().get(usize::from(self.of_url)).map(|next| *next == byte.to_ascii_lowercase());
            if is_visible && self.visible == self.of_url + 1 && next == Some(true) {
                self.of_url += 1;
                if usize::from(self.of_url) == FILES_API.len() {
                    return LongString::Address;
                }
            }
            let is_bucket = BUCKETS.contains(&(self.last & FIVE));
            self.begins |= is_bucket && self.visible == 5;
            self.names_one |= is_bucket || self.last & SEVEN == FILE;
        }
        LongString::Word(self)
    }
}

/// Returns the symbols of a short text, the last one lowest.
const fn symbols(text: &[u8]) -> u32 {
    let (mut all, mut i) = (0, 0);
    while i < text.len() {
        all = all << 4 | symbol(text[i]);
        i += 1;
    }
    all
}

/// Returns four bits for a byte, as far as the names of buckets and files tell bytes apart: 0 for all that may be a
/// blank, 1 for other visible characters.
const fn symbol(byte: u8) -> u32 {
    match byte.to_ascii_lowercase() {
        b'g' => 2,
        b's' => 3,
        b'3' => 4,
        b':' => 5,
        b'/' => 6,
        b'f' => 7,
        b'i' => 8,
        b'l' => 9,
        b'e' => 10,
        byte if byte.is_ascii_graphic() => 1,
        _ => 0,
    }
}

/// Returns the beginning of the base64 of a `data:` URL. Its type is printable, and holds no other URL.
fn base64_of(head: &[u8]) -> Option<&[u8]> {
    let comma = head.iter().position(|byte| *byte == b',')?;
    let media_type = head.get(5..comma)?;
    let is_plain = media_type.iter().all(|byte| byte.is_ascii_graphic() && *byte != b':' && *byte != b'\\');
    let names_base64 = media_type.last_chunk().is_some_and(|end: &[u8; 7]| end.eq_ignore_ascii_case(b";base64"));
    (is_plain && names_base64).then(|| &head[comma + 1..])
}

/// Returns true if base64 may begin like this: not with a blank, and not with two slashes, before a host.
fn begins_bare(head: &[u8]) -> bool {
    let mut visible = head.iter().filter(|byte| byte.is_ascii_graphic());
    head.first().is_some_and(u8::is_ascii_graphic) && (visible.next(), visible.next()) != (Some(&b'/'), Some(&b'/'))
}

/// Returns true if all bytes belong to base64, in either alphabet, or are blanks and line ends that some writers put
/// into it.
fn is_base64(text: &[u8]) -> bool {
    let is_odd = |byte: u8| {
        let is_letter = (byte | 0x20).wrapping_sub(b'a') < 26;
        let is_digit = byte.wrapping_sub(b'0') < 10;
        let is_sign = (byte == b'+') | (byte == b'/') | (byte == b'=') | (byte == b'-') | (byte == b'_');
        let is_blank = (byte == b' ') | (byte == b'\n') | (byte == b'\r');
        !(is_letter | is_digit | is_sign | is_blank)
    };
    !text.iter().any(|byte| is_odd(*byte))
}

#[cfg(test)]
mod tests;
