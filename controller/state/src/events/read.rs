//! Reading the event log forward, from a cursor.

use rusqlite::{Connection, OptionalExtension, params};

use super::select::{COLUMNS, Conditions, EventFilter, SEARCH_ROWS_MAX, event};
use super::{EventDiff, LoggedEvent, StoredDiff};
use crate::store::{Parameters, Store, StoreError, all_of};

/// Maximum number of bytes of one part, unless it is a single event: many readers hold a part at once.
const PART_BYTES: usize = 128 << 10;

/// The next part of the log for one reader.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventBatch {
    /// Selected events, oldest first.
    pub events: Vec<LoggedEvent>,
    /// Positions of this part at which selected events may have been removed.
    pub gap: Option<EventGap>,
    /// The cursor after this part.
    pub next: i64,
    /// True if the log had nothing after this part.
    pub is_newest: bool,
}

/// Positions at which events were removed. Remaining events among them are read like all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventGap {
    /// First position.
    pub from: i64,
    /// Last position.
    pub to: i64,
}

impl Store {
    /// Returns the selected events after a position, at most `limit`, and the removals among them. A cursor that the
    /// log has not reached yet gives an empty part.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn events_after(&self, after: i64, filter: EventFilter, limit: u32) -> Result<EventBatch, StoreError> {
        self.query(move |connection| {
            // One snapshot, so that events and removals are of the same moment.
            let snapshot = connection.transaction()?;
            Ok(batch(&snapshot, after, &filter, limit.max(1))?)
        })
        .await
    }

    /// Returns the position of the newest event that was ever appended; 0 before the first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn newest_event(&self) -> Result<i64, StoreError> {
        self.query(|connection| Ok(newest(connection)?)).await
    }

    /// Returns one event of a run by its id.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_event(&self, sandbox_id: &str, id: &str) -> Result<Option<LoggedEvent>, StoreError> {
        let (sandbox_id, id) = (sandbox_id.to_owned(), id.to_owned());
        self.query(move |connection| {
            let query = format!("SELECT {COLUMNS} FROM events WHERE id = ?1 AND sandbox_id = ?2");
            Ok(connection.prepare_cached(&query)?.query_row(params![id, sandbox_id], event).optional()?)
        })
        .await
    }

    /// Returns the diff of an event.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn event_diff(&self, seq: i64) -> Result<Option<StoredDiff>, StoreError> {
        self.query(move |connection| {
            let mut query =
                connection.prepare_cached("SELECT diff, truncated, removed FROM event_diffs WHERE seq = ?1")?;
            let diff = |row: &rusqlite::Row<'_>| match row.get(2)? {
                true => Ok(StoredDiff::Removed),
                false => Ok(StoredDiff::Kept(EventDiff { text: row.get(0)?, truncated: row.get(1)? })),
            };
            Ok(query.query_row([seq], diff).optional()?)
        })
        .await
    }
}

fn batch(snapshot: &Connection, after: i64, filter: &EventFilter, limit: u32) -> rusqlite::Result<EventBatch> {
    let newest = newest(snapshot)?;
    if newest <= after {
        return Ok(EventBatch { events: Vec::new(), gap: None, next: after, is_newest: true });
    }
    let mut parameters = Parameters::default();
    let mut conditions = Conditions::of(filter, &mut parameters);
    conditions.search(format!("seq > {}", parameters.bind(after)));
    let mut events = parameters.rows(snapshot, &conditions.selected_rows(COLUMNS, "ASC", limit), event)?;
    let is_cut = cut(&mut events);
    let next = match events.last() {
        Some(last) if is_cut || events.len() >= limit as usize => last.seq,
        _ => {
            let query = format!("SELECT max(seq), count(*) FROM ({})", conditions.searched_rows("seq", "ASC"));
            let (last, rows): (Option<i64>, u32) =
                parameters.row(snapshot, &query, |row| Ok((row.get(0)?, row.get(1)?)))?;
            if rows < SEARCH_ROWS_MAX { newest } else { last.unwrap_or(newest) }
        }
    };
    let next = next.max(after);
    Ok(EventBatch { events, gap: gap(snapshot, filter, after, next)?, next, is_newest: next >= newest })
}

/// Drops the events that are over the size of a part, and returns true if there are any.
fn cut(events: &mut Vec<LoggedEvent>) -> bool {
    let mut bytes = 0;
    let kept = events.iter().take_while(|event| {
        let is_first = bytes == 0;
        bytes += event.event_data.len();
        is_first || bytes <= PART_BYTES
    });
    let kept = kept.count();
    let is_cut = kept < events.len();
    events.truncate(kept);
    is_cut
}

/// Returns the removals within a part. Removals of one run are kept as their first and last position, so the gap may include
/// positions at which no event is missing; it omits no removed event.
fn gap(snapshot: &Connection, filter: &EventFilter, after: i64, next: i64) -> rusqlite::Result<Option<EventGap>> {
    let mut parameters = Parameters::default();
    let mut conditions =
        vec![format!("removed_to > {}", parameters.bind(after)), format!("removed_from <= {}", parameters.bind(next))];
    if let Some(owner) = &filter.owner {
        conditions.push(format!("owner = {}", parameters.bind(owner.clone())));
    }
    if let Some(sandbox_id) = &filter.sandbox_id {
        conditions.push(format!("sandbox_id = {}", parameters.bind(sandbox_id.clone())));
    }
    let query = format!("SELECT min(removed_from), max(removed_to) FROM event_totals WHERE {}", all_of(&conditions));
    let (from, to): (Option<i64>, Option<i64>) =
        parameters.row(snapshot, &query, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(from.zip(to).map(|(from, to)| EventGap { from: from.max(after + 1), to: to.min(next) }))
}

/// Returns the position of the newest event that was ever appended.
pub(crate) fn newest(connection: &Connection) -> rusqlite::Result<i64> {
    let mut query = connection.prepare_cached("SELECT seq FROM sqlite_sequence WHERE name = 'events'")?;
    Ok(query.query_row([], |row| row.get(0)).optional()?.unwrap_or(0))
}
