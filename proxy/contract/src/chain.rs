//! The hash chain: every line states the hash of the previous line, and `close` states its own hash.
//!
//! Pure. [`Chain`] is the writer's side, [`ChainReader`] the reader's. The reader takes lines one by one, so that a
//! witness can follow a file while it grows.

use crate::audit_log::AuditLog;
use crate::canon::{self, NotCanonical};
use crate::certificate::is_well_formed;
use crate::encode::WriteJson;
use crate::hash::Hash;
use crate::hex;
use crate::reader::{AuditLine, Fault, FaultKind, Record, fault};
use crate::record::Close;
use crate::seal::PrivateKey;
use crate::sequence::SequenceChecker;

/// End of the file, as its writer needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// Number of the next line.
    pub seq: u64,
    /// Hash that the next line states as `prev`.
    pub prev: Hash,
}

impl Default for Chain {
    /// Returns the end of an empty file.
    fn default() -> Self {
        Self { seq: 0, prev: Hash::ZERO }
    }
}

impl Chain {
    /// Advances over a line that was written, with its newline.
    #[inline]
    pub fn push(&mut self, line: &[u8]) {
        self.seq += 1;
        self.prev = Hash::of(line);
    }
}

/// Returns the line of a record, with its newline.
#[must_use]
pub fn line(record: &impl WriteJson) -> Vec<u8> {
    // Most lines fit, and the allocator keeps blocks of this size ready.
    let mut line = Vec::with_capacity(1000);
    record.write(&mut line);
    line.push(b'\n');
    line
}

/// Returns the last line of a file. Its head is computed, and signed if there is a key; former values of these members
/// are overwritten.
#[must_use]
pub fn close_line(mut close: Close<'_>, key: Option<&PrivateKey>) -> Vec<u8> {
    close.key_id = key.map(|key| key.public().id().into());
    let unsealed = line(&close);
    let head = head_of(&unsealed).expect("records are written in canonical form");
    close.head = head.to_string().into();
    close.signature = key.map(|key| key.sign(head).into());
    line(&close)
}

/// Returns the hash of a `close` without its members `head` and `signature`, and without its newline.
///
/// # Errors
/// [`NotCanonical`]
pub fn head_of(line: &[u8]) -> Result<Hash, NotCanonical> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let (mut pieces, mut at) = (Vec::with_capacity(3), 0);
    for member in canon::members(text)?.into_iter().filter(|member| matches!(member.name, b"head" | b"signature")) {
        // The comma before the member is left out as well. It always exists: the first member is `attempt`.
        pieces.push(&text[at..(member.span.start - 1).max(at)]);
        at = member.span.end;
    }
    pieces.push(&text[at..]);
    Ok(Hash::of_all(pieces))
}

/// Receiver of the lines of a file: [`AuditLog`] keeps everything, [`SequenceChecker`] only what it needs to check the
/// next line.
pub trait LineSink: Default {
    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that breaks a rule.
    fn take(&mut self, line: AuditLine<'_>) -> Result<(), Fault>;

    /// Returns the number of lines taken.
    fn lines(&self) -> u64;
}

impl LineSink for AuditLog {
    fn take(&mut self, line: AuditLine<'_>) -> Result<(), Fault> {
        Self::take(self, line)
    }

    fn lines(&self) -> u64 {
        Self::lines(self)
    }
}

impl LineSink for SequenceChecker {
    fn take(&mut self, line: AuditLine<'_>) -> Result<(), Fault> {
        Self::take(self, &line)
    }

    fn lines(&self) -> u64 {
        Self::lines(self)
    }
}

/// Reader of a file, which checks each line against the lines before it.
#[derive(Debug, Clone)]
pub struct ChainReader<K> {
    sink: K,
    head: Hash,
}

impl<K: LineSink> Default for ChainReader<K> {
    fn default() -> Self {
        Self { sink: K::default(), head: Hash::ZERO }
    }
}

impl<K: LineSink> ChainReader<K> {
    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that breaks a rule.
    pub fn take(&mut self, line: AuditLine<'_>) -> Result<(), Fault> {
        let (number, bytes) = (line.number, line.bytes);
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let members = canon::members(text)
            .map_err(|error| fault(number, FaultKind::Canonical, "sorted members, no blanks", error))?;
        if !is_timestamp(&line.header.ts) {
            return Err(fault(number, FaultKind::Members, "ts in UTC with microseconds", &line.header.ts));
        }
        if line.header.prev.parse::<Hash>().is_err() {
            return Err(fault(number, FaultKind::Members, "a hash in prev", &line.header.prev));
        }
        if line.header.seq == self.sink.lines() && line.header.prev != self.head.to_string() {
            return Err(fault(number, FaultKind::Prev, self.head, &line.header.prev));
        }
        match &line.record {
            Record::Close(close) => check_close(number, bytes, close)?,
            // Only `close` has a head. A line with a head was a `close` whose kind was altered.
            _ if members.iter().any(|member| member.name == b"head") => {
                return Err(fault(number, FaultKind::Order, "a head in close alone", &line.header.kind));
            }
            _ => {}
        }
        self.sink.take(line)?;
        self.head = Hash::of(bytes);
        Ok(())
    }

    /// Returns the sink.
    #[must_use]
    pub fn sink(&self) -> &K {
        &self.sink
    }

    /// Ends the reading and returns the sink.
    #[must_use]
    pub fn into_sink(self) -> K {
        self.sink
    }

    /// Returns the hash of the last line that was taken.
    #[must_use]
    pub fn head(&self) -> Hash {
        self.head
    }

    /// Returns the end of the file, for a writer that continues it.
    #[must_use]
    pub fn end(&self) -> Chain {
        Chain { seq: self.sink.lines(), prev: self.head }
    }
}

/// Checks that the head of a `close` is its own hash, and that its signature and certificate are well-formed.
fn check_close(line: u64, bytes: &[u8], close: &Close<'_>) -> Result<(), Fault> {
    let head = head_of(bytes).map_err(|error| fault(line, FaultKind::Canonical, "sorted members, no blanks", error))?;
    if close.head != head.to_string() {
        return Err(fault(line, FaultKind::Head, head, &close.head));
    }
    let well_formed = match (&close.key_id, &close.signature) {
        (None, None) => true,
        (Some(id), Some(signature)) => {
            hex::decode::<16>(id.as_bytes()).is_some() && hex::decode::<64>(signature.as_bytes()).is_some()
        }
        _ => false,
    };
    let found = || format!("{:?} by {:?}", close.signature, close.key_id);
    if !well_formed {
        return Err(fault(line, FaultKind::Signature, "a signature and the id of its key", found()));
    }
    match &close.certificate {
        Some(certificate) if !is_well_formed(certificate, close.key_id.as_deref().unwrap_or_default()) => {
            Err(fault(line, FaultKind::Signature, "a certificate of the key that signed", format!("{certificate:?}")))
        }
        _ => Ok(()),
    }
}

/// Returns true for a time such as `2026-03-01T10:20:30.123456Z`.
fn is_timestamp(text: &str) -> bool {
    const PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:dd.ddddddZ";
    let fits = |(byte, want): (u8, &u8)| if *want == b'd' { byte.is_ascii_digit() } else { byte == *want };
    text.len() == PATTERN.len() && text.bytes().zip(PATTERN).all(fits)
}
