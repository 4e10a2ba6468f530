//! Rows into the ledger: added once, compared for ever after.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use sluice_contract::Hash;
use tokio::sync::oneshot;

use super::bill::{Status, Tokens};
use super::entry::{Entry, Receipt, SOURCE};
use super::ingest::{Reading, Worth};
use super::query;
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
pub struct Pending(oneshot::Receiver<Result<Posted, LedgerError>>);

impl Pending {
    /// Waits for it.
    ///
    /// # Errors
    /// Why nothing was posted.
    pub async fn done(self) -> Result<Posted, LedgerError> {
        self.0.await.map_err(|_| StoreError::Closed)?
    }
}

impl Store {
    /// Adds what an audit file says, all of it or nothing. What is known already is compared.
    ///
    /// It begins at once, behind what the database was asked for before.
    #[must_use]
    pub fn ingest(&self, reading: Reading) -> Pending {
        Pending(self.submit(move |connection| {
            let posted = ingest(connection, &reading, now_us());
            if let Err(error @ (LedgerError::Conflict { .. } | LedgerError::Late { .. })) = &posted {
                // So that it is seen by whoever asks for totals, and not only by who is told now.
                let _ = note_alone(connection, &reading, Worth::Conflict, Some(&error.to_string()));
            }
            posted
        }))
    }
}

fn ingest(connection: &mut Connection, reading: &Reading, now: i64) -> Result<Posted, LedgerError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let mut posted = Posted::default();
    for (receipt, entry) in reading.rows() {
        post(&change, &receipt, entry.as_ref(), now, &mut posted)?;
    }
    note(&change, reading, reading.worth, reading.fault.as_deref(), now)?;
    change.commit()?;
    Ok(posted)
}

fn post(
    change: &Transaction<'_>,
    receipt: &Receipt,
    entry: Option<&Entry>,
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
        return if known.is_none() { tell(change, id, None, now) } else { Ok(()) };
    };
    if self::known(change, "entries", SOURCE, &entry.reference, entry.hash)?.is_some() {
        return Ok(());
    }
    may_follow(change, id, entry)?;
    posted.entries += 1;
    let entry = add_entry(change, id, SOURCE, entry, now)?;
    tell(change, id, Some(entry), now)
}

/// The row of this name; another one under the same name is an error.
pub(super) fn known(
    change: &Transaction<'_>,
    table: &str,
    source: &str,
    reference: &str,
    hash: Hash,
) -> Result<Option<i64>, LedgerError> {
    let mut query = change
        .prepare(&format!("SELECT id, payload_hash FROM {table} WHERE source_system = ?1 AND source_reference = ?2"))?;
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
fn may_follow(change: &Transaction<'_>, receipt: i64, entry: &Entry) -> Result<(), LedgerError> {
    let mut query = change.prepare("SELECT status FROM entries WHERE receipt = ?1 ORDER BY id")?;
    let before: Vec<String> = query.query_map([receipt], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let status = match entry.status {
        Status::Unknown => before.last(),
        _ => before.iter().find(|status| *status != Status::Unknown.as_str()),
    };
    match status {
        None => Ok(()),
        Some(status) => {
            let status = Status::of(status).map_or("settled", Status::as_str);
            Err(LedgerError::Late { reference: entry.reference.clone(), status })
        }
    }
}

fn add_receipt(change: &Transaction<'_>, receipt: &Receipt, now: i64) -> Result<i64, LedgerError> {
    let mut insert = change.prepare(
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
    change: &Transaction<'_>,
    receipt: i64,
    source: &str,
    entry: &Entry,
    now: i64,
) -> Result<i64, LedgerError> {
    let tokens = entry.usage.map(Tokens::from).unwrap_or_default();
    let mut insert = change.prepare(
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

/// Writes the event of a receipt that stands anew.
pub(super) fn tell(change: &Transaction<'_>, receipt: i64, entry: Option<i64>, now: i64) -> Result<(), LedgerError> {
    let bill = query::bill(change, receipt)?;
    let body = serde_json::to_string(&bill).expect("plain data");
    change
        .prepare("INSERT INTO outbox (kind, receipt, entry, body, made_us) VALUES (?1, ?2, ?3, ?4, ?5)")?
        .insert(params![format!("receipt.{}", bill.status.as_str()), receipt, entry, body, now])?;
    Ok(())
}

fn note_alone(
    connection: &mut Connection,
    reading: &Reading,
    worth: Worth,
    fault: Option<&str>,
) -> Result<(), LedgerError> {
    let change = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    note(&change, reading, worth, fault, now_us())?;
    Ok(change.commit()?)
}

/// Writes down that a file was read, unless that is what was said last.
fn note(
    change: &Transaction<'_>,
    reading: &Reading,
    worth: Worth,
    fault: Option<&str>,
    now: i64,
) -> Result<(), LedgerError> {
    let (run_id, attempt) = (reading.key.run_id.as_str(), reading.key.attempt);
    let (lines, head) = (reading.lines.cast_signed(), reading.head.map(|head| head.to_string()));
    change.execute(
        "INSERT INTO readings (run_id, attempt, worth, fault, lines, head, ended, read_us)
         SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8
         WHERE NOT EXISTS (
             SELECT 1 FROM (SELECT * FROM readings WHERE run_id = ?1 AND attempt = ?2 ORDER BY id DESC LIMIT 1)
             WHERE worth = ?3 AND fault IS ?4 AND lines = ?5 AND head IS ?6 AND ended = ?7)",
        params![run_id, attempt, worth.as_str(), fault, lines, head, reading.ended, now],
    )?;
    if let (true, Some(head)) = (reading.is_trusted(), head) {
        // From here on the file must have this line.
        change.execute(
            "INSERT OR IGNORE INTO witnesses (run_id, attempt, seq, head, seen_us) VALUES (?1, ?2, ?3, ?4, ?5)",
            params![run_id, attempt, lines - 1, head, now],
        )?;
    }
    Ok(())
}
