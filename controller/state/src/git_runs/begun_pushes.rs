//! Pushes to a forge that have begun, and are not known to have ended.
//!
//! A push is recorded before it is made. After a crash, or a lost answer, the forge may have its commit, and a later push of
//! the run moves the branch on from there.

use rusqlite::{Row, Transaction, params};
use sluice_contract::RunId;

use crate::store::{Store, StoreError};

/// A push to a forge that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BegunPush {
    /// Name of the branch at the forge.
    pub branch: String,
    /// Commit.
    pub sha: String,
}

impl Store {
    /// Records that a push begins. Another try of the same push changes nothing.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn begin_git_push(&self, run_id: &RunId, push: BegunPush) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.write(move |connection| {
            connection
                .prepare_cached(
                    "INSERT INTO git_pushes (run_id, branch, sha) VALUES (?1, ?2, ?3)
                     ON CONFLICT (run_id, branch, sha) DO NOTHING",
                )?
                .execute(params![run_id.as_str(), push.branch, push.sha])?;
            Ok(())
        })
        .await
    }

    /// Removes the record of a push: the forge does not have its commit.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn withdraw_git_push(&self, run_id: &RunId, push: BegunPush) -> Result<(), StoreError> {
        let run_id = run_id.clone();
        self.write(move |connection| {
            connection
                .prepare_cached("DELETE FROM git_pushes WHERE run_id = ?1 AND branch = ?2 AND sha = ?3")?
                .execute(params![run_id.as_str(), push.branch, push.sha])?;
            Ok(())
        })
        .await
    }

    /// Returns the pushes of a run that have begun, the newest one first.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn begun_git_pushes(&self, run_id: &RunId) -> Result<Vec<BegunPush>, StoreError> {
        let run_id = run_id.clone();
        self.query(move |connection| {
            let mut query =
                connection.prepare_cached("SELECT branch, sha FROM git_pushes WHERE run_id = ?1 ORDER BY id DESC")?;
            let pushes = query.query_map([run_id.as_str()], begun_push)?.collect::<rusqlite::Result<_>>()?;
            Ok(pushes)
        })
        .await
    }
}

/// Removes the records of a push that is done and of those that began before it.
pub(super) fn end(transaction: &Transaction<'_>, run_id: &RunId, branch: &str, sha: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "DELETE FROM git_pushes WHERE run_id = ?1 AND id <=
             (SELECT id FROM git_pushes WHERE run_id = ?1 AND branch = ?2 AND sha = ?3)",
        )?
        .execute(params![run_id.as_str(), branch, sha])
        .map(drop)
}

fn begun_push(row: &Row<'_>) -> rusqlite::Result<BegunPush> {
    Ok(BegunPush { branch: row.get(0)?, sha: row.get(1)? })
}

#[cfg(test)]
mod tests {
    use super::super::GitStep;
    use super::*;

    fn push(branch: &str, sha: &str) -> BegunPush {
        BegunPush { branch: branch.to_owned(), sha: sha.to_owned() }
    }

    #[tokio::test]
    async fn begun_pushes_are_kept_until_one_is_done() {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let [run, other]: [RunId; 2] = ["r_1", "r_2"].map(|id| id.parse().expect("an id"));
        for begun in [push("x", "1"), push("x-2", "1"), push("x", "2"), push("x", "1"), push("x", "3")] {
            store.begin_git_push(&run, begun).await.expect("it is writable");
        }
        store.begin_git_push(&other, push("x", "1")).await.expect("it is writable");
        let begun = async |run: &RunId| store.begun_git_pushes(run).await.expect("it is readable");
        assert_eq!(begun(&run).await, [push("x", "3"), push("x", "2"), push("x-2", "1"), push("x", "1")]);

        store.withdraw_git_push(&run, push("x-2", "1")).await.expect("it is writable");
        assert_eq!(begun(&run).await, [push("x", "3"), push("x", "2"), push("x", "1")]);

        let done = GitStep::Published { branch: "x".to_owned(), sha: "2".to_owned() };
        store.record_git_step(&run, done, 1).await.expect("it is writable");
        assert_eq!(begun(&run).await, [push("x", "3")], "a push that began later may have arrived");
        assert_eq!(begun(&other).await, [push("x", "1")]);
    }
}
