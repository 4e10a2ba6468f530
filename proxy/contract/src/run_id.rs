//! Names of a run and of the account that pays for it.

use std::fmt;
use std::str::FromStr;

/// Name of one run, made by the host: `[a-z0-9][a-z0-9_-]{0,62}`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RunId(String);

/// Billing account that pays: 1 to 255 bytes of visible ASCII.
///
/// LiteLLM decodes header values as latin-1 and treats a blank end-user id as absent. Any other text
/// would bill another account, or none.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Account(String);

/// Reason why a name is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// A run id outside its alphabet or length.
    #[error("a run id is 1 to 63 characters of a-z, 0-9, '_' and '-', and starts with a letter or a digit")]
    RunId,
    /// An account that LiteLLM would not record as it is.
    #[error("an account is 1 to 255 characters of visible ASCII, without spaces")]
    Account,
}

impl RunId {
    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Account {
    /// Returns the account as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let first = text.bytes().next().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        let rest = text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-');
        if first && rest && text.len() <= 63 { Ok(Self(text.to_owned())) } else { Err(NameError::RunId) }
    }
}

impl FromStr for Account {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let visible = text.bytes().all(|b| b.is_ascii_graphic());
        if visible && (1..=255).contains(&text.len()) { Ok(Self(text.to_owned())) } else { Err(NameError::Account) }
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_id_keeps_to_its_alphabet() {
        for good in ["r1", "0", "a_b-c", &"x".repeat(63)] {
            assert_eq!(good.parse::<RunId>().map(|id| id.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "_a", "A", "a b", "a/b", "a\n", "é", &"x".repeat(64)] {
            assert_eq!(bad.parse::<RunId>(), Err(NameError::RunId), "{bad:?}");
        }
    }

    #[test]
    fn an_account_is_visible_ascii() {
        assert!("acct-1".parse::<Account>().is_ok());
        for bad in ["", " ", "a b", "a\tb", "é", "a\r\nx-litellm-api-key: k", &"x".repeat(256)] {
            assert_eq!(bad.parse::<Account>(), Err(NameError::Account), "{bad:?}");
        }
    }
}
