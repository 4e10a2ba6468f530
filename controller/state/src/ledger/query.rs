//! Questions to the ledger.

use std::collections::{BTreeSet, HashMap};
use std::sync::mpsc;

use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, params, params_from_iter};
use serde::Serialize;
use sluice_contract::RunKey;

use super::LedgerError;
use super::bill::{BookedEntry, BookedReceipt, Tokens};
use super::status::ReceiptStatus;
use super::total::Total;
use crate::store::Store;

/// Which receipts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Of this run.
    pub run_id: Option<String>,
    /// Of this start of it.
    pub attempt: Option<u32>,
    /// That this account pays.
    pub account: Option<String>,
    /// That came, or of which something came, at this time or later: microseconds since 1970.
    pub since_us: Option<i64>,
    /// Of calls of this time or later.
    pub from_us: Option<i64>,
    /// Of calls of this time or earlier.
    pub to_us: Option<i64>,
    /// Whose money nobody knows, though they are over.
    pub open: bool,
    /// Of these names.
    pub references: Option<Vec<String>>,
}

/// What was found, as of one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selection {
    /// The receipts, in the order in which the calls were made.
    pub bills: Vec<BookedReceipt>,
    /// Runs of whose bill more may come, or that nobody vouches for.
    pub unsettled: Vec<Unsettled>,
}

/// What a list of receipts ends with.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListedReceipt {
    /// What they come to.
    pub total: Total,
    /// As in [`Selection`].
    pub unsettled: Vec<Unsettled>,
}

/// A run that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsettled {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Why.
    pub reason: String,
}

