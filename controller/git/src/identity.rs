//! Name and address under which a run commits.
//!
//! Pure.

use serde::{Deserialize, Serialize};

/// Name and address of the committer of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitterIdentity {
    name: String,
    email: String,
}

/// A name or address that git would change or could not write.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{}' is not accepted as the {what} of a committer; it has 1 to 100 characters, no control characters, none of \
     '<', '>', '\"' and '\\', and begins and ends with a letter or a digit", sluice_contract::text::truncate(.value)
)]
pub struct IdentityError {
    what: &'static str,
    value: String,
}

impl CommitterIdentity {
    /// Checks name and address.
    ///
    /// # Errors
    /// [`IdentityError`]: git would write another name or address into the commits.
    pub fn new(name: &str, email: &str) -> Result<Self, IdentityError> {
        for (what, value) in [("name", name), ("address", email)] {
            if !is_plain(value) || (what == "address" && value.contains(' ')) {
                return Err(IdentityError { what, value: value.to_owned() });
            }
        }
        Ok(Self { name: name.to_owned(), email: email.to_owned() })
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the address.
    #[must_use]
    pub fn email(&self) -> &str {
        &self.email
    }

    /// Returns true if the committer line of a commit (after `committer `) names this identity.
    pub(crate) fn is_in_line(&self, line: &[u8]) -> bool {
        let start = format!("{} <{}> ", self.name, self.email);
        let is_time = |byte: &u8| byte.is_ascii_digit() || b" +-".contains(byte);
        line.strip_prefix(start.as_bytes()).is_some_and(|time| time.iter().all(is_time))
    }
}

/// Returns true if git writes the text unchanged: git removes punctuation at both ends, and characters that would break
/// the line.
fn is_plain(value: &str) -> bool {
    let is_edge = |character: Option<char>| character.is_some_and(char::is_alphanumeric);
    let is_inside = |character: char| !is_unsafe(character) && !"<>\"\\".contains(character);
    (1..=100).contains(&value.chars().count())
        && is_edge(value.chars().next())
        && is_edge(value.chars().next_back())
        && value.chars().all(is_inside)
}

/// Returns true for control characters, and for those that change the direction or the width of text.
fn is_unsafe(character: char) -> bool {
    character.is_control() || crate::path_text::is_invisible(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_as_git_writes_them() {
        let plain = CommitterIdentity::new("Sluice r1", "r1@sluice.invalid").expect("it is plain");
        assert!(plain.is_in_line(b"Sluice r1 <r1@sluice.invalid> 1700000000 +0100"));
        for line in [
            &b"Sluice r1 <r1@sluice.invalid>x 1 +0000"[..],
            b"Sluice r1 <r2@sluice.invalid> 1 +0000",
            b"Sluice r1  <r1@sluice.invalid> 1 +0000",
            b"Sluice r1 <r1@sluice.invalid> 1 +0000 <a@b> 1 +0000",
        ] {
            assert!(!plain.is_in_line(line));
        }
        for (name, email) in [
            ("", "a@b"),
            ("a", ""),
            ("a<", "a@b"),
            ("a\nb", "a@b"),
            (".a", "a@b"),
            ("a", "a b@c"),
            ("a\u{202e}b", "a@b"),
        ] {
            assert!(CommitterIdentity::new(name, email).is_err(), "{name:?} {email:?}");
        }
    }
}
