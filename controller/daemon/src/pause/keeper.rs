//! Brings one attempt to its wanted state: its sidecar's gate, its clocks, its container.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::control::{DecideHold, HeldCall, HoldCause, HoldDecision, SetClock, SetPause};
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_runs::engine::EngineError;
use sluice_runs::freezer::{Freezer, Frost};
use sluice_runs::host::Host;
use sluice_runs::sidecar_control::{ControlError, SidecarControl};
use sluice_runs::virtual_key::{self, RaiseKeyError};
use sluice_state::run::Cancel;
use sluice_state::sandboxes::{ClockStop, DesiredState, Sandbox, SandboxError, SandboxState};
use sluice_state::store::{StoreError, now_us};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::rules::{Cause, GateState, PauseStep, PauseView, next_step};
use crate::context::ApiContext;
use crate::live_run::LiveRun;

/// Time after a step that failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);
/// Time for which a waiting call is kept open if its client would not retry.
const BOUND: Duration = Duration::from_secs(10);
/// Maximum time for which a tool counts as working: clients stop theirs after ten minutes at the latest.
const TOOL_MAX: Duration = Duration::from_secs(15 * 60);
/// Time after which a virtual key that was not raised is raised again.
const KEY_AGAIN: Duration = Duration::from_secs(10);
/// Steps without a rest between them.
const STEPS_MAX: usize = 16;
/// Name of the requester in the audit log of the run. The control log has the person.
const BY: &str = "daemon";

/// Pauses and resumes one attempt.
#[derive(Debug)]
pub(crate) struct PauseKeeper {
    context: Arc<ApiContext>,
    host: Arc<Host>,
    key: RunKey,
    live: Arc<LiveRun>,
    cancelled: watch::Receiver<Option<Cancel>>,
    freezer: Freezer,
    control: SidecarControl,
    gate: GateState,
    /// Clock state that was last sent to the sidecar; `None` if an earlier daemon sent it.
    clocks_stopped: Option<bool>,
    /// True if the virtual key may expire before the run ends.
    key_is_due: bool,
    /// False if the container is known to run.
    may_be_frozen: bool,
    /// Time at which a call was last seen open or waiting.
    busy: Instant,
    failed: Option<Instant>,
    /// Time at which a client was found that would not retry.
    bound: Option<Instant>,
    /// The last failure, which is logged once.
    logged: Option<String>,
}

/// A step that failed. It is tried again.
#[derive(Debug, thiserror::Error)]
enum KeeperError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("its virtual key may end before it: {}", error_chain(.0))]
    Key(#[from] RaiseKeyError),
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("its container does not go on")]
    StillFrozen,
}

/// One observation of the run: the observed state, and its row.
struct PauseLook {
    view: PauseView,
    run: Sandbox,
    held: Vec<HeldCall>,
    /// True if an approval of the run is open for which a call has waited.
    is_asked: bool,
}

impl PauseKeeper {
    /// Manages an attempt that this daemon begins.
    pub(crate) fn new(
        context: Arc<ApiContext>,
        host: Arc<Host>,
        key: RunKey,
        live: Arc<LiveRun>,
        cancelled: watch::Receiver<Option<Cancel>>,
    ) -> Self {
        Self {
            freezer: Freezer::of(&host, &key),
            control: SidecarControl::of(&context.layout, &key),
            context,
            host,
            key,
            live,
            cancelled,
            gate: GateState::Open,
            clocks_stopped: Some(false),
            key_is_due: false,
            may_be_frozen: false,
            busy: Instant::now(),
            failed: None,
            bound: None,
            logged: None,
        }
    }

    /// Manages an attempt that an earlier daemon began, which may have left it in any state.
    pub(crate) fn adopting(self) -> Self {
        Self { gate: GateState::Unknown, clocks_stopped: None, key_is_due: true, may_be_frozen: true, ..self }
    }

    /// Works until it is dropped, at the end of the attempt.
    pub(crate) async fn run(mut self) -> Infallible {
        let mut wishes = self.live.wishes();
        // A new attempt has nothing to undo.
        let mut rests = self.gate == GateState::Open;
        loop {
            if rests {
                // `live` holds the sender, so this cannot fail.
                let _ = wishes.changed().await;
            }
            wishes.mark_unchanged();
            let next = self.turn().await;
            rests = next.is_none();
            if let Some(time) = next {
                tokio::select! {
                    () = sleep(time) => {}
                    _ = wishes.changed() => {}
                }
            }
        }
    }

