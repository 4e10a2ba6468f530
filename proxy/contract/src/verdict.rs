//! What an auditor may say of a file: complete, incomplete, or altered, and where.
//!
//! Pure but for the reader that it may be given. `verify_audit.py`, beside this crate, says the same by other means.

use std::cmp::Reverse;
use std::fmt;
use std::io::{self, BufRead};

use serde::Deserialize;

use crate::chain::{Walk, head_of};
use crate::course::{Course, Totals};
use crate::exit;
pub use crate::exit::{INCOMPLETE as EXIT_INCOMPLETE, UNREADABLE as EXIT_UNREADABLE, USAGE as EXIT_USAGE};
use crate::hash::Hash;
use crate::reader::{Cursor, Fault, LINE_MAX, Line, What, fault, read_line, too_long};
use crate::record::Close;
use crate::seal::PublicKey;

/// What the auditor knows from elsewhere. Of what is empty here, nothing is checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Trust<'a> {
    /// The file must be signed by one of these, or by a key that one of these has certified for its run and attempt.
    pub keys: &'a [PublicKey],
    /// The file must have these lines.
    pub seen: &'a [Witness],
}

/// A line that somebody saw when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub head: Hash,
}

/// What a file is worth.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is whole: from `open` to `close`, and every call has its outcome.
    Complete(Report),
    /// What is there is as it was written, but something is missing.
    Incomplete(Report),
    /// A line is not what was written there; or, with [`What::UnknownKey`], no trusted key says that it is.
    Tampered(Fault),
}

/// What was found in a file that was not altered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whole lines.
    pub lines: u64,
    /// The hash of the last one.
    pub head: Hash,
    /// Whether it ended in order.
    pub closed: bool,
    /// The ids of the calls without an outcome: money may have been spent.
    pub open_calls: Vec<String>,
    /// Bytes of a last line that is torn.
    pub torn: u64,
    /// How often a restart found it torn or calls open.
    pub recovered: u64,
    /// How often its sidecar was started again.
    pub epochs: u64,
    /// Who vouches for it.
    pub seal: Seal,
    /// What its lines come to.
    pub totals: Totals,
}

/// Who vouches for a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// Nobody: it has no end yet, or its sidecar had no key.
    None,
    /// It says that this key signed it, or certified the key that did; no keys were given to check that.
    Unchecked(String),
    /// This key signed it, or certified the key that did.
    Valid(String),
}

impl Verdict {
    /// The exit code of a verifier: 0 complete, 1 tampered, 3 incomplete.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Complete(_) => 0,
            Self::Tampered(_) => exit::FAILED,
            Self::Incomplete(_) => exit::INCOMPLETE,
        }
    }

    /// What was found; none if the file was altered.
    #[must_use]
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::Complete(report) | Self::Incomplete(report) => Some(report),
            Self::Tampered(_) => None,
        }
    }
}

/// Holds a whole file against its own rules and against what is known from elsewhere.
#[must_use]
pub fn verify(bytes: &[u8], trust: &Trust<'_>) -> Verdict {
    verify_from(bytes, trust).expect("memory does not fail")
}

/// The same of a file that is read line by line, however long it is.
///
/// # Errors
/// Those of the reader.
pub fn verify_from(file: impl BufRead, trust: &Trust<'_>) -> io::Result<Verdict> {
    verify_each(file, trust, |_| {})
}

/// The same, and shows each line to an observer before the line is checked. What the observer saw counts only as far as the
/// verdict says.
///
/// # Errors
/// Those of the reader.
pub fn verify_each(file: impl BufRead, trust: &Trust<'_>, each: impl FnMut(&Line<'_>)) -> io::Result<Verdict> {
    Ok(match walk(file, trust, each)? {
        Ok(report) => {
            let whole = report.closed && report.open_calls.is_empty() && report.torn == 0 && report.recovered == 0;
            if whole { Verdict::Complete(report) } else { Verdict::Incomplete(report) }
        }
        Err(fault) => Verdict::Tampered(fault),
    })
}

fn walk(
    mut file: impl BufRead,
    trust: &Trust<'_>,
    mut each: impl FnMut(&Line<'_>),
) -> io::Result<Result<Report, Fault>> {
    let mut checked = Checked::of(trust);
    let (mut at, mut text) = (Cursor::default(), Vec::new());
    loop {
        read_line(&mut file, &mut text)?;
        if text.len() > LINE_MAX {
            return Ok(Err(too_long(at.line)));
        }
        if !text.ends_with(b"\n") {
            return Ok(checked.end(text.len() as u64));
        }
        let line = Line::parse(at, &text);
        if let Ok(line) = &line {
            each(line);
        }
        if let Err(fault) = line.and_then(|line| checked.take(line)) {
            let mut next = Vec::new();
            read_line(&mut file, &mut next)?;
            return Ok(Err(blame(fault, &text, &next)));
        }
        at = Cursor { line: at.line + 1, offset: at.offset + text.len() as u64 };
    }
}

/// A file up to a line that was not altered.
struct Checked<'a> {
    walk: Walk<Course>,
    seal: Seal,
    keys: &'a [PublicKey],
    /// Lines that are still to come, the next one last.
    seen: Vec<Witness>,
}

impl<'a> Checked<'a> {
    fn of(trust: &Trust<'a>) -> Self {
        let mut seen = trust.seen.to_vec();
        seen.sort_by_key(|seen| Reverse(seen.seq));
        Self { walk: Walk::default(), seal: Seal::None, keys: trust.keys, seen }
    }

