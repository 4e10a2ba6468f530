//! Selection of events, and the maximum number of rows that one request may read.

use rusqlite::Row;

use super::{EventSource, LoggedEvent};
use crate::store::{Parameters, all_of};

/// Maximum number of rows that one request reads. A filter without an index could otherwise read the whole log.
pub const SEARCH_ROWS_MAX: u32 = 50_000;

/// Selection of events.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventFilter {
    /// Only events of this owner; none for an admin.
    pub owner: Option<String>,
    /// Only events of this run.
    pub sandbox_id: Option<String>,
    /// Only events of this agent.
    pub agent_id: Option<String>,
    /// Only events of these types; one that ends in `.*` selects all with this beginning. An empty list selects all
    /// types.
    pub types: Vec<String>,
}

pub(super) const COLUMNS: &str =
    "seq, id, owner, sandbox_id, attempt, agent_id, zone_id, event_type, source, event_data, created_us";

/// Conditions on the rows that are read, and on the rows that are returned.
pub(super) struct Conditions {
    searched: Vec<String>,
    selected: Vec<String>,
}

impl Conditions {
    pub(super) fn of(filter: &EventFilter, parameters: &mut Parameters) -> Self {
        let (mut searched, mut selected) = (Vec::new(), Vec::new());
        if let Some(owner) = &filter.owner {
            searched.push(format!("owner = {}", parameters.bind(owner.clone())));
        }
        if let Some(sandbox_id) = &filter.sandbox_id {
            searched.push(format!("sandbox_id = {}", parameters.bind(sandbox_id.clone())));
        }
        if let Some(agent_id) = &filter.agent_id {
            selected.push(format!("agent_id = {}", parameters.bind(agent_id.clone())));
        }
        if !filter.types.is_empty() {
            let matches = filter.types.iter().map(|name| match name.strip_suffix('*') {
                Some(start) if start.ends_with('.') => {
                    let start = parameters.bind(start.to_owned());
                    format!("substr(event_type, 1, length({start})) = {start}")
                }
                _ => format!("event_type = {}", parameters.bind(name.clone())),
            });
            selected.push(format!("({})", matches.collect::<Vec<_>>().join(" OR ")));
        }
        Self { searched, selected }
    }

    /// Adds a condition on the rows that are read.
    pub(super) fn search(&mut self, condition: String) {
        self.searched.push(condition);
    }

    /// Adds a condition on the rows that are returned.
    pub(super) fn select(&mut self, condition: String) {
        self.selected.push(condition);
    }

    /// Returns the query for the rows that are read.
    pub(super) fn searched_rows(&self, columns: &str, order: &str) -> String {
        let searched = all_of(&self.searched);
        format!("SELECT {columns} FROM events WHERE {searched} ORDER BY seq {order} LIMIT {SEARCH_ROWS_MAX}")
    }

    /// Returns the query that tells if there are more rows than are read.
    pub(super) fn has_more_rows(&self) -> String {
        let searched = all_of(&self.searched);
        format!("SELECT EXISTS (SELECT 1 FROM events WHERE {searched} LIMIT 1 OFFSET {SEARCH_ROWS_MAX})")
    }

    /// Returns the query for the rows that are returned.
    pub(super) fn selected_rows(&self, columns: &str, order: &str, limit: u32) -> String {
        let (rows, selected) = (self.searched_rows(COLUMNS, order), all_of(&self.selected));
        format!("SELECT {columns} FROM ({rows}) WHERE {selected} ORDER BY seq {order} LIMIT {limit}")
    }
}

pub(super) fn event(row: &Row<'_>) -> rusqlite::Result<LoggedEvent> {
    let sandbox_id: String = row.get(3)?;
    let source: String = row.get(8)?;
    Ok(LoggedEvent {
        seq: row.get(0)?,
        id: row.get(1)?,
        owner: row.get(2)?,
        sandbox_id: Some(sandbox_id).filter(|id| !id.is_empty()),
        attempt: row.get(4)?,
        agent_id: row.get(5)?,
        zone_id: row.get(6)?,
        event_type: row.get(7)?,
        source: match source.as_str() {
            "system" => EventSource::System,
            "worker" => EventSource::Worker,
            _ => EventSource::Agent,
        },
        event_data: row.get(9)?,
        created_us: row.get(10)?,
    })
}
