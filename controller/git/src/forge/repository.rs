//! Names of repositories at forges.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;

use super::error::ForgeError;
use crate::pull_request_text::visible;

/// Maximum number of bytes of each part.
const PART_MAX: usize = 100;

/// A repository at a forge: `OWNER/NAME`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RepositoryName {
    owner: String,
    name: String,
}

/// A repository in an answer of a forge.
#[derive(Debug, Deserialize)]
pub(super) struct NamedRepository {
    pub(super) full_name: String,
}

impl RepositoryName {
    /// Returns the user or the organisation.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.owner
    }

    /// Returns the name without its owner.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a forge's `OWNER/NAME` is this repository. Forges ignore the case of letters.
    pub(super) fn is(&self, full_name: &str) -> bool {
        full_name.eq_ignore_ascii_case(&self.to_string())
    }
}

impl fmt::Display for RepositoryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.owner, self.name)
    }
}

impl FromStr for RepositoryName {
    type Err = ForgeError;

    /// Reads `OWNER/NAME`, with or without `.git`.
    fn from_str(text: &str) -> Result<Self, ForgeError> {
        let is_part = |part: &str| {
            (1..=PART_MAX).contains(&part.len())
                && !matches!(part, "." | "..")
                && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
        };
        match text.split_once('/').map(|(owner, name)| (owner, name.strip_suffix(".git").unwrap_or(name))) {
            Some((owner, name)) if is_part(owner) && is_part(name) => {
                Ok(Self { owner: owner.to_owned(), name: name.to_owned() })
            }
            _ => Err(ForgeError::Repository(visible(&text.chars().take(2 * PART_MAX).collect::<String>()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repository_has_an_owner_and_a_name() {
        for text in ["o/r", "o/r.git", "O/R"] {
            assert!(text.parse::<RepositoryName>().expect(text).is("o/r"));
        }
        for text in ["", "o", "o/", "/r", "o/r/x", "o/..", "../r", "o/.git", "o/r?x", "o/r\u{202e}", "o/r x", "ü/r"] {
            let error = text.parse::<RepositoryName>().expect_err(text);
            assert!(error.to_string().ends_with("is not a repository of a forge; write OWNER/NAME"), "{error}");
            assert!(!error.to_string().contains('\u{202e}'));
        }
    }
}
