//! Turns to read an upstream's spend log: one of several controllers and runs reads it at a time.

use std::time::Duration;

use rusqlite::params;
use sluice_contract::time::duration_micros;

use crate::ledger::LedgerError;
use crate::store::Store;

impl Store {
    /// Returns whether a call since `from_us` has an unknown cost although its end was recorded at or before
    /// `recorded_us`. Both are microseconds since 1970.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn has_open_costs(&self, from_us: i64, recorded_us: i64) -> Result<bool, LedgerError> {
        self.query(move |connection| {
            Ok(connection
                .prepare(
                    "SELECT 1 FROM entries JOIN receipts ON receipts.id = entries.receipt
                     WHERE entries.status IN ('pending_cost', 'unknown') AND receipts.origin_us >= ?1 AND entries.arrived_us <= ?2
                       AND NOT EXISTS (SELECT 1 FROM entries AS done WHERE done.receipt = receipts.id
                                       AND done.status NOT IN ('pending_cost', 'unknown'))
                     LIMIT 1",
                )?
                .exists([from_us, recorded_us])?)
        })
        .await
    }

    /// Takes the turn to read a spend log, and sets the next turn one pause later. Returns whether the caller has it.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn take_turn(
        &self,
        upstream: &str,
        now: i64,
        pause: Duration,
        pause_max: Duration,
    ) -> Result<bool, LedgerError> {
        let (upstream, next) = (upstream.to_owned(), now.saturating_add(duration_micros(pause)));
        // A turn further away than the longest pause was set while the clock was ahead.
        let latest = now.saturating_add(duration_micros(pause_max));
        self.write(move |connection| {
            let changed = connection.execute(
                "INSERT INTO spend_logs (upstream, next_us) VALUES (?1, ?3)
                 ON CONFLICT (upstream) DO UPDATE SET next_us = ?3, fault = NULL WHERE next_us <= ?2 OR next_us > ?4",
                params![upstream, now, next, latest],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    /// Postpones the next turn after a fault.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn postpone_turn(&self, upstream: &str, next_us: i64, fault: &str) -> Result<(), LedgerError> {
        let (upstream, fault) = (upstream.to_owned(), fault.to_owned());
        self.write(move |connection| {
            connection.execute(
                "UPDATE spend_logs SET next_us = ?2, fault = ?3 WHERE upstream = ?1",
                params![upstream, next_us, fault],
            )?;
            Ok(())
        })
        .await
    }
}
