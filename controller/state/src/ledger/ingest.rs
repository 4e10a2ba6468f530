//! From an audit file to the rows of the ledger.
//!
//! Pure: the same file gives the same rows, whoever reads it and whenever. Of a file that was altered, only the lines
//! that a witness vouches for give rows: a bill must rest on a log that somebody vouches for, and whoever could alter
//! the file could bill others. Its run is never settled, and what else it spent comes from LiteLLM's rows, where those
//! calls are then missing here.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Seek, SeekFrom};
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use sluice_contract::reader::{AuditLine, Cursor, FaultKind, Record, read_line};
use sluice_contract::record::{CostSource, Intent, Outcome, Usage};
use sluice_contract::{AuditLog, Fault, Hash, RunKey, TrustAnchors, Usd, Verdict, verify_each};

use super::LedgerError;
use super::entry::{CACHE_HIT, LedgerEntry, ReceiptRow};
use super::status::{ReceiptStatus, reference, status};

/// What one audit file says, and whether to believe it. The file itself is read again for its rows, piece by piece: it may
/// have millions of lines.
#[derive(Debug, Clone)]
pub struct ParsedAudit {
    /// The run.
    pub key: RunKey,
    /// What the file is worth.
    pub worth: TrustLevel,
    /// Why it is no complete account, if so.
    pub fault: Option<String>,
    /// Whether the fault is only that this host does not know the key that signed.
    pub unknown_key: bool,
    /// Whole lines that may be believed.
    pub lines: u64,
    /// The hash of the last one.
    pub head: Option<Hash>,
    /// Whether nothing can follow.
    pub ended: bool,
    /// Lines that give rows: none if the file is of another run.
    billed: u64,
    /// The hash of each line before a multiple of [`PIECE`].
    marks: Vec<Hash>,
    source: AuditSource,
}

/// Where the lines are.
#[derive(Debug, Clone)]
pub enum AuditSource {
    /// There is no file.
    Absent,
    /// In memory.
    Bytes(Arc<[u8]>),
    /// In an open file.
    File(Arc<File>),
}

/// Lines whose rows are held in memory and posted together.
const PIECE: u64 = 8192;

/// Whether to believe a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustLevel {
    /// From `open` to `close`, and every call has its outcome.
    Complete,
    /// As it was written, but something is missing.
    Incomplete,
    /// There is none. Right for a run whose sidecar never began, if no line was ever seen.
    Absent,
    /// Not as it was written.
    Tampered,
    /// The ledger knows something else of it.
    Conflict,
}

/// Whether a file may still grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Writer {
    /// Its sidecar may live.
    Alive,
    /// It has ended, or was killed.
    Gone,
}

/// The reason in the end of a log that had no room for more calls.
const FULL: &str = "audit_full";

/// What a file says.
///
/// # Errors
/// Those of the file.
pub fn read(key: &RunKey, source: AuditSource, trust: &TrustAnchors<'_>, writer: Writer) -> io::Result<ParsedAudit> {
    let mut reading = ParsedAudit {
        key: key.clone(),
        worth: TrustLevel::Absent,
        fault: None,
        unknown_key: false,
        lines: 0,
        head: None,
        ended: writer == Writer::Gone,
        billed: 0,
        marks: Vec::new(),
        source,
    };
    let Some(file) = reading.source.reader()? else {
        reading.fault = (!trust.seen.is_empty()).then(|| "the audit file is gone".to_owned());
        return Ok(reading);
    };
    let mut seen = Observed::default();
    let verdict = verify_each(file, trust, |line| seen.take(line))?;
    (reading.lines, reading.head) = vouched(&verdict, trust);
    reading.worth = match &verdict {
        Verdict::Complete(_) => TrustLevel::Complete,
        Verdict::Incomplete(_) => TrustLevel::Incomplete,
        Verdict::Tampered(fault) => {
            // Of a run of this host, the file should have its key.
            reading.unknown_key = fault.kind == FaultKind::UnknownKey && trust.seen.is_empty();
            TrustLevel::Tampered
        }
    };
    reading.fault = match &verdict {
        Verdict::Complete(_) => None,
        Verdict::Tampered(fault) if reading.unknown_key => {
            Some(format!("its audit file is signed by a key that this host does not know: {}", unknown_key(fault)))
        }
        verdict => Some(format!("the audit file is {verdict}")),
    };
    reading.billed = reading.lines;
    if let Err(fault) = seen.is_billable(key, reading.lines) {
        reading.billed = 0;
        if reading.worth != TrustLevel::Tampered {
            reading.worth = TrustLevel::Tampered;
            reading.fault = Some(format!("the audit file is tampered: {fault}"));
        }
    }
    reading.marks = seen.marks;
    let close = verdict.report().is_some_and(|report| report.closed);
    if reading.fault.is_none() && close && seen.full {
        reading.fault = Some("the audit log had no room left, and calls were refused".to_owned());
    }
    reading.ended |= close;
    Ok(reading)
}

/// What to do about a file that is signed by an unknown key.
#[must_use]
pub fn unknown_key(fault: &Fault) -> String {
    let id = fault.found.trim_start_matches("one by ");
    format!(
        "{id}; sluice audit keys on the host of that run prints it, and sluice audit import-key KEY makes it known here"
    )
}

