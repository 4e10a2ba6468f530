//! Which failures of git at a forge may pass by themselves: those of the network, and of a server that is overloaded.
//!
//! Pure. Only git's message tells them apart: its exit code is the same for all.

use crate::error::GitError;

/// Commands that connect to a forge.
const REMOTE: [&str; 3] = ["ls-remote", "fetch", "push"];

/// Words of git, curl and ssh for a failure that may pass.
const PASSING: [&str; 16] = [
    "Could not resolve", "Couldn't resolve", "Temporary failure in name resolution", "Failed to connect",
    "Couldn't connect", "Could not connect", "Connection refused", "Connection reset", "Connection timed out",
    "Connection closed by", "Operation timed out", "Network is unreachable", "No route to host", "Operation too slow",
    "Empty reply from server", "early EOF",
];

/// Beginning of curl's words for a status.
const STATUS: &str = "returned error: ";

impl GitError {
    /// Returns true if the same request to a forge may succeed later. Lines of the forge itself (`remote:`) do not
    /// count.
    #[must_use]
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Failed { command, message } => REMOTE.contains(&command.as_str()) && is_passing(message),
            _ => false,
        }
    }
}

fn is_passing(message: &str) -> bool {
    let own = || message.split("; ").filter(|line| !line.starts_with("remote:"));
    // An HTTP status is the server's answer, so it decides, and not the end of the connection after it.
    if let Some(status) = own().find_map(status) {
        return matches!(status, 408 | 429 | 500..=599);
    }
    own().any(|line| PASSING.iter().any(|words| line.contains(words)))
}

fn status(line: &str) -> Option<u16> {
    let (_, rest) = line.split_once(STATUS)?;
    rest.get(..3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_a_forge_do_not_pass() {
        let failed = |command: &str, message: &str| {
            GitError::Failed { command: command.to_owned(), message: message.to_owned() }.is_retryable()
        };
        for message in [
            "fatal: unable to access 'http://h/r/': The requested URL returned error: 503",
            "fatal: unable to access 'http://h/r/': The requested URL returned error: 429",
            "error: RPC failed; HTTP 502 curl 22 The requested URL returned error: 502; fatal: the remote end hung up unexpectedly",
            "fatal: unable to access 'http://h/r/': Failed to connect to h port 80 after 0 ms: Could not connect to server",
            "fatal: unable to access 'http://h/r/': Could not resolve host: h",
            "fatal: unable to access 'http://h/r/': Operation too slow. Less than 1000 bytes/sec transferred the last 60 seconds",
            "ssh: connect to host h port 22: Connection refused; fatal: Could not read from remote repository.",
            "fetch-pack: unexpected disconnect while reading sideband packet; fatal: early EOF",
        ] {
            assert!(failed("fetch", message), "{message}");
            assert!(!failed("pack-objects", message), "{message}");
        }
        for message in [
            "fatal: unable to access 'http://h/r/': The requested URL returned error: 403",
            "error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413; fatal: Connection reset by peer",
            "remote: Connection refused; fatal: repository 'http://h/r/' not found",
            "fatal: Authentication failed for 'http://h/r/'",
            "Host key verification failed.; fatal: Could not read from remote repository.",
            "me@h: Permission denied (publickey).; fatal: Could not read from remote repository.",
            "error: object 12: badTree; fatal: fsck error in packed object",
        ] {
            assert!(!failed("fetch", message), "{message}");
        }
    }
}
