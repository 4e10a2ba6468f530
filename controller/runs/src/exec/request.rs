//! The rules for a program that an owner starts in a sandbox.
//!
//! Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::blueprint::{WORKSPACE, reserved_variable};

/// Variable that marks the processes of a program.
pub(super) const MARKER: &str = "SLUICE_EXEC_ID";
/// Maximum length of all arguments together, and of all variables together.
const WORDS_MAX: usize = 64 << 10;
/// Maximum time.
const TIMEOUT_MAX: Duration = Duration::from_secs(3600);

/// Request for a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecRequest {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Variables in addition to those of the container.
    pub env: BTreeMap<String, String>,
    /// Absolute path of the working directory.
    pub cwd: String,
    /// Maximum time.
    pub timeout: Duration,
    /// True if the program gets a terminal.
    pub tty: bool,
}

/// The rule that a request breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExecRefused {
    /// The request names no program.
    #[error("argv is empty; name a program")]
    NoProgram,
    /// The words are too long together.
    #[error("{0} has more than {max} bytes", max = WORDS_MAX)]
    TooLong(&'static str),
    /// A word has a NUL, which would end it.
    #[error("{0} has a NUL")]
    Nul(&'static str),
    /// The name of a variable is invalid or reserved.
    #[error("env.{0} {1}")]
    Variable(String, &'static str),
    /// The working directory is not in the workspace.
    #[error("cwd is {0:?}; name a directory below {dir} without ..", dir = WORKSPACE)]
    Directory(String),
    /// The time is out of range.
    #[error("timeout is not between 1 s and {max} s", max = TIMEOUT_MAX.as_secs())]
    Timeout,
}

impl ExecRequest {
    /// Timeout of a program whose request sets none.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(600);

    /// Checks the rules.
    ///
    /// # Errors
    /// [`ExecRefused`].
    pub fn check(&self) -> Result<(), ExecRefused> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(ExecRefused::NoProgram);
        }
        words("argv", self.argv.iter())?;
        words("env", self.env.iter().flat_map(|(name, value)| [name, value]))?;
        for name in self.env.keys() {
            let reason = reserved_variable(name).or((name == MARKER).then_some("is set by sluice"));
            if let Some(reason) = reason {
                return Err(ExecRefused::Variable(name.clone(), reason));
            }
        }
        let below = self.cwd.strip_prefix(WORKSPACE).filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let is_plain =
            |path: &str| !path.contains('\0') && path.len() < 4096 && path.split('/').all(|part| part != "..");
        if !below.is_some_and(is_plain) {
            return Err(ExecRefused::Directory(self.cwd.clone()));
        }
        if self.timeout < Duration::from_secs(1) || self.timeout > TIMEOUT_MAX {
            return Err(ExecRefused::Timeout);
        }
        Ok(())
    }
}

fn words<'a>(what: &'static str, words: impl Iterator<Item = &'a String>) -> Result<(), ExecRefused> {
    let mut len = 0;
    for word in words {
        if word.contains('\0') {
            return Err(ExecRefused::Nul(what));
        }
        len += word.len() + 1;
    }
    if len > WORDS_MAX { Err(ExecRefused::TooLong(what)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_has_its_error() {
        let good = ExecRequest {
            argv: vec!["ls".into()],
            env: BTreeMap::from([("LANG".into(), "C".into())]),
            cwd: "/workspace/repo".into(),
            timeout: ExecRequest::DEFAULT_TIMEOUT,
            tty: false,
        };
        assert_eq!(good.check(), Ok(()));
        assert_eq!(ExecRequest { cwd: WORKSPACE.into(), ..good.clone() }.check(), Ok(()));
        let env = |name: &str| BTreeMap::from([(name.to_owned(), String::new())]);
        let rows = [
            (ExecRequest { argv: vec![], ..good.clone() }, "argv is empty; name a program"),
            (
                ExecRequest { argv: vec!["a".into(), "x".repeat(64 << 10)], ..good.clone() },
                "argv has more than 65536 bytes",
            ),
            (ExecRequest { argv: vec!["a\0".into()], ..good.clone() }, "argv has a NUL"),
            (ExecRequest { env: env("A B"), ..good.clone() }, "env.A B is not a name for a variable"),
            (ExecRequest { env: env("SLUICE_EXEC_ID"), ..good.clone() }, "env.SLUICE_EXEC_ID is set by sluice"),
            (ExecRequest { timeout: Duration::ZERO, ..good.clone() }, "timeout is not between 1 s and 3600 s"),
            (
                ExecRequest { timeout: Duration::from_secs(3601), ..good.clone() },
                "timeout is not between 1 s and 3600 s",
            ),
        ];
        for (request, expected) in rows {
            assert_eq!(request.check().expect_err(expected).to_string(), expected);
        }
        assert!(ExecRequest { env: env("OPENAI_API_KEY"), ..good.clone() }.check().is_err());
        for cwd in ["", "/", "/etc", "/workspaces", "/workspace/../etc", "workspace", "/workspace/a\0"] {
            let refused = ExecRequest { cwd: cwd.into(), ..good.clone() }.check();
            assert_eq!(refused, Err(ExecRefused::Directory(cwd.to_owned())));
        }
    }
}
