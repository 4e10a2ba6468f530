//! Credentials of forges. They are read from files, never displayed, and zeroed after use.

use std::fmt;
use std::path::Path;

use http::HeaderValue;
use zeroize::Zeroizing;

use crate::secret_file::{CredentialFault, read_secret};

/// A token of a forge.
#[derive(Clone)]
pub struct ForgeToken(Zeroizing<String>);

impl ForgeToken {
    /// Makes a token of a text, without the white space around it.
    ///
    /// # Errors
    /// [`CredentialFault::Text`] if it is empty or has characters that a header cannot contain.
    pub fn new(text: &str) -> Result<Self, CredentialFault> {
        let text = text.trim();
        let is_visible = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_visible.then(|| Self(Zeroizing::new(text.to_owned()))).ok_or(CredentialFault::Text)
    }

    /// Reads a token from a file that only its owner can read.
    ///
    /// # Errors
    /// [`CredentialFault`]
    pub fn read(path: &Path) -> Result<Self, CredentialFault> {
        Self::new(&read_secret(path)?)
    }

    /// Returns the text, for a program that needs it, such as git.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the value of an `authorization` header, marked as sensitive.
    pub(super) fn authorization(&self, scheme: &str) -> Result<HeaderValue, CredentialFault> {
        let text = Zeroizing::new(format!("{scheme} {}", self.0.as_str()));
        let mut value = HeaderValue::from_str(&text).map_err(|_| CredentialFault::Text)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns a text in which the token is replaced.
    pub(super) fn redact(&self, text: &str) -> String {
        text.replace(self.0.as_str(), "(token)")
    }
}

impl fmt::Debug for ForgeToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Returns the warning for the scopes of a token, if they need one.
#[must_use]
pub fn scope_warning(scopes: &[String]) -> Option<&'static str> {
    scopes.iter().any(|scope| scope == "workflow").then_some(
        "the token has the scope workflow, so a push can change what CI runs; use one that has contents and pull requests of \
         the repository alone",
    )
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_read_and_never_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("token");
        fs::write(&path, " ghp-secret\n").expect("it is written");
        for mode in [0o644, 0o640, 0o660, 0o602] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the mode is set");
            let error = ForgeToken::read(&path).expect_err("others can read it");
            assert_eq!(error.to_string(), format!("its file has mode {mode:o}; run chmod 600 on it"));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("the mode is set");
        let token = ForgeToken::read(&path).expect("it is a token");
        assert_eq!((token.expose(), format!("{token:?}").contains("secret")), ("ghp-secret", false));
        assert_eq!(token.redact("a ghp-secret b"), "a (token) b");
        assert!(!format!("{:?}", token.authorization("Bearer").expect("a header")).contains("secret"));
    }

    #[test]
    fn the_scope_workflow_is_a_warning() {
        let warning = |scopes: &[&str]| scope_warning(&scopes.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(warning(&["repo", "workflow"]).is_some_and(|text| text.contains("what CI runs")));
        assert_eq!((warning(&["repo", "workflow:read"]), warning(&[])), (None, None));
    }

    #[test]
    fn other_texts_are_not_tokens() {
        for text in ["", "\n", "a b", "a\nb", "é", "a\u{7}"] {
            assert!(matches!(ForgeToken::new(text), Err(CredentialFault::Text)), "{text:?}");
        }
        assert!(matches!(ForgeToken::read(Path::new("/nonexistent/token")), Err(CredentialFault::Read(_))));
    }
}
