//! Rows into the ledger: added once, compared for ever after.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use sluice_contract::Hash;
use tokio::sync::oneshot;

use super::bill::Tokens;
use super::entry::{LedgerEntry, ReceiptRow, SOURCE};
use super::ingest::{ParsedAudit, Row, TrustLevel};
use super::status::ReceiptStatus;
use super::{LedgerError, StoreError};
use crate::store::{Store, now_us};

/// What was new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, serde::Serialize)]
#[allow(missing_docs, reason = "they say what they are")]
pub struct Posted {
    pub receipts: u64,
    pub entries: u64,
}

/// A posting that is under way.
#[derive(Debug)]
pub struct PendingPost(oneshot::Receiver<Result<Posted, LedgerError>>);

impl PendingPost {
    /// Waits for it.
    ///
    /// # Errors
    /// Why nothing was posted.
    pub async fn done(self) -> Result<Posted, LedgerError> {
        self.0.await.map_err(|_| StoreError::Closed)?
    }
}

impl Store {
    /// Adds what an audit file says; nothing of it counts as read before all of it is there. What is known already is
    /// compared.
    ///
    /// It begins at once, behind what the database was asked for before.
    #[must_use]
    pub fn ingest(&self, reading: ParsedAudit) -> PendingPost {
        PendingPost(self.submit(move |connection| ingest_told(connection, &reading, now_us())))
    }

    /// Adds what several audit files say, with few commits. Each file has its own result, in their order.
    ///
    /// # Errors
    /// Those of SQLite; then the files may be asked for again.
    pub async fn ingest_all(
        &self,
        readings: Vec<ParsedAudit>,
    ) -> Result<Vec<Result<Posted, LedgerError>>, LedgerError> {
        self.call(move |connection| {
            let (now, mut results) = (now_us(), Vec::with_capacity(readings.len()));
            let mut readings = readings.into_iter().peekable();
            while let Some(first) = readings.peek() {
                if !first.is_one_piece() {
                    results.extend(readings.next().map(|long| ingest_told(connection, &long, now)));
                    continue;
                }
                let mut change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let mut rows = 0;
                while rows < ROWS_A_COMMIT
                    && let Some(reading) = readings.next_if(ParsedAudit::is_one_piece)
                {
                    let posted = ingest_one(&mut change, &reading, now);
                    match &posted {
                        Ok(posted) => rows += posted.receipts + posted.entries + 1,
                        Err(error) if error.is_contradiction() => {
                            note(&change, &reading, TrustLevel::Conflict, Some(&error.to_string()), now)?;
                        }
                        Err(LedgerError::Store(_)) => return posted.map(|_| Vec::new()),
                        Err(_) => {}
                    }
                    results.push(posted);
                }
                change.commit()?;
            }
            Ok(results)
        })
        .await
    }
}

/// Rows that one commit takes before others may write.
const ROWS_A_COMMIT: u64 = 16_384;

/// One file within the change of several: all of it or nothing.
fn ingest_one(change: &mut Transaction<'_>, reading: &ParsedAudit, now: i64) -> Result<Posted, LedgerError> {
    let alone = change.savepoint()?;
    let mut posted = Posted::default();
    for rows in reading.rows()? {
        post_all(&alone, &rows?, now, &mut posted)?;
    }
    note(&alone, reading, reading.worth, reading.fault.as_deref(), now)?;
    alone.commit()?;
    Ok(posted)
}

/// A file alone, and what the ledger refused of it.
fn ingest_told(connection: &mut Connection, reading: &ParsedAudit, now: i64) -> Result<Posted, LedgerError> {
    let posted = ingest(connection, reading, now);
    if let Err(error) = posted.as_ref()
        && error.is_contradiction()
    {
        // So that it is seen by whoever asks for totals, and not only by who is told now.
        let _ = note_alone(connection, reading, Some(&error.to_string()));
    }
    posted
}

