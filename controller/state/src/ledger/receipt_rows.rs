//! Receipts as they are stored, each with its entries.

use std::collections::HashMap;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use sluice_contract::RunKey;

use super::LedgerError;
use super::booked::{BookedEntry, BookedReceipt, BookedTokens};
use super::filter::Filter;
use super::status::ReceiptStatus;

/// Query of receipts, read by [`receipt`].
pub(super) const RECEIPT: &str = "SELECT id, source_system, source_reference, run_id, attempt, call, call_id, account, graph_id, \
                       method, path, stream, model, origin_us, arrived_day, payload_hash, reserved_usd FROM receipts";
/// Query of entries, read by [`entry`].
pub(super) const ENTRY: &str = "SELECT receipt, id, status, reverses, result, ended, http_status, litellm_call_id, response_id, \
                     model_served, cache_write, cached_input, all_input, output, reasoning, all_tokens, cost_usd, nano_usd, \
                     price_source, null_reason, arrived_day, source_system, source_reference, payload_hash FROM entries";

/// Returns the receipt of this row.
pub(super) fn by_id(connection: &Connection, id: i64) -> Result<BookedReceipt, LedgerError> {
    let found = connection.prepare_cached(&format!("{RECEIPT} WHERE id = ?1"))?.query_row([id], receipt)?.1;
    with_entries(connection, id, found)
}

/// Returns the receipt of this name.
pub(super) fn by_reference(
    connection: &Connection,
    source: &str,
    reference: &str,
) -> Result<Option<BookedReceipt>, LedgerError> {
    let found = connection
        .prepare_cached(&format!("{RECEIPT} WHERE source_system = ?1 AND source_reference = ?2"))?
        .query_row([source, reference], receipt)
        .optional()?;
    found.map(|(id, receipt)| with_entries(connection, id, receipt)).transpose()
}

fn with_entries(connection: &Connection, id: i64, mut receipt: BookedReceipt) -> Result<BookedReceipt, LedgerError> {
    let mut entries = connection.prepare_cached(&format!("{ENTRY} WHERE receipt = ?1 ORDER BY id"))?;
    for entry in entries.query_map([id], entry)? {
        receipt.add_entry(entry?.1);
    }
    Ok(receipt)
}

/// Returns the names of the receipts of one attempt of a run.
pub(super) fn references_of(connection: &Connection, key: &RunKey) -> Result<Vec<(String, String)>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT source_system, source_reference FROM receipts WHERE run_id = ?1 AND attempt = ?2 ORDER BY id",
    )?;
    let rows = query.query_map(params![key.run_id.as_str(), key.attempt], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Returns the number of receipts of one attempt of a run.
pub(super) fn count_of(connection: &Connection, key: &RunKey) -> Result<u64, LedgerError> {
    let mut query = connection.prepare_cached("SELECT count(*) FROM receipts WHERE run_id = ?1 AND attempt = ?2")?;
    let count: i64 = query.query_row(params![key.run_id.as_str(), key.attempt], |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

/// Returns the selected receipts, in the order in which the calls were made.
pub(super) fn selected(connection: &Connection, filter: &Filter) -> Result<Vec<BookedReceipt>, LedgerError> {
    let (clause, values) = filter.clause();
    let values = || params_from_iter(values.iter());
    let mut receipts = connection.prepare(&format!("{RECEIPT} WHERE {clause} ORDER BY origin_us, id"))?;
    let found: Vec<(i64, BookedReceipt)> = receipts.query_map(values(), receipt)?.collect::<Result<_, _>>()?;
    let places: HashMap<i64, usize> = found.iter().enumerate().map(|(at, (id, _))| (*id, at)).collect();
    let mut selected: Vec<BookedReceipt> = found.into_iter().map(|(_, receipt)| receipt).collect();
    let mut entries = connection
        .prepare(&format!("{ENTRY} WHERE receipt IN (SELECT id FROM receipts WHERE {clause}) ORDER BY id"))?;
    for entry in entries.query_map(values(), entry)? {
        let (receipt, entry) = entry?;
        selected[places[&receipt]].add_entry(entry);
    }
    Ok(selected)
}

/// Returns the receipts of one attempt of a run.
pub(crate) fn receipts_of_run(connection: &Connection, key: &RunKey) -> Result<Vec<BookedReceipt>, LedgerError> {
    let run = Filter { run_id: Some(key.run_id.to_string()), attempt: Some(key.attempt), ..Filter::default() };
    selected(connection, &run)
}

/// Converts a row of [`RECEIPT`] into its id and the receipt without entries.
pub(super) fn receipt(row: &Row<'_>) -> rusqlite::Result<(i64, BookedReceipt)> {
    let receipt = BookedReceipt {
        source_system: row.get(1)?,
        source_reference: row.get(2)?,
        payload_hash: row.get(15)?,
        run_id: row.get(3)?,
        attempt: row.get(4)?,
        call: row.get::<_, i64>(5)?.cast_unsigned(),
        call_id: row.get(6)?,
        account: row.get(7)?,
        graph_id: row.get(8)?,
        method: row.get(9)?,
        path: row.get(10)?,
        stream: row.get(11)?,
        model: row.get(12)?,
        reserved_usd: row.get(16)?,
        origin: BookedReceipt::time(row.get(13)?),
        period: row.get(14)?,
        ..BookedReceipt::default()
    };
    Ok((row.get(0)?, receipt))
}

/// Converts a row of [`ENTRY`] into the id of its receipt and the entry.
pub(super) fn entry(row: &Row<'_>) -> rusqlite::Result<(i64, BookedEntry)> {
    let word: String = row.get(2)?;
    let status = ReceiptStatus::of(&word)
        .ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, format!("status {word}").into()))?;
    let entry = BookedEntry {
        id: row.get(1)?,
        status,
        reverses: row.get(3)?,
        result: row.get(4)?,
        end: row.get(5)?,
        http_status: row.get(6)?,
        litellm_call_id: row.get(7)?,
        response_id: row.get(8)?,
        model_served: row.get(9)?,
        tokens: BookedTokens {
            cache_write: row.get(10)?,
            cached_input: row.get(11)?,
            input: row.get(12)?,
            output: row.get(13)?,
            reasoning: row.get(14)?,
            total: row.get(15)?,
        },
        cost_usd: row.get(16)?,
        nano_usd: row.get(17)?,
        price_source: row.get(18)?,
        null_reason: row.get(19)?,
        period: row.get(20)?,
        source_system: row.get(21)?,
        source_reference: row.get(22)?,
        payload_hash: row.get(23)?,
    };
    Ok((row.get(0)?, entry))
}