/// The lines to believe, and the hash of the last one: of a file that was altered, those up to the last one before that of
/// which somebody saw the hash.
fn vouched(verdict: &Verdict, trust: &TrustAnchors<'_>) -> (u64, Option<Hash>) {
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

/// What is kept of the lines of a file while they are verified.
#[derive(Default)]
struct Observed {
    run: Option<(String, u32)>,
    /// The first line without a time.
    untimed: Option<u64>,
    full: bool,
    marks: Vec<Hash>,
}

impl Observed {
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
            self.full = close.reason == FULL;
        }
    }

    /// Whether rows may rest on these lines. A file under another's name would bill under that name.
    fn is_billable(&self, key: &RunKey, lines: u64) -> Result<(), String> {
        match (&self.run, self.untimed) {
            (Some((run_id, attempt)), _)
                if lines > 0 && (run_id.as_str(), *attempt) != (key.run_id.as_str(), key.attempt) =>
            {
                Err(format!("it is the log of {run_id}.{attempt}"))
            }
            (_, Some(line)) if line <= lines => Err(format!("line {line}: ts: no time")),
            _ => Ok(()),
        }
    }
}

impl AuditSource {
    /// The whole of it, from its beginning.
    fn reader(&self) -> io::Result<Option<Box<dyn BufRead + '_>>> {
        Ok(match self {
            Self::Absent => None,
            Self::Bytes(bytes) => Some(Box::new(&bytes[..])),
            Self::File(file) => {
                let mut file: &File = file;
                file.seek(SeekFrom::Start(0))?;
                Some(Box::new(BufReader::with_capacity(1 << 16, file)))
            }
        })
    }
}

impl ParsedAudit {
    /// Whether a bill may rest on all of it.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        match self.worth {
            TrustLevel::Complete | TrustLevel::Incomplete => true,
            TrustLevel::Absent => self.fault.is_none(),
            TrustLevel::Tampered | TrustLevel::Conflict => false,
        }
    }

    /// Whether its rows are posted in one piece.
    #[must_use]
    pub fn is_one_piece(&self) -> bool {
        self.billed <= PIECE
    }

    /// What it tells, as far as somebody vouches for it.
    #[must_use]
    pub fn log(&self) -> AuditLog {
        let mut log = AuditLog::default();
        let Some(mut file) = self.source.reader().ok().flatten() else { return log };
        let (mut at, mut text) = (Cursor { line: 1, offset: 0 }, Vec::new());
        while at.line <= self.billed && read_line(&mut file, &mut text).is_ok() {
            if AuditLine::parse(at, &text).and_then(|line| log.take(line)).is_err() {
                break;
            }
            at = Cursor { line: at.line + 1, offset: at.offset + text.len() as u64 };
        }
        log
    }

    /// The rows that follow from it, in pieces: each call, and what came of it, if something did.
    ///
    /// # Errors
    /// Those of the file.
    pub fn rows(&self) -> Result<LedgerRows<'_>, LedgerError> {
        let file =
            if self.billed == 0 { None } else { self.source.reader().map_err(|error| self.unreadable(error))? };
        Ok(LedgerRows {
            reading: self,
            file,
            at: Cursor { line: 1, offset: 0 },
            head: Hash::ZERO,
            payer: None,
            open: BTreeMap::new(),
        })
    }

    fn unreadable(&self, error: io::Error) -> LedgerError {
        LedgerError::UnreadablePage(self.key.clone(), error)
    }
}

/// A call, and what came of it.
pub type Row = (ReceiptRow, Option<LedgerEntry>);

/// The rows of a file, piece by piece. Each piece is the one that was verified.
pub struct LedgerRows<'a> {
    reading: &'a ParsedAudit,
    file: Option<Box<dyn BufRead + 'a>>,
    at: Cursor,
    head: Hash,
    payer: Option<(String, String)>,
    /// Calls without an outcome so far, by their number.
    open: BTreeMap<u64, ReceiptRow>,
}

impl Iterator for LedgerRows<'_> {
    type Item = Result<Vec<Row>, LedgerError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.file.is_some() {
            match self.piece() {
                // A piece in which no call ended.
                Ok(rows) if rows.is_empty() => {}
                Ok(rows) => return Some(Ok(rows)),
                Err(error) => {
                    self.file = None;
                    return Some(Err(self.reading.unreadable(error)));
                }
            }
        }
        None
    }
}

