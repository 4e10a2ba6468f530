//! Queries of runs.

use std::collections::BTreeMap;

use rusqlite::{OptionalExtension, params};
use sluice_contract::RunId;

use super::SandboxError;
use super::lifecycle::SandboxState;
use super::row::{COLUMNS, Sandbox, find, sandbox};
use crate::store::{Parameters, Store, StoreError, all_of};

/// Selection of runs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SandboxFilter {
    /// Only runs of this owner; none for an admin.
    pub owner: Option<String>,
    /// Only runs in one of these states; an empty list selects all.
    pub states: Vec<SandboxState>,
    /// Only runs of this agent.
    pub agent_id: Option<String>,
    /// Only runs with this label and value.
    pub label: Option<(String, String)>,
    /// Only runs that wait for this.
    pub awaited: Option<Awaited>,
    /// A text that id, name, agent, project, account, or the name or value of a label contains. Letters of ASCII match in both
    /// cases.
    pub text: Option<String>,
}

/// Reason that a run waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    /// An approval, with a call that is held for it.
    Approval,
    /// A person: an approval or a question is open. A run that has ended waits for the approval of its publication only.
    Person,
}

/// Position in a list: the last run that was returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxCursor {
    /// Time of its creation, in microseconds since 1970.
    pub created_us: i64,
    /// Id.
    pub run_id: RunId,
}

/// A page of runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxPage {
    /// Runs, newest first.
    pub sandboxes: Vec<Sandbox>,
    /// Number of selected runs in each state, for the selection without `states` and `awaited`.
    pub counts: BTreeMap<SandboxState, u64>,
    /// Number of selected runs with a call that waits for an approval, for the selection without `states` and
    /// `awaited`.
    pub awaiting_approval: u64,
    /// Number of selected runs with an open approval or question, for the selection without `states` and `awaited`.
    pub awaiting_person: u64,
    /// Cursor of the next page; none if this is the last one.
    pub next: Option<SandboxCursor>,
}

impl Awaited {
    /// Returns the condition of runs that wait for it.
    const fn condition(self) -> &'static str {
        match self {
            Self::Approval => {
                "(run_id, attempt) IN (SELECT run_id, attempt FROM approvals WHERE decision IS NULL AND held_us IS NOT NULL)"
            }
            Self::Person => {
                "((run_id, attempt) IN (SELECT run_id, attempt FROM approvals WHERE decision IS NULL AND kind = 'publish')
                 OR ended_us IS NULL AND ((run_id, attempt) IN (SELECT run_id, attempt FROM approvals WHERE decision IS NULL)
                  OR run_id IN (SELECT run_id FROM questions WHERE state = 'open')))"
            }
        }
    }
}

