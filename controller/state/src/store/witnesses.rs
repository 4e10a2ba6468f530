//! The table of witnesses: hashes of audit lines, as seen while the file was written.

use rusqlite::params;
use sluice_contract::{RunKey, Witness};

use super::{Store, StoreError, hash, now_us};

impl Store {
    /// Adds a witness of a run's audit file. The first witness of a line stays.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn add_witness(&self, key: &RunKey, seen: Witness) -> Result<(), StoreError> {
        let key = key.clone();
        self.write(move |connection| {
            connection.execute(
                "INSERT OR IGNORE INTO witnesses (run_id, attempt, seq, head, seen_us) VALUES (?1, ?2, ?3, ?4, ?5)",
                params![key.run_id.as_str(), key.attempt, seen.seq.cast_signed(), seen.head.to_string(), now_us()],
            )?;
            Ok(())
        })
        .await
    }

    /// Returns the witnesses of a run's audit file, in the order of its lines.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn witnesses(&self, key: &RunKey) -> Result<Vec<Witness>, StoreError> {
        let key = key.clone();
        self.query(move |connection| {
            let mut query = connection
                .prepare("SELECT seq, head FROM witnesses WHERE run_id = ?1 AND attempt = ?2 ORDER BY seq")?;
            let rows = query.query_map(params![key.run_id.as_str(), key.attempt], |row| {
                Ok(Witness { seq: row.get::<_, i64>(0)?.cast_unsigned(), head: hash(row, 1)? })
            })?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}
