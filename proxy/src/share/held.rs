//! The wait of one request: recorded, bounded, and ended by a decision, by room in the caps, or by its client.

use std::time::{Duration, Instant};

use sluice_contract::control::{HoldCause, HoldDecision};
use sluice_contract::record::ReleaseDecision;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::body::ParsedBody;
use crate::call::Clock;
use crate::caps::{AskedCap, CapRequest, Reservation};
use crate::hold::{Admission, ArrivingRequest, HoldPlace, OnCap, Release, SIDECAR, answers, key, millis};
use crate::intake::BufferedBody;
use crate::policy::Route;
use crate::refusal::{Denial, Reason, Refusal};
use crate::run::RunContext;

/// Interval at which a waiting call looks for room that open calls have left, and for the end of the run.
const LOOK_AGAIN: Duration = Duration::from_millis(100);
/// Author of the end of a wait whose client has left.
const CLIENT: &str = "client";

/// A call that found no room in the caps, or the run paused.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "named like their types")]
pub(super) struct HeldRequest<'a> {
    pub(super) route: &'a Route,
    pub(super) parsed: &'a ParsedBody,
    pub(super) body: &'a BufferedBody,
    pub(super) request: CapRequest,
}

/// Takes note of a call that passes: it may be the retry of a client that was told to try again.
pub(super) fn pass(run: &RunContext, held: &HeldRequest<'_>) {
    if run.holds.awaits_retries() {
        run.holds.pass(key::key(held.route, held.parsed, held.body), &run.caps);
    }
}

/// Waits until a call has its share of the caps.
///
/// # Errors
/// The given refusal, if the call may not wait for it; or the answer that the client gets instead.
pub(super) async fn reserve(
    run: &RunContext,
    held: HeldRequest<'_>,
    mut refusal: Refusal,
    clock: &mut Clock,
) -> Result<Reservation, Refusal> {
    let mut since = Instant::now();
    let until = clock.began() + run.holds.max_wait();
    let mut body = None;
    // Hold and attempt of a wait for the end of a pause that was followed by one at a cap.
    let mut before: Option<(String, u32)> = None;
    loop {
        let asked = run.holds.asked(&held.request, &run.caps);
        let cause = if run.holds.is_paused() {
            HoldCause::Paused
        } else if refusal.reason != Reason::BudgetExceeded || run.holds.on_cap() == OnCap::Refuse {
            return Err(refusal);
        } else {
            asked.as_ref().map_or(HoldCause::MaxTokens, |asked| asked.cause)
        };
        // The key is computed only for a request that may wait.
        let body = *body.get_or_insert_with(|| key::key(held.route, held.parsed, held.body));
        let model = held.parsed.model.as_deref();
        let (known_id, attempt) = before.take().unzip();
        let arriving = ArrivingRequest { body, cause, model, request: held.request, attempt };
        let new_id = || format!("hold-{}", &run.call_ids.next().as_simple().to_string()[..12]);
        let new_id = known_id.unwrap_or_else(new_id);
        let (admission, receiver) = run.holds.enter(arriving, new_id, &run.caps);
        let place = match admission {
            Admission::Waits(place) => place,
            Admission::Denied => return Err(answers::denied(refusal, Denial::Repeated)),
            Admission::Full => return Err(answers::full(cause)),
            Admission::Exhausted if cause == HoldCause::Paused => return Err(answers::try_again(cause)),
            Admission::Exhausted => return Err(refusal),
        };
        before = Some((place.hold_id.clone(), place.attempt));
        let wait = begin(run, place, cause, asked.as_ref(), until).await?;
        match end(run, wait, receiver, until, clock).await {
            WaitEnd::Go(reservation) => {
                clock.waited(since);
                return Ok(reservation);
            }
            // Calls that already wait at a cap go first.
            WaitEnd::Resumed if run.holds.is_closed() => {}
            WaitEnd::Resumed => {
                since = clock.waited(since);
                let reserved = match run.caps.reserve_held(held.request, since) {
                    Err(again) => super::wait_for_calls(run, held.request, again, clock).await,
                    reserved => reserved,
                };
                match reserved {
                    Err(again) => refusal = again,
                    reserved => return reserved,
                }
            }
            WaitEnd::TryAgain => return Err(answers::try_again(cause)),
            WaitEnd::Denied => return Err(answers::denied(refusal, Denial::First)),
            WaitEnd::Undecided => return Err(answers::undecided(refusal)),
            WaitEnd::Interrupted => return Err(run.interrupts.refuse(held.parsed, held.body)),
            WaitEnd::Draining => return Err(Refusal::draining()),
        }
    }
}

