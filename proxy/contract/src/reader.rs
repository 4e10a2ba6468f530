//! The bytes of an audit file as typed lines.
//!
//! Pure, except for the readers that it is given. Only a last line without its newline is torn: its writer died midway.
//! Every other line that is not a record is a fault, with the number of the line.

use std::io::{self, BufRead};

pub use crate::audit_line::{AuditLine, Cursor, LineHeader, Record};
pub(crate) use crate::fault::fault;
pub use crate::fault::{Fault, FaultKind};

/// Maximum length of a line, with its newline. A record of ours has less than 4 KB; a longer line is damage, and is
/// never held in memory as a whole.
pub const LINE_MAX: usize = 1 << 20;

/// Iterator over the complete lines of some bytes, in order, up to the first fault.
#[derive(Debug, Clone)]
pub struct AuditLines<'a> {
    rest: &'a [u8],
    next: Cursor,
    broken: bool,
}

/// Returns the lines of a file.
#[must_use]
pub fn lines(bytes: &[u8]) -> AuditLines<'_> {
    lines_from(Cursor::default(), bytes)
}

/// Returns the lines that were added to a file since [`AuditLines::cursor`] was taken.
#[must_use]
pub fn lines_from(cursor: Cursor, bytes: &[u8]) -> AuditLines<'_> {
    AuditLines { rest: bytes, next: cursor, broken: false }
}

impl<'a> AuditLines<'a> {
    /// Returns the bytes that are left: at the end, the torn last line, or nothing.
    #[must_use]
    pub fn tail(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the position after the last complete line that was read.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.next
    }
}

impl<'a> Iterator for AuditLines<'a> {
    type Item = Result<AuditLine<'a>, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.broken {
            return None;
        }
        let within = &self.rest[..self.rest.len().min(LINE_MAX)];
        let Some(end) = within.iter().position(|byte| *byte == b'\n').map(|at| at + 1) else {
            if self.rest.len() <= LINE_MAX {
                return None;
            }
            self.broken = true;
            return Some(Err(too_long(self.next.line)));
        };
        let (bytes, rest) = self.rest.split_at(end);
        let line = AuditLine::parse(self.next, bytes);
        match &line {
            Ok(_) => {
                self.rest = rest;
                self.next = Cursor { line: self.next.line + 1, offset: self.next.offset + bytes.len() as u64 };
            }
            Err(_) => self.broken = true,
        }
        Some(line)
    }
}

/// Reads the next line with its newline, and no more than one byte beyond [`LINE_MAX`]. The line is empty at the end of
/// the file, and without a newline if it is torn or longer.
///
/// # Errors
/// Errors of the reader.
pub fn read_line(mut file: impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    io::Read::take(&mut file, LINE_MAX as u64 + 1).read_until(b'\n', line).map(drop)
}

/// Reads a file to its end, or to the first line that is longer than [`LINE_MAX`]. It takes only as much of that line
/// as shows its excess: [`lines`] finds the fault there.
///
/// # Errors
/// Errors of the reader.
pub fn read_file(mut file: impl BufRead) -> io::Result<Vec<u8>> {
    let (mut bytes, mut line) = (Vec::new(), Vec::new());
    loop {
        read_line(&mut file, &mut line)?;
        bytes.extend_from_slice(&line);
        if line.is_empty() || line.len() > LINE_MAX {
            return Ok(bytes);
        }
    }
}

/// The fault of a line that is longer than [`LINE_MAX`].
pub(crate) fn too_long(line: u64) -> Fault {
    fault(line, FaultKind::Length, format!("at most {LINE_MAX} bytes"), "a longer line")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the first fault in the bytes that [`read_file`] takes, and the number of bytes taken.
    fn read(bytes: &[u8]) -> (Option<Fault>, usize) {
        let taken = read_file(bytes).expect("memory does not fail");
        (lines(&taken).find_map(Result::err), taken.len())
    }

    #[test]
    fn a_line_is_at_most_a_mebibyte() {
        let long = Some(too_long(1));
        let mut bytes = vec![b' '; 3 * LINE_MAX];
        assert_eq!(read(&bytes), (long.clone(), LINE_MAX + 1));
        bytes[LINE_MAX] = b'\n';
        assert_eq!(read(&bytes), (long, LINE_MAX + 1));

        // The fault in a line of the maximum length is its content.
        bytes.truncate(LINE_MAX);
        bytes[LINE_MAX - 1] = b'\n';
        let (fault, taken) = read(&bytes);
        assert_eq!((fault.map(|fault| fault.kind), taken), (Some(FaultKind::Json), LINE_MAX));
        // A torn line may be as long.
        bytes[LINE_MAX - 1] = b' ';
        assert_eq!(read(&bytes), (None, LINE_MAX));
    }
}