impl Store {
    /// Returns a page of runs, newest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list_sandboxes(
        &self,
        filter: SandboxFilter,
        after: Option<SandboxCursor>,
        limit: u32,
    ) -> Result<SandboxPage, SandboxError> {
        self.query(move |connection| {
            let snapshot = connection.transaction()?;
            let limit = limit.max(1);
            let mut parameters = Parameters::default();
            let mut conditions = conditions(&filter, &mut parameters);
            let selected = all_of(&conditions);
            let counts = parameters.rows(
                &snapshot,
                &format!("SELECT state, count(*) FROM sandboxes WHERE {selected} GROUP BY state"),
                |row| Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?.unsigned_abs())),
            )?;
            let waiting = |awaited: Awaited| -> rusqlite::Result<u64> {
                let query = format!("SELECT count(*) FROM sandboxes WHERE {selected} AND {}", awaited.condition());
                let counts = parameters.rows(&snapshot, &query, |row| Ok(row.get::<_, i64>(0)?.unsigned_abs()))?;
                Ok(counts.into_iter().sum())
            };
            let (awaiting_approval, awaiting_person) = (waiting(Awaited::Approval)?, waiting(Awaited::Person)?);
            conditions.extend(filter.awaited.map(|awaited| awaited.condition().to_owned()));
            if !filter.states.is_empty() {
                let states: Vec<_> =
                    filter.states.iter().map(|state| parameters.bind(state.as_str().to_owned())).collect();
                conditions.push(format!("state IN ({})", states.join(", ")));
            }
            if let Some(SandboxCursor { created_us, run_id }) = after {
                let (time, id) = (parameters.bind(created_us), parameters.bind(run_id.as_str().to_owned()));
                conditions.push(format!("(created_us, run_id) < ({time}, {id})"));
            }
            let selected = all_of(&conditions);
            let query = format!(
                "SELECT {COLUMNS} FROM sandboxes WHERE {selected} ORDER BY created_us DESC, run_id DESC LIMIT {}",
                u64::from(limit) + 1
            );
            let mut sandboxes = parameters.rows(&snapshot, &query, sandbox)?;
            let has_more = sandboxes.len() > limit as usize;
            sandboxes.truncate(limit as usize);
            let next = sandboxes.last().filter(|_| has_more).map(Sandbox::cursor);
            let counts =
                counts.into_iter().filter_map(|(state, count)| Some((SandboxState::of(&state)?, count))).collect();
            Ok(SandboxPage { sandboxes, counts, awaiting_approval, awaiting_person, next })
        })
        .await
    }

    /// Returns a run; `None` if no run has this id, or if it belongs to another owner.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_sandbox(&self, owner: Option<&str>, run_id: &RunId) -> Result<Option<Sandbox>, SandboxError> {
        let (owner, run_id) = (owner.map(str::to_owned), run_id.clone());
        self.query(move |connection| {
            let found = find(connection, &run_id)?;
            Ok(found.filter(|sandbox| owner.is_none_or(|owner| sandbox.owner == owner)))
        })
        .await
    }

    /// Returns an owner's run of this name: the live one, otherwise the newest that has ended.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_sandbox_by_name(&self, owner: &str, name: &str) -> Result<Option<Sandbox>, SandboxError> {
        let (owner, name) = (owner.to_owned(), name.to_owned());
        self.query(move |connection| {
            let query = format!(
                "SELECT {COLUMNS} FROM sandboxes WHERE owner = ?1 AND name = ?2
                 ORDER BY ended_us IS NULL DESC, created_us DESC, run_id DESC LIMIT 1"
            );
            Ok(connection.prepare_cached(&query)?.query_row(params![owner, name], sandbox).optional()?)
        })
        .await
    }

    /// Returns the live runs of this name, of all owners. If no run is live, returns the newest run of each owner.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn sandboxes_named(&self, name: &str) -> Result<Vec<Sandbox>, SandboxError> {
        let name = name.to_owned();
        self.query(move |connection| {
            let query = format!(
                "SELECT {COLUMNS} FROM sandboxes WHERE name = ?1
                 ORDER BY ended_us IS NULL DESC, created_us DESC, run_id DESC"
            );
            let mut query = connection.prepare_cached(&query)?;
            let mut found: Vec<Sandbox> = Vec::new();
            for row in query.query_map(params![name], sandbox)? {
                let sandbox = row?;
                let is_after_live =
                    found.first().is_some_and(|first| first.ended_us.is_none()) && sandbox.ended_us.is_some();
                if is_after_live {
                    break;
                }
                if !found.iter().any(|other| other.owner == sandbox.owner) {
                    found.push(sandbox);
                }
            }
            Ok(found)
        })
        .await
    }

    /// Returns the runs that have not ended, oldest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn live_sandboxes(&self) -> Result<Vec<Sandbox>, SandboxError> {
        self.query(|connection| {
            let query = format!("SELECT {COLUMNS} FROM sandboxes WHERE ended_us IS NULL ORDER BY created_us, run_id");
            let mut query = connection.prepare_cached(&query)?;
            let rows = query.query_map([], sandbox)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Returns the request of a run, as JSON.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn sandbox_request(&self, run_id: &RunId) -> Result<Option<String>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let mut query = connection.prepare_cached("SELECT request FROM sandboxes WHERE run_id = ?1")?;
            Ok(query.query_row([run_id.as_str()], |row| row.get(0)).optional()?)
        })
        .await
    }

    /// Returns the ids of the runs on which a run depends.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn sandbox_dependencies(&self, run_id: &RunId) -> Result<Vec<String>, SandboxError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let mut query = connection
                .prepare_cached("SELECT depends_on FROM sandbox_dependencies WHERE run_id = ?1 ORDER BY depends_on")?;
            let rows = query.query_map([run_id.as_str()], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

fn conditions(filter: &SandboxFilter, parameters: &mut Parameters) -> Vec<String> {
    let mut conditions = Vec::new();
    if let Some(owner) = &filter.owner {
        conditions.push(format!("owner = {}", parameters.bind(owner.clone())));
    }
    if let Some(agent_id) = &filter.agent_id {
        conditions.push(format!("agent_id = {}", parameters.bind(agent_id.clone())));
    }
    if let Some((label, value)) = &filter.label {
        let (label, value) = (parameters.bind(label.clone()), parameters.bind(value.clone()));
        conditions.push(format!("EXISTS (SELECT 1 FROM json_each(labels) WHERE key = {label} AND value = {value})"));
    }
    if let Some(text) = &filter.text {
        let text = parameters.bind(text.to_ascii_lowercase());
        let columns = ["run_id", "name", "agent_id", "project", "account"];
        let matches = columns.map(|column| format!("instr(lower({column}), {text}) > 0"));
        let label =
            format!("EXISTS (SELECT 1 FROM json_each(labels) WHERE instr(lower(key || '=' || value), {text}) > 0)");
        conditions.push(format!("({} OR {label})", matches.join(" OR ")));
    }
    conditions
}

impl Sandbox {
    /// Returns the position of the run in a list.
    #[must_use]
    pub fn cursor(&self) -> SandboxCursor {
        SandboxCursor { created_us: self.created_us, run_id: self.key.run_id.clone() }
    }
}
