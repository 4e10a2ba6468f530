//! Verification of an audit file, before its rows are posted.
//!
//! Pure: the same file gives the same result at any time. In an altered file, only the lines up to the last witness
//! give rows: a bill must rest on a verified log, and an altered file could bill others. Such a run is never settled.
//! LiteLLM's rows show its other spending: the ledger does not have the calls of these rows.

use std::io;

use sluice_contract::reader::{AuditLine, Cursor, FaultKind, Record, read_line};
use sluice_contract::time::unix_micros;
use sluice_contract::{AuditLog, Fault, Hash, RunKey, TrustAnchors, Verdict, reason, verify_each};

use super::LedgerError;
use super::audit_source::{AuditSource, TrustLevel, Writer};
use super::implausible::{CostBounds, ImplausibleCost};

/// A verified audit file. The file is read again for its rows, in pieces: it may have millions of lines.
#[derive(Debug, Clone)]
pub struct ParsedAudit {
    /// Run of the file.
    pub key: RunKey,
    /// Trust in the file.
    pub trust_level: TrustLevel,
    /// Reason that the file is not a complete account of its run.
    pub fault: Option<String>,
    /// Reason that the file is not trusted although nothing shows that it was altered.
    pub doubt: Option<Doubt>,
    /// Number of trusted lines.
    pub lines: u64,
    /// Hash of the last trusted line.
    pub head: Option<Hash>,
    /// True if no line can follow.
    pub ended: bool,
    /// True if the file has its last line, which is the only one that can have a signature.
    is_closed: bool,
    /// Number of lines that give rows: 0 if the file belongs to another run.
    pub(super) billed: u64,
    /// Hash of each line with a number that is a multiple of [`PIECE`], unless the line is the last one.
    pub(super) marks: Vec<Hash>,
    pub(super) source: AuditSource,
}

/// Reason that a file is not trusted although nothing shows that it was altered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Doubt {
    /// This host does not know the key that signed it.
    UnknownKey,
    /// The file has no signature, and this host never saw its lines.
    Unsigned,
    /// The first line is not a record of a sidecar.
    NotAnAuditFile,
}

impl Doubt {
    /// Returns the doubt about a file for which this host has no witness.
    #[must_use]
    pub fn of(fault: &Fault) -> Option<Self> {
        match fault.kind {
            FaultKind::UnknownKey => Some(Self::UnknownKey),
            FaultKind::Signature if fault.is_unsigned() => Some(Self::Unsigned),
            FaultKind::Json | FaultKind::Length if fault.line == 1 => Some(Self::NotAnAuditFile),
            _ => None,
        }
    }

    fn describe(self, fault: &Fault) -> String {
        match self {
            Self::UnknownKey => {
                let advice = unknown_key_advice(fault);
                format!("its audit file is signed by a key that this host does not know: {advice}")
            }
            Self::Unsigned => UNSIGNED.to_owned(),
            Self::NotAnAuditFile => "the file is not an audit file; move it out of the state directory".to_owned(),
        }
    }
}

const UNSIGNED: &str = "its audit file has no signature, so any user may have written it; move it out of the state \
                        directory, and import it with sluice ledger import --unsigned if you vouch for it";

/// Number of lines whose rows are kept in memory and posted together.
pub(super) const PIECE: u64 = 8192;

/// Verifies an audit file.
///
/// # Errors
/// Errors of the file system.
pub fn read(key: &RunKey, source: AuditSource, trust: &TrustAnchors<'_>, writer: Writer) -> io::Result<ParsedAudit> {
    let mut reading = ParsedAudit {
        key: key.clone(),
        trust_level: TrustLevel::Absent,
        fault: None,
        doubt: None,
        lines: 0,
        head: None,
        ended: writer == Writer::Gone,
        is_closed: false,
        billed: 0,
        marks: Vec::new(),
        source,
    };
    let Some(file) = reading.source.reader()? else {
        reading.fault = (!trust.seen.is_empty()).then(|| "the audit file is gone".to_owned());
        return Ok(reading);
    };
    let mut facts = LineFacts::default();
    let verdict = verify_each(file, trust, |line| facts.take(line))?;
    (reading.lines, reading.head) = trusted_lines(&verdict, trust);
    reading.trust_level = match &verdict {
        Verdict::Complete(_) => TrustLevel::Complete,
        Verdict::Incomplete(_) => TrustLevel::Incomplete,
        Verdict::Tampered(fault) => {
            // A file with witnesses is from a run of this host, whose key is known.
            reading.doubt = Doubt::of(fault).filter(|_| trust.seen.is_empty());
            TrustLevel::Tampered
        }
    };
    reading.fault = match &verdict {
        Verdict::Complete(_) => None,
        Verdict::Tampered(fault) if reading.doubt.is_some() => reading.doubt.map(|doubt| doubt.describe(fault)),
        verdict => Some(format!("the audit file is {verdict}")),
    };
    reading.billed = reading.lines;
    if let Some(fault) = facts.objection(key, reading.lines) {
        reading.billed = 0;
        if reading.trust_level != TrustLevel::Tampered {
            reading.trust_level = TrustLevel::Tampered;
            reading.fault = Some(format!("the audit file is tampered: {fault}"));
        }
    }
    reading.marks = facts.marks;
    let close = verdict.report().is_some_and(|report| report.closed);
    if reading.fault.is_none() && close && facts.full {
        reading.fault = Some("the audit log had no room left, and calls were refused".to_owned());
    }
    reading.ended |= close;
    reading.is_closed = close;
    Ok(reading)
}

