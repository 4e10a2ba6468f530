//! Our own stdin on its way to a program.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;

use bytes::Bytes;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::Serialize;
use tokio::sync::mpsc;

/// What a program finds on its stdin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Stdin {
    /// Its end.
    Closed,
    /// What comes on our own stdin.
    Ours,
}

/// What our own stdin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A terminal.
    Terminal,
    /// `/dev/null`, or nothing at all.
    Null,
    /// A pipe, a file or a socket.
    Data,
}

/// The size of a piece, and how many may wait for the program.
const PIECE: usize = 32 << 10;
const PIECES: usize = 4;

impl Kind {
    /// Looks at our stdin.
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

    /// Whether a program gets our stdin. A terminal is taken only where the user asks for it: programs wait for input
    /// there that they do not need.
    #[must_use]
    pub fn given(self, is_asked: bool) -> Stdin {
        match (self, is_asked) {
            (Self::Data, _) | (_, true) => Stdin::Ours,
            (Self::Terminal | Self::Null, false) => Stdin::Closed,
        }
    }
}

/// Begins to read our stdin, on a thread that ends with the process: a read cannot be interrupted. The channel closes at
/// the end of stdin.
#[must_use]
pub fn read() -> mpsc::Receiver<Bytes> {
    let (sender, pieces) = mpsc::channel(PIECES);
    std::thread::spawn(move || {
        let mut piece = vec![0; PIECE];
        loop {
            match io::stdin().read(&mut piece) {
                Ok(0) => return,
                // The program has ended if nobody takes it.
                Ok(count) => match sender.blocking_send(Bytes::copy_from_slice(&piece[..count])) {
                    Ok(()) => {}
                    Err(_) => return,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let stdin = io::stdin();
                    // An error comes back with the next read.
                    let _ = poll(&mut [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE);
                }
                Err(error) => {
                    let _ = writeln!(io::stderr(), "sluice: cannot read stdin: {error}; the program sees its end here");
                    return;
                }
            }
        }
    });
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_taken_only_when_asked_for() {
        for (kind, is_asked, given) in [
            (Kind::Data, false, Stdin::Ours),
            (Kind::Data, true, Stdin::Ours),
            (Kind::Terminal, false, Stdin::Closed),
            (Kind::Terminal, true, Stdin::Ours),
            (Kind::Null, false, Stdin::Closed),
            (Kind::Null, true, Stdin::Ours),
        ] {
            assert_eq!(kind.given(is_asked), given, "{kind:?} {is_asked}");
        }
    }
}
