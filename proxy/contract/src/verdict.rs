//! Verification of an audit file: complete, incomplete, or altered, and where.
//!
//! Pure, except for the reader that it is given. `verify_audit.py`, beside this crate, implements the same rules
//! independently.

use std::cmp::Reverse;
use std::fmt;
use std::io::{self, BufRead};

use serde::Deserialize;

use crate::chain::{ChainReader, head_of};
use crate::exit;
use crate::fault::NO_SIGNATURE;
use crate::hash::Hash;
use crate::reader::{AuditLine, Cursor, Fault, FaultKind, LINE_MAX, fault, read_line, too_long};
use crate::record::Close;
use crate::seal::PublicKey;
use crate::sequence::{SequenceChecker, Totals};

/// Keys and lines that the auditor trusts from elsewhere. An empty list means that nothing is checked against it.
#[derive(Debug, Clone, Copy, Default)]
pub struct TrustAnchors<'a> {
    /// The file must be signed by one of these, or by a key that one of these has certified for its run and attempt.
    pub keys: &'a [PublicKey],
    /// The file must have these lines.
    pub seen: &'a [Witness],
}

/// A line that was seen when it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Witness {
    /// Number of the line, from 0.
    pub seq: u64,
    /// Hash of the line.
    pub head: Hash,
}

/// Result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The file is complete: from `open` to `close`, and every call has its outcome and every hold its release.
    Complete(VerificationReport),
    /// The lines are as they were written, but some are missing.
    Incomplete(VerificationReport),
    /// A line was altered; or, with [`FaultKind::UnknownKey`], no trusted key vouches for the file.
    Tampered(Fault),
}

/// Findings in a file that was not altered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerificationReport {
    /// Number of complete lines.
    pub lines: u64,
    /// Hash of the last line.
    pub head: Hash,
    /// True if the file has its `close`.
    pub closed: bool,
    /// Ids of the calls without an outcome, which may have cost money.
    pub open_calls: Vec<String>,
    /// Ids of the holds without a release, once for each request that waited: the sidecar died meanwhile.
    pub open_holds: Vec<String>,
    /// Number of bytes of a torn last line.
    pub torn: u64,
    /// Number of restarts that found the file torn, or calls open.
    pub recovered: u64,
    /// Number of restarts of its sidecar.
    pub epochs: u64,
    /// Signature of the file.
    pub seal: Seal,
    /// Sums over its lines.
    pub totals: Totals,
}

/// Signature of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seal {
    /// None: the file has no end yet, or its sidecar had no key.
    None,
    /// The file names this key as its signer, or as the certifier of its signer; no keys were given to check that.
    Unchecked(String),
    /// This key signed the file, or certified the key that did.
    Valid(String),
}

impl Verdict {
    /// Returns the exit code of a verifier: 0 complete, 1 tampered, 3 incomplete.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Complete(_) => 0,
            Self::Tampered(_) => exit::FAILED,
            Self::Incomplete(_) => exit::INCOMPLETE,
        }
    }

    /// Returns the findings; `None` if the file was altered.
    #[must_use]
    pub fn report(&self) -> Option<&VerificationReport> {
        match self {
            Self::Complete(report) | Self::Incomplete(report) => Some(report),
            Self::Tampered(_) => None,
        }
    }
}

/// Checks a file in memory against its own rules and against the trust anchors.
#[must_use]
pub fn verify(bytes: &[u8], trust: &TrustAnchors<'_>) -> Verdict {
    verify_from(bytes, trust).expect("memory does not fail")
}

/// Checks a file of any length line by line, as [`verify`] does.
///
/// # Errors
/// Errors of the reader.
pub fn verify_from(file: impl BufRead, trust: &TrustAnchors<'_>) -> io::Result<Verdict> {
    verify_each(file, trust, |_| {})
}

