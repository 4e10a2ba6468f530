//! Insertion of ledger rows: each is added once, and compared after that.

use rusqlite::{Connection, OptionalExtension, params};
use sluice_contract::Hash;

use super::LedgerError;
use super::audit_source::TrustLevel;
use super::booked::BookedTokens;
use super::entry::{LedgerEntry, ReceiptRow, SOURCE};
use super::parsed_audit::ParsedAudit;
use super::status::ReceiptStatus;
use crate::store::{NewEvent, append_event};

/// Number of new rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[allow(missing_docs, reason = "they say what they are")]
pub struct Posted {
    pub receipts: u64,
    pub entries: u64,
}

/// Result of posting a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PostingResult {
    /// New rows.
    pub added: Posted,
    /// Receipts that were decided before the file had their outcome. They stay as they are.
    pub late: Vec<LateOutcome>,
}

/// A receipt that stays as it is, although a file has another end of its call.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct LateOutcome {
    /// Name of the receipt.
    pub receipt: String,
    /// Status in the ledger.
    pub status: &'static str,
}

/// Inserts a receipt and its entry, as far as they are new.
pub(super) fn insert_row(
    change: &Connection,
    receipt: &ReceiptRow,
    entry: Option<&LedgerEntry>,
    now: i64,
    posting: &mut PostingResult,
) -> Result<(), LedgerError> {
    let known = known(change, "receipts", SOURCE, &receipt.reference, receipt.hash)?;
    let id = match known {
        Some(id) => id,
        None => {
            posting.added.receipts += 1;
            add_receipt(change, receipt, now)?
        }
    };
    let Some(entry) = entry else {
        return if known.is_none() {
            append_receipt_event(change, id, None, ReceiptStatus::Pending, now)
        } else {
            Ok(())
        };
    };
    if self::known(change, "entries", SOURCE, &entry.reference, entry.hash)?.is_some() {
        return Ok(());
    }
    if let Some(status) = decided_before(change, id, entry)? {
        posting.late.push(LateOutcome { receipt: receipt.reference.clone(), status });
        return Ok(());
    }
    posting.added.entries += 1;
    let added = add_entry(change, id, SOURCE, entry, now)?;
    append_receipt_event(change, id, Some(added), entry.status, now)
}

/// Returns the id of the row with this name.
///
/// # Errors
/// [`LedgerError::Conflict`] if its content differs.
pub(super) fn known(
    change: &Connection,
    table: &str,
    source: &str,
    reference: &str,
    hash: Hash,
) -> Result<Option<i64>, LedgerError> {
    let mut query = change.prepare_cached(&format!(
        "SELECT id, payload_hash FROM {table} WHERE source_system = ?1 AND source_reference = ?2"
    ))?;
    let row: Option<(i64, String)> =
        query.query_row(params![source, reference], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    match row {
        Some((_, known)) if known != hash.to_string() => {
            Err(LedgerError::Conflict { reference: reference.to_owned(), known, found: hash.to_string() })
        }
        row => Ok(row.map(|(id, _)| id)),
    }
}

/// Checks that an entry may follow the existing ones of its file, so that no amount is counted twice: a late outcome may
/// follow an unknown end, and an unknown end follows nothing. Returns the status of a receipt that the operator or the
/// spend log has decided before: no entry of a file follows that.
fn decided_before(change: &Connection, receipt: i64, entry: &LedgerEntry) -> Result<Option<&'static str>, LedgerError> {
    let mut query =
        change.prepare_cached("SELECT status, source_system = ?2 FROM entries WHERE receipt = ?1 ORDER BY id")?;
    let before: Vec<(String, bool)> =
        query.query_map(params![receipt, SOURCE], |row| Ok((row.get(0)?, row.get(1)?)))?.collect::<Result<_, _>>()?;
    // A newer version may have more words.
    let word = |status: &str| ReceiptStatus::of(status).map_or("settled", ReceiptStatus::as_str);
    let may_follow = |status: &str| entry.status != ReceiptStatus::Unknown && status == ReceiptStatus::Unknown.as_str();
    if let Some((status, _)) = before.iter().find(|(status, is_of_file)| *is_of_file && !may_follow(status)) {
        return Err(LedgerError::Late { reference: entry.reference.clone(), status: word(status) });
    }
    Ok(before.iter().rfind(|(_, is_of_file)| !is_of_file).map(|(status, _)| word(status)))
}

