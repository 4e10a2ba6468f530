//! The environment variables that a user sets in the sandbox.
//!
//! Messages never contain the values, because values are often secrets.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use sluice_runs::blueprint::{OUT, OUT_VARIABLE, reserved_variable};
use sluice_runs::tty;

use super::args::RunArgs;
use super::request_error::RequestError;

/// Returns the environment variables of the user. `--env` replaces a variable of `--env-file`.
pub(super) fn environment(args: &RunArgs) -> Result<BTreeMap<String, String>, RequestError> {
    let mut env = BTreeMap::new();
    for path in &args.env_file {
        let content = fs::read(path).map_err(|source| RequestError::EnvFile { path: path.clone(), source })?;
        read_file(path, &content, &mut env)?;
    }
    for given in &args.env {
        let (name, value) = match given.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (given.as_str(), None),
        };
        if let Some(reason) = reserved_variable(name) {
            // The value may be a secret.
            let name = if name.is_empty() { "=…" } else { name }.to_owned();
            return Err(RequestError::Variable { name, reason });
        }
        let value = value.or_else(|| std::env::var(name).ok());
        env.insert(name.to_owned(), value.ok_or_else(|| RequestError::NoValue(name.to_owned()))?);
    }
    if let Some(term) = args.tty.then(tty::term).flatten() {
        env.entry("TERM".to_owned()).or_insert(term);
    }
    if args.out.is_some() {
        env.insert(OUT_VARIABLE.to_owned(), OUT.to_owned());
    }
    Ok(env)
}

/// Reads a file as Docker does: one variable per line, the value unchanged up to the end of the line, `#` at the start of a
/// comment. A name without a value passes on the variable of this process, if it is set.
fn read_file(path: &Path, content: &[u8], env: &mut BTreeMap<String, String>) -> Result<(), RequestError> {
    let content = content.strip_prefix(b"\xef\xbb\xbf").unwrap_or(content);
    for (index, line) in content.split(|byte| *byte == b'\n').enumerate() {
        let invalid =
            |reason: &str| RequestError::EnvLine { path: path.to_owned(), line: index + 1, reason: reason.to_owned() };
        let line = std::str::from_utf8(line).map_err(|_| invalid("it is not UTF-8"))?;
        let line = line.strip_suffix('\r').unwrap_or(line).trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, value) = line.split_once('=').map_or((line, None), |(name, value)| (name, Some(value.to_owned())));
        if let Some(reason) = reserved_variable(name) {
            // The text before a missing '=' may be a secret.
            return Err(invalid(&if value.is_some() {
                format!("the name of the variable {reason}")
            } else {
                "write NAME=VALUE, or NAME of a variable of this process".to_owned()
            }));
        }
        if value.as_ref().is_some_and(|value| value.contains('\0')) {
            return Err(invalid("the value has a NUL byte"));
        }
        if let Some(value) = value.or_else(|| std::env::var(name).ok()) {
            env.insert(name.to_owned(), value);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(content: &str) -> Result<BTreeMap<String, String>, RequestError> {
        let mut env = BTreeMap::new();
        read_file(Path::new("f"), content.as_bytes(), &mut env).map(|()| env)
    }

    #[test]
    fn lines_are_read_as_docker_does() {
        let env = read("# comment\n\nA=1\r\n  B= two words # kept \nC=\"quoted\"\nD=\nNOT_SET_ANYWHERE_AT_ALL\n");
        let expected = [("A", "1"), ("B", " two words # kept "), ("C", "\"quoted\""), ("D", "")];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(env.expect("each line is valid"), expected.into());
    }

    #[test]
    fn messages_name_the_line_and_no_value() {
        for content in
            ["A=1\nOPENAI_API_KEY=hunter2\n", "A=1\nbad-name=hunter2\n", "A=1\nhunter 2\n", "A=1\nB=hunter2\0\n"]
        {
            let message = read(content).expect_err("the second line is not valid").to_string();
            assert!(message.starts_with("--env-file f, line 2: ") && !message.contains("hunter"), "{message}");
        }
    }
}
