//! Heartbeats of agents, which are written together.
//!
//! A killed daemon loses the heartbeats that are not written yet; the next heartbeat of the agent replaces them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sluice_state::agents::Heartbeat;

/// Heartbeats that are not in the database yet: the newest one of each agent.
#[derive(Debug, Default)]
pub struct Heartbeats(Mutex<HashMap<(String, String), i64>>);

impl Heartbeats {
    /// Adds a heartbeat.
    pub fn add(&self, heartbeat: Heartbeat) {
        let Heartbeat { owner, agent_id, time_us } = heartbeat;
        let mut newest = self.lock();
        let known = newest.entry((owner, agent_id)).or_insert(time_us);
        *known = time_us.max(*known);
    }

    /// Returns the time of an agent's newest heartbeat, in microseconds since 1970; `None` if all are in the database.
    #[must_use]
    pub fn newest(&self, owner: &str, agent_id: &str) -> Option<i64> {
        self.lock().get(&(owner.to_owned(), agent_id.to_owned())).copied()
    }

    /// Takes all heartbeats.
    #[must_use]
    pub fn take(&self) -> Vec<Heartbeat> {
        let taken = std::mem::take(&mut *self.lock());
        taken.into_iter().map(|((owner, agent_id), time_us)| Heartbeat { owner, agent_id, time_us }).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<(String, String), i64>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_heartbeat_of_each_agent_is_kept() {
        let beat = |agent: &str, time_us| Heartbeat { owner: "o".to_owned(), agent_id: agent.to_owned(), time_us };
        let heartbeats = Heartbeats::default();
        for one in [beat("a", 2), beat("a", 5), beat("a", 3), beat("b", 1)] {
            heartbeats.add(one);
        }
        assert_eq!((heartbeats.newest("o", "a"), heartbeats.newest("p", "a")), (Some(5), None));
        let mut taken = heartbeats.take();
        taken.sort_by_key(|one| one.time_us);
        assert_eq!(taken, [beat("b", 1), beat("a", 5)]);
        assert_eq!(heartbeats.take(), []);
    }
}