    /// Takes the steps that can be taken now. Returns the time after which to check again; `None` if nothing is left to do.
    async fn turn(&mut self) -> Option<Duration> {
        for _ in 0..STEPS_MAX {
            match self.step().await {
                Ok(PauseStep::Rest) => return None,
                Ok(PauseStep::Look(time)) => return Some(time),
                Ok(_) => self.logged = None,
                Err(error) => {
                    let text = error_chain(&error);
                    if self.logged.as_ref() != Some(&text) {
                        (self.context.log)(&format!("run {}: its pause: {text}", self.key));
                        self.logged = Some(text);
                    }
                    return Some(if matches!(error, KeeperError::Key(_)) { KEY_AGAIN } else { AFTER_FAILURE });
                }
            }
        }
        Some(AFTER_FAILURE)
    }

    async fn step(&mut self) -> Result<PauseStep, KeeperError> {
        let Some(look) = self.look().await? else { return Ok(PauseStep::Rest) };
        if self.clocks_stopped != Some(look.view.clocks_stopped) {
            // The row decides: an interrupted step may have sent the sidecar another state.
            self.set_clock(look.view.clocks_stopped).await?;
        }
        let step = next_step(&look.view);
        match step {
            PauseStep::CloseGate => self.set_gate(GateState::Closed).await?,
            PauseStep::OpenGate => self.set_gate(GateState::Open).await?,
            PauseStep::Mark(cause) => self.mark(&look.run, cause).await?,
            PauseStep::Unmark => self.unmark(&look.run, look.view.cause).await?,
            PauseStep::AnswerLater => self.answer_later(&look.held).await?,
            PauseStep::Freeze => {
                self.may_be_frozen = true;
                self.failed = match self.freezer.freeze().await? {
                    Frost::Running => {
                        (self.context.log)(&format!("run {}: its container cannot be frozen now", self.key));
                        Some(Instant::now())
                    }
                    Frost::Frozen | Frost::Absent => None,
                };
            }
            PauseStep::Thaw => {
                if self.freezer.thaw().await? == Frost::Frozen {
                    return Err(KeeperError::StillFrozen);
                }
                self.may_be_frozen = false;
                self.busy = Instant::now();
            }
            // The client may retry.
            PauseStep::Rest if look.is_asked => return Ok(PauseStep::Look(AFTER_FAILURE)),
            PauseStep::Rest if self.key_is_due => {
                self.raise_key(&look.run).await?;
                self.key_is_due = false;
            }
            PauseStep::Look(_) | PauseStep::Rest => {}
        }
        Ok(step)
    }

    /// Observes the run; `None` if it is about to end: the teardown thaws its container.
    async fn look(&mut self) -> Result<Option<PauseLook>, KeeperError> {
        let run = self.context.store.find_sandbox(None, &self.key.run_id).await?;
        let works = |run: &Sandbox| run.key == self.key && run.state.is_active() && run.verdict.is_none();
        let Some(run) = run.filter(works).filter(|_| self.cancelled.borrow().is_none()) else { return Ok(None) };
        let cause = match run.desired_state {
            // A run that says that it is done can still work.
            _ if !matches!(run.state, SandboxState::Running | SandboxState::Completing) => None,
            DesiredState::Stopped => return Ok(None),
            DesiredState::Paused => Some(Cause::Pause),
            DesiredState::Running => self.context.store.is_on_hold(&self.key).await?.then_some(Cause::Approval),
        };
        let is_frozen = self.may_be_frozen && self.freezer.state().await? == Frost::Frozen;
        let (mut cause, is_asked) = (cause, cause == Some(Cause::Approval));
        let (mut open_calls, mut waiting, mut held, mut is_at_work) = (0, 0, Vec::new(), false);
        if cause.is_some() {
            let state = self.control.state().await?;
            open_calls = state.open_calls;
            (waiting, held) = match self.control.held().await {
                Ok(held) => (held.iter().map(|call| call.waiting).sum(), held),
                Err(error) if error.is_unknown() => (state.held_calls, Vec::new()),
                Err(error) => return Err(error.into()),
            };
            let is_bound = self.bound.is_some_and(|since| since.elapsed() < BOUND);
            is_at_work = !is_frozen && (is_bound || self.has_running_tool().await?);
        }
        if is_asked && held.iter().all(|call| call.cause == HoldCause::Paused) {
            // No call waits at a cap: the client has left, and does not wait for the decision any more.
            cause = None;
        }
        if open_calls > 0 || waiting > 0 {
            self.busy = Instant::now();
        }
        let view = PauseView {
            cause,
            gate: self.gate,
            clocks_stopped: run.clocks_stopped_us.is_some(),
            is_marked: run.paused_us.is_some(),
            is_frozen,
            open_calls,
            waiting,
            quiet: self.busy.elapsed(),
            is_at_work,
            failed: self.failed.map(|failed| failed.elapsed()),
        };
        Ok(Some(PauseLook { view, run, held, is_asked }))
    }

