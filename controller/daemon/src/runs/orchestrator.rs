//! Owns the tasks of all runs: adopts, claims, stops.

use std::collections::HashMap;
use std::fs;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::text::error_chain;
use sluice_contract::{RunId, RunKey};
use sluice_runs::blueprint::container_name;
use sluice_runs::exchange::watch::WatchShare;
use sluice_runs::host::Host;
use sluice_state::run::Cancel;
use sluice_state::sandboxes::{
    ClaimLimits, DesiredState, Sandbox, SandboxActivity, SandboxError, SandboxState, SandboxStep, SandboxVerdict,
};
use sluice_state::store::{OpenRun, now_us};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::attempt::Attempt;
use super::service::RunService;
use super::steps::take_step;
use super::watchdog::{overdue, overstays};
use crate::context::ApiContext;
use crate::live_run::{LiveRun, PauseWish};
use crate::run_policy::RunPolicy;
use crate::stop_signal::StopSignal;

/// Time between two checks of all live runs.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Minimum time between two checks of the queue.
const CLAIM_EVERY: Duration = Duration::from_millis(20);
/// Cancellation of one run, in place of a signal to this process.
const STOP: Cancel = Cancel { signal: nix::libc::SIGTERM };

/// Owns the tasks of all runs.
#[derive(Debug)]
pub struct Orchestrator {
    context: Arc<ApiContext>,
    /// `None` if nothing is claimed: then only runs that have begun are managed.
    policy: Option<Arc<RunPolicy>>,
    service: RunService,
    driven: HashMap<RunId, DrivenAttempt>,
    /// State that the watches of all workspaces share.
    watches: Arc<WatchShare>,
    /// Each task returns the key of its attempt.
    tasks: JoinSet<RunKey>,
}

/// A run with a task.
#[derive(Debug)]
struct DrivenAttempt {
    key: RunKey,
    cancel: watch::Sender<Option<Cancel>>,
    live: Arc<LiveRun>,
    /// Bytes of its output at the last check.
    output: u64,
}

impl Orchestrator {
    /// Makes an orchestrator without runs.
    #[must_use]
    pub fn new(context: Arc<ApiContext>, service: RunService) -> Self {
        let (policy, watches) = (context.policy.clone(), WatchShare::of_host());
        Self { policy, context, service, driven: HashMap::new(), watches, tasks: JoinSet::new() }
    }

    /// Returns the host of the runs.
    #[must_use]
    pub fn host(&self) -> &Arc<Host> {
        &self.service.host
    }

    /// Works until the signal. Then the tasks are dropped, and the runs continue by themselves.
    pub async fn run(mut self, mut stop: StopSignal) {
        let mut committed = self.context.store.events_committed();
        let mut look_at = Instant::now();
        loop {
            if Instant::now() >= look_at {
                let looked = self.look().await;
                self.note("runs", "the runs cannot be looked through", &looked);
                look_at = Instant::now() + LOOK_EVERY;
            }
            let claimed = self.claim().await;
            self.note("queue", "the queue cannot be read", &claimed);
            let pause = Instant::now() + CLAIM_EVERY;
            tokio::select! {
                () = stop.stopped() => return,
                // An error means that the store is gone; the next check reports it.
                _ = committed.changed() => {}
                () = self.context.work.notified() => look_at = Instant::now(),
                Some(ended) = self.tasks.join_next(), if !self.tasks.is_empty() => self.forget(ended.ok()),
                () = sleep_until(look_at) => {}
            }
            tokio::select! {
                () = stop.stopped() => return,
                () = sleep_until(pause) => {}
            }
        }
    }

    fn forget(&mut self, ended: Option<RunKey>) {
        match ended {
            // The next attempt may have a task already.
            Some(key) => self.driven.retain(|_, run| run.key != key),
            // The task that panicked cannot be identified: all runs without a task are adopted at the next check.
            None => self.driven.retain(|_, run| !run.cancel.is_closed()),
        }
    }

    /// Records the result of a turn. A fault is logged once, and its end once.
    fn note(&self, part: &'static str, what: &'static str, done: &Result<(), SandboxError>) {
        if let Some(line) = self.context.loops.record(part, LOOK_EVERY, done) {
            (self.context.log)(&line);
        }
        match done {
            Ok(()) => self.context.readiness.pass(part),
            Err(error) => {
                self.context.readiness.fail(part, format!("{what}: {}", error_chain(error)));
            }
        }
    }

    /// Claims as many runs as the limits allow.
    async fn claim(&mut self) -> Result<(), SandboxError> {
        let Some(policy) = &self.policy else { return Ok(()) };
        let RunPolicy { running_max, owner_running_max, project_running_max, .. } = **policy;
        let limits = ClaimLimits { host: running_max, project: project_running_max, owner: owner_running_max };
        loop {
            let claim = self.context.store.claim_next(&self.service.host.owner, limits, now_us()).await?;
            claim.ended.iter().for_each(|run| self.context.variables.forget(&run.key.run_id));
            let Some(claimed) = claim.claimed else { return Ok(()) };
            let generation = claimed.run_generation;
            self.spawn(claimed.sandbox, |attempt| attempt.begin(generation));
        }
    }

    fn spawn<F>(&mut self, run: Sandbox, task: impl FnOnce(Attempt) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (cancel, cancelled) = watch::channel(None);
        let live = Arc::new(LiveRun::with_clock(run.stopped_total_us, run.clocks_stopped_us));
        let (key, id) = (run.key.clone(), run.key.run_id.clone());
        // Output that an earlier daemon has seen is not new work.
        let output = output_size(self.context.layout.records().of(&key).directory());
        let (context, service) = (Arc::clone(&self.context), self.service.clone());
        let watches = Arc::clone(&self.watches);
        let task = task(Attempt { context, service, run, cancelled, live: Arc::clone(&live), watches });
        let ended = key.clone();
        self.tasks.spawn(async move {
            task.await;
            ended
        });
        self.driven.insert(id, DrivenAttempt { key, cancel, live, output });
    }

