//! Tools of an agent that are running, according to its events.

use rusqlite::params;
use serde_json::Value;
use sluice_contract::RunKey;

use crate::store::{Store, StoreError};

/// Members that name a tool call, in the events of different workers.
const IDS: [&str; 5] = ["tool_use_id", "tool_call_id", "toolCallId", "call_id", "id"];
/// Maximum number of events that are read: an agent runs few tools at once.
const READ_MAX: u32 = 500;

impl Store {
    /// Returns whether an attempt has reported the use of a tool since this time, without its result. An agent can report what
    /// it likes, and a result can be lost: so an old use does not count.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn has_running_tool(&self, key: &RunKey, since_us: i64) -> Result<bool, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
            let mut query = connection.prepare_cached(
                "SELECT event_type, event_data FROM events
                 WHERE sandbox_id = ?1 AND attempt = ?2 AND created_us > ?4 AND event_type IN
                     ('agent.tool_use', 'agent.tool_result', 'agent.user_tool_result', 'agent.tool_completed')
                 ORDER BY seq DESC LIMIT ?3",
            )?;
            let rows = query.query_map(params![key.run_id.as_str(), key.attempt, READ_MAX, since_us], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?))
            })?;
            let mut events = rows.collect::<Result<Vec<_>, _>>()?;
            events.reverse();
            Ok(has_open_use(events.iter().map(|(name, data)| (name.as_str(), data.as_str()))))
        })
        .await
    }
}

/// Returns whether a use has no result. A result without an id belongs to the last use.
fn has_open_use<'a>(events: impl Iterator<Item = (&'a str, &'a str)>) -> bool {
    let mut open: Vec<Option<String>> = Vec::new();
    for (name, data) in events {
        let id = id_of(data);
        if name == "agent.tool_use" {
            open.push(id);
            continue;
        }
        if let Some(at) = open.iter().rposition(|known| id.is_none() || *known == id || known.is_none()) {
            open.remove(at);
        }
    }
    !open.is_empty()
}

fn id_of(data: &str) -> Option<String> {
    let data: Value = serde_json::from_str(data).ok()?;
    IDS.iter().find_map(|name| data[name].as_str().map(str::to_owned))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_works_from_its_use_to_its_result() {
        let (uses, result, done) = ("agent.tool_use", "agent.tool_result", "agent.tool_completed");
        let (a, b, none) = (r#"{"tool_use_id":"a"}"#, r#"{"id":"b","x":1}"#, "{}");
        for (events, expected) in [
            (vec![], false),
            (vec![(uses, a)], true),
            (vec![(uses, a), (result, a)], false),
            (vec![(uses, a), (result, a), (done, a)], false),
            (vec![(uses, a), (uses, b), (result, a)], true),
            (vec![(uses, a), (uses, b), (result, b), (result, a)], false),
            (vec![(uses, none), (result, none)], false),
            (vec![(uses, a), (result, none)], false),
            (vec![(result, a)], false),
            (vec![(result, a), (uses, "not json")], true),
        ] {
            assert_eq!(has_open_use(events.iter().copied()), expected, "{events:?}");
        }
    }
}
