//! Reconciling without having been asked: beside a run, and in a sweep.
//!
//! A run is over before LiteLLM has written its rows, and its answer does not wait for them. So what is open of earlier
//! runs is settled beside the next one, or by the next sweep: once a minute at most for all of them, without a word.
//! A spend log that cannot be read is left alone for five minutes, and one that is not there for a day.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::params;

use super::join::GRACE_US;
use super::{Patience, Permission, Question, Reconcile, ReconcileError, SpendLog};
use crate::ledger::{LedgerError, Settled};
use crate::progress::Progress;
use crate::settings::Settings;
use crate::store::{Store, now_us};

/// Calls that are older are left to whoever asks.
const REACH: Duration = Duration::from_secs(24 * 3600);
/// Between two looks.
const PAUSE: Duration = Duration::from_secs(60);
/// After a spend log that could not be read.
const AFTER_FAULT: Duration = Duration::from_secs(5 * 60);
/// A run has begun by then, and has needed the machine for it.
const START: Duration = Duration::from_millis(500);
/// For one look.
const LONG: Duration = Duration::from_secs(30);
/// After one that is not there, or that the key may not read.
const AFTER_NONE: Duration = Duration::from_secs(24 * 3600);

/// Settles what is open, beside a run: on a thread and a connection of its own, so that the run waits for nothing of it.
/// Whatever it has not done when the process ends is left to the next one.
pub fn begin(settings: &Settings, database: PathBuf) {
    if settings.upstream.is_none() || settings.spend_key().is_none() || !settings.reconciles {
        return;
    }
    let settings = settings.clone();
    std::thread::spawn(move || {
        let Ok(store) = Store::open(&database) else { return };
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
        let _ = runtime.block_on(async {
            tokio::time::sleep(START).await;
            settle(&settings, &store).await
        });
    });
}

/// Settles what is open, if it is time for that.
///
/// # Errors
/// Why nothing was settled; there is nobody to tell, and the next look is not far.
pub async fn settle(settings: &Settings, store: &Store) -> Result<Settled, ReconcileError> {
    let (Some(upstream), Some(key), true) = (&settings.upstream, settings.spend_key(), settings.reconciles) else {
        return Ok(Settled::default());
    };
    let now = now_us();
    let open = Question::Open { from_us: now - micros(REACH), heard_us: now - GRACE_US };
    if !store.has_open(now - micros(REACH), now - GRACE_US).await? || !store.may_ask(upstream, now, PAUSE).await? {
        return Ok(Settled::default());
    }
    let spend_log = SpendLog::of(upstream, key, Patience::Once)?;
    let progress = Progress::silent();
    let mut reconcile = Reconcile { store, spend_log, permission: Permission::Settle, progress: &progress };
    let done = tokio::time::timeout(LONG, reconcile.run(&open, None)).await;
    match done {
        Ok(Ok(outcome)) => Ok(outcome.posted),
        Ok(Err(error)) => {
            let lasting = matches!(&error, ReconcileError::SpendLog(error) if error.is_lasting());
            let pause = if lasting { AFTER_NONE } else { AFTER_FAULT };
            store.ask_later(upstream, now_us() + micros(pause), &error.to_string()).await?;
            Err(error)
        }
        // As far as it came.
        Err(_) => Ok(Settled::default()),
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

impl Store {
    /// Whether the cost of a call of this time or later is not known, though its end was heard of by that time.
    async fn has_open(&self, from_us: i64, heard_us: i64) -> Result<bool, LedgerError> {
        self.call(move |connection| {
            Ok(connection
                .prepare(
                    "SELECT 1 FROM entries JOIN receipts ON receipts.id = entries.receipt
                     WHERE entries.status IN ('pending_cost', 'unknown') AND receipts.origin_us >= ?1 AND entries.arrived_us <= ?2
                       AND NOT EXISTS (SELECT 1 FROM entries AS done WHERE done.receipt = receipts.id
                                       AND done.status NOT IN ('pending_cost', 'unknown'))
                     LIMIT 1",
                )?
                .exists([from_us, heard_us])?)
        })
        .await
    }

    /// Of several that ask at once, one may.
    async fn may_ask(&self, upstream: &str, now: i64, pause: Duration) -> Result<bool, LedgerError> {
        let (upstream, next) = (upstream.to_owned(), now.saturating_add(micros(pause)));
        // Nobody waits for longer: the clock was ahead when that was written.
        let never = now.saturating_add(micros(AFTER_NONE));
        self.call(move |connection| {
            let changed = connection.execute(
                "INSERT INTO spend_logs (upstream, next_us) VALUES (?1, ?3)
                 ON CONFLICT (upstream) DO UPDATE SET next_us = ?3, fault = NULL WHERE next_us <= ?2 OR next_us > ?4",
                params![upstream, now, next, never],
            )?;
            Ok(changed == 1)
        })
        .await
    }

    async fn ask_later(&self, upstream: &str, next: i64, fault: &str) -> Result<(), LedgerError> {
        let (upstream, fault) = (upstream.to_owned(), fault.to_owned());
        self.call(move |connection| {
            connection.execute(
                "UPDATE spend_logs SET next_us = ?2, fault = ?3 WHERE upstream = ?1",
                params![upstream, next, fault],
            )?;
            Ok(())
        })
        .await
    }
}