impl LedgerRows<'_> {
    fn piece(&mut self) -> io::Result<Vec<Row>> {
        let mut file = self.file.take().ok_or(io::ErrorKind::UnexpectedEof)?;
        let (mut rows, mut text) = (Vec::new(), Vec::new());
        let to = (self.at.line - 1 + PIECE).min(self.reading.billed);
        while self.at.line <= to {
            read_line(&mut file, &mut text)?;
            let line = AuditLine::parse(self.at, &text).map_err(|fault| changed(&fault))?;
            if line.header.prev != self.head.to_string() {
                return Err(changed(&"a line does not follow"));
            }
            self.head = Hash::of(&text);
            rows.extend(self.take(line.record)?);
            self.at = Cursor { line: self.at.line + 1, offset: self.at.offset + text.len() as u64 };
        }
        let is_last = to == self.reading.billed;
        let place = usize::try_from(to / PIECE).unwrap_or(usize::MAX);
        let verified = if is_last { self.reading.head } else { self.reading.marks.get(place - 1).copied() };
        if verified != Some(self.head) {
            return Err(changed(&"its hash is another"));
        }
        if is_last {
            let ended = self.reading.ended;
            let open = std::mem::take(&mut self.open).into_values();
            rows.extend(open.map(|receipt| {
                // Nobody will tell what became of it.
                let entry = ended.then(|| end_of(&receipt));
                (receipt, entry)
            }));
        } else {
            self.file = Some(file);
        }
        rows.sort_by_key(|(receipt, _)| receipt.call);
        Ok(rows)
    }

    fn take(&mut self, record: Record) -> io::Result<Option<Row>> {
        match record {
            Record::Open(open) => {
                self.payer = Some((open.billing_account_id.into_owned(), open.graph_id.into_owned()));
                Ok(None)
            }
            Record::Intent(intent) => {
                let (account, graph_id) = self.payer.clone().ok_or_else(|| changed(&"no open"))?;
                let receipt = receipt(&self.reading.key, &intent, self.head, account, graph_id)?;
                self.open.insert(intent.call, receipt);
                Ok(None)
            }
            Record::Outcome(outcome) => {
                let receipt = self.open.remove(&outcome.call).ok_or_else(|| changed(&"no intent"))?;
                let entry = entry(&receipt, &outcome, self.head)?;
                Ok(Some((receipt, Some(entry))))
            }
            _ => Ok(None),
        }
    }
}

/// Every line was verified before, so the file is another by now.
fn changed(why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("it changed while it was read: {why}"))
}

fn receipt(key: &RunKey, intent: &Intent<'_>, hash: Hash, account: String, graph_id: String) -> io::Result<ReceiptRow> {
    Ok(ReceiptRow {
        reference: reference(key, &intent.call_id),
        hash,
        key: key.clone(),
        call: intent.call,
        call_id: intent.call_id.to_string(),
        account,
        graph_id,
        method: intent.method.to_string(),
        path: intent.path.to_string(),
        model: intent.model.as_deref().map(str::to_owned),
        stream: intent.stream,
        reserved_usd: intent.reserved_usd.as_deref().map(str::to_owned),
        origin_us: micros(&intent.ts).ok_or_else(|| changed(&"no time"))?,
    })
}

/// What is known of a call whose end nobody saw.
fn end_of(receipt: &ReceiptRow) -> LedgerEntry {
    LedgerEntry {
        reference: format!("{}#end", receipt.reference),
        hash: receipt.hash,
        status: ReceiptStatus::Unknown,
        result: None,
        ended: None,
        http_status: None,
        litellm_call_id: None,
        response_id: None,
        model_served: None,
        usage: None,
        cost_usd: None,
        nano_usd: None,
        price_source: CostSource::None.as_str().to_owned(),
        null_reason: None,
        origin_us: receipt.origin_us,
    }
}

fn entry(receipt: &ReceiptRow, outcome: &Outcome<'_>, hash: Hash) -> io::Result<LedgerEntry> {
    let text = |text: &Option<std::borrow::Cow<'_, str>>| text.as_deref().map(str::to_owned);
    let amount = outcome.cost_usd.as_deref().map(Usd::parse).transpose().map_err(|error| changed(&error))?;
    Ok(LedgerEntry {
        reference: format!("{}#outcome", receipt.reference),
        hash,
        status: status(Some(outcome)),
        result: Some(outcome.result.as_str().to_owned()),
        ended: Some(outcome.end.as_str().to_owned()),
        http_status: outcome.status,
        litellm_call_id: text(&outcome.litellm_call_id),
        response_id: text(&outcome.response_id),
        model_served: text(&outcome.model_served),
        usage: outcome.usage.filter(|usage| *usage != Usage::default()).map(Usage::inclusive),
        cost_usd: text(&outcome.cost_usd),
        nano_usd: amount.map(|amount| amount.to_nanos()),
        price_source: price_source(outcome).to_owned(),
        null_reason: outcome.null_reason.map(|reason| reason.as_str().to_owned()),
        origin_us: micros(&outcome.ts).ok_or_else(|| changed(&"no time"))?,
    })
}

/// Where the amount of an outcome comes from.
fn price_source(outcome: &Outcome<'_>) -> &'static str {
    if outcome.cache_hit == Some(true) { CACHE_HIT } else { outcome.cost_source.as_str() }
}

impl TrustLevel {
    /// The word in the database and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::Absent => "absent",
            Self::Tampered => "tampered",
            Self::Conflict => "conflict",
        }
    }
}

/// Microseconds since 1970.
pub(super) fn micros(ts: &str) -> Option<i64> {
    let since = humantime::parse_rfc3339(ts).ok()?.duration_since(UNIX_EPOCH).ok()?;
    i64::try_from(since.as_micros()).ok()
}
