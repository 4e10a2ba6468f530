//! Reconciliation without a user's request: during runs, and in a sweep.
//!
//! A run is over before LiteLLM has written its rows, and its result does not wait for them. Open costs of earlier runs
//! are settled during the next run, or by the next sweep: at most once a minute for all runs together, without a
//! message. After a failed read of the spend log, the next read is five minutes later, and a day later if the log does
//! not exist.

use std::convert::Infallible;
use std::future::Future;
use std::time::{Duration, Instant};

use sluice_contract::time::duration_micros;
use sluice_daemon::monitor::FindingCounter;
use sluice_litellm::ApiKey;
use sluice_litellm::spend_log::{RetryMode, SpendLog};
use sluice_state::store::{Store, now_us};
use sluice_upstream::Upstream;
use tokio::time::sleep_until;

use super::Reconciliation;
use super::error::ReconcileError;
use super::join::GRACE_US;
use super::question::{PostingPermission, ReconcileQuestion};
use super::schedule::{LookFailure, LookOutcome, PAUSE, PAUSE_MAX, next_look, pause_after};
use crate::settings::{LitellmSettings, ReconcileMode};

/// Maximum age of calls whose costs are looked up. For older calls, `sluice reconcile` is needed.
const AGE_MAX: Duration = Duration::from_secs(24 * 3600);
/// Maximum time of one lookup.
const LOOK_MAX: Duration = Duration::from_secs(30);

/// A loop that settles open costs. It owns everything that it needs, and can be cancelled at any await: entries that
/// were posted stay posted, and the next lookup handles the rest.
#[derive(Debug, Clone)]
pub struct ReconcileLoop {
    store: Store,
    upstream: Upstream,
    key: ApiKey,
    /// Set in a daemon.
    counter: Option<FindingCounter>,
}

impl ReconcileLoop {
    /// Makes a loop; none if the settings turn it off, or name no upstream or no key.
    #[must_use]
    pub fn new(settings: &LitellmSettings, store: Store) -> Option<Self> {
        match (settings.reconcile, &settings.upstream, settings.spend_key()) {
            (ReconcileMode::Auto, Some(upstream), Some(key)) => {
                Some(Self { store, upstream: upstream.clone(), key: key.clone(), counter: None })
            }
            _ => None,
        }
    }

    /// Counts the findings of each lookup.
    #[must_use]
    pub fn counted_by(self, counter: Option<FindingCounter>) -> Self {
        Self { counter, ..self }
    }

    /// Reads the spend log periodically, for the first time after a delay. Ends by cancellation.
    pub async fn run(self, delay: Duration) -> Infallible {
        repeat(delay, || self.look()).await
    }

    /// Settles open costs now, if there are any and this controller has the turn.
    pub async fn look(&self) -> LookOutcome {
        self.try_look().await.unwrap_or_else(|error| {
            LookOutcome::Failed(if error.is_lasting() { LookFailure::Lasting } else { LookFailure::Passing })
        })
    }

    async fn try_look(&self) -> Result<LookOutcome, ReconcileError> {
        let now = now_us();
        let (from_us, heard_us) = (now - duration_micros(AGE_MAX), now - GRACE_US);
        if !self.store.has_open_costs(from_us, heard_us).await? {
            return Ok(LookOutcome::NothingOpen);
        }
        if !self.store.take_turn(&self.upstream.url, now, PAUSE, PAUSE_MAX).await? {
            return Ok(LookOutcome::NotOurTurn);
        }
        let mut reconciliation = Reconciliation {
            store: &self.store,
            spend_log: SpendLog::of(&self.upstream, &self.key, RetryMode::Once)?,
            permission: PostingPermission::Settle,
            notify: &|_| {},
        };
        let question = ReconcileQuestion::Open { from_us, heard_us };
        match tokio::time::timeout(LOOK_MAX, reconciliation.run(&question, None)).await {
            Ok(Ok(outcome)) => {
                if let Some(counter) = &self.counter {
                    outcome.classes.into_iter().for_each(|(class, number)| counter.count(class, number));
                }
                Ok(LookOutcome::Done)
            }
            Ok(Err(error)) => {
                self.postpone(&error).await?;
                Err(error)
            }
            Err(_) => Ok(LookOutcome::TimedOut),
        }
    }

    async fn postpone(&self, error: &ReconcileError) -> Result<(), ReconcileError> {
        let failure = if error.is_lasting() { LookFailure::Lasting } else { LookFailure::Passing };
        let next_us = now_us().saturating_add(duration_micros(pause_after(failure)));
        Ok(self.store.postpone_turn(&self.upstream.url, next_us, &error.to_string()).await?)
    }
}

async fn repeat<L: Future<Output = LookOutcome>>(delay: Duration, look: impl Fn() -> L) -> Infallible {
    let mut next = tokio::time::Instant::now() + delay;
    loop {
        sleep_until(next).await;
        let outcome = look().await;
        let now: Instant = tokio::time::Instant::now().into_std();
        next = next_look(now, outcome).into();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_loop_looks_after_each_pause() {
        let start = tokio::time::Instant::now();
        let looks = Mutex::new(Vec::new());
        let look = || async {
            let mut looks = looks.lock().expect("no look panics");
            looks.push(start.elapsed().as_millis());
            match looks.len() {
                2 => LookOutcome::Failed(LookFailure::Passing),
                _ => LookOutcome::Done,
            }
        };

        let ended = tokio::time::timeout(Duration::from_secs(400), repeat(Duration::from_millis(500), look)).await;

        assert!(ended.is_err(), "it ends only by cancellation");
        assert_eq!(*looks.lock().expect("no look panics"), [500, 60_500, 360_500]);
    }
}
