//! The value of a token: `slu_`, 64 hex digits, and 8 hex digits of a checksum.
//!
//! The checksum lets a scanner of secrets recognise a token without asking the daemon. It gives no protection.
//!
//! Pure.

use std::fmt;

use sluice_contract::{Hash, hex};
use zeroize::Zeroizing;

/// Beginning of every token.
pub const TOKEN_PREFIX: &str = "slu_";

const SECRET_DIGITS: usize = 64;
const CHECKSUM_DIGITS: usize = 8;

/// The value of a token. It is not printed, and its memory is cleared.
#[derive(Clone, PartialEq, Eq)]
pub struct TokenValue(Zeroizing<String>);

impl TokenValue {
    /// Returns the token of these random bytes.
    #[must_use]
    pub fn of(secret: &[u8; 32]) -> Self {
        let mut text = String::with_capacity(TOKEN_PREFIX.len() + SECRET_DIGITS + CHECKSUM_DIGITS);
        text.push_str(TOKEN_PREFIX);
        hex::push(&mut text, secret);
        let checksum = checksum(&text);
        text.push_str(&checksum);
        Self(Zeroizing::new(text))
    }

    /// Parses a token; `None` for any text that is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (start, sum) = text.split_at_checked(TOKEN_PREFIX.len() + SECRET_DIGITS)?;
        let digits = start.strip_prefix(TOKEN_PREFIX)?;
        let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        (is_hex && sum == checksum(start)).then(|| Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the text that the client sends.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the hash by which the database knows the token.
    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of(self.0.as_bytes())
    }
}

impl fmt::Debug for TokenValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenValue(…)")
    }
}

fn checksum(start: &str) -> String {
    let mut digits = Hash::of(start.as_bytes()).to_hex();
    digits.truncate(CHECKSUM_DIGITS);
    digits
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_format_is_fixed() {
        let token = TokenValue::of(&[0xab; 32]);
        let start = format!("slu_{}", "ab".repeat(32));
        assert_eq!(token.expose(), format!("{start}{}", &Hash::of(start.as_bytes()).to_hex()[..8]));
        assert_eq!(token.expose().len(), 76);
        assert_eq!(token.hash(), Hash::of(token.expose().as_bytes()));
        assert_eq!(format!("{token:?}"), "TokenValue(…)");
    }

    proptest! {
        #[test]
        fn a_token_is_read_as_written(secret: [u8; 32]) {
            let token = TokenValue::of(&secret);
            prop_assert_eq!(TokenValue::parse(token.expose()), Some(token));
        }

        #[test]
        fn a_changed_token_is_refused(secret: [u8; 32], at in 0..76usize, with in "[ -~]") {
            let token = TokenValue::of(&secret);
            let mut text = token.expose().to_owned();
            text.replace_range(at..=at, &with);
            prop_assert_eq!(TokenValue::parse(&text).is_some(), text == token.expose());
            prop_assert_eq!(TokenValue::parse(&text[..at]), None);
            prop_assert_eq!(TokenValue::parse(&format!("{}{with}", token.expose())), None);
        }

        #[test]
        fn any_text_can_be_parsed(text in "\\PC*") {
            prop_assert_eq!(TokenValue::parse(&text), None);
        }
    }
}
