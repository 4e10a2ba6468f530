//! The task of the Guardian: reads the event log, applies the rules, and carries out their actions.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_contract::{RunId, RunKey};
use sluice_state::events::{EventFilter, EventQuota, LoggedEvent};
use sluice_state::messages::{InjectMode, MessageError, MessageToSend, intervention_id};
use sluice_state::sandboxes::{Sandbox, SandboxState};
use sluice_state::store::now_us;
use tokio::time::{Instant, sleep, sleep_until};

use super::facts::fact;
use super::intervention::{Performed, intervention, nudge, reason};
use super::rules::{GuardianAction, GuardianSettings};
use super::run_guard::{Hit, RunGuard};
use crate::context::ApiContext;
use crate::loops::LoopFault;
use crate::pause::{Requester, pause};
use crate::stop_signal::StopSignal;
use crate::stored_request::StoredRequest;

/// Name of the loop.
const NAME: &str = "guardian";
/// Time between two checks for missing events.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Time in which events are collected.
const PAUSE: Duration = Duration::from_millis(500);
/// Maximum number of events in one read.
const EVENTS: u32 = 500;
/// Parts of the event log that are read in one turn. The rest comes at the next one.
const PARTS: u32 = 50;
/// Kind of the texts for agents.
const STEERING_TYPE: &str = "guidance";

/// Reads the event log, and carries out the actions of the rules.
#[derive(Debug)]
pub(crate) struct Guardian {
    context: Arc<ApiContext>,
    settings: GuardianSettings,
    cursor: i64,
    /// The known runs, each with its newest known attempt.
    runs: HashMap<RunId, GuardedRun>,
    /// Hits that are not recorded yet.
    due: VecDeque<DueHit>,
}

#[derive(Debug)]
struct GuardedRun {
    attempt: u32,
    /// `None` for an attempt that has no rules or has ended.
    guard: Option<RunGuard>,
}

/// A hit of a rule whose event is not recorded yet.
#[derive(Debug)]
struct DueHit {
    /// The attempt that met the rule.
    key: RunKey,
    hit: Hit,
    /// Result of the action; `None` until the action is done.
    performed: Option<Performed>,
}

impl Guardian {
    /// Makes a Guardian that begins with the next event.
    pub(crate) fn new(context: Arc<ApiContext>, settings: GuardianSettings) -> Self {
        Self { context, settings, cursor: 0, runs: HashMap::new(), due: VecDeque::new() }
    }

    /// Works until the signal.
    pub(crate) async fn run(mut self, mut stop: StopSignal) {
        self.context.loops.register(NAME, LOOK_EVERY);
        let mut committed = self.context.store.events_committed();
        let mut look_at = Instant::now();
        let mut is_begun = false;
        loop {
            self.context.loops.begin(NAME, now_us());
            let read = self.turn(&mut is_begun, &mut look_at).await;
            // A fault with one owner's run does not delay the actions that are due for others.
            let result = read.and(self.perform_due().await);
            if let Some(line) = self.context.loops.end(NAME, result, now_us()) {
                (self.context.log)(&line);
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = sleep_until(look_at) => {}
                // An error means that the store is gone; the next turn reports it.
                _ = committed.changed() => {}
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = sleep(PAUSE) => {}
            }
        }
    }

    /// Reads new events, and checks for missing events when that is due.
    async fn turn(&mut self, is_begun: &mut bool, look_at: &mut Instant) -> Result<(), LoopFault> {
        if !*is_begun {
            self.cursor = self.context.store.newest_event().await?;
            *is_begun = true;
        }
        self.read().await?;
        if Instant::now() >= *look_at {
            *look_at = Instant::now() + LOOK_EVERY;
            self.look().await?;
        }
        Ok(())
    }

    /// Reads the new events.
    pub(super) async fn read(&mut self) -> Result<(), LoopFault> {
        for _ in 0..PARTS {
            let batch = self.context.store.events_after(self.cursor, EventFilter::default(), EVENTS).await?;
            let mut fault = None;
            for event in &batch.events {
                // Each event counts once, even if it fails: a fault with another owner must not double the counts of a
                // run.
                self.cursor = event.seq;
                if let Err(error) = self.take(event).await {
                    fault.get_or_insert(error);
                }
            }
            if let Some(fault) = fault {
                return Err(fault);
            }
            self.cursor = batch.next;
            if batch.is_newest {
                break;
            }
        }
        Ok(())
    }

    async fn take(&mut self, event: &LoggedEvent) -> Result<(), LoopFault> {
        let Some(id) = event.sandbox_id.as_deref().and_then(|id| id.parse::<RunId>().ok()) else { return Ok(()) };
        let Some(fact) = fact(event) else { return Ok(()) };
        let known = self.runs.get(&id);
        let is_known = known.is_some_and(|run| event.attempt.is_none_or(|attempt| attempt <= run.attempt));
        if !is_known {
            let guarded = match self.context.store.find_sandbox(None, &id).await? {
                Some(run) => self.guarded(&run, event.created_us, event.seq).await?,
                // A removed run gets no further attempt.
                None => GuardedRun { attempt: u32::MAX, guard: None },
            };
            self.runs.insert(id.clone(), guarded);
        }
        let Some(GuardedRun { attempt, guard: Some(guard) }) = self.runs.get_mut(&id) else { return Ok(()) };
        let key = RunKey { run_id: id, attempt: *attempt };
        if event.attempt.is_some_and(|attempt| attempt < key.attempt) {
            return Ok(());
        }
        let hits = guard.observe(event.seq, event.created_us, &fact);
        self.due.extend(hits.into_iter().map(|hit| DueHit { key: key.clone(), hit, performed: None }));
        Ok(())
    }

