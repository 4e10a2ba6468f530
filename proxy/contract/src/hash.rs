//! SHA-256 and its text.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest, Sha256};

use crate::hex;

/// A SHA-256, as 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

/// A text that is not a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256: want 64 lower-case hex digits")]
pub struct NotAHash;

impl Hash {
    /// Hash that the first line states as the previous one.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the hash of these bytes.
    #[must_use]
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the 64 digits.
    #[must_use]
    #[inline]
    pub fn to_hex(self) -> String {
        hex::encode(&self.0)
    }

    /// Returns the 32 bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the hash of these pieces, joined.
    #[must_use]
    pub fn of_all<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self(pieces.into_iter().fold(Sha256::new(), Digest::chain_update).finalize().into())
    }
}

/// A hash of bytes that come one after another.
#[derive(Debug, Clone, Default)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash, and starts over.
    pub fn finish(&mut self) -> Hash {
        Hash(self.0.finalize_reset().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl FromStr for Hash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<Self, NotAHash> {
        hex::decode(text.as_bytes()).map(Self).ok_or(NotAHash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_its_text() {
        // FIPS 180-4, the empty message.
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Hash::of(b"").to_string(), empty);
        assert_eq!(empty.parse(), Ok(Hash::of(b"")));
        assert_eq!(Hash::ZERO.to_string(), "0".repeat(64));
        assert_eq!(Hash::of_all([&b"a"[..], b"", b"bc"]), Hash::of(b"abc"));
        for bad in ["", "0", &empty[1..], &empty.to_uppercase(), &format!("{empty}0"), &format!("{empty}00")] {
            assert_eq!(bad.parse::<Hash>(), Err(NotAHash), "{bad}");
        }
    }
}