/// A recorded wait. If it is dropped, its client has left, or the run cuts its calls.
struct Wait<'a> {
    run: &'a RunContext,
    place: HoldPlace,
    cause: HoldCause,
    since: Instant,
    is_over: bool,
}

/// End of a wait, as its call sees it.
enum WaitEnd {
    Go(Reservation),
    Resumed,
    TryAgain,
    Denied,
    Undecided,
    Interrupted,
    Draining,
}

/// Records that a request waits.
async fn begin<'a>(
    run: &'a RunContext,
    place: HoldPlace,
    cause: HoldCause,
    asked: Option<&AskedCap>,
    until: Instant,
) -> Result<Wait<'a>, Refusal> {
    let asked = asked.filter(|_| cause != HoldCause::Paused).map(|asked| &*asked.value);
    let longest = millis(until.saturating_duration_since(Instant::now())).div_ceil(1000);
    let Ok(durable) = run.journal.held(&place.hold_id, cause.as_str(), asked, longest) else {
        run.holds.leave(place.ticket, ReleaseDecision::Left, &run.caps);
        return Err(Refusal::audit_unavailable());
    };
    let wait = Wait { run, place, cause, since: Instant::now(), is_over: false };
    durable.await.map_err(|_| Refusal::audit_unavailable())?;
    tracing::info!(hold = wait.place.hold_id, cause = cause.as_str(), "a call waits for the operator");
    Ok(wait)
}

/// Waits for a decision, for room in the caps, or for the end of the time.
async fn end(
    run: &RunContext,
    wait: Wait<'_>,
    mut receiver: oneshot::Receiver<Release>,
    until: Instant,
    clock: &Clock,
) -> WaitEnd {
    loop {
        let tick = LOOK_AGAIN.min(until.saturating_duration_since(Instant::now()));
        tokio::select! {
            // Cancel-safe: both only wait; a decision that was sent stays in the channel.
            biased;
            release = &mut receiver => return match release {
                Ok(Release::Go(reservation, decision, by)) => {
                    wait.end(decision, &by);
                    WaitEnd::Go(reservation)
                }
                Ok(Release::Resume(by)) => {
                    wait.end(ReleaseDecision::Resume, &by);
                    WaitEnd::Resumed
                }
                Ok(Release::Deny(by)) => {
                    wait.end(ReleaseDecision::Deny, &by);
                    WaitEnd::Denied
                }
                Ok(Release::Later(by)) => {
                    wait.end(ReleaseDecision::Later, &by);
                    WaitEnd::TryAgain
                }
                // The sender is dropped by this wait alone.
                Err(_) => WaitEnd::TryAgain,
            },
            () = sleep(tick) => {}
        }
        if run.shutdown.is_draining() {
            wait.end(ReleaseDecision::Draining, SIDECAR);
            return WaitEnd::Draining;
        }
        if run.interrupts.check(clock).is_err() {
            wait.end(ReleaseDecision::Interrupted, SIDECAR);
            return WaitEnd::Interrupted;
        }
        run.holds.pass_fitting(&run.caps, None);
        if Instant::now() >= until && receiver.is_empty() {
            // A pause never leads to a denial, however long it is.
            if wait.place.is_last && wait.cause != HoldCause::Paused && !run.holds.is_paused() {
                let hold_id = wait.place.hold_id.clone();
                wait.end(ReleaseDecision::Deny, SIDECAR);
                // Other requests with this body cannot be decided on any more.
                run.holds.decide(&hold_id, HoldDecision::Deny, SIDECAR, &run.caps);
                return WaitEnd::Undecided;
            }
            wait.end(ReleaseDecision::Timeout, SIDECAR);
            return WaitEnd::TryAgain;
        }
    }
}

impl Wait<'_> {
    fn end(mut self, decision: ReleaseDecision, by: &str) {
        self.release(decision, by);
    }

    fn release(&mut self, decision: ReleaseDecision, by: &str) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.run.holds.leave(self.place.ticket, decision, &self.run.caps);
        // The intent or the refusal that follows is durable after this record.
        drop(self.run.journal.released(&self.place.hold_id, decision, by, millis(self.since.elapsed())));
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.run.journal.is_cutting() || self.run.shutdown.is_draining() {
            self.release(ReleaseDecision::Draining, SIDECAR);
        } else {
            self.release(ReleaseDecision::Left, CLIENT);
        }
    }
}
