//! The name of a branch.
//!
//! Pure.

use std::fmt;
use std::str::FromStr;

/// Maximum length of a name; a ref is a file, and some file systems limit names to 255 bytes.
const LONGEST: usize = 200;

/// Name of a branch, without `refs/heads/`: a subset of the names that git allows. Names that a shell or a URL would
/// interpret differently, or that look like an option, are excluded.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Branch(String);

/// A text that is not accepted as the name of a branch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is not accepted as the name of a branch; a name has at most {LONGEST} letters, digits and the characters \
     '/', '.', '_', '-', '+', '=', ',' and '#', has a letter, a digit, '_' or '#' at both ends of each part, and has no '..' \
     and no part that ends in '.lock'",
    sluice_contract::text::truncate(.0)
)]
pub struct BranchError(String);

impl Branch {
    /// Returns the name without `refs/heads/`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the full name of the ref.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("refs/heads/{}", self.0)
    }
}

impl FromStr for Branch {
    type Err = BranchError;

    fn from_str(text: &str) -> Result<Self, BranchError> {
        let is_name = text.len() <= LONGEST && text != "HEAD" && !text.contains("..") && text.split('/').all(is_part);
        if is_name { Ok(Self(text.to_owned())) } else { Err(BranchError(text.to_owned())) }
    }
}

fn is_part(part: &str) -> bool {
    let is_edge = |byte: Option<u8>| byte.is_some_and(|byte| byte.is_ascii_alphanumeric() || b"_#".contains(&byte));
    let is_character = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+=,#".contains(&byte);
    is_edge(part.bytes().next())
        && is_edge(part.bytes().next_back())
        && part.bytes().all(is_character)
        && !part.to_ascii_lowercase().ends_with(".lock")
}

impl fmt::Display for Branch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_a_plain_name() {
        for name in ["main", "feature/AB-12-add-x", "run/r1", "a", "v1.2", "x_y", "fix/#12-a", "a/b/c"] {
            assert_eq!(name.parse::<Branch>().map(|branch| branch.to_string()), Ok(name.to_owned()));
        }
        let long = "a".repeat(LONGEST + 1);
        for name in [
            "", "HEAD", "-x", "a/-x", "a//b", "/a", "a/", "a..b", "a.lock", "a.LOCK/b", ".a", "a/.b", "a.", "a b",
            "a~1", "a^", "a:b", "a?", "a*", "a[", "a\\b", "a\n", "a\u{202e}b", "@{u}", "ü", "a;b", "$(x)", &long,
        ] {
            assert!(name.parse::<Branch>().is_err(), "{name:?}");
        }
    }
}
