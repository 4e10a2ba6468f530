//! The part of conversations with agents that the daemon keeps in memory: rates, workers, the messages of sidecars, and
//! signs of life that are written to the database together.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_contract::RunKey;
use sluice_contract::control::{InjectedMessage, PendingMessage};
use sluice_runs::run_clone::PushLimit;
use sluice_state::sandboxes::SandboxActivity;

use crate::limits::HttpLimits;
use crate::request_rate::RequestRate;

/// Kind of request that a rate counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Counted {
    /// Heartbeats that a run reports.
    Heartbeat,
    /// Messages that are sent to a run.
    Message,
    /// Requests of a sandbox for messages, interventions or the answer to a question.
    Poll,
}

/// The messages that a sidecar has for the next call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum GivenMessages {
    /// An earlier daemon may have sent it messages, or a request has failed.
    #[default]
    Unknown,
    /// The sidecar has these messages.
    Known(Vec<PendingMessage>),
}

/// Memory of the daemon about the conversations with agents.
#[derive(Debug)]
pub(crate) struct Conversations {
    rates: Mutex<[(Counted, RequestRate<String>); 3]>,
    /// Pushes that runs are sending to their repositories.
    pushes: PushLimit,
    /// Attempts whose worker is recorded.
    workers: Mutex<HashSet<RunKey>>,
    signs: Mutex<HashMap<RunKey, SandboxActivity>>,
    /// The lock of an attempt is held while its sidecar's messages are decided and sent.
    given: Mutex<HashMap<RunKey, Arc<tokio::sync::Mutex<GivenMessages>>>>,
    /// Attempts whose sidecar got messages, with its last report about them.
    last: Mutex<HashMap<RunKey, Vec<InjectedMessage>>>,
}

impl Conversations {
    /// Returns an empty state with these limits.
    pub(crate) fn new(limits: &HttpLimits) -> Self {
        let rate = |counted, number: u32| (counted, RequestRate::new(f64::from(number) / 60.0, number));
        let rates = [
            rate(Counted::Heartbeat, limits.heartbeats),
            rate(Counted::Message, limits.messages),
            rate(Counted::Poll, limits.polls),
        ];
        Self {
            rates: Mutex::new(rates),
            pushes: PushLimit::default(),
            workers: Mutex::default(),
            signs: Mutex::default(),
            given: Mutex::default(),
            last: Mutex::default(),
        }
    }

    /// Counts a request of a run towards its rate.
    ///
    /// # Errors
    /// The time after which the next request is possible.
    pub(crate) fn count(&self, counted: Counted, run: &str) -> Result<(), Duration> {
        let mut rates = lock(&self.rates);
        let (_, rate) = rates.iter_mut().find(|(of, _)| *of == counted).expect("each has a rate");
        rate.take(run.to_owned(), Instant::now())
    }

    /// Returns the limit of pushes, which holds for all attempts of a run together.
    pub(crate) fn pushes(&self) -> &PushLimit {
        &self.pushes
    }

    /// Returns true if the worker of an attempt is not known to be recorded yet.
    pub(crate) fn is_new_worker(&self, key: &RunKey) -> bool {
        !lock(&self.workers).contains(key)
    }

    /// Notes that the worker of an attempt is recorded.
    pub(crate) fn note_worker(&self, key: &RunKey) {
        lock(&self.workers).insert(key.clone());
    }

    /// Returns the messages that the sidecar of an attempt has. The lock holder sends the messages, so that a list that was
    /// decided earlier is never sent later.
    pub(crate) fn given(&self, key: &RunKey) -> Arc<tokio::sync::Mutex<GivenMessages>> {
        Arc::clone(lock(&self.given).entry(key.clone()).or_default())
    }

    /// Adds signs of life of a run.
    pub(crate) fn add(&self, seen: SandboxActivity) {
        let mut signs = lock(&self.signs);
        let SandboxActivity { key, work_us, observed_work_us, heartbeat } = seen;
        let known = signs.entry(key.clone()).or_insert(SandboxActivity {
            key,
            work_us: None,
            observed_work_us: None,
            heartbeat: None,
        });
        known.work_us = known.work_us.max(work_us);
        known.observed_work_us = known.observed_work_us.max(observed_work_us);
        known.heartbeat = heartbeat.or(known.heartbeat.take());
    }

    /// Takes the signs of life that are not in the database yet.
    pub(crate) fn take(&self) -> Vec<SandboxActivity> {
        std::mem::take(&mut *lock(&self.signs)).into_values().collect()
    }

    /// Notes that messages are sent to the sidecar of an attempt.
    pub(crate) fn note_injected(&self, key: &RunKey) {
        lock(&self.last).entry(key.clone()).or_default();
    }

    /// Returns whether messages were sent to the sidecar of an attempt.
    pub(crate) fn has_injected(&self, key: &RunKey) -> bool {
        lock(&self.last).contains_key(key)
    }

    /// Keeps the last report that the sidecar of an attempt gave before its end.
    pub(crate) fn keep_last(&self, key: &RunKey, entries: Vec<InjectedMessage>) {
        lock(&self.last).insert(key.clone(), entries);
    }

    /// Forgets an attempt that is over, and returns what its sidecar said before its end.
    pub(crate) fn forget(&self, key: &RunKey) -> Vec<InjectedMessage> {
        lock(&self.workers).remove(key);
        lock(&self.signs).remove(key);
        lock(&self.given).remove(key);
        lock(&self.last).remove(key).unwrap_or_default()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_of_life_are_joined() {
        let conversations = Conversations::new(&HttpLimits::default());
        let key: RunKey = "r1.0".parse().expect("a key");
        let seen = |work_us, heartbeat: Option<i64>| SandboxActivity {
            key: key.clone(),
            work_us,
            observed_work_us: None,
            heartbeat: heartbeat.map(|at| (at, Some(format!("at {at}")))),
        };
        for one in [seen(Some(5), None), seen(None, Some(6)), seen(Some(3), Some(7)), seen(None, None)] {
            conversations.add(one);
        }
        assert_eq!(conversations.take(), [seen(Some(5), Some(7))]);
        assert_eq!(conversations.take(), []);
    }

    #[test]
    fn each_run_has_rates_of_its_own() {
        let conversations = Conversations::new(&HttpLimits::default());
        let passed = |counted, run: &str| (0..300).filter(|_| conversations.count(counted, run).is_ok()).count();
        let counts = [Counted::Heartbeat, Counted::Message, Counted::Poll].map(|counted| passed(counted, "r1"));
        assert_eq!(counts, [10, 30, 240]);
        assert_eq!(passed(Counted::Heartbeat, "r2"), 10);
    }
}
