//! The token of a request: the value that `sluice token create` has printed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use http::HeaderValue;
use zeroize::Zeroizing;

/// Maximum length of a token in bytes. Tokens of the daemon have less than 100.
const LENGTH_MAX: usize = 1024;

/// A token. Its value is zeroed when dropped, and never shown.
#[derive(Clone)]
pub struct ApiToken(Zeroizing<String>);

/// A token that cannot be used. The value is never repeated.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be read.
    #[error("cannot read the token file {}", .0.display())]
    File(PathBuf, #[source] io::Error),
    /// Users other than its owner may be able to read the file.
    #[error("other users can read the token file {}, and it holds a credential; chmod 600 it", .0.display())]
    Readable(PathBuf),
    /// The value is empty, too long, or has characters that are not visible ASCII.
    #[error("the token is not one line of visible characters; use the value that sluice token create has printed")]
    Value,
}

impl ApiToken {
    /// Returns a token; blanks around it are left out.
    ///
    /// # Errors
    /// [`TokenFileError::Value`].
    pub fn new(value: &str) -> Result<Self, TokenFileError> {
        let value = value.trim();
        let is_value = (1..=LENGTH_MAX).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_graphic());
        if is_value { Ok(Self(Zeroizing::new(value.to_owned()))) } else { Err(TokenFileError::Value) }
    }

    /// Reads a token from a file that its owner alone can read.
    ///
    /// # Errors
    /// [`TokenFileError`].
    pub fn read(path: &Path) -> Result<Self, TokenFileError> {
        let failed = |error| TokenFileError::File(path.to_owned(), error);
        let meta = fs::metadata(path).map_err(failed)?;
        if meta.is_file() && meta.mode() & 0o077 != 0 {
            return Err(TokenFileError::Readable(path.to_owned()));
        }
        let text = Zeroizing::new(fs::read_to_string(path).map_err(failed)?);
        Self::new(&text)
    }

    /// Returns the header `Authorization`.
    pub(crate) fn bearer(&self) -> HeaderValue {
        let text = Zeroizing::new(format!("Bearer {}", *self.0));
        let mut value = HeaderValue::from_str(&text).expect("a token has visible characters alone");
        value.set_sensitive(true);
        value
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_read_is_refused() {
        let directory = tempfile::tempdir().expect("there is room");
        let path = directory.path().join("token");
        fs::write(&path, "slu_secret\n").expect("there is room");
        for (mode, is_taken) in [(0o600, true), (0o400, true), (0o640, false), (0o604, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            let read = ApiToken::read(&path);
            assert_eq!(read.is_ok(), is_taken, "{mode:o}");
            let shown = read.map_or_else(|error| error.to_string(), |token| format!("{token:?}"));
            assert!(!shown.contains("slu_secret"), "{shown}");
        }
    }

    #[test]
    fn a_token_is_one_line_of_visible_characters() {
        for wrong in ["", " \n", "a b", "a\nb", "é", "\u{1b}[2J", &"a".repeat(LENGTH_MAX + 1)] {
            assert!(matches!(ApiToken::new(wrong), Err(TokenFileError::Value)), "{wrong:?}");
        }
        assert_eq!(ApiToken::new(" slu_x\n").expect("a token").bearer(), "Bearer slu_x");
    }
}