impl Store {
    /// Looks for receipts, and holds all of them in memory.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn select(&self, filter: Filter) -> Result<Selection, LedgerError> {
        let (found, bills) = mpsc::channel();
        // Nothing is lost: both ends live until the last one is there.
        let listed = self.list(filter, move |bill| found.send(bill).is_ok()).await?;
        Ok(Selection { bills: bills.into_iter().collect(), unsettled: listed.unsettled })
    }

    /// Shows receipts one by one, in the order in which the calls were made, as long as the reader wants more.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn list(
        &self,
        filter: Filter,
        mut each: impl FnMut(BookedReceipt) -> bool + Send + 'static,
    ) -> Result<ListedReceipt, LedgerError> {
        self.call(move |connection| {
            // One moment for all questions.
            let moment = connection.transaction()?;
            let (mut listed, mut open_calls) = (ListedReceipt::default(), HashMap::<String, u64>::new());
            let (clause, values) = filter.clause();
            let mut query = moment.prepare(&format!("{RECEIPT} WHERE {clause} ORDER BY origin_us, id"))?;
            let mut entries = moment.prepare(&format!("{ENTRY} WHERE receipt = ?1 ORDER BY id"))?;
            let mut rows = query.query(params_from_iter(values.iter()))?;
            while let Some(row) = rows.next()? {
                let (id, mut bill) = receipt(row)?;
                for entry in entries.query_map([id], posting)? {
                    bill.take(entry?.1);
                }
                listed.total.take(&bill);
                *open_calls.entry(format!("{}.{}", bill.run_id, bill.attempt)).or_default() +=
                    u64::from(bill.is_open());
                if !each(bill) {
                    break;
                }
            }
            listed.unsettled = unsettled(&moment, &filter, &open_calls)?;
            Ok(listed)
        })
        .await
    }

    /// Closed runs whose audit file was not read to its end, newest first.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn unread_runs(&self, limit: u32) -> Result<Vec<RunKey>, LedgerError> {
        self.call(move |connection| {
            let mut query = connection.prepare(
                "SELECT run_id, attempt FROM runs WHERE phase = 'closed' AND NOT EXISTS (
                     SELECT 1 FROM readings
                     WHERE readings.run_id = runs.run_id AND readings.attempt = runs.attempt AND ended = 1)
                 ORDER BY updated_us DESC LIMIT ?1",
            )?;
            let rows = query.query_map([limit], first_key)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The runs of which there are receipts, or of whose files a line was seen.
    ///
    /// # Errors
    /// Those of SQLite.
    pub async fn known_runs(&self) -> Result<BTreeSet<RunKey>, LedgerError> {
        self.call(|connection| {
            let mut query = connection
                .prepare("SELECT run_id, attempt FROM receipts UNION SELECT run_id, attempt FROM witnesses")?;
            let rows = query.query_map([], first_key)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Whether SQLite finds the file in order.
    ///
    /// # Errors
    /// [`LedgerError::Damaged`].
    pub async fn check_integrity(&self) -> Result<(), LedgerError> {
        self.call(|connection| integrity(connection)).await
    }
}

pub(super) fn integrity(connection: &Connection) -> Result<(), LedgerError> {
    let found: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    if found != "ok" {
        return Err(LedgerError::Damaged(found));
    }
    let orphan = connection.prepare("PRAGMA foreign_key_check")?.exists([])?;
    if orphan { Err(LedgerError::Damaged("a row names another that is gone".to_owned())) } else { Ok(()) }
}

const RECEIPT: &str = "SELECT id, source_system, source_reference, run_id, attempt, call, call_id, account, graph_id, \
                       method, path, stream, model, origin_us, arrived_day, payload_hash, reserved_usd FROM receipts";
const ENTRY: &str = "SELECT receipt, id, status, reverses, result, ended, http_status, litellm_call_id, response_id, \
                     model_served, cache_write, cached_input, all_input, output, reasoning, all_tokens, cost_usd, nano_usd, \
                     price_source, null_reason, arrived_day, source_system, source_reference, payload_hash FROM entries";

const OPEN: &str = "receipts.id IN (SELECT receipt FROM entries WHERE status IN ('pending_cost', 'unknown')) \
                    AND NOT EXISTS (SELECT 1 FROM entries AS done WHERE done.receipt = receipts.id \
                                    AND done.status NOT IN ('pending_cost', 'unknown'))";

/// One receipt as it stands.
pub(super) fn bill(connection: &Connection, id: i64) -> Result<BookedReceipt, LedgerError> {
    let bill = connection.prepare_cached(&format!("{RECEIPT} WHERE id = ?1"))?.query_row([id], receipt)?.1;
    with_entries(connection, id, bill)
}

/// The receipt of this name as it stands.
pub(super) fn bill_of(
    connection: &Connection,
    source: &str,
    reference: &str,
) -> Result<Option<BookedReceipt>, LedgerError> {
    let found = connection
        .prepare_cached(&format!("{RECEIPT} WHERE source_system = ?1 AND source_reference = ?2"))?
        .query_row([source, reference], receipt)
        .optional()?;
    found.map(|(id, bill)| with_entries(connection, id, bill)).transpose()
}

fn with_entries(connection: &Connection, id: i64, mut bill: BookedReceipt) -> Result<BookedReceipt, LedgerError> {
    let mut entries = connection.prepare_cached(&format!("{ENTRY} WHERE receipt = ?1 ORDER BY id"))?;
    for entry in entries.query_map([id], posting)? {
        bill.take(entry?.1);
    }
    Ok(bill)
}

/// The names of the receipts of one start of a run.
pub(super) fn references_of(connection: &Connection, key: &RunKey) -> Result<Vec<(String, String)>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT source_system, source_reference FROM receipts WHERE run_id = ?1 AND attempt = ?2 ORDER BY id",
    )?;
    let rows = query.query_map(params![key.run_id.as_str(), key.attempt], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// How many receipts one start of a run has.
pub(super) fn count_of(connection: &Connection, key: &RunKey) -> Result<u64, LedgerError> {
    let mut query = connection.prepare_cached("SELECT count(*) FROM receipts WHERE run_id = ?1 AND attempt = ?2")?;
    let count: i64 = query.query_row(params![key.run_id.as_str(), key.attempt], |row| row.get(0))?;
    Ok(count.cast_unsigned())
}

pub(super) fn bills(connection: &Connection, filter: &Filter) -> Result<Vec<BookedReceipt>, LedgerError> {
    let (clause, values) = filter.clause();
    let values = || params_from_iter(values.iter());
    let mut receipts = connection.prepare(&format!("{RECEIPT} WHERE {clause} ORDER BY origin_us, id"))?;
    let found: Vec<(i64, BookedReceipt)> = receipts.query_map(values(), receipt)?.collect::<Result<_, _>>()?;
    let places: HashMap<i64, usize> = found.iter().enumerate().map(|(at, (id, _))| (*id, at)).collect();
    let mut bills: Vec<BookedReceipt> = found.into_iter().map(|(_, bill)| bill).collect();
    let mut entries = connection
        .prepare(&format!("{ENTRY} WHERE receipt IN (SELECT id FROM receipts WHERE {clause}) ORDER BY id"))?;
    for entry in entries.query_map(values(), posting)? {
        let (receipt, entry) = entry?;
        bills[places[&receipt]].take(entry);
    }
    Ok(bills)
}

/// The receipts of one start of a run.
pub(crate) fn of_run(connection: &Connection, key: &RunKey) -> Result<Vec<BookedReceipt>, LedgerError> {
    let run = Filter { run_id: Some(key.run_id.to_string()), attempt: Some(key.attempt), ..Filter::default() };
    bills(connection, &run)
}

/// Whether the whole log of a run was read, and can be relied on; else why not.
pub(crate) fn read_to_end(connection: &Connection, key: &RunKey) -> Result<Result<(), String>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT worth IN ('complete', 'incomplete') OR (worth = 'absent' AND fault IS NULL), fault, ended
         FROM readings WHERE run_id = ?1 AND attempt = ?2 ORDER BY id DESC LIMIT 1",
    )?;
    let newest: Option<(bool, Option<String>, bool)> = query
        .query_row(params![key.run_id.as_str(), key.attempt], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    Ok(match newest {
        Some((true, _, true)) => Ok(()),
        Some((false, fault, _)) => Err(fault.unwrap_or_else(|| "nobody vouches for its audit file".to_owned())),
        Some((true, _, false)) | None => Err("its audit file was not read yet".to_owned()),
    })
}

impl Filter {
    fn clause(&self) -> (String, Vec<Box<dyn ToSql>>) {
        let mut clauses = vec!["1".to_owned()];
        let mut values: Vec<Box<dyn ToSql>> = Vec::new();
        let mut add = |clause: &str, value: Box<dyn ToSql>| {
            values.push(value);
            clauses.push(clause.replace('?', &format!("?{}", values.len())));
        };
        if let Some(run_id) = &self.run_id {
            add("run_id = ?", Box::new(run_id.clone()));
        }
        if let Some(attempt) = self.attempt {
            add("attempt = ?", Box::new(attempt));
        }
        if let Some(account) = &self.account {
            add("account = ?", Box::new(account.clone()));
        }
        if let Some(since) = self.since_us {
            let came = "(receipts.arrived_us >= ? OR EXISTS (SELECT 1 FROM entries AS late \
                         WHERE late.receipt = receipts.id AND late.arrived_us >= ?))";
            add(came, Box::new(since));
        }
        if let Some(from) = self.from_us {
            add("receipts.origin_us >= ?", Box::new(from));
        }
        if let Some(to) = self.to_us {
            add("receipts.origin_us <= ?", Box::new(to));
        }
        if let Some(references) = &self.references {
            let names = serde_json::to_string(references).expect("plain data");
            add("receipts.source_reference IN (SELECT value FROM json_each(?))", Box::new(names));
        }
        if self.open {
            // By way of the entries that leave it open: those are fewer.
            clauses.push(OPEN.to_owned());
        }
        (clauses.join(" AND "), values)
    }
}

/// Runs that are open, or that nobody vouches for, or with open receipts.
///
/// `open_calls` has the runs whose receipts were looked at, each with how many of those are open.
pub(super) fn unsettled(
    connection: &Connection,
    filter: &Filter,
    open_calls: &HashMap<String, u64>,
) -> Result<Vec<Unsettled>, LedgerError> {
    let mut query = connection.prepare(
        "WITH known AS (SELECT run_id, attempt FROM runs UNION SELECT run_id, attempt FROM usage_sums
                        UNION SELECT run_id, attempt FROM readings)
         SELECT known.run_id, known.attempt, coalesce(runs.account, ''), worth, fault, coalesce(ended, 0),
                runs.phase
         FROM known
         LEFT JOIN runs ON runs.run_id = known.run_id AND runs.attempt = known.attempt
         LEFT JOIN readings AS newest ON newest.id = (
             SELECT max(id) FROM readings WHERE readings.run_id = known.run_id AND readings.attempt = known.attempt)
         ORDER BY 1, 2",
    )?;
    let mut unsettled = Vec::new();
    let mut rows = query.query([])?;
    while let Some(row) = rows.next()? {
        let (run_id, attempt): (String, u32) = (row.get(0)?, row.get(1)?);
        let run = format!("{run_id}.{attempt}");
        let seen = open_calls.get(&run);
        let calls = seen.copied().unwrap_or_default();
        let account: String = row.get(2)?;
        let asked_for = filter.run_id.as_ref().is_none_or(|wanted| *wanted == run_id)
            && filter.attempt.is_none_or(|wanted| wanted == attempt)
            && filter.account.as_ref().is_none_or(|wanted| *wanted == account)
            && filter.since_us.is_none();
        if seen.is_none() && !asked_for {
            continue;
        }
        let (worth, fault): (Option<String>, Option<String>) = (row.get(3)?, row.get(4)?);
        let (ended, phase): (bool, Option<String>) = (row.get(5)?, row.get(6)?);
        let reason = match (worth.as_deref(), fault) {
            (Some("tampered" | "conflict" | "absent"), Some(fault)) => fault,
            _ if !ended && phase.as_deref() == Some("closed") => "its audit file was not read yet".to_owned(),
            _ if !ended => "it is under way".to_owned(),
            _ if calls > 0 => format!("the cost of {calls} of its calls is not known"),
            _ => continue,
        };
        unsettled.push(Unsettled { run, reason });
    }
    Ok(unsettled)
}

fn receipt(row: &Row<'_>) -> rusqlite::Result<(i64, BookedReceipt)> {
    let bill = BookedReceipt {
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
    Ok((row.get(0)?, bill))
}

fn posting(row: &Row<'_>) -> rusqlite::Result<(i64, BookedEntry)> {
    let word: String = row.get(2)?;
    let status = ReceiptStatus::of(&word)
        .ok_or_else(|| rusqlite::Error::FromSqlConversionFailure(2, Type::Text, format!("status {word}").into()))?;
    let posting = BookedEntry {
        id: row.get(1)?,
        status,
        reverses: row.get(3)?,
        result: row.get(4)?,
        end: row.get(5)?,
        http_status: row.get(6)?,
        litellm_call_id: row.get(7)?,
        response_id: row.get(8)?,
        model_served: row.get(9)?,
        tokens: Tokens {
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
    Ok((row.get(0)?, posting))
}

fn first_key(row: &Row<'_>) -> rusqlite::Result<RunKey> {
    key(row, 0)
}

/// The run that this column and the next one name.
pub(crate) fn key(row: &Row<'_>, column: usize) -> rusqlite::Result<RunKey> {
    let text: String = row.get(column)?;
    let failed = |error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(error));
    Ok(RunKey { run_id: text.parse().map_err(failed)?, attempt: row.get(column + 1)? })
}
