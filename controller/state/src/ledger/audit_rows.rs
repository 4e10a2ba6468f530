//! Rows of the ledger that follow from an audit file.
//!
//! Pure: the same file gives the same rows at any time.

use std::collections::BTreeMap;
use std::io::{self, BufRead};

use sluice_contract::reader::{AuditLine, Cursor, Record, read_line};
use sluice_contract::record::{CostSource, Intent, Outcome, Usage};
use sluice_contract::{Hash, RunKey, Usd};

use super::LedgerError;
use super::entry::{CACHE_HIT, LedgerEntry, ReceiptRow};
use super::implausible::{CostBounds, IMPLAUSIBLE};
use super::parsed_audit::{PIECE, ParsedAudit, micros};
use super::status::{ReceiptStatus, reference, status};

/// A receipt with its entry, if its call has ended.
pub type Row = (ReceiptRow, Option<LedgerEntry>);

/// Iterator over the rows of a file, in pieces. Each piece is compared with the verified one.
pub struct LedgerRows<'a> {
    reading: &'a ParsedAudit,
    file: Option<Box<dyn BufRead + 'a>>,
    at: Cursor,
    head: Hash,
    payer: Option<(String, String)>,
    bounds: CostBounds,
    /// Calls without an outcome so far, by number.
    open: BTreeMap<u64, ReceiptRow>,
}

impl Iterator for LedgerRows<'_> {
    type Item = Result<Vec<Row>, LedgerError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.file.is_some() {
            match self.piece() {
                // No call ended in this piece.
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

impl ParsedAudit {
    /// Returns the rows that follow from the file, in pieces: each call with its entry, if it has one.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn rows(&self) -> Result<LedgerRows<'_>, LedgerError> {
        let file = match self.billed {
            0 => None,
            _ => self.source.reader().map_err(|error| self.unreadable(error))?,
        };
        let (at, bounds) = (Cursor { line: 1, offset: 0 }, CostBounds::default());
        Ok(LedgerRows { reading: self, file, at, head: Hash::ZERO, payer: None, bounds, open: BTreeMap::new() })
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
                // No later line will record its end.
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
        let implausible = self.bounds.take(&record);
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
                let entry = if implausible.is_some() { without_cost(entry) } else { entry };
                Ok(Some((receipt, Some(entry))))
            }
            _ => Ok(None),
        }
    }
}

/// Returns the error of a line that was verified before and differs now.
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

/// Returns the entry of a call without a known end.
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

/// Returns the entry of a call with an implausible cost, which counts as unknown.
fn without_cost(entry: LedgerEntry) -> LedgerEntry {
    LedgerEntry {
        status: ReceiptStatus::PendingCost,
        cost_usd: None,
        nano_usd: None,
        price_source: CostSource::None.as_str().to_owned(),
        null_reason: Some(IMPLAUSIBLE.to_owned()),
        ..entry
    }
}

/// Returns the source of the amount of an outcome.
fn price_source(outcome: &Outcome<'_>) -> &'static str {
    if outcome.cache_hit == Some(true) { CACHE_HIT } else { outcome.cost_source.as_str() }
}