/// Checks a file line by line, and passes each line to an observer before the line is checked. The observer may rely
/// only on the lines that the verdict covers.
///
/// # Errors
/// Errors of the reader.
pub fn verify_each(
    file: impl BufRead,
    trust: &TrustAnchors<'_>,
    each: impl FnMut(&AuditLine<'_>),
) -> io::Result<Verdict> {
    Ok(match read(file, trust, each)? {
        Ok(report) => {
            let nothing_open = report.open_calls.is_empty() && report.open_holds.is_empty();
            let complete = report.closed && nothing_open && report.torn == 0 && report.recovered == 0;
            if complete { Verdict::Complete(report) } else { Verdict::Incomplete(report) }
        }
        Err(fault) => Verdict::Tampered(fault),
    })
}

fn read(
    mut file: impl BufRead,
    trust: &TrustAnchors<'_>,
    mut each: impl FnMut(&AuditLine<'_>),
) -> io::Result<Result<VerificationReport, Fault>> {
    let mut checked = Verifier::of(trust);
    let (mut at, mut text) = (Cursor::default(), Vec::new());
    loop {
        read_line(&mut file, &mut text)?;
        if text.len() > LINE_MAX {
            return Ok(Err(too_long(at.line)));
        }
        if !text.ends_with(b"\n") {
            return Ok(checked.end(text.len() as u64));
        }
        let line = AuditLine::parse(at, &text);
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

/// State of a verification, after lines that were not altered.
struct Verifier<'a> {
    reader: ChainReader<SequenceChecker>,
    seal: Seal,
    keys: &'a [PublicKey],
    /// Seen lines that are still to come, the next one last.
    seen: Vec<Witness>,
}

impl<'a> Verifier<'a> {
    fn of(trust: &TrustAnchors<'a>) -> Self {
        let mut seen = trust.seen.to_vec();
        seen.sort_by_key(|seen| Reverse(seen.seq));
        Self { reader: ChainReader::default(), seal: Seal::None, keys: trust.keys, seen }
    }

    fn take(&mut self, line: AuditLine<'_>) -> Result<(), Fault> {
        let (number, seq) = (line.number, line.header.seq);
        self.reader.take(line)?;
        let head = self.reader.head();
        while let Some(seen) = self.seen.pop_if(|seen| seen.seq == seq) {
            if seen.head != head {
                return Err(fault(number, FaultKind::Witness, seen.head, head));
            }
        }
        if let Some(close) = self.reader.sink().close() {
            self.seal = sealed(number, close, self.keys)?;
        }
        Ok(())
    }

    fn end(mut self, torn: u64) -> Result<VerificationReport, Fault> {
        let checker = self.reader.sink();
        if let Some(gone) = self.seen.pop() {
            let expected = format!("line {} with hash {}", gone.seq + 1, gone.head);
            return Err(fault(checker.lines() + 1, FaultKind::Witness, expected, "the end of the file"));
        }
        Ok(VerificationReport {
            lines: checker.lines(),
            head: self.reader.head(),
            closed: checker.close().is_some(),
            open_calls: checker.open_ids().map(str::to_owned).collect(),
            open_holds: checker.open_holds().map(str::to_owned).collect(),
            torn,
            recovered: checker.recovered(),
            epochs: checker.epochs(),
            seal: self.seal,
            totals: *checker.totals(),
        })
    }
}

/// Decides which of two lines that disagree was altered: the later line if the next line states another hash for it, or
/// else the earlier line.
fn blame(fault: Fault, line: &[u8], next: &[u8]) -> Fault {
    if fault.kind != FaultKind::Prev || fault.line == 1 || is_vouched(line, next) == Some(false) {
        return fault;
    }
    Fault { line: fault.line - 1, kind: FaultKind::Hash, expected: fault.found, found: fault.expected }
}

/// Returns whether the hash of this line is the hash that the next line states, or that this line states itself if it
/// is a `close`; `None` if neither states a hash.
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
    let unsigned = |expected: String, found: String| Err(fault(line, FaultKind::Signature, expected, found));
    let unknown = |expected: String, found: String| Err(fault(line, FaultKind::UnknownKey, expected, found));
    let (Some(id), Some(signature)) = (&close.key_id, &close.signature) else {
        return if keys.is_empty() {
            Ok(Seal::None)
        } else {
            unsigned(format!("a signature by {}", ids()), NO_SIGNATURE.to_owned())
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
                // A file that its own key did not sign was altered, whichever key certified it.
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

/// One line for people.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tampered(fault) => write!(f, "tampered: {fault}"),
            Self::Complete(report) => write!(f, "complete: {report}"),
            Self::Incomplete(report) => write!(f, "incomplete: {report}"),
        }
    }
}

impl fmt::Display for VerificationReport {
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
        if !self.open_holds.is_empty() {
            write!(f, ", open holds: {}", self.open_holds.join(" "))?;
        }
        Ok(())
    }
}