fn add_receipt(change: &Connection, receipt: &ReceiptRow, now: i64) -> Result<i64, LedgerError> {
    let mut insert = change.prepare_cached(
        "INSERT INTO receipts (source_system, source_reference, payload_hash, run_id, attempt, call, call_id, account,
                               graph_id, method, path, model, stream, reserved_usd, origin_us, origin_day, arrived_us,
                               arrived_day)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, date(?15 / 1000000, 'unixepoch'),
                 ?16, date(?16 / 1000000, 'unixepoch'))",
    )?;
    Ok(insert.insert(params![
        SOURCE,
        receipt.reference,
        receipt.hash.to_string(),
        receipt.key.run_id.as_str(),
        receipt.key.attempt,
        receipt.call.cast_signed(),
        receipt.call_id,
        receipt.account,
        receipt.graph_id,
        receipt.method,
        receipt.path,
        receipt.model,
        receipt.stream,
        receipt.reserved_usd,
        receipt.origin_us,
        now,
    ])?)
}

pub(super) fn add_entry(
    change: &Connection,
    receipt: i64,
    source: &str,
    entry: &LedgerEntry,
    now: i64,
) -> Result<i64, LedgerError> {
    let tokens = entry.usage.map(BookedTokens::from).unwrap_or_default();
    let mut insert = change.prepare_cached(
        "INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, result, ended, http_status,
                              litellm_call_id, response_id, model_served, input, output, cached_input, cache_write,
                              reasoning, total, cost_usd, nano_usd, price_source, null_reason, origin_us, origin_day,
                              arrived_us, arrived_day)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
                 date(?22 / 1000000, 'unixepoch'), ?23, date(?23 / 1000000, 'unixepoch'))",
    )?;
    Ok(insert.insert(params![
        receipt,
        source,
        entry.reference,
        entry.hash.to_string(),
        entry.status.as_str(),
        entry.result,
        entry.ended,
        entry.http_status,
        entry.litellm_call_id,
        entry.response_id,
        entry.model_served,
        tokens.input,
        tokens.output,
        tokens.cached_input,
        tokens.cache_write,
        tokens.reasoning,
        tokens.total,
        entry.cost_usd,
        entry.nano_usd,
        entry.price_source,
        entry.null_reason,
        entry.origin_us,
        now,
    ])?)
}

/// Appends the event of a receipt with a new status.
pub(super) fn append_receipt_event(
    change: &Connection,
    receipt: i64,
    entry: Option<i64>,
    status: ReceiptStatus,
    now: i64,
) -> Result<(), LedgerError> {
    let kind = format!("receipt.{}", status.as_str());
    append_event(change, NewEvent { kind: &kind, receipt, entry }, now)?;
    Ok(())
}

/// Records that a file was read, unless the newest record is the same.
pub(super) fn record_reading(
    change: &Connection,
    reading: &ParsedAudit,
    trust_level: TrustLevel,
    fault: Option<&str>,
    now: i64,
) -> Result<(), LedgerError> {
    let (run_id, attempt) = (reading.key.run_id.as_str(), reading.key.attempt);
    let (lines, head) = (reading.lines.cast_signed(), reading.head.map(|head| head.to_string()));
    let mut insert = change.prepare_cached(
        "INSERT INTO readings (run_id, attempt, worth, fault, lines, head, ended, read_us)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
         WHERE NOT EXISTS (
             SELECT 1 FROM (SELECT * FROM readings WHERE run_id = ?1 AND attempt = ?2 ORDER BY id DESC LIMIT 1)
             WHERE worth = ?3 AND fault IS ?4 AND lines = ?5 AND head IS ?6 AND ended = ?7)",
    )?;
    insert.execute(params![run_id, attempt, trust_level.as_str(), fault, lines, head, reading.ended, now])?;
    if let (true, Some(head)) = (reading.is_trusted(), head) {
        // A later version of the file must have this line.
        change.execute(
            "INSERT OR IGNORE INTO witnesses (run_id, attempt, seq, head, seen_us) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![run_id, attempt, lines - 1, head, now],
        )?;
    }
    Ok(())
}
