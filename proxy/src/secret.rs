//! The upstream key: read once, kept once, never shown.

use std::fmt;
use std::io::Read;

use bytes::Bytes;
use http::HeaderValue;
use sluice_contract::upstream_key::{self, KEY_MAX, KeyFault};
use zeroize::Zeroizing;

const BEARER: &[u8] = b"Bearer ";

/// `Bearer KEY`, in the one buffer that ever holds it: headers share it, and it is zeroed with the last of them. The
/// `Debug` output does not show it.
pub struct Secret(Bytes);

/// Reason why a key was not taken; never quotes the key.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file or stdin could not be read.
    #[error("cannot be read")]
    Unreadable(#[source] std::io::Error),
    /// The text does not have the form of a key.
    #[error(transparent)]
    Form(#[from] KeyFault),
}

impl Secret {
    /// Reads one key, to the end of the source: a final newline is not part of it. The key is read within limits into
    /// one buffer that never grows, so that no reallocation leaves a copy behind.
    ///
    /// # Errors
    /// [`SecretError`], with the check that failed.
    pub fn read(mut source: impl Read) -> Result<Self, SecretError> {
        let mut buffer = Zeroizing::new(vec![0; BEARER.len() + KEY_MAX + 3]);
        buffer[..BEARER.len()].copy_from_slice(BEARER);
        let mut len = BEARER.len();
        while len < buffer.len() {
            match source.read(&mut buffer[len..]) {
                Ok(0) => break,
                Ok(n) => len += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(SecretError::Unreadable(e)),
            }
        }
        buffer.truncate(len);
        if buffer.ends_with(b"\n") {
            buffer.pop();
            if buffer.ends_with(b"\r") {
                buffer.pop();
            }
        }
        upstream_key::check(&buffer[BEARER.len()..])?;
        Ok(Self(Bytes::from_owner(buffer)))
    }

    /// Returns `Bearer KEY`, marked so that it is never printed. The value shares the key's memory.
    #[must_use]
    pub fn bearer(&self) -> HeaderValue {
        let mut header =
            HeaderValue::from_maybe_shared(self.0.clone()).expect("the key was checked to be visible ASCII");
        header.set_sensitive(true);
        header
    }

    /// Returns the bytes of the key, only for the scrubber.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0[BEARER.len()..]
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_final_newline_is_not_part_of_the_key() {
        for text in ["sk-test", "sk-test\n", "sk-test\r\n"] {
            assert_eq!(Secret::read(text.as_bytes()).expect("a key").expose(), b"sk-test");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_without_being_shown() {
        for (text, why) in [
            ("", "is empty: write the key into it".to_owned()),
            ("\n", "is empty: write the key into it".to_owned()),
            ("short", "holds 5 bytes; give a key of 6 to 8192".to_owned()),
            (
                "sk-a\nsk-b",
                "holds a byte that is not visible ASCII, at position 4; write one key on one line".to_owned(),
            ),
            ("sk test", "holds a byte that is not visible ASCII, at position 2; write one key on one line".to_owned()),
            (&"x".repeat(9000), format!("holds {} bytes; give a key of 6 to 8192", KEY_MAX + 3)),
        ] {
            assert_eq!(Secret::read(text.as_bytes()).expect_err("no key").to_string(), why);
        }
    }

    #[test]
    fn debug_says_nothing() {
        let secret = Secret::read("sk-canary".as_bytes()).expect("a key");
        assert_eq!(format!("{secret:?} {:?}", secret.bearer()), "Secret(redacted) Sensitive");
    }
}