/// A file alone: a long one in several commits, so that other writers get their turn. That it was read is written with the
/// last of them.
fn ingest(connection: &mut Connection, reading: &ParsedAudit, now: i64) -> Result<Posted, LedgerError> {
    let mut posted = Posted::default();
    let mut pieces = reading.rows()?.peekable();
    loop {
        let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        if let Some(rows) = pieces.next() {
            post_all(&change, &rows?, now, &mut posted)?;
        }
        let is_last = pieces.peek().is_none();
        if is_last {
            note(&change, reading, reading.worth, reading.fault.as_deref(), now)?;
        }
        change.commit()?;
        if is_last {
            return Ok(posted);
        }
    }
}

fn post_all(change: &Connection, rows: &[Row], now: i64, posted: &mut Posted) -> Result<(), LedgerError> {
    rows.iter().try_for_each(|(receipt, entry)| post(change, receipt, entry.as_ref(), now, posted))
}

fn post(
    change: &Connection,
    receipt: &ReceiptRow,
    entry: Option<&LedgerEntry>,
    now: i64,
    posted: &mut Posted,
) -> Result<(), LedgerError> {
    let known = known(change, "receipts", SOURCE, &receipt.reference, receipt.hash)?;
    let id = match known {
        Some(id) => id,
        None => {
            posted.receipts += 1;
            add_receipt(change, receipt, now)?
        }
    };
    let Some(entry) = entry else {
        return if known.is_none() { tell(change, id, None, ReceiptStatus::Pending, now) } else { Ok(()) };
    };
    if self::known(change, "entries", SOURCE, &entry.reference, entry.hash)?.is_some() {
        return Ok(());
    }
    may_follow(change, id, entry)?;
    posted.entries += 1;
    let added = add_entry(change, id, SOURCE, entry, now)?;
    tell(change, id, Some(added), entry.status, now)
}

/// The row of this name; another one under the same name is an error.
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

/// Late facts are welcome, and money is not counted twice: an end that nobody saw follows nothing, and nothing follows
/// what the spend log has settled.
fn may_follow(change: &Connection, receipt: i64, entry: &LedgerEntry) -> Result<(), LedgerError> {
    let mut query = change.prepare_cached("SELECT status FROM entries WHERE receipt = ?1 ORDER BY id")?;
    let before: Vec<String> = query.query_map([receipt], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let status = match entry.status {
        ReceiptStatus::Unknown => before.last(),
        _ => before.iter().find(|status| *status != ReceiptStatus::Unknown.as_str()),
    };
    match status {
        None => Ok(()),
        Some(status) => {
            let status = ReceiptStatus::of(status).map_or("settled", ReceiptStatus::as_str);
            Err(LedgerError::Late { reference: entry.reference.clone(), status })
        }
    }
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
    let tokens = entry.usage.map(Tokens::from).unwrap_or_default();
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

/// Writes the event of a receipt that stands anew. What it says follows from the receipt and its entries up to this one.
pub(super) fn tell(
    change: &Connection,
    receipt: i64,
    entry: Option<i64>,
    status: ReceiptStatus,
    now: i64,
) -> Result<(), LedgerError> {
    change
        .prepare_cached("INSERT INTO outbox (kind, receipt, entry, made_us) VALUES (?1, ?2, ?3, ?4)")?
        .insert(params![format!("receipt.{}", status.as_str()), receipt, entry, now])?;
    Ok(())
}

fn note_alone(connection: &mut Connection, reading: &ParsedAudit, fault: Option<&str>) -> Result<(), LedgerError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    note(&change, reading, TrustLevel::Conflict, fault, now_us())?;
    Ok(change.commit()?)
}

/// Writes down that a file was read, unless that is what was said last.
fn note(
    change: &Connection,
    reading: &ParsedAudit,
    worth: TrustLevel,
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
    insert.execute(params![run_id, attempt, worth.as_str(), fault, lines, head, reading.ended, now])?;
    if let (true, Some(head)) = (reading.is_trusted(), head) {
        // From here on the file must have this line.
        change.execute(
            "INSERT OR IGNORE INTO witnesses (run_id, attempt, seq, head, seen_us) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![run_id, attempt, lines - 1, head, now],
        )?;
    }
    Ok(())
}