/// Returns the advice for a file that an unknown key has signed.
#[must_use]
pub fn unknown_key_advice(fault: &Fault) -> String {
    let id = fault.found.trim_start_matches("one by ");
    format!(
        "{id}; sluice audit keys on the host of that run prints it, and the ready line of a sidecar that ran alone has \
         it as audit_public_key; sluice audit import-key KEY makes it known here"
    )
}

/// Returns the number of trusted lines and the hash of the last one: in an altered file, the lines up to the last witness
/// before the fault.
fn trusted_lines(verdict: &Verdict, trust: &TrustAnchors<'_>) -> (u64, Option<Hash>) {
    match verdict {
        Verdict::Complete(report) | Verdict::Incomplete(report) => {
            (report.lines, (report.lines > 0).then_some(report.head))
        }
        Verdict::Tampered(fault) => {
            let seen = trust.seen.iter().filter(|seen| seen.seq + 1 < fault.line).max_by_key(|seen| seen.seq);
            seen.map_or((0, None), |seen| (seen.seq + 1, Some(seen.head)))
        }
    }
}

/// Facts that are collected from the lines while they are verified.
#[derive(Default)]
struct LineFacts {
    run: Option<(String, u32)>,
    /// Number of the first line without a valid time.
    untimed: Option<u64>,
    full: bool,
    marks: Vec<Hash>,
}

impl LineFacts {
    fn take(&mut self, line: &AuditLine<'_>) {
        if line.number == 1 {
            self.run = Some((line.header.run_id.clone(), line.header.attempt));
        }
        if line.number > 1 && (line.number - 1).is_multiple_of(PIECE) {
            self.marks.push(line.header.prev.parse().unwrap_or(Hash::ZERO));
        }
        if micros(&line.header.ts).is_none() {
            self.untimed.get_or_insert(line.number);
        }
        if let Record::Close(close) = &line.record {
            self.full = close.reason == reason::AUDIT_FULL;
        }
    }

    /// Returns the reason why these lines give no rows, if there is one. A file under the name of another run would bill
    /// that run.
    fn objection(&self, key: &RunKey, lines: u64) -> Option<String> {
        match (&self.run, self.untimed) {
            (Some((run_id, attempt)), _)
                if lines > 0 && (run_id.as_str(), *attempt) != (key.run_id.as_str(), key.attempt) =>
            {
                Some(format!("it is the log of {run_id}.{attempt}"))
            }
            (_, Some(line)) if line <= lines => Some(format!("line {line}: ts: no time")),
            _ => None,
        }
    }
}

impl ParsedAudit {
    /// Returns true if bills may rest on the whole file.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        match self.trust_level {
            TrustLevel::Complete | TrustLevel::Incomplete => true,
            TrustLevel::Absent => self.fault.is_none(),
            TrustLevel::Tampered | TrustLevel::Conflict => false,
        }
    }

    /// Distrusts a file without its end, for a run that this host does not know: no signature covers the file.
    pub(super) fn doubt_without_end(&mut self) {
        if self.trust_level == TrustLevel::Incomplete && !self.is_closed {
            self.distrust(UNSIGNED.to_owned());
            self.doubt = Some(Doubt::Unsigned);
        }
    }

    /// Distrusts the whole file, so that it gives no rows.
    pub(super) fn distrust(&mut self, fault: String) {
        self.trust_level = TrustLevel::Tampered;
        self.fault = Some(fault);
        self.billed = 0;
    }

    /// Returns true if its rows are posted in one piece.
    #[must_use]
    pub fn is_one_piece(&self) -> bool {
        self.billed <= PIECE
    }

    /// Returns the parsed log, as far as it is trusted, and the costs in it that are implausible.
    #[must_use]
    pub fn log_and_implausible_costs(&self) -> (AuditLog, Vec<ImplausibleCost>) {
        let (mut log, mut bounds, mut implausible) = (AuditLog::default(), CostBounds::default(), Vec::new());
        let Some(mut file) = self.source.reader().ok().flatten() else { return (log, implausible) };
        let (mut at, mut text) = (Cursor { line: 1, offset: 0 }, Vec::new());
        while at.line <= self.billed && read_line(&mut file, &mut text).is_ok() {
            let Ok(line) = AuditLine::parse(at, &text) else { break };
            let cost = bounds.take(&line.record);
            if log.take(line).is_err() {
                break;
            }
            implausible.extend(cost);
            at = Cursor { line: at.line + 1, offset: at.offset + text.len() as u64 };
        }
        (log, implausible)
    }

    pub(super) fn unreadable(&self, error: io::Error) -> LedgerError {
        LedgerError::UnreadableAudit(self.key.clone(), error)
    }
}

/// Parses the time of an audit line into microseconds since 1970.
pub(super) fn micros(ts: &str) -> Option<i64> {
    unix_micros(humantime::parse_rfc3339(ts).ok()?)
}
