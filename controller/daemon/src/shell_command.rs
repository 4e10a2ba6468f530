//! Commands to copy into a shell: quoted, so that each argument stays one word.
//!
//! Pure.

use std::borrow::Cow;

/// A word that no command can have: it has a control character, or one that reverses text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a word of a command has a character that a terminal does not show as it is; leave it out")]
pub(crate) struct UnsafeWord;

/// A command that is being written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ShellCommand(Vec<String>);

impl ShellCommand {
    /// Begins a command with words of this program.
    pub(crate) fn of(words: &[&str]) -> Self {
        Self(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Adds a word.
    pub(crate) fn word(mut self, word: &str) -> Self {
        self.0.push(word.to_owned());
        self
    }

    /// Adds a flag with its value, if there is one.
    pub(crate) fn flag(self, name: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.word(name).word(value),
            None => self,
        }
    }

    /// Returns the command as a POSIX shell reads it.
    ///
    /// # Errors
    /// [`UnsafeWord`]
    pub(crate) fn text(&self) -> Result<String, UnsafeWord> {
        let words = self.0.iter().map(|word| quoted(word)).collect::<Result<Vec<_>, _>>()?;
        Ok(words.join(" "))
    }
}

/// Returns a word in single quotes, unless all its characters are literal in every shell.
fn quoted(word: &str) -> Result<Cow<'_, str>, UnsafeWord> {
    if sluice_contract::text::sanitize(word) != word {
        return Err(UnsafeWord);
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_./:@%+,=-".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return Ok(Cow::Borrowed(word));
    }
    Ok(Cow::Owned(format!("'{}'", word.replace('\'', r"'\''"))))
}

/// Returns a curl command that calls an API. The shell inserts the token from `$SLUICE_TOKEN`.
///
/// # Errors
/// [`UnsafeWord`]
pub(crate) fn curl(method: &str, url: &str, body: Option<&str>) -> Result<String, UnsafeWord> {
    let mut command = format!("curl -sS --oauth2-bearer \"$SLUICE_TOKEN\" -X {method}");
    if let Some(body) = body {
        command = format!("{command} --json {}", quoted(body)?);
    }
    Ok(format!("{command} {}", quoted(url)?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn each_word_stays_one_word_in_a_shell() {
        for word in ["a b", "'; $(x)", "`id`", "$HOME", "*", "", "~", "a'b'c", "\\", "!x", "#", "-n", "ü 漢", "{a,b}"]
        {
            let text = ShellCommand::of(&["printf", "[%s]"]).word(word).text().expect("it is text");
            let output = Command::new("bash").args(["-c", &text]).output().expect("bash is there");
            assert_eq!(String::from_utf8_lossy(&output.stdout), format!("[{word}]"), "{text}");
        }
    }

    #[test]
    fn a_control_character_makes_no_command() {
        for word in ["a\nb", "\u{1b}[2J", "\u{202e}x", "a\rb", "\u{0}"] {
            assert_eq!(ShellCommand::of(&["echo"]).word(word).text(), Err(UnsafeWord), "{word:?}");
            assert_eq!(curl("POST", "http://127.0.0.1/x", Some(word)), Err(UnsafeWord), "{word:?}");
        }
        let plain = curl("POST", "http://127.0.0.1:1/x", Some(r#"{"task":"it's"}"#)).expect("it is text");
        assert_eq!(
            plain,
            r#"curl -sS --oauth2-bearer "$SLUICE_TOKEN" -X POST --json '{"task":"it'\''s"}' http://127.0.0.1:1/x"#
        );
    }
}
