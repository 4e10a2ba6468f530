//! The bytes of an audit file as typed lines.
//!
//! Pure but for the readers that it may be given. Only a last line without its newline is torn: its writer died in the middle. Everything else that
//! is no record is a fault, with the number of its line.

use std::fmt;
use std::io::{self, BufRead};

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::record::{Close, Epoch, Intent, Open, Outcome, Recovered, Refused, SCHEMA};

/// Maximum length of a line, with its newline. A record of ours has less than 2 KB; a longer line is damage, and is never
/// held in memory as a whole.
pub const LINE_MAX: usize = 1 << 20;

/// One record, as its kind has it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the kinds")]
pub enum Record {
    Open(Box<Open<'static>>),
    Intent(Box<Intent<'static>>),
    Outcome(Box<Outcome<'static>>),
    Refused(Box<Refused<'static>>),
    Recovered(Box<Recovered<'static>>),
    Epoch(Box<Epoch<'static>>),
    Close(Box<Close<'static>>),
    /// A kind that came after this build: its name. Readers pass over it.
    Other(String),
}

/// One whole line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line<'a> {
    /// From 1, as editors count.
    pub number: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Exactly as it stands there, with its newline.
    pub bytes: &'a [u8],
    /// What every line carries.
    pub common: Common,
    /// What it says.
    pub record: Record,
}

/// What every line carries, whatever its kind.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[allow(missing_docs, reason = "named like the members")]
pub struct Common {
    pub attempt: u32,
    pub kind: String,
    pub prev: String,
    pub run_id: String,
    pub seq: u64,
    pub ts: String,
    pub v: u32,
}

/// A line that cannot stand where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}: expected {expected}, found {found}")]
pub struct Fault {
    /// From 1, as editors count.
    pub line: u64,
    /// What is wrong with it.
    pub what: What,
    /// What should stand there.
    pub expected: String,
    /// What does.
    pub found: String,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum What {
    /// It is not a JSON object.
    Json,
    /// It is longer than [`LINE_MAX`].
    Length,
    /// Its schema is another than this build knows.
    Schema,
    /// A member is missing, or of the wrong type.
    Members,
    /// It is not in canonical form.
    Canonical,
    /// Its number leaves a gap, or goes back.
    Seq,
    /// What it says of the line before is not so, and the line itself is the one that was altered.
    Prev,
    /// Its hash is not what the next line says: it was altered.
    Hash,
    /// It belongs to another run or attempt.
    Run,
    /// Its kind cannot stand here: `open` is first and only first, `close` is last.
    Order,
    /// An intent or an outcome that does not match the other, or a number that was not next.
    Call,
    /// What `close` sums up is not what the lines come to.
    Totals,
    /// What `close` states of itself and of the file is not so.
    Head,
    /// The signature is missing, or is over something else.
    Signature,
    /// The signature, or the certificate of its key, names a key that is not among the trusted ones.
    UnknownKey,
    /// A line that was seen before is now another, or is gone.
    Witness,
}

impl What {
    /// The word in reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Json => "json",
            Self::Length => "length",
            Self::Schema => "schema",
            Self::Members => "members",
            Self::Canonical => "canonical",
            Self::Seq => "seq",
            Self::Prev => "prev",
            Self::Hash => "hash",
            Self::Run => "run",
            Self::Order => "order",
            Self::Call => "call",
            Self::Totals => "totals",
            Self::Head => "head",
            Self::Signature => "signature",
            Self::UnknownKey => "unknown key",
            Self::Witness => "witness",
        }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Where reading goes on: the number of the next line, and where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "said above")]
pub struct Cursor {
    pub line: u64,
    pub offset: u64,
}

impl Default for Cursor {
    fn default() -> Self {
        Self { line: 1, offset: 0 }
    }
}

/// The whole lines of some bytes, in order, up to the first fault.
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    rest: &'a [u8],
    next: Cursor,
    broken: bool,
}

/// Reads a file from its beginning.
#[must_use]
pub fn lines(bytes: &[u8]) -> Lines<'_> {
    lines_from(Cursor::default(), bytes)
}

/// Reads what has been added to a file since [`Lines::cursor`] was taken.
#[must_use]
pub fn lines_from(cursor: Cursor, bytes: &[u8]) -> Lines<'_> {
    Lines { rest: bytes, next: cursor, broken: false }
}

impl<'a> Lines<'a> {
    /// What is left: at the end, the torn last line, or nothing.
    #[must_use]
    pub fn tail(&self) -> &'a [u8] {
        self.rest
    }

    /// Behind the last whole line that was read.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        self.next
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = Result<Line<'a>, Fault>;

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
        let line = Line::parse(self.next, bytes);
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

impl<'a> Line<'a> {
    /// Reads one whole line that stands at this place of its file.
    ///
    /// # Errors
    /// The [`Fault`] of a line that is not a record.
    pub fn parse(at: Cursor, bytes: &'a [u8]) -> Result<Self, Fault> {
        let common: Common = members(at.line, bytes)?;
        if common.v != SCHEMA {
            return Err(fault(at.line, What::Schema, SCHEMA, common.v));
        }
        let record = match common.kind.as_str() {
            Open::KIND => Record::Open(members(at.line, bytes)?),
            Intent::KIND => Record::Intent(members(at.line, bytes)?),
            Outcome::KIND => Record::Outcome(members(at.line, bytes)?),
            Refused::KIND => Record::Refused(members(at.line, bytes)?),
            Recovered::KIND => Record::Recovered(members(at.line, bytes)?),
            Epoch::KIND => Record::Epoch(members(at.line, bytes)?),
            Close::KIND => Record::Close(members(at.line, bytes)?),
            other => Record::Other(other.to_owned()),
        };
        Ok(Self { number: at.line, offset: at.offset, bytes, common, record })
    }
}

fn members<T: DeserializeOwned>(line: u64, bytes: &[u8]) -> Result<T, Fault> {
    serde_json::from_slice(bytes).map_err(|error| {
        if error.is_data() {
            fault(line, What::Members, "the members of its kind", error)
        } else {
            fault(line, What::Json, "one JSON object", error)
        }
    })
}

/// Reads the next line with its newline, and no more than one byte beyond [`LINE_MAX`]. The line is empty at the end of the
/// file, and without a newline if it is torn or longer.
///
/// # Errors
/// Those of the reader.
pub fn read_line(mut file: impl BufRead, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    io::Read::take(&mut file, LINE_MAX as u64 + 1).read_until(b'\n', line).map(drop)
}

/// Reads a file to its end, or to the first line that is longer than [`LINE_MAX`], of which it takes no more than shows
/// that: [`lines`] finds the fault there.
///
/// # Errors
/// Those of the reader.
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
    fault(line, What::Length, format!("at most {LINE_MAX} bytes"), "a longer line")
}

pub(crate) fn fault(line: u64, what: What, expected: impl fmt::Display, found: impl fmt::Display) -> Fault {
    Fault { line, what, expected: cut(expected.to_string()), found: cut(found.to_string()) }
}

/// What stands in an altered line is as long as whoever altered it wants.
fn cut(text: String) -> String {
    const MAX: usize = 400;
    match text.char_indices().nth(MAX) {
        Some((end, _)) => format!("{} [...]", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of some bytes: by the lines of what [`read_file`] takes of them, and how much that is.
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

        // Of the longest one it is said what it is.
        bytes.truncate(LINE_MAX);
        bytes[LINE_MAX - 1] = b'\n';
        let (fault, taken) = read(&bytes);
        assert_eq!((fault.map(|fault| fault.what), taken), (Some(What::Json), LINE_MAX));
        // And one that is torn may be as long.
        bytes[LINE_MAX - 1] = b' ';
        assert_eq!(read(&bytes), (None, LINE_MAX));
    }
}