    async fn set_gate(&mut self, gate: GateState) -> Result<(), KeeperError> {
        let paused = gate == GateState::Closed;
        let reason = if paused { "the run is paused" } else { "the run goes on" };
        let set = SetPause { paused, by: BY.to_owned(), reason: reason.to_owned() };
        self.gate = match self.control.set_pause(&set).await {
            Ok(_) => gate,
            Err(error) if error.is_unknown() => GateState::Missing,
            Err(error) => return Err(error.into()),
        };
        Ok(())
    }

    async fn mark(&mut self, run: &Sandbox, cause: Cause) -> Result<(), KeeperError> {
        self.set_clock(true).await?;
        let (why, store) = (stop_of(cause), &self.context.store);
        let marked = store.stop_clocks(&self.key.run_id, run.generation, why, now_us()).await;
        self.take_clock(marked)
    }

    async fn unmark(&mut self, run: &Sandbox, cause: Option<Cause>) -> Result<(), KeeperError> {
        let now = now_us();
        if cause.is_none() {
            // The key was made for the time that the run had without the pause. The run continues even if LiteLLM
            // cannot be reached.
            self.key_is_due = self.raise_key(run).await.is_err();
            self.set_clock(false).await?;
        }
        let still = cause.map(stop_of);
        let ended = self.context.store.end_pause(&self.key.run_id, run.generation, still, now).await;
        self.take_clock(ended)
    }

    /// Extends the life of the virtual key to the end of the run.
    async fn raise_key(&self, run: &Sandbox) -> Result<(), RaiseKeyError> {
        if run.stopped_total_us == 0 && run.clocks_stopped_us.is_none() {
            return Ok(());
        }
        virtual_key::raise_of(&self.host, &self.key, None, run.ends_us(now_us())).await
    }

    async fn has_running_tool(&self) -> Result<bool, StoreError> {
        let since_us = now_us().saturating_sub(duration_micros(TOOL_MAX));
        self.context.store.has_running_tool(&self.key, since_us).await
    }

    /// Uses the clock of the written row. If the row has changed meanwhile, the next check decides again.
    fn take_clock(&self, written: Result<Sandbox, SandboxError>) -> Result<(), KeeperError> {
        match written {
            Ok(run) => {
                self.live.clock().set(run.stopped_total_us, run.clocks_stopped_us);
                Ok(())
            }
            Err(SandboxError::StaleGeneration { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    async fn set_clock(&mut self, stopped: bool) -> Result<(), KeeperError> {
        let reason = if stopped { "the run stands still" } else { "the run goes on" };
        let set = SetClock { stopped, by: Some(BY.to_owned()), reason: Some(reason.to_owned()) };
        match self.control.set_clock(&set).await {
            Ok(_) => {}
            // The run has been paused for the maximum time and its clock continues, or it has no deadline.
            Err(error) if error.is_moot() => {}
            Err(error) => return Err(error.into()),
        }
        self.clocks_stopped = Some(stopped);
        Ok(())
    }

    async fn answer_later(&mut self, held: &[HeldCall]) -> Result<(), KeeperError> {
        for call in held.iter().filter(|call| call.waiting > 0) {
            let (by, reason) = (BY.to_owned(), "the run is paused".to_owned());
            let later = DecideHold { decision: HoldDecision::Later, by, reason };
            match self.control.decide_hold(&call.hold_id, &later).await {
                Ok(_) => {}
                // Its client has left.
                Err(error) if error.is_unknown() => {}
                Err(error) if error.is_last_attempt() => self.bound = Some(Instant::now()),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

fn stop_of(cause: Cause) -> ClockStop {
    match cause {
        Cause::Pause => ClockStop::Paused,
        Cause::Approval => ClockStop::Approval,
    }
}

#[cfg(test)]
mod tests;
