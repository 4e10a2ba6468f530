//! The id of a git object.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

/// Id of a git object: 40 lower-case hexadecimal digits, or 64 in a repository with SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(String);

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// A text that is not the id of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it is not the id of an object; an id has 40 or 64 lower-case hexadecimal digits")]
pub struct NotAnObjectId;

impl ObjectId {
    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if all digits are 0, which means that no object exists.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.0.bytes().all(|digit| digit == b'0')
    }

    /// Reads an id from bytes of a protocol or of a file.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, NotAnObjectId> {
        std::str::from_utf8(bytes).map_err(|_| NotAnObjectId)?.parse()
    }

    /// Makes the text of an id from the 20 or 32 bytes that a tree has.
    pub(crate) fn from_raw(raw: &[u8]) -> Self {
        let digits = raw.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        Self(digits.map(|digit| char::from(DIGITS[usize::from(digit)])).collect())
    }
}

impl FromStr for ObjectId {
    type Err = NotAnObjectId;

    fn from_str(text: &str) -> Result<Self, NotAnObjectId> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if matches!(text.len(), 40 | 64) && text.bytes().all(is_digit) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NotAnObjectId)
        }
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_40_or_64_digits() {
        let ok = "0123456789abcdef0123456789abcdef01234567";
        assert!(ok.parse::<ObjectId>().is_ok_and(|id| !id.is_zero()));
        assert!("0".repeat(64).parse::<ObjectId>().is_ok_and(|id| id.is_zero()));
        for wrong in ["", "0", &ok.to_uppercase(), &ok[1..], &format!("{ok}0"), &format!("{} ", &ok[1..]), "HEAD"] {
            assert_eq!(wrong.parse::<ObjectId>(), Err(NotAnObjectId), "{wrong:?}");
        }
        assert_eq!(ObjectId::from_raw(&[0xab; 20]).as_str(), "ab".repeat(20));
    }
}
