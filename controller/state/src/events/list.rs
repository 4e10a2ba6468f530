//! Pages of the event log, for people: newest first, or the trajectory of a run.

use rusqlite::{Connection, params};

use super::select::{COLUMNS, Conditions, EventFilter, SEARCH_ROWS_MAX, event};
use super::{HEARTBEAT, LoggedEvent};
use crate::store::{Parameters, Store, StoreError};

/// Maximum count of events that is reported.
pub const TOTAL_COUNT_MAX: u32 = 10_000;

/// Side of the cursor on which a page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Direction {
    /// Events before the cursor.
    #[default]
    Older,
    /// Events after the cursor.
    Newer,
}

/// Request for a page of events, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EventQuery {
    /// Selection of events.
    pub filter: EventFilter,
    /// A text that the type or the data contains.
    pub text: Option<String>,
    /// Position from which the page continues; `None` for the first page.
    pub cursor: Option<i64>,
    /// Side of the cursor.
    pub direction: Direction,
    /// Number of events.
    pub limit: u32,
}

/// A page of events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventPage {
    /// Events, newest first.
    pub events: Vec<LoggedEvent>,
    /// Number of selected events on all pages, at most [`TOTAL_COUNT_MAX`]. Only the newest [`SEARCH_ROWS_MAX`] events
    /// of the owner and the run are examined.
    pub total_count: u32,
    /// True if there may be more selected events: more than [`TOTAL_COUNT_MAX`], or among those that are not examined.
    pub is_count_capped: bool,
    /// Cursor of the next page; none if this is the last one. A page of a search may be empty before the last one.
    pub next_cursor: Option<i64>,
}

/// Request for a part of a run's trajectory, oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrajectoryQuery {
    /// The run.
    pub sandbox_id: String,
    /// Only these types, as in [`EventFilter`].
    pub types: Vec<String>,
    /// Position after which the page begins.
    pub cursor: Option<i64>,
    /// Number of events.
    pub limit: u32,
}

/// A part of a run's trajectory: its events without heartbeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trajectory {
    /// Events, oldest first.
    pub events: Vec<LoggedEvent>,
    /// All heartbeats of the run that are kept.
    pub heartbeats: HeartbeatSummary,
    /// Number of events of the run, with heartbeats.
    pub total_events: u64,
    /// Number of events of the run, without heartbeats.
    pub trajectory_events: u64,
    /// Cursor of the next part; none if this is the last one.
    pub next_cursor: Option<i64>,
}

/// Number and times of heartbeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HeartbeatSummary {
    /// Number of heartbeats.
    pub count: u64,
    /// Time of the first one, in microseconds since 1970.
    pub first_us: Option<i64>,
    /// Time of the last one, in microseconds since 1970.
    pub last_us: Option<i64>,
}

impl Store {
    /// Returns a page of events, newest first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list_events(&self, query: EventQuery) -> Result<EventPage, StoreError> {
        self.query(move |connection| Ok(page(&*connection.transaction()?, &query)?)).await
    }

    /// Returns a part of a run's trajectory.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn trajectory(&self, query: TrajectoryQuery) -> Result<Trajectory, StoreError> {
        self.query(move |connection| Ok(trajectory(&*connection.transaction()?, &query)?)).await
    }
}

fn page(snapshot: &Connection, query: &EventQuery) -> rusqlite::Result<EventPage> {
    let mut parameters = Parameters::default();
    let mut conditions = Conditions::of(&query.filter, &mut parameters);
    if let Some(text) = &query.text {
        let text = parameters.bind(text.clone());
        conditions.select(format!("(instr(event_data, {text}) > 0 OR instr(event_type, {text}) > 0)"));
    }
    let counted = conditions.selected_rows("1", "DESC", TOTAL_COUNT_MAX + 1);
    let total_count: u32 = parameters.row(snapshot, &format!("SELECT count(*) FROM ({counted})"), |row| row.get(0))?;
    let is_count_capped = total_count > TOTAL_COUNT_MAX
        || parameters.row(snapshot, &conditions.has_more_rows(), |row| row.get::<_, bool>(0))?;
    let (order, side) = match query.direction {
        Direction::Older => ("DESC", '<'),
        Direction::Newer => ("ASC", '>'),
    };
    if let Some(cursor) = query.cursor {
        conditions.search(format!("seq {side} {}", parameters.bind(cursor)));
    }
    let (mut events, next_cursor) = walk(snapshot, &conditions, &parameters, order, query.limit)?;
    if query.direction == Direction::Newer {
        events.reverse();
    }
    Ok(EventPage { events, total_count: total_count.min(TOTAL_COUNT_MAX), is_count_capped, next_cursor })
}

/// Returns the first selected events in this order, and the cursor after them if there may be more.
fn walk(
    snapshot: &Connection,
    conditions: &Conditions,
    parameters: &Parameters,
    order: &str,
    limit: u32,
) -> rusqlite::Result<(Vec<LoggedEvent>, Option<i64>)> {
    let limit = limit.max(1);
    let mut events = parameters.rows(snapshot, &conditions.selected_rows(COLUMNS, order, limit + 1), event)?;
    if events.len() > limit as usize {
        events.truncate(limit as usize);
        let next = events.last().map(|event| event.seq);
        return Ok((events, next));
    }
    // The search may have ended before the end of the log.
    let last = if order == "ASC" { "max" } else { "min" };
    let query = format!("SELECT {last}(seq), count(*) FROM ({})", conditions.searched_rows("seq", order));
    let (last, rows): (Option<i64>, u32) = parameters.row(snapshot, &query, |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok((events, last.filter(|_| rows >= SEARCH_ROWS_MAX)))
}

fn trajectory(snapshot: &Connection, query: &TrajectoryQuery) -> rusqlite::Result<Trajectory> {
    let filter = EventFilter {
        sandbox_id: Some(query.sandbox_id.clone()),
        types: query.types.clone(),
        ..EventFilter::default()
    };
    let mut parameters = Parameters::default();
    let mut conditions = Conditions::of(&filter, &mut parameters);
    conditions.select(format!("event_type <> {}", parameters.bind(HEARTBEAT.to_owned())));
    conditions.search(format!("seq > {}", parameters.bind(query.cursor.unwrap_or(0))));
    let (events, next_cursor) = walk(snapshot, &conditions, &parameters, "ASC", query.limit)?;
    let total_events: u64 = snapshot
        .prepare_cached("SELECT count(*) FROM events WHERE sandbox_id = ?1")?
        .query_row([&query.sandbox_id], |row| row.get::<_, i64>(0))?
        .unsigned_abs();
    let (count, first, last): (i64, Option<i64>, Option<i64>) = snapshot
        .prepare_cached("SELECT count(*), min(seq), max(seq) FROM events WHERE sandbox_id = ?1 AND event_type = ?2")?
        .query_row(params![query.sandbox_id, HEARTBEAT], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let time_of = |seq: Option<i64>| -> rusqlite::Result<Option<i64>> {
        let Some(seq) = seq else { return Ok(None) };
        let mut query = snapshot.prepare_cached("SELECT created_us FROM events WHERE seq = ?1")?;
        query.query_row([seq], |row| row.get(0)).map(Some)
    };
    let count = count.unsigned_abs();
    let heartbeats = HeartbeatSummary { count, first_us: time_of(first)?, last_us: time_of(last)? };
    Ok(Trajectory { events, heartbeats, total_events, trajectory_events: total_events - count, next_cursor })
}
