//! The chain: every line states the hash of the line before, and `close` the hash of itself.
//!
//! Pure. [`Chain`] is the writer's side, [`Walk`] the reader's: it takes lines one by one, so that a witness
//! can follow a file while it grows.

use crate::canon::{self, NotCanonical};
use crate::certificate::is_well_formed;
use crate::course::Course;
use crate::hash::Hash;
use crate::hex;
use crate::line::Member;
use crate::reader::{Fault, Line, Record, What, fault};
use crate::record::Close;
use crate::seal::PrivateKey;
use crate::story::Story;

/// Where a file ends for its writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain {
    /// The number of the next line.
    pub seq: u64,
    /// What the next line states as `prev`.
    pub prev: Hash,
}

impl Default for Chain {
    /// An empty file.
    fn default() -> Self {
        Self { seq: 0, prev: Hash::ZERO }
    }
}

impl Chain {
    /// A line that states this chain's end was added, with its newline.
    pub fn push(&mut self, line: &[u8]) {
        self.seq += 1;
        self.prev = Hash::of(line);
    }
}

/// A record as its line, with its newline.
#[must_use]
pub fn line(record: &impl Member) -> Vec<u8> {
    // As much as the allocator keeps at hand; most lines fit.
    let mut line = Vec::with_capacity(1000);
    record.write(&mut line);
    line.push(b'\n');
    line
}

/// The last line of a file: its head is computed, and signed if there is a key. What stood in its place is
/// overwritten.
#[must_use]
pub fn close_line(mut close: Close<'_>, key: Option<&PrivateKey>) -> Vec<u8> {
    close.key_id = key.map(|key| key.public().id().into());
    let unsealed = line(&close);
    let head = head_of(&unsealed).expect("records are written in canonical form");
    close.head = head.to_string().into();
    close.signature = key.map(|key| key.sign(head).into());
    line(&close)
}

/// The hash of a `close` without its members `head` and `signature`, and without its newline.
///
/// # Errors
/// [`NotCanonical`]
pub fn head_of(line: &[u8]) -> Result<Hash, NotCanonical> {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    let (mut pieces, mut at) = (Vec::with_capacity(3), 0);
    for member in canon::members(text)?.into_iter().filter(|member| matches!(member.name, b"head" | b"signature")) {
        // With the comma before it: `attempt` is always the first.
        pieces.push(&text[at..(member.span.start - 1).max(at)]);
        at = member.span.end;
    }
    pieces.push(&text[at..]);
    Ok(Hash::of_all(pieces))
}

/// What is kept of a file on the way through it: all that it says ([`Story`]), or only what the next line has to fit
/// ([`Course`]).
pub trait Kept: Default {
    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that cannot stand here.
    fn take(&mut self, line: Line<'_>) -> Result<(), Fault>;

    /// How many lines were taken.
    fn lines(&self) -> u64;
}

impl Kept for Story {
    fn take(&mut self, line: Line<'_>) -> Result<(), Fault> {
        Self::take(self, line)
    }

    fn lines(&self) -> u64 {
        Self::lines(self)
    }
}

impl Kept for Course {
    fn take(&mut self, line: Line<'_>) -> Result<(), Fault> {
        Self::take(self, &line)
    }

    fn lines(&self) -> u64 {
        Self::lines(self)
    }
}

/// A file as far as it has been read, each line held against those before it.
#[derive(Debug, Clone)]
pub struct Walk<K> {
    kept: K,
    head: Hash,
}

impl<K: Kept> Default for Walk<K> {
    fn default() -> Self {
        Self { kept: K::default(), head: Hash::ZERO }
    }
}

impl<K: Kept> Walk<K> {
    /// Takes the next line.
    ///
    /// # Errors
    /// The [`Fault`] of a line that cannot stand here.
    pub fn take(&mut self, line: Line<'_>) -> Result<(), Fault> {
        let (number, bytes) = (line.number, line.bytes);
        let text = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let members =
            canon::members(text).map_err(|error| fault(number, What::Canonical, "sorted members, no blanks", error))?;
        if !is_timestamp(&line.common.ts) {
            return Err(fault(number, What::Members, "ts in UTC with microseconds", &line.common.ts));
        }
        if line.common.prev.parse::<Hash>().is_err() {
            return Err(fault(number, What::Members, "a hash in prev", &line.common.prev));
        }
        if line.common.seq == self.kept.lines() && line.common.prev != self.head.to_string() {
            return Err(fault(number, What::Prev, self.head, &line.common.prev));
        }
        match &line.record {
            Record::Close(close) => is_sealed(number, bytes, close)?,
            // What is not close has no head; what was close once still has.
            _ if members.iter().any(|member| member.name == b"head") => {
                return Err(fault(number, What::Order, "a head in close alone", &line.common.kind));
            }
            _ => {}
        }
        self.kept.take(line)?;
        self.head = Hash::of(bytes);
        Ok(())
    }

    /// What was kept so far.
    #[must_use]
    pub fn kept(&self) -> &K {
        &self.kept
    }

    /// The same, for good.
    #[must_use]
    pub fn into_kept(self) -> K {
        self.kept
    }

    /// The hash of the last line that was taken.
    #[must_use]
    pub fn head(&self) -> Hash {
        self.head
    }

    /// Where a writer would go on.
    #[must_use]
    pub fn end(&self) -> Chain {
        Chain { seq: self.kept.lines(), prev: self.head }
    }
}

/// Whether the head of a `close` is its own, and its signature looks like one.
fn is_sealed(line: u64, bytes: &[u8], close: &Close<'_>) -> Result<(), Fault> {
    let head = head_of(bytes).map_err(|error| fault(line, What::Canonical, "sorted members, no blanks", error))?;
    if close.head != head.to_string() {
        return Err(fault(line, What::Head, head, &close.head));
    }
    let whole = match (&close.key_id, &close.signature) {
        (None, None) => true,
        (Some(id), Some(signature)) => {
            hex::decode::<16>(id.as_bytes()).is_some() && hex::decode::<64>(signature.as_bytes()).is_some()
        }
        _ => false,
    };
    let found = || format!("{:?} by {:?}", close.signature, close.key_id);
    if !whole {
        return Err(fault(line, What::Signature, "a signature and the id of its key", found()));
    }
    match &close.certificate {
        Some(certificate) if !is_well_formed(certificate, close.key_id.as_deref().unwrap_or_default()) => {
            Err(fault(line, What::Signature, "a certificate of the key that signed", format!("{certificate:?}")))
        }
        _ => Ok(()),
    }
}

/// `2026-03-01T10:20:30.123456Z`
fn is_timestamp(text: &str) -> bool {
    const PATTERN: &[u8] = b"dddd-dd-ddTdd:dd:dd.ddddddZ";
    let fits = |(byte, want): (u8, &u8)| if *want == b'd' { byte.is_ascii_digit() } else { byte == *want };
    text.len() == PATTERN.len() && text.bytes().zip(PATTERN).all(fits)
}
