//! Forwards our own stdin to a program.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::sync::mpsc;

/// Source of a program's stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// No input: the program reads the end of its input at once.
    Closed,
    /// Our own stdin.
    Ours,
}

/// Kind of our own stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinKind {
    /// A terminal.
    Terminal,
    /// `/dev/null`, or closed.
    Null,
    /// A pipe, a file or a socket.
    Data,
}

/// Request of the user for stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinRequest {
    /// No request.
    Default,
    /// `--interactive`
    Interactive,
}

/// Size of one read.
const CHUNK: usize = 32 << 10;
/// Maximum number of chunks that wait for the program.
const CHUNKS: usize = 4;

impl StdinKind {
    /// Returns the kind of our stdin.
    #[must_use]
    pub fn current() -> Self {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            return Self::Terminal;
        }
        let meta = stdin.as_fd().try_clone_to_owned().and_then(|fd| File::from(fd).metadata());
        let null = fs::metadata("/dev/null").map(|null| null.rdev());
        match (meta, null) {
            (Ok(meta), Ok(null)) if meta.rdev() != null => Self::Data,
            _ => Self::Null,
        }
    }

    /// Returns the source of a program's stdin. A terminal is used only at the user's request, since programs wait for
    /// input from a terminal that they do not need.
    #[must_use]
    pub fn for_program(self, request: StdinRequest) -> Stdin {
        match (self, request) {
            (Self::Data, _) | (_, StdinRequest::Interactive) => Stdin::Ours,
            (Self::Terminal | Self::Null, StdinRequest::Default) => Stdin::Closed,
        }
    }
}

/// Reads our stdin on a thread that ends with the process, since a read cannot be interrupted. The channel closes at the
/// end of stdin.
#[must_use]
pub fn read() -> mpsc::Receiver<Bytes> {
    let (sender, chunks) = mpsc::channel(CHUNKS);
    std::thread::spawn(move || {
        let mut chunk = vec![0; CHUNK];
        loop {
            match io::stdin().read(&mut chunk) {
                Ok(0) => return,
                // The receiver is gone when the program has ended.
                Ok(count) => match sender.blocking_send(Bytes::copy_from_slice(&chunk[..count])) {
                    Ok(()) => {}
                    Err(_) => return,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let stdin = io::stdin();
                    // An error of `poll` is ignored: the next read returns the error of stdin.
                    let _ = poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                }
                Err(error) => {
                    let _ = writeln!(io::stderr(), "sluice: cannot read stdin: {error}; the program sees its end here");
                    return;
                }
            }
        }
    });
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_used_only_on_request() {
        for (kind, request, expected) in [
            (StdinKind::Data, StdinRequest::Default, Stdin::Ours),
            (StdinKind::Data, StdinRequest::Interactive, Stdin::Ours),
            (StdinKind::Terminal, StdinRequest::Default, Stdin::Closed),
            (StdinKind::Terminal, StdinRequest::Interactive, Stdin::Ours),
            (StdinKind::Null, StdinRequest::Default, Stdin::Closed),
            (StdinKind::Null, StdinRequest::Interactive, Stdin::Ours),
        ] {
            assert_eq!(kind.for_program(request), expected, "{kind:?} {request:?}");
        }
    }
}
