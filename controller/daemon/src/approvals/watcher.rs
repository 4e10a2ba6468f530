//! Checks the caps of one attempt, and asks people.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use sluice_contract::RunKey;
use sluice_contract::control::{DecideHold, HoldDecision};
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_runs::sidecar_control::{ControlError, SidecarControl};
use sluice_state::approvals::{ApprovalAsk, ApprovalError, ApprovalOutcome, RaisableCap, approval_id};
use sluice_state::store::now_us;
use tokio::time::{sleep, timeout};

use super::apply::{ApplyError, apply};
use super::near_cap::{asked_value, cap_of, in_force, near_caps};
use super::raise_rule::highest;
use crate::context::ApiContext;
use crate::live_run::LiveRun;
use crate::on_cap::CapTreatment;
use crate::run_policy::ASK_TIMEOUT;

/// Maximum time between two checks.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Time from the check after a report of the sidecar to a second check: the sidecar writes its record before the call
/// waits.
const SETTLE: Duration = Duration::from_millis(100);

/// Checks the caps of one attempt.
#[derive(Debug)]
pub(crate) struct ApprovalWatcher {
    context: Arc<ApiContext>,
    key: RunKey,
    live: Arc<LiveRun>,
    control: SidecarControl,
    logged: Option<String>,
}

/// A failed check. The next one tries again.
#[derive(Debug, thiserror::Error)]
enum ApprovalWatchError {
    #[error(transparent)]
    Control(#[from] ControlError),
    #[error(transparent)]
    Approval(#[from] ApprovalError),
    #[error(transparent)]
    Apply(#[from] ApplyError),
}

impl ApprovalWatcher {
    /// Watches an attempt.
    pub(crate) fn new(context: Arc<ApiContext>, key: RunKey, live: Arc<LiveRun>) -> Self {
        let control = SidecarControl::of(&context.layout, &key);
        Self { context, key, live, control, logged: None }
    }

    /// Works until it is dropped, at the end of the attempt. A run that does not ask people at its caps is not checked.
    pub(crate) async fn run(mut self) -> Infallible {
        // A run whose request is not read must not ask people, because it may have to refuse its calls.
        loop {
            match self.context.stored_request(&self.key.run_id).await {
                Ok(stored) if stored.on_cap == CapTreatment::Ask => break,
                Ok(_) => return std::future::pending().await,
                Err(error) => self.log_once(format!("its request cannot be read: {}", error.code())),
            }
            sleep(LOOK_EVERY).await;
        }
        loop {
            let is_news = timeout(LOOK_EVERY, self.live.calls_noticed()).await.is_ok();
            self.try_look().await;
            if is_news {
                sleep(SETTLE).await;
                self.try_look().await;
            }
        }
    }

    async fn try_look(&mut self) {
        match self.look().await {
            // The sidecar has not started yet, or it has ended.
            Ok(()) | Err(ApprovalWatchError::Control(ControlError::Unreachable(_))) => self.logged = None,
            Err(error) => self.log_once(error_chain(&error)),
        }
    }

    /// Logs a fault, unless the check before had the same one.
    fn log_once(&mut self, text: String) {
        if self.logged.as_ref() != Some(&text) {
            (self.context.log)(&format!("run {}: its caps: {text}", self.key));
            self.logged = Some(text);
        }
    }

    async fn look(&self) -> Result<(), ApprovalWatchError> {
        for decided in self.context.store.unapplied_approvals(&self.key).await? {
            apply(&self.context, &decided).await?;
        }
        let state = self.control.state().await?;
        for (cap, old) in near_caps(&state) {
            self.ask(cap, old, None).await?;
        }
        let held = match self.control.held().await {
            Err(error) if error.is_unknown() => return Ok(()),
            held => held?,
        };
        for call in &held {
            let Some(cap) = cap_of(call.cause) else { continue };
            let Some(old) = in_force(&state.caps, cap) else { continue };
            // A call that fits the caps passes without a decision.
            let Some(asked) = call.asked.as_deref() else { continue };
            // Other calls need more than the present cap, whatever amount they state.
            let asked = asked_value(cap, asked).unwrap_or(0).max(old.saturating_add(1));
            if let ApprovalOutcome::Denied(denied) = self.ask(cap, old, Some(asked)).await? {
                // The calls after this one may fit now: the next look reads them again.
                return self.deny(&call.hold_id, &denied.id).await;
            }
        }
        Ok(())
    }

    async fn ask(&self, cap: RaisableCap, old: i64, asked: Option<i64>) -> Result<ApprovalOutcome, ApprovalWatchError> {
        let policy = self.context.policy.as_deref();
        let ask = ApprovalAsk {
            id: approval_id(),
            key: self.key.clone(),
            cap,
            old,
            asked,
            highest: highest(policy, cap),
            is_held: asked.is_some(),
            ask_timeout_us: duration_micros(policy.map_or(ASK_TIMEOUT, |policy| policy.ask_timeout)),
        };
        let asked = self.context.store.ask_approval(ask, now_us()).await?;
        if matches!(&asked, ApprovalOutcome::Open(approval) if approval.held_us.is_some()) {
            self.context.work.notify_one();
        }
        Ok(asked)
    }

    /// Refuses a call that waits at a cap that was denied before.
    async fn deny(&self, hold_id: &str, approval_id: &str) -> Result<(), ApprovalWatchError> {
        let reason = format!("approval {approval_id} was denied");
        let deny = DecideHold { decision: HoldDecision::Deny, by: "daemon".to_owned(), reason };
        match self.control.decide_hold(hold_id, &deny).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_unknown() => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::Notify;

    use super::*;
    use crate::test_daemon::{TestDaemon, policy};
    use crate::tests::fake_sidecar::FakeSidecar;

    /// Signals that a watcher has logged a fault.
    static FAULT: Notify = Notify::const_new();

    fn note(line: &str) {
        if line.contains("its caps: its request cannot be read") {
            FAULT.notify_one();
        }
    }

    /// Bug: a run whose request could not be read was watched like one that asks people.
    #[tokio::test]
    async fn a_run_without_its_request_asks_no_person() {
        let daemon = TestDaemon::with_policy(Some(policy()), |settings| settings.log = note).await;
        let context = &daemon.running.context;
        let unknown: RunKey = "unknown.0".parse().expect("a key");
        let control = context.layout.run(&unknown).control;
        let sidecar = FakeSidecar::start(&control, json!({ "max_calls": 10 }), json!({ "calls": 9 }));
        let live = Arc::new(LiveRun::default());
        live.notice_calls();
        let watcher = ApprovalWatcher::new(Arc::clone(context), unknown, live);
        let logged = timeout(Duration::from_secs(60), FAULT.notified());
        tokio::select! {
            never = watcher.run() => match never {},
            logged = logged => logged.expect("the fault is logged"),
        }
        assert!(sidecar.requests("GET /state").is_empty(), "its caps are not checked");
    }
}