    /// Checks for missing events, and forgets runs that have ended.
    pub(super) async fn look(&mut self) -> Result<(), LoopFault> {
        let live = self.context.store.live_sandboxes().await?;
        let ids: HashSet<_> = live.iter().map(|run| run.key.run_id.clone()).collect();
        self.runs.retain(|id, _| ids.contains(id));
        let waiting = self.context.store.wait_causes(&live).await?;
        let now_us = now_us();
        for run in live.into_iter().filter(|run| run.state == SandboxState::Running && run.verdict.is_none()) {
            let id = run.key.run_id.clone();
            let is_known = self.runs.get(&id).is_some_and(|guarded| guarded.attempt == run.key.attempt);
            if !is_known {
                let guarded = self.guarded(&run, now_us, self.cursor.saturating_add(1)).await?;
                self.runs.insert(id.clone(), guarded);
            }
            let Some(GuardedRun { guard: Some(guard), .. }) = self.runs.get_mut(&id) else { continue };
            // A paused run does nothing, and neither does one that waits for a person.
            if run.paused_us.is_some() || run.clocks_stopped_us.is_some() || waiting.contains_key(&run.key) {
                guard.rest(now_us);
                continue;
            }
            let hits = guard.look(now_us);
            self.due.extend(hits.into_iter().map(|hit| DueHit { key: run.key.clone(), hit, performed: None }));
        }
        Ok(())
    }

    /// Returns the newest attempt of a run. It has a guard if it has not ended and has rules. The events from the
    /// position `from` on are not read yet.
    async fn guarded(&self, run: &Sandbox, now_us: i64, from: i64) -> Result<GuardedRun, LoopFault> {
        let attempt = run.key.attempt;
        if run.state.is_ended() {
            return Ok(GuardedRun { attempt, guard: None });
        }
        let stored = self.context.store.sandbox_request(&run.key.run_id).await?;
        let stored: Option<StoredRequest> = stored.and_then(|text| serde_json::from_str(&text).ok());
        let rules = stored.map_or(self.settings.host, |stored| self.settings.of(&stored.graph_id));
        if rules.is_empty() {
            return Ok(GuardedRun { attempt, guard: None });
        }
        let open_calls = self.context.store.open_calls(&run.key, from).await?;
        let guard = RunGuard::new(rules, now_us).with_open_calls(open_calls);
        Ok(GuardedRun { attempt, guard: Some(guard) })
    }

    /// Carries out the actions of the rules, and records them. Failed actions are repeated at the next turn.
    pub(super) async fn perform_due(&mut self) -> Result<(), LoopFault> {
        while let Some(mut due) = self.due.pop_front() {
            if let Err(fault) = self.perform(&mut due).await {
                self.due.push_front(due);
                return Err(fault);
            }
        }
        Ok(())
    }

    async fn perform(&self, due: &mut DueHit) -> Result<(), LoopFault> {
        let DueHit { key, hit, performed } = due;
        let id = &key.run_id;
        let run = self.context.store.find_sandbox(None, id).await?;
        // After a retry, the next attempt has done nothing that meets the rule.
        let Some(run) = run.filter(|run| run.key == *key && !run.state.is_ended()) else { return Ok(()) };
        let done = match (*performed, hit.action) {
            (Some(done), _) => done,
            (None, GuardianAction::Notify) => Performed::Done,
            (None, GuardianAction::Nudge) => self.nudge(id, hit).await?,
            (None, GuardianAction::Pause) => self.pause(run.clone(), hit).await,
        };
        *performed = Some(done);
        let event = intervention(&run, hit, done, now_us());
        for appended in self.context.store.append_events(vec![event], EventQuota::default()).await? {
            if let Err(fault) = appended {
                (self.context.log)(&format!("guardian: run {id}: its event is not valid: {}", error_chain(&fault)));
            }
        }
        Ok(())
    }

    /// Pauses the run. Only a person can resume it.
    async fn pause(&self, run: Sandbox, hit: &Hit) -> Performed {
        let key = run.key.clone();
        match pause(&self.context, run, Requester::Rule(reason(hit.rule))).await {
            Ok(_) => Performed::Done,
            Err(error) => {
                (self.context.log)(&format!("guardian: run {key} was not paused: {}", error.code()));
                Performed::NotPossible
            }
        }
    }

    /// Sends the agent the text of a rule.
    async fn nudge(&self, id: &RunId, hit: &Hit) -> Result<Performed, LoopFault> {
        let message = MessageToSend {
            id: intervention_id(),
            content: nudge(hit.rule).to_owned(),
            message_type: sluice_contract::control::MessageType::GuardianNudge,
            urgent: false,
            inject_mode: InjectMode::NextTurn,
            steering_type: Some(STEERING_TYPE.to_owned()),
            source: Some(NAME.to_owned()),
            sender: format!("{NAME}:{}", hit.rule.as_str()),
            idempotency: None,
        };
        match self.context.store.add_message(id, message, now_us()).await {
            Ok(_) => Ok(Performed::Done),
            Err(MessageError::Store(error)) => Err(error.into()),
            Err(error) => {
                (self.context.log)(&format!("guardian: run {id} was not nudged: {}", error_chain(&error)));
                Ok(Performed::NotPossible)
            }
        }
    }
}

#[cfg(test)]
mod tests;
