//! The causes for which runs wait, and the event of the last change of their state.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, params};
use serde_json::{Value, json};
use sluice_contract::{RunId, RunKey};

use super::wait_cause::{OpenThings, RETRY, WaitCause, waiting_for};
use super::{Sandbox, SandboxError};
use crate::events::{EventFilter, EventQuery};
use crate::store::{Store, StoreError, now_us, run_key};

/// Type of the event of a change of state.
pub(super) const STATE_CHANGED: &str = "run.state_changed";

impl Store {
    /// Returns the cause for which a run waits; `None` if it waits for nothing.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn wait_cause(&self, sandbox: &Sandbox) -> Result<Option<WaitCause>, SandboxError> {
        Ok(self.wait_causes(std::slice::from_ref(sandbox)).await?.remove(&sandbox.key))
    }

    /// Returns the causes for which runs wait, by their present attempts. The number of queries does not depend on the number
    /// of runs.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn wait_causes(&self, sandboxes: &[Sandbox]) -> Result<BTreeMap<RunKey, WaitCause>, SandboxError> {
        let now = now_us();
        let live: Vec<&Sandbox> = sandboxes.iter().filter(|sandbox| !sandbox.state.is_ended()).collect();
        if live.is_empty() {
            return Ok(BTreeMap::new());
        }
        let ids = ids_of(&live);
        let open = self.query(move |connection| open_things(connection, &ids, now)).await?;
        let waits = |sandbox: &&Sandbox| Some((sandbox.key.clone(), waiting_for(sandbox, &open, now)?));
        let waiting: BTreeMap<RunKey, &'static str> = live.iter().filter_map(waits).collect();
        let retried: Vec<&Sandbox> =
            live.into_iter().filter(|sandbox| waiting.get(&sandbox.key) == Some(&RETRY)).collect();
        let changes = if retried.is_empty() {
            BTreeMap::new()
        } else {
            let ids = ids_of(&retried);
            self.query(move |connection| last_changes(connection, &ids)).await?
        };
        let cause = |(key, thing): (RunKey, &'static str)| {
            let cause = WaitCause::of(thing, changes.get(key.run_id.as_str()));
            (key, cause)
        };
        Ok(waiting.into_iter().map(cause).collect())
    }

    /// Returns the data of the last change of a run's state: `from`, `to` and `reason`, and the `error_message` of the
    /// attempt before if the change is the beginning of another one. Null for a run without a change.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn last_state_change(&self, run_id: &RunId) -> Result<Value, StoreError> {
        let filter = EventFilter {
            sandbox_id: Some(run_id.to_string()),
            types: vec![STATE_CHANGED.to_owned()],
            ..EventFilter::default()
        };
        let page = self.list_events(EventQuery { filter, limit: 1, ..EventQuery::default() }).await?;
        let data = page.events.first().and_then(|event| serde_json::from_str(&event.event_data).ok());
        Ok(data.unwrap_or_default())
    }
}

/// Returns the ids of runs as a JSON array.
fn ids_of(sandboxes: &[&Sandbox]) -> String {
    let ids: Vec<&str> = sandboxes.iter().map(|sandbox| sandbox.key.run_id.as_str()).collect();
    json!(ids).to_string()
}

/// Reads the open approvals, questions and dependencies of runs.
fn open_things(connection: &Connection, ids: &str, now_us: i64) -> Result<OpenThings, StoreError> {
    let mut approvals = connection.prepare_cached(
        "SELECT run_id, attempt FROM approvals
         WHERE decision IS NULL AND held_us IS NOT NULL AND run_id IN (SELECT value FROM json_each(?1))",
    )?;
    let approvals: BTreeSet<RunKey> = approvals.query_map([ids], |row| run_key(row, 0))?.collect::<Result<_, _>>()?;
    let mut questions = connection.prepare_cached(
        "SELECT DISTINCT run_id FROM questions
         WHERE state = 'open' AND expires_us > ?2 AND run_id IN (SELECT value FROM json_each(?1))",
    )?;
    let questions: BTreeSet<String> =
        questions.query_map(params![ids, now_us], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut dependencies = connection.prepare_cached(
        "SELECT DISTINCT dependency.run_id FROM sandbox_dependencies AS dependency
         JOIN sandboxes AS other ON other.run_id = depends_on
         WHERE dependency.run_id IN (SELECT value FROM json_each(?1))
           AND (other.ended_us IS NULL OR other.outcome IS NOT 'success')",
    )?;
    let dependencies: BTreeSet<String> = dependencies.query_map([ids], |row| row.get(0))?.collect::<Result<_, _>>()?;
    Ok(OpenThings { approvals, questions, dependencies })
}

/// Reads the data of the last change of each run's state, by the ids of the runs.
fn last_changes(connection: &Connection, ids: &str) -> Result<BTreeMap<String, Value>, StoreError> {
    let mut query = connection.prepare_cached(
        "SELECT sandbox_id, event_data FROM events WHERE seq IN (
             SELECT max(seq) FROM events
             WHERE sandbox_id IN (SELECT value FROM json_each(?1)) AND event_type = ?2 GROUP BY sandbox_id)",
    )?;
    let mut rows = query.query(params![ids, STATE_CHANGED])?;
    let mut changes = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let (id, data): (String, String) = (row.get(0)?, row.get(1)?);
        changes.insert(id, serde_json::from_str(&data).unwrap_or_default());
    }
    Ok(changes)
}
