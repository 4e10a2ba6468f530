//! Text about a run for people, in its pull request.

use serde_json::Value;
use sluice_contract::RunKey;
use sluice_state::records::{MESSAGES, RESULT, Records};
use sluice_state::store::{Store, StoreError};

use crate::record::ResultRecord;

/// Text about a run for people, in its pull request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// Task of the run; empty if it is unknown.
    pub asked: String,
    /// Report of the agent; empty if it is not known.
    pub done: String,
    /// Cost, with its currency.
    pub cost: String,
    /// Hash of the last line of the audit log; empty if it is not known.
    pub audit_head: String,
}

impl RunSummary {
    /// Returns the summary from a run's record and the database; neither has the agent's words. A record that was removed
    /// leaves its parts empty.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn of_record(records: &Records, store: &Store, key: &RunKey) -> Result<Self, StoreError> {
        let record = records.of(key);
        let files = move || {
            let messages: Option<Value> = record.read_json(MESSAGES).ok().flatten();
            let result: Option<ResultRecord> = record.read_json(RESULT).ok().flatten();
            (messages, result)
        };
        let (messages, result) = tokio::task::spawn_blocking(files).await.unwrap_or_default();
        let witness = store.witnesses(key).await?.pop();
        let cost = result.and_then(|result| result.cost_usd);
        Ok(Self {
            asked: messages.as_ref().map(last_task).unwrap_or_default(),
            done: String::new(),
            cost: Self::cost(cost.as_ref()),
            audit_head: witness.map(|witness| witness.head.to_string()).unwrap_or_default(),
        })
    }

    /// Returns a cost with its currency.
    #[must_use]
    pub fn cost(usd: Option<&impl ToString>) -> String {
        usd.map_or_else(|| "unknown".to_owned(), |usd| format!("{} USD", usd.to_string()))
    }
}

/// Returns the text of the last message of a user.
#[must_use]
pub fn last_task(messages: &Value) -> String {
    let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
    let asked = messages.iter().rev().find(|message| message["role"] == "user");
    asked.and_then(|message| message["content"].as_str()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_task_is_the_last_message_of_a_user() {
        let user = |text| json!({"role": "user", "content": text});
        let messages = json!([user("first"), user("second"), {"role": "assistant", "content": "done"}]);
        assert_eq!(last_task(&messages), "second");
        for none in [json!([]), json!("x"), json!([{"role": "user", "content": [{"text": "x"}]}])] {
            assert_eq!(last_task(&none), "", "{none}");
        }
    }

    #[tokio::test]
    async fn a_removed_record_leaves_its_parts_empty() {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let key: RunKey = "r_1.0".parse().expect("a key");
        let records = Records::at(directory.path().join("records"));
        let summary = RunSummary::of_record(&records, &store, &key).await.expect("it is readable");
        let none = String::new;
        let expected = RunSummary { asked: none(), done: none(), cost: "unknown".to_owned(), audit_head: none() };
        assert_eq!(summary, expected);

        let record = records.create(&key).expect("it is writable");
        record.write_json(MESSAGES, &json!([{"role": "user", "content": "count"}])).expect("it is writable");
        let summary = RunSummary::of_record(&records, &store, &key).await.expect("it is readable");
        assert_eq!(summary, RunSummary { asked: "count".to_owned(), ..expected });
    }
}
