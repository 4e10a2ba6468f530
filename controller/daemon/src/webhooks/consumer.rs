//! The task of one webhook: from the event log to its outbox, and from there to its receiver.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_state::events::EventFilter;
use sluice_state::store::{Store, StoreError, now_us};
use sluice_state::webhooks::{DEAD_MAX, NextTry, OUTBOX_MAX, WebhookMessage};
use tokio::time::{Instant, sleep, sleep_until};

use super::Webhook;
use super::message::message;
use super::schedule::next_try;
use super::sender::send;
use crate::loops::{LoopFault, Loops};
use crate::stop_signal::StopSignal;

/// Maximum time between two reads: a command may have put messages back.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time in which events are collected.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum number of events in one read.
const EVENTS: u32 = 100;
/// Maximum number of messages that are sent at once.
const AT_ONCE: usize = 4;
/// Maximum number of messages that are sent before the event log is read again.
const MESSAGES: u32 = 16;
/// Events without a message after which the position is written.
const WRITE_EVERY: i64 = 1000;

/// Limits of one webhook within the shared totals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WebhookQuota {
    waiting_max: u32,
    dead_max: u32,
}

impl WebhookQuota {
    /// Returns the equal share of one of `webhooks` webhooks.
    pub(crate) fn of(webhooks: usize) -> Self {
        let webhooks = u32::try_from(webhooks.max(1)).unwrap_or(u32::MAX);
        Self { waiting_max: (OUTBOX_MAX / webhooks).max(1), dead_max: (DEAD_MAX / webhooks).max(1) }
    }
}

/// The task of one webhook.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) webhook: Webhook,
    pub(crate) store: Store,
    pub(crate) share: WebhookQuota,
    /// Beginning of links.
    pub(crate) origin: String,
    /// Time for which events of the system are kept.
    pub(crate) system_keep: Duration,
    pub(crate) loops: Arc<Loops>,
    pub(crate) log: fn(&str),
}

/// Positions in the event log.
#[derive(Debug, Clone, Copy)]
struct LogPosition {
    /// The position in the database.
    written: i64,
    /// The last event that was read.
    read: i64,
    /// True for a webhook that was not used for as long as events of the system are kept, until it has caught up.
    is_overdue: bool,
}

impl Consumer {
    /// Works until the signal. The next daemon repeats a try that the signal cuts off.
    pub(crate) async fn run(self, mut stop: StopSignal) {
        let name = format!("webhook {}", self.webhook.name);
        self.loops.register(&name, LOOK_EVERY);
        let mut committed = self.store.events_committed();
        let (mut cursor, mut failing) = (None, None);
        loop {
            self.loops.begin(&name, now_us());
            let turn = tokio::select! {
                () = stop.stopped() => return,
                turn = self.turn(&mut cursor, &mut failing) => turn,
            };
            let (next, result) = match turn {
                Ok((next, fault)) => (next, fault.map_or(Ok(()), Err)),
                Err(error) => (Instant::now() + LOOK_EVERY, Err(LoopFault::from(error))),
            };
            if let Some(line) = self.loops.end(&name, result, now_us()) {
                (self.log)(&line);
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = sleep_until(next) => {}
                // An error means that the store is gone; the next turn reports it.
                _ = committed.changed() => tokio::select! {
                    () = stop.stopped() => return,
                    () = sleep(PAUSE) => {}
                },
            }
        }
    }

    /// Takes new events, and sends due messages. Returns the time of the next turn, and the last failed delivery, kept in
    /// `failing` until a delivery succeeds.
    async fn turn(
        &self,
        cursor: &mut Option<LogPosition>,
        failing: &mut Option<LoopFault>,
    ) -> Result<(Instant, Option<LoopFault>), StoreError> {
        let position = match *cursor {
            Some(position) => position,
            None => {
                let used = self.store.webhook_used_us(&self.webhook.name).await?;
                let kept_us = now_us().saturating_sub(duration_micros(self.system_keep));
                let written = self.store.begin_webhook(&self.webhook.name, now_us()).await?;
                LogPosition { written, read: written, is_overdue: used.is_some_and(|used| used < kept_us) }
            }
        };
        // After an error, the cursor stays empty, so that the position is read from the database.
        *cursor = None;
        let (position, mut fault) = self.take(position).await?;
        let due = self.store.due_webhook_messages(&self.webhook.name, now_us(), MESSAGES).await?;
        let is_all = due.len() < MESSAGES as usize;
        for messages in due.chunks(AT_ONCE) {
            for failed in join_all(messages.iter().map(|message| self.deliver(message))).await {
                fault = failed?.or(fault);
            }
        }
        *cursor = Some(position);
        let next = match self.store.next_webhook_try(&self.webhook.name).await? {
            _ if !is_all => Duration::ZERO,
            Some(us) => Duration::from_micros(u64::try_from(us.saturating_sub(now_us())).unwrap_or(0)).min(LOOK_EVERY),
            None => LOOK_EVERY,
        };
        if !due.is_empty() || fault.is_some() {
            *failing = fault;
        }
        Ok((Instant::now() + next, failing.clone()))
    }

