//! Reconciling without having been asked: beside a run, and in a sweep.
//!
//! A run is over before LiteLLM has written its rows, and its answer does not wait for them. So what is open of earlier
//! runs is settled beside the next one, or by the next sweep: once a minute at most for all of them, without a word.
//! A spend log that cannot be read is left alone for five minutes, and one that is not there for a day.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sluice_litellm::spend_log::{RetryMode, SpendLog};
use sluice_runs::observer::NoObserver;
use sluice_state::ledger::Settled;
use sluice_state::store::{Store, now_us};

use super::join::GRACE_US;
use super::{Permission, Question, Reconcile, ReconcileError};
use crate::settings::Settings;

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
    if !store.has_open_costs(now - micros(REACH), now - GRACE_US).await?
        || !store.take_turn(upstream, now, PAUSE, AFTER_NONE).await?
    {
        return Ok(Settled::default());
    }
    let spend_log = SpendLog::of(upstream, key, RetryMode::Once)?;
    let mut reconcile = Reconcile { store, spend_log, permission: Permission::Settle, observer: Arc::new(NoObserver) };
    let done = tokio::time::timeout(LONG, reconcile.run(&open, None)).await;
    match done {
        Ok(Ok(outcome)) => Ok(outcome.posted),
        Ok(Err(error)) => {
            let lasting = matches!(&error, ReconcileError::SpendLog(error) if error.is_lasting());
            let pause = if lasting { AFTER_NONE } else { AFTER_FAULT };
            store.postpone_turn(upstream, now_us() + micros(pause), &error.to_string()).await?;
            Err(error)
        }
        // As far as it came.
        Err(_) => Ok(Settled::default()),
    }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
