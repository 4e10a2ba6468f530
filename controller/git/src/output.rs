//! Bounded reading of git's output.

use std::io;

use sluice_contract::text::sanitize;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::secret::SecretText;

/// Maximum number of stored bytes of an error message.
const TAIL: usize = 4096;

/// Output of a git process that has ended.
#[derive(Debug)]
pub(crate) struct Output {
    /// Exit code; none after a signal.
    pub(crate) code: Option<i32>,
    /// Standard output.
    pub(crate) stdout: Vec<u8>,
    /// The end of standard error.
    pub(crate) stderr: Vec<u8>,
}

impl Output {
    /// Returns true for exit code 0.
    pub(crate) fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    /// Replaces secrets. If the beginning of standard error was cut off, it may begin with the end of a secret: such a
    /// piece is removed too.
    pub(crate) fn hide(&mut self, secrets: &[SecretText]) {
        let is_cut = self.stderr.len() == TAIL;
        for secret in secrets {
            self.stdout = replaced(&self.stdout, secret.expose().as_bytes());
            self.stderr = replaced(&self.stderr, secret.expose().as_bytes());
        }
        if is_cut {
            let longest = secrets.iter().map(|secret| secret.expose().len()).max().unwrap_or(0);
            self.stderr.drain(..longest.min(self.stderr.len()));
        }
    }

    /// Returns the last lines of standard error as one line without control characters.
    pub(crate) fn message(&self) -> String {
        let text = String::from_utf8_lossy(&self.stderr);
        let lines: Vec<String> =
            text.lines().rev().filter(|line| !line.trim().is_empty()).take(6).map(one_line).collect();
        let message = lines.into_iter().rev().collect::<Vec<_>>().join("; ");
        match (message.is_empty(), self.code) {
            (false, _) => message,
            (true, Some(code)) => format!("it ended with code {code} and no message"),
            (true, None) => {
                "it was ended by a signal, as the kernel does at a limit of memory, time or file size".to_owned()
            }
        }
    }

    /// Returns the first line of standard output.
    pub(crate) fn line(&self) -> &[u8] {
        self.stdout.split(|byte| *byte == b'\n').next().unwrap_or_default()
    }
}

/// Returns a line of a message that joins lines by semicolons. In a line of the remote side, semicolons are replaced,
/// so that no part of it looks like a line of git.
fn one_line(line: &str) -> String {
    let text = sanitize(line);
    if text.trim_start().starts_with("remote:") { text.replace(';', ",") } else { text }
}

/// Returns the bytes with each occurrence of the secret replaced by another text.
fn replaced(bytes: &[u8], secret: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(at) = rest.windows(secret.len().max(1)).position(|window| window == secret) {
        kept.extend_from_slice(&rest[..at]);
        kept.extend_from_slice(b"(token)");
        rest = &rest[at + secret.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

/// Reads to the end; returns `None` if the output exceeds the limit.
pub(crate) async fn read_bounded(mut from: impl AsyncRead + Unpin, limit: usize) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    let mut bounded = (&mut from).take(limit as u64 + 1);
    bounded.read_to_end(&mut bytes).await?;
    Ok((bytes.len() <= limit).then_some(bytes))
}

/// Reads to the end and keeps the last bytes.
pub(crate) async fn read_tail(mut from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    let mut piece = [0; 2048];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(kept);
        }
        kept.extend_from_slice(&piece[..read]);
        let excess = kept.len().saturating_sub(TAIL);
        kept.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_piece_of_a_secret_is_left() {
        let secrets = [SecretText::new("ghp_canary".to_owned())];
        let hidden = |stderr: &[u8]| {
            let mut output = Output { code: Some(1), stdout: b"x ghp_canary".to_vec(), stderr: stderr.to_vec() };
            output.hide(&secrets);
            assert_eq!(output.stdout, b"x (token)");
            output.message()
        };
        assert_eq!(hidden(b"remote: ghp_canary, ghp_canary"), "remote: (token), (token)");
        assert_eq!(hidden(b"fatal: no"), "fatal: no");
        assert_eq!(hidden(b"remote: x; Connection refused\nfatal: a; b"), "remote: x, Connection refused; fatal: a; b");
        let cut = [b"hp_canary ".as_slice(), &[b'.'; TAIL - 10]].concat();
        assert!(!hidden(&cut).contains("canary"));
    }
}