    /// Takes events into the outbox, until the log has no more or the outbox has no room.
    async fn take(&self, mut at: LogPosition) -> Result<(LogPosition, Option<LoopFault>), StoreError> {
        let Webhook { name, types, owners, .. } = &self.webhook;
        let filter = EventFilter { types: types.clone(), ..EventFilter::default() };
        let owners: HashSet<&str> = owners.iter().map(String::as_str).collect();
        let mut fault = None;
        loop {
            let waiting = self.store.waiting_webhook_messages(name).await?;
            let room = self.share.waiting_max.saturating_sub(waiting).min(EVENTS);
            if room == 0 {
                return Ok((at, fault));
            }
            let batch = self.store.events_after(at.read, filter.clone(), room).await?;
            // Events of the system stay for 90 days at least: until then, a gap has only events of agents.
            if let Some(gap) = batch.gap.filter(|_| selects_agents(types) || at.is_overdue) {
                let reason = format!("events from {} to {} were removed before they were sent", gap.from, gap.to);
                fault = Some(LoopFault::new(reason));
            }
            let is_own = |owner: &str| owners.is_empty() || owners.contains(owner);
            let own = batch.events.iter().filter(|event| is_own(&event.owner));
            let messages: Vec<_> = own.map(|event| message(name, event, &self.origin)).collect();
            at.read = batch.next;
            at.is_overdue &= !batch.is_newest;
            if !messages.is_empty() || at.read - at.written >= WRITE_EVERY {
                if !self.store.take_webhook_events(name, (at.written, at.read), messages, now_us()).await? {
                    // Its row was removed, or changed by another program: begin again from the position in the row.
                    at.read = self.store.begin_webhook(name, now_us()).await?;
                }
                at.written = at.read;
            }
            if batch.is_newest {
                return Ok((at, fault));
            }
        }
    }

    /// Tries a message once, and records the result. Returns the failure.
    async fn deliver(&self, message: &WebhookMessage) -> Result<Option<LoopFault>, StoreError> {
        let Err(failed) = send(&self.webhook, &message.id, &message.body).await else {
            self.store.webhook_delivered(message, now_us()).await?;
            return Ok(None);
        };
        let (now_us, word) = (now_us(), failed.word());
        let next = next_try(message.attempts, now_us);
        let dropped = self.store.webhook_failed(message, &word, next, self.share.dead_max, now_us).await?;
        if next == NextTry::Never {
            let lost = if dropped > 0 { ", and the oldest one that was given up is dropped" } else { "" };
            (self.log)(&format!("webhook {}: {} is given up ({word}){lost}", self.webhook.name, message.id));
        }
        Ok(Some(LoopFault::new(error_chain(&failed))))
    }
}

/// Returns whether events that agents report may be selected.
fn selects_agents(types: &[String]) -> bool {
    types.iter().any(|name| name.starts_with("agent."))
}

#[cfg(test)]
mod tests {
    use sluice_state::events::{EventAges, EventQuota, NewLoggedEvent};

    use super::*;
    use crate::webhooks::{DEFAULT_TYPES, WebhookSecret, WebhookTarget};

    const DAY: Duration = Duration::from_secs(24 * 3600);

    fn consumer(store: &Store) -> Consumer {
        let webhook = Webhook {
            name: "ops".to_owned(),
            target: WebhookTarget::parse("https://localhost:1/").expect("it is right"),
            secrets: vec![WebhookSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("it is right")],
            types: DEFAULT_TYPES.map(str::to_owned).to_vec(),
            owners: Vec::new(),
            allow_private: true,
            ca: None,
        };
        let (store, share, loops) = (store.clone(), WebhookQuota::of(1), Arc::default());
        Consumer { webhook, store, share, origin: String::new(), system_keep: 90 * DAY, loops, log: |_| {} }
    }

    /// Returns the fault of the first turn of a webhook that was last used so long ago, after an event of the system was
    /// removed.
    async fn fault_after(absence: Duration) -> Option<LoopFault> {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        store.begin_webhook("ops", now_us() - duration_micros(absence)).await.expect("it is writable");
        let removed = NewLoggedEvent::of_run("alice", "r1", "sandbox.stopped", "{}".to_owned(), 1);
        store.append_events(vec![removed], EventQuota::default()).await.expect("it is writable");
        let ages = EventAges { agent_before_us: 2, system_before_us: 2 };
        assert_eq!(store.remove_old_events(ages).await.expect("it is writable"), 1);
        let turn = consumer(&store).turn(&mut None, &mut None).await.expect("it is readable");
        turn.1
    }

    #[tokio::test]
    async fn a_webhook_that_was_away_reports_what_it_missed() {
        let fault = fault_after(91 * DAY).await.expect("an event of the system may be missing");
        assert_eq!(fault, LoopFault::new("events from 1 to 1 were removed before they were sent"));
        assert_eq!(fault_after(89 * DAY).await, None, "events of the system are still there");
    }
}
