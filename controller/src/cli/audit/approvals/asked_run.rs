//! The run whose approvals are listed.

use std::collections::BTreeMap;

use sluice_contract::{RunId, RunKey};
use sluice_state::control_log::ControlLine;
use sluice_state::store::Store;

use super::super::super::error::CommandError;
use super::super::super::find_run::find_run;
use super::missing::run_of;

/// A run, or one attempt of it.
#[derive(Debug)]
pub(super) struct AskedRun {
    pub(super) run_id: RunId,
    attempt: Option<u32>,
}

impl AskedRun {
    /// Finds the run that a user names. The control log may have decisions about a run that the database does not know,
    /// because the database was lost. `lines` are the decisions in the log, by the ids of their approvals.
    ///
    /// # Errors
    /// As of [`find_run`], for a run that neither of the two has.
    pub(super) async fn find(
        store: &Store,
        lines: &BTreeMap<String, ControlLine>,
        name: &str,
    ) -> Result<Self, CommandError> {
        let unknown = match find_run(store, name).await {
            Ok(run) => {
                let key = run.entry.key;
                let attempt = (key.to_string() == name).then_some(key.attempt);
                return Ok(Self { run_id: key.run_id, attempt });
            }
            Err(error) => error,
        };
        let is_logged = lines.values().any(|line| run_of(line) == Some(name));
        match name.parse() {
            Ok(run_id) if is_logged => Ok(Self { run_id, attempt: None }),
            _ => Err(unknown),
        }
    }

    /// Returns whether an attempt is one of those that the user asks about.
    pub(super) fn has(&self, key: &RunKey) -> bool {
        key.run_id == self.run_id && self.attempt.is_none_or(|attempt| attempt == key.attempt)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_contract::exit;

    use super::*;

    #[tokio::test]
    async fn a_run_of_the_log_alone_is_found() {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let line = json!({
            "key_id": "0", "object": "r1/apr-1", "operation": "approval.decide", "prev": "0", "principal": "uid:0",
            "result": "accepted", "role": "admin", "seq": 7, "signature": "0", "ts": "2026-11-20T16:00:00.000000Z",
            "v": 1, "way": "admin_socket"
        });
        let line: ControlLine = serde_json::from_value(line).expect("it has all members");
        let lines = BTreeMap::from([("apr-1".to_owned(), line)]);

        let found = AskedRun::find(&store, &lines, "r1").await.expect("the log has it");
        let unknown = AskedRun::find(&store, &lines, "r2").await.expect_err("nothing has it");

        assert!(found.has(&"r1.2".parse().expect("a key")) && !found.has(&"r2.0".parse().expect("a key")));
        assert_eq!((unknown.code, unknown.message.contains("'r2'")), (exit::USAGE, true));
    }
}
