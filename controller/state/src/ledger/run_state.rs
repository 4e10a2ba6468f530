//! State of runs in the ledger: settled, or still without a part of their bill.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use sluice_contract::RunKey;

use super::LedgerError;
use super::filter::Filter;

/// A run whose bill is not final.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unsettled {
    /// `RUN.ATTEMPT`.
    pub run: String,
    /// Reason that it is not.
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

/// Returns the runs that are open, whose audit file is not trusted, or that have receipts of unknown cost
/// that a provider could bill.
///
/// `open_calls` has the runs whose receipts were read, each with its number of such receipts.
pub(super) fn unsettled(
    connection: &Connection,
    filter: &Filter,
    open_calls: &HashMap<String, u64>,
) -> Result<Vec<Unsettled>, LedgerError> {
    let mut query = connection.prepare(
        "WITH known AS (SELECT run_id, attempt FROM runs UNION SELECT run_id, attempt FROM usage_sums
                        UNION SELECT run_id, attempt FROM readings)
         SELECT known.run_id, known.attempt, coalesce(runs.account, ''), worth, fault, coalesce(ended, 0),
                runs.phase, sandboxes.owner
         FROM known
         LEFT JOIN sandboxes ON sandboxes.run_id = known.run_id
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
        let counted = open_calls.get(&run);
        let calls = counted.copied().unwrap_or_default();
        let account: String = row.get(2)?;
        let is_selected = filter.run_id.as_ref().is_none_or(|wanted| *wanted == run_id)
            && filter.attempt.is_none_or(|wanted| wanted == attempt)
            && filter.account.as_ref().is_none_or(|wanted| *wanted == account)
            && (filter.owner.is_none() || filter.owner == row.get(7)?)
            && filter.model.is_none()
            && filter.since_us.is_none()
            && filter.until_us.is_none();
        if counted.is_none() && !is_selected {
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
