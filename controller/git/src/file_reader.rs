//! A file as an asynchronous reader.

use std::fs::File;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

/// Maximum number of bytes in one read.
const PIECE: usize = 64 * 1024;

/// Reads a regular file in pieces. Reading one piece does not block for long, so the poll itself reads it.
#[derive(Debug)]
pub(crate) struct FileReader {
    file: File,
    piece: Vec<u8>,
    used: usize,
}

impl FileReader {
    pub(crate) fn new(file: File) -> Self {
        Self { file, piece: Vec::new(), used: 0 }
    }

    fn fill(&mut self) -> io::Result<()> {
        self.piece.resize(PIECE, 0);
        let read = self.file.read(&mut self.piece);
        // After an error, the piece is empty, so that the next poll reads the file again.
        self.piece.truncate(*read.as_ref().unwrap_or(&0));
        self.used = 0;
        read.map(|_| ())
    }
}

impl AsyncRead for FileReader {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.used == self.piece.len() {
            self.fill()?;
        }
        let rest = &self.piece[self.used..];
        let count = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..count]);
        self.used += count;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    /// Bug: after an error, a further read returned zeros.
    #[tokio::test]
    async fn a_failed_read_returns_no_bytes_later() {
        let directory = tempfile::tempdir().expect("a directory");
        // A directory can be opened like a file, but reading it always fails.
        let mut reader = FileReader::new(File::open(directory.path()).expect("it is ours"));
        for _ in 0..2 {
            let mut bytes = [1; 8];
            assert!(reader.read(&mut bytes).await.is_err(), "{bytes:?}");
        }
    }
}