    /// Checks all live runs: adopts those without a task, and ends those that are due to end.
    async fn look(&mut self) -> Result<(), SandboxError> {
        self.record_signs().await?;
        let store = &self.context.store;
        let (held, asking) = (store.runs_on_hold().await?, store.runs_with_questions(now_us()).await?);
        let live = store.live_sandboxes().await?;
        let mut open = None;
        for run in live {
            let id = run.key.run_id.clone();
            if run.state.is_active() && !self.driven.contains_key(&id) {
                if open.is_none() {
                    open = Some(self.context.store.open_runs().await?);
                }
                let open = open.iter().flatten().find(|open| open.entry.key == run.key).cloned();
                self.adopt(run, open).await?;
                continue;
            }
            if let Some(driven) = self.driven.get(&id) {
                let is_paused = run.desired_state == DesiredState::Paused;
                driven.live.wish(PauseWish {
                    is_paused,
                    is_held: held.contains(id.as_str()),
                    has_started: run.state != SandboxState::Creating,
                });
            }
            self.stop_if_due(&run, asking.contains(id.as_str())).await?;
        }
        Ok(())
    }

    /// Continues a run of an earlier daemon. A result that was recorded stays.
    async fn adopt(&mut self, run: Sandbox, open: Option<OpenRun>) -> Result<(), SandboxError> {
        let id = run.key.run_id.clone();
        let known = self.context.store.find_run(&run.key).await?;
        let is_decided = open.is_none() || known.is_some_and(|known| known.verdict.is_some());
        self.spawn(run, |attempt| attempt.resume(open));
        if let Some(adopted) = self.driven.get(&id).filter(|_| is_decided) {
            adopted.live.note_decision();
        }
        Ok(())
    }

    /// Ends a run that is due to end. A run that waits for an answer is not idle.
    async fn stop_if_due(&self, run: &Sandbox, asks: bool) -> Result<(), SandboxError> {
        let (store, id) = (&self.context.store, &run.key.run_id);
        if run.desired_state == DesiredState::Stopped {
            let cancelled = SandboxVerdict::Cancelled;
            let stop = |run: &Sandbox| match run.state {
                SandboxState::Pending => Some(SandboxStep::Drop(cancelled.clone())),
                state if state.is_active() && run.verdict.as_ref() != Some(&cancelled) => {
                    Some(SandboxStep::Decide(cancelled.clone()))
                }
                _ => None,
            };
            take_step(store, id, "cancelled", stop).await?;
            self.cancel(id);
            return Ok(());
        }
        if run.state.is_active() && run.verdict.is_some() {
            // A request or an earlier check decided that: its program has nothing more to do.
            self.cancel(id);
            return Ok(());
        }
        let Some(driven) = self.driven.get(id) else { return Ok(()) };
        if driven.live.is_decided() {
            // Only its teardown is left.
            return Ok(());
        }
        let now = now_us();
        driven.live.look(run, now);
        let facts = driven.live.facts();
        if overstays(run, facts, now) && driven.live.begin_stop() {
            tokio::spawn(stop_program(self.service.clone(), run.key.clone()));
        }
        if let Some(due) = overdue(run, facts.filter(|_| !asks), &self.service.times, now) {
            let verdict = SandboxVerdict::Failed { code: due.code.to_owned(), message: Some(due.message) };
            let decide = |run: &Sandbox| {
                (run.state.is_active() && run.verdict.is_none()).then(|| SandboxStep::Decide(verdict.clone()))
            };
            take_step(store, id, due.code, decide).await?;
            self.cancel(id);
        }
        Ok(())
    }

    fn cancel(&self, run: &RunId) {
        if let Some(driven) = self.driven.get(run) {
            driven.cancel.send_if_modified(|cancel| cancel.replace(STOP).is_none());
        }
    }

    /// Records the signs of life that runs reported, and counts grown output as work.
    async fn record_signs(&mut self) -> Result<(), SandboxError> {
        let (records, now) = (self.context.layout.records(), now_us());
        let mut seen = self.context.conversations.take();
        for driven in self.driven.values_mut() {
            let size = output_size(records.of(&driven.key).directory());
            if size > driven.output {
                driven.output = size;
                let key = driven.key.clone();
                seen.push(SandboxActivity { key, work_us: Some(now), observed_work_us: Some(now), heartbeat: None });
            }
        }
        if seen.is_empty() {
            return Ok(());
        }
        let recorded = self.context.store.record_activity(seen.clone()).await;
        if recorded.is_err() {
            seen.into_iter().for_each(|seen| self.context.conversations.add(seen));
        }
        recorded
    }
}

/// Asks a program to end, and kills it when it does not. Its exit code decides the result, as if it had ended by itself.
async fn stop_program(service: RunService, key: RunKey) {
    let (engine, name) = (&service.host.engine, container_name(&key));
    // An error means that the program has ended meanwhile, which is the goal.
    let _ = engine.kill(&name, "SIGTERM").await;
    tokio::time::sleep(service.stop_grace).await;
    let _ = engine.kill(&name, "SIGKILL").await;
}

/// Returns the number of bytes in the files of stdout and stderr.
fn output_size(record: &std::path::Path) -> u64 {
    let is_output = |name: &str| name.starts_with("stdout") || name.starts_with("stderr");
    let files = fs::read_dir(record).into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_str().is_some_and(is_output));
    files.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
