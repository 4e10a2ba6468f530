//! State of runs in the ledger: settled, or still without a part of their bill.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::Serialize;
use sluice_contract::RunKey;

use super::LedgerError;
use super::filter::Filter;

/// A run whose bill is not final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsettled {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Reason that the bill is not final.
    pub reason: String,
}

/// State of a run's audit file in the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadState {
    /// The file was read to its end, and is trusted.
    ReadToEnd,
    /// The file was not read to its end.
    NotRead,
    /// The file is not trusted.
    NotTrusted {
        /// Reason, for people.
        reason: String,
    },
}

/// Returns the state of a run's audit file.
pub(crate) fn read_state(connection: &Connection, key: &RunKey) -> rusqlite::Result<ReadState> {
    let mut query = connection.prepare(
        "SELECT worth IN ('complete', 'incomplete') OR (worth = 'absent' AND fault IS NULL), fault, ended
         FROM readings WHERE run_id = ?1 AND attempt = ?2 ORDER BY id DESC LIMIT 1",
    )?;
    let newest: Option<(bool, Option<String>, bool)> = query
        .query_row(params![key.run_id.as_str(), key.attempt], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    Ok(match newest {
        Some((true, _, true)) => ReadState::ReadToEnd,
        Some((false, fault, _)) => {
            let reason = fault.unwrap_or_else(|| "its audit file is not verified".to_owned());
            ReadState::NotTrusted { reason }
        }
        Some((true, _, false)) | None => ReadState::NotRead,
    })
}

/// A run that the ledger knows, with the facts that decide whether its bill is final.
struct LedgerRun {
    run_id: String,
    attempt: u32,
    /// Account that pays; none if no run and no receipt names it.
    account: Option<String>,
    owner: Option<String>,
    phase: Option<String>,
    /// Result of the last reading of the audit file, as the database names it.
    trust_level: Option<String>,
    fault: Option<String>,
    /// True if the audit file was read to its end.
    is_ended: bool,
    /// First and last time of the run, of its receipts and of the readings of its file, in microseconds since 1970.
    span_us: (i64, i64),
}

/// Query of [`LedgerRun`]. The times of receipts are known to the day only: the first day counts from its beginning,
/// and the last day to its end.
const LEDGER_RUNS: &str = "
    WITH known AS (SELECT run_id, attempt FROM runs UNION SELECT run_id, attempt FROM usage_sums
                   UNION SELECT run_id, attempt FROM readings),
         booked AS (SELECT run_id, attempt, max(account) AS account,
                           CAST(strftime('%s', min(day)) AS INTEGER) * 1000000 AS first_us,
                           CAST(strftime('%s', max(day), '+1 day') AS INTEGER) * 1000000 - 1 AS last_us
                    FROM usage_sums GROUP BY run_id, attempt),
         read AS (SELECT run_id, attempt, max(id) AS newest, min(read_us) AS first_us, max(read_us) AS last_us
                  FROM readings GROUP BY run_id, attempt)
    SELECT known.run_id, known.attempt, coalesce(runs.account, booked.account), sandboxes.owner, runs.phase,
           newest.worth, newest.fault, coalesce(newest.ended, 0),
           min(coalesce(runs.created_us, 9223372036854775807), coalesce(booked.first_us, 9223372036854775807),
               coalesce(read.first_us, 9223372036854775807)),
           max(coalesce(runs.updated_us, 0), coalesce(booked.last_us, 0), coalesce(read.last_us, 0))
    FROM known
    LEFT JOIN sandboxes ON sandboxes.run_id = known.run_id
    LEFT JOIN runs ON runs.run_id = known.run_id AND runs.attempt = known.attempt
    LEFT JOIN booked ON booked.run_id = known.run_id AND booked.attempt = known.attempt
    LEFT JOIN read ON read.run_id = known.run_id AND read.attempt = known.attempt
    LEFT JOIN readings AS newest ON newest.id = read.newest
    ORDER BY 1, 2";

impl LedgerRun {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            run_id: row.get(0)?,
            attempt: row.get(1)?,
            account: row.get(2)?,
            owner: row.get(3)?,
            phase: row.get(4)?,
            trust_level: row.get(5)?,
            fault: row.get(6)?,
            is_ended: row.get(7)?,
            span_us: (row.get(8)?, row.get(9)?),
        })
    }

    /// Returns whether calls of the run that the ledger does not know could belong to the selection. Their model is not
    /// known. Their account is not known either, if neither this host nor a receipt knows the run.
    fn may_have_calls_in(&self, filter: &Filter) -> bool {
        let (first, last) = self.span_us;
        filter.run_id.as_ref().is_none_or(|wanted| *wanted == self.run_id)
            && filter.attempt.is_none_or(|wanted| wanted == self.attempt)
            && (filter.account.is_none() || self.account.is_none() || filter.account == self.account)
            && (filter.owner.is_none() || filter.owner == self.owner)
            && filter.until_us.is_none_or(|until| first < until)
            // More may arrive from a file that was not read to its end.
            && filter.since_us.is_none_or(|since| !self.is_ended || last >= since)
    }

    /// Returns the reason that not all calls of the run are known; none for a run whose file was read, and is trusted.
    fn fault(&self) -> Option<String> {
        match (self.trust_level.as_deref(), &self.fault) {
            (Some("tampered" | "conflict" | "absent"), Some(fault)) => Some(fault.clone()),
            _ if self.is_ended => None,
            _ if self.phase.as_deref() == Some("closed") => Some("its audit file was not read yet".to_owned()),
            _ => Some("it is under way".to_owned()),
        }
    }
}

/// Returns the runs that are open, whose audit file is not trusted, or that have selected receipts of unknown cost that a
/// provider could bill. Runs of the first two kinds are selected by run, account, owner and time, whatever the model is.
///
/// `open_calls` has the number of such receipts in the selection, by run.
pub(super) fn unsettled(
    connection: &Connection,
    filter: &Filter,
    open_calls: &HashMap<String, u64>,
) -> Result<Vec<Unsettled>, LedgerError> {
    let mut query = connection.prepare(LEDGER_RUNS)?;
    let mut unsettled = Vec::new();
    for known in query.query_map([], LedgerRun::read)? {
        let known = known?;
        let run = format!("{}.{}", known.run_id, known.attempt);
        let calls = open_calls.get(&run).copied().unwrap_or_default();
        let fault = if calls > 0 || known.may_have_calls_in(filter) { known.fault() } else { None };
        let unknown = || (calls > 0).then(|| format!("the cost of {calls} of its calls is not known"));
        unsettled.extend(fault.or_else(unknown).map(|reason| Unsettled { run, reason }));
    }
    Ok(unsettled)
}

/// Returns the runs that have not ended, or whose audit file was not read to its end.
pub(super) fn under_way(connection: &Connection) -> Result<HashSet<RunKey>, LedgerError> {
    let mut query = connection.prepare(
        "SELECT run_id || '.' || attempt FROM runs WHERE phase <> 'closed' OR NOT EXISTS (
             SELECT 1 FROM readings
             WHERE readings.run_id = runs.run_id AND readings.attempt = runs.attempt AND ended = 1)",
    )?;
    let keys = query.query_map([], |row| row.get::<_, String>(0))?;
    Ok(keys.collect::<Result<Vec<_>, _>>()?.iter().filter_map(|key| key.parse().ok()).collect())
}