    fn take(&mut self, line: Line<'_>) -> Result<(), Fault> {
        let (number, seq) = (line.number, line.common.seq);
        self.walk.take(line)?;
        let head = self.walk.head();
        while let Some(seen) = self.seen.pop_if(|seen| seen.seq == seq) {
            if seen.head != head {
                return Err(fault(number, What::Witness, seen.head, head));
            }
        }
        if let Some(close) = self.walk.kept().close() {
            self.seal = sealed(number, close, self.keys)?;
        }
        Ok(())
    }

    fn end(mut self, torn: u64) -> Result<Report, Fault> {
        let course = self.walk.kept();
        if let Some(gone) = self.seen.pop() {
            let expected = format!("line {} with hash {}", gone.seq + 1, gone.head);
            return Err(fault(course.lines() + 1, What::Witness, expected, "the end of the file"));
        }
        Ok(Report {
            lines: course.lines(),
            head: self.walk.head(),
            closed: course.close().is_some(),
            open_calls: course.open_ids().map(str::to_owned).collect(),
            torn,
            recovered: course.recovered(),
            epochs: course.epochs(),
            seal: self.seal,
            totals: *course.totals(),
        })
    }
}

/// Two lines disagree, and one was altered: the later one, if what follows does not vouch for it either.
fn blame(fault: Fault, line: &[u8], next: &[u8]) -> Fault {
    if fault.what != What::Prev || fault.line == 1 || is_vouched(line, next) == Some(false) {
        return fault;
    }
    Fault { line: fault.line - 1, what: What::Hash, expected: fault.found, found: fault.expected }
}

/// Whether the next line states this one's hash, or this one its own; `None` if there is nothing to ask.
fn is_vouched(line: &[u8], next: &[u8]) -> Option<bool> {
    #[derive(Deserialize)]
    struct Prev {
        prev: String,
    }
    if let Ok(close) = serde_json::from_slice::<Close<'_>>(line)
        && close.kind == Close::KIND
    {
        return Some(head_of(line).is_ok_and(|head| close.head == head.to_string()));
    }
    let next: Prev = serde_json::from_slice(next.strip_suffix(b"\n")?).ok()?;
    Some(next.prev == Hash::of(line).to_string())
}

fn sealed(line: u64, close: &Close<'_>, keys: &[PublicKey]) -> Result<Seal, Fault> {
    let ids = || keys.iter().map(PublicKey::id).collect::<Vec<_>>().join(" or ");
    let trusted = |id: &str| keys.iter().find(|key| key.id() == *id);
    let unsigned = |expected: String, found: String| Err(fault(line, What::Signature, expected, found));
    let unknown = |expected: String, found: String| Err(fault(line, What::UnknownKey, expected, found));
    let (Some(id), Some(signature)) = (&close.key_id, &close.signature) else {
        return if keys.is_empty() {
            Ok(Seal::None)
        } else {
            unsigned(format!("a signature by {}", ids()), "none".to_owned())
        };
    };
    if keys.is_empty() {
        let id = close.certificate.as_ref().map_or(id, |certificate| &certificate.key_id);
        return Ok(Seal::Unchecked(id.to_string()));
    }
    let (signer, vouching) = match (trusted(id), &close.certificate) {
        (Some(key), _) => (*key, *key),
        (None, None) => return unknown(format!("a signature by {}", ids()), format!("one by {id}")),
        (None, Some(certificate)) => {
            let Some(certifier) = trusted(&certificate.key_id) else {
                // A file that its own key did not sign was altered, whoever certified that key.
                let head = close.head.parse().unwrap_or(Hash::ZERO);
                if !certificate.public_key.parse::<PublicKey>().is_ok_and(|key| key.verifies(head, signature)) {
                    return unsigned(format!("a signature of {id} over the head"), "another".to_owned());
                }
                return unknown(format!("a certificate by {}", ids()), format!("one by {}", certificate.key_id));
            };
            let (run_id, attempt) = (&close.run_id, close.attempt);
            match certificate.public_key.parse() {
                Ok(key) if certifier.certifies(run_id, attempt, certificate) => (key, *certifier),
                _ => {
                    let expected = format!("a certificate of {id} for attempt {attempt} of run {run_id}");
                    return unsigned(expected, "another".to_owned());
                }
            }
        }
    };
    if signer.verifies(close.head.parse().unwrap_or(Hash::ZERO), signature) {
        Ok(Seal::Valid(vouching.id()))
    } else {
        unsigned(format!("a signature of {id} over the head"), "another".to_owned())
    }
}

/// One line for a person.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tampered(fault) => write!(f, "tampered: {fault}"),
            Self::Complete(report) => write!(f, "complete: {report}"),
            Self::Incomplete(report) => write!(f, "incomplete: {report}"),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} lines, {} calls, ${}", self.lines, self.totals.calls, self.totals.cost())?;
        match &self.seal {
            Seal::None => f.write_str(", not signed")?,
            Seal::Unchecked(id) => write!(f, ", signature of {id} not checked")?,
            Seal::Valid(id) => write!(f, ", signed by {id}")?,
        }
        if !self.closed {
            f.write_str(", no close")?;
        }
        if self.torn > 0 {
            write!(f, ", {} bytes of a torn line", self.torn)?;
        }
        if self.recovered > 0 {
            write!(f, ", recovered {} times", self.recovered)?;
        }
        if !self.open_calls.is_empty() {
            write!(f, ", open calls: {}", self.open_calls.join(" "))?;
        }
        Ok(())
    }
}
