//! Calls that wait for a person: at a cap, with `--on-cap ask`, and while the run is paused.
//!
//! A request waits without a response head, at most for `--hold` from its arrival, and gets one 503 then. Its retry is
//! a new request, which the table recognises by its body. While calls wait at a cap, no new call passes the caps: what
//! is left of them belongs to those that wait, in the order of their arrival.

pub(crate) mod answers;
pub(crate) mod key;
mod table;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sluice_contract::control::{HeldCall, HoldCause, HoldDecision};
use sluice_contract::record::ReleaseDecision;
use sluice_contract::{AuditLog, Hash};
use tokio::sync::oneshot;

use crate::caps::{AskedCap, CapRequest, Caps, Gate, Reservation};
use table::HoldTable;

pub(crate) use table::{Admission, ArrivingRequest, HoldPlace, Undecidable};

/// Author of decisions that the sidecar makes by itself.
pub(crate) const SIDECAR: &str = "sidecar";

/// Setting of the operator about calls that meet a cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnCap {
    /// They are refused.
    #[default]
    Refuse,
    /// They wait for a person.
    Ask,
}

impl OnCap {
    /// Returns the value of the flag.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Ask => "ask",
        }
    }
}

/// The held calls of a run, and its pause.
#[derive(Debug)]
pub struct Holds {
    on_cap: OnCap,
    /// Longest time from the arrival of a request to its answer.
    max_wait: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    table: HoldTable,
    /// Senders of the waiting requests, by ticket.
    senders: Vec<(u64, oneshot::Sender<Release>)>,
    is_paused: bool,
}

/// End of a wait by a decision.
#[derive(Debug)]
pub(crate) enum Release {
    /// The call goes on with this share.
    Go(Reservation, ReleaseDecision, Box<str>),
    /// The pause is over, and there is no room in the caps.
    Resume(Box<str>),
    Deny(Box<str>),
    Later(Box<str>),
}

impl Holds {
    /// Creates the table of a run, with the pause that an earlier process of the attempt has recorded.
    #[must_use]
    pub fn new(on_cap: OnCap, max_wait: Duration, past: Option<&AuditLog>, caps: &Caps) -> Self {
        let paused = past.and_then(|log| log.controls().iter().rev().find_map(|control| control.to.paused));
        let state = State { is_paused: paused.unwrap_or(false), ..State::default() };
        set_gate(&state, caps);
        Self { on_cap, max_wait, state: Mutex::new(state) }
    }

    /// Returns true if no new call passes until the pause ends.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.lock().is_paused
    }

    /// Returns the number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.lock().table.waiting().len() as u64
    }

    /// Returns true if clients were told to try again, and have not done so yet.
    #[must_use]
    pub fn awaits_retries(&self) -> bool {
        self.lock().table.has_told()
    }

    /// Takes note of a request that passes: it may be the retry of a client that was told to try again.
    pub fn pass(&self, body: Hash, caps: &Caps) {
        let mut state = self.lock();
        state.table.pass(body);
        set_gate(&state, caps);
    }

    /// Returns true if new calls wait whatever is left of the caps.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        let state = self.lock();
        state.is_paused || state.table.is_at_cap()
    }

    /// Returns the calls that wait, and those whose clients were told to try again and would wait then.
    #[must_use]
    pub fn list(&self, caps: &Caps, now: Instant) -> Vec<HeldCall> {
        let mut state = self.lock();
        state.table.forget_absent(now);
        set_gate(&state, caps);
        // A client that was told to try again needs room like one that waits.
        let of_each = |waiting: u64| usize::try_from(waiting.max(1)).unwrap_or(1);
        let all = state.table.undecided().flat_map(|(hold, waiting)| vec![&hold.request; of_each(waiting)]);
        let mut asked = caps.asked(all).into_iter();
        let held = state.table.undecided().filter_map(|(hold, waiting)| {
            let last = asked.by_ref().take(of_each(waiting)).last().flatten();
            let is_paused = hold.cause == HoldCause::Paused && state.is_paused;
            let last = last.filter(|_| !is_paused);
            // The caps would let the retry of this client pass, so nothing is to be decided.
            if waiting == 0 && last.is_none() && !is_paused {
                return None;
            }
            Some(HeldCall {
                hold_id: hold.id.clone(),
                cause: last.as_ref().map_or(hold.cause, |asked| asked.cause),
                asked: last.map(|asked| asked.value),
                model: hold.model.as_deref().map(str::to_owned),
                waiting,
                attempts: hold.requests,
                waited_ms: millis(now.saturating_duration_since(hold.since)),
            })
        });
        held.collect()
    }

    /// Returns the cap that stops a request, if the waiting requests pass before it; `None` if it fits.
    pub(crate) fn asked(&self, request: &CapRequest, caps: &Caps) -> Option<AskedCap> {
        let state = self.lock();
        let before =
            state.table.waiting().iter().filter(|waiting| !waiting.is_released).map(|waiting| &waiting.request);
        caps.asked(before.chain([request])).pop().flatten()
    }

    /// Pauses the run, or lets its calls go on.
    pub fn set_paused(&self, paused: bool, caps: &Arc<Caps>, by: &str) {
        let mut state = self.lock();
        state.is_paused = paused;
        if !paused {
            state.table.expect_retries(Instant::now());
            state.pass_all(caps, Some(by));
        }
        set_gate(&state, caps);
    }

    /// Lets the waiting calls go on, in the order of their arrival, up to the first that does not fit the caps.
    pub fn pass_fitting(&self, caps: &Arc<Caps>, by: Option<&str>) {
        let mut state = self.lock();
        if !state.is_paused {
            if by.is_some() {
                // A cap was raised.
                state.table.expect_retries(Instant::now());
            }
            state.pass_all(caps, by);
        }
    }

    /// Returns false if a decision changes nothing.
    ///
    /// # Errors
    /// [`Undecidable`]
    pub(crate) fn check(&self, hold_id: &str, decision: HoldDecision, now: Instant) -> Result<bool, Undecidable> {
        self.lock().table.check(hold_id, decision, now)
    }

    /// Lets a decision take effect.
    pub(crate) fn decide(&self, hold_id: &str, decision: HoldDecision, by: &str, caps: &Arc<Caps>) {
        let mut state = self.lock();
        for ticket in state.table.decide(hold_id, decision, Instant::now()) {
            let release = match decision {
                HoldDecision::Deny => Release::Deny(by.into()),
                HoldDecision::Later => Release::Later(by.into()),
            };
            state.send(ticket, release);
        }
        // The room that was kept for these requests belongs to those after them.
        if !state.is_paused {
            state.pass_all(caps, None);
        }
        set_gate(&state, caps);
    }

    /// Takes in a request that waits from now on; `new_id` becomes the id of its hold, if it is the first one.
    pub(crate) fn enter(
        &self,
        arriving: ArrivingRequest<'_>,
        new_id: String,
        caps: &Caps,
    ) -> (Admission, oneshot::Receiver<Release>) {
        let (sender, receiver) = oneshot::channel();
        let mut state = self.lock();
        let admission = state.table.enter(arriving, new_id, Instant::now());
        if let Admission::Waits(place) = &admission {
            state.senders.push((place.ticket, sender));
        }
        set_gate(&state, caps);
        (admission, receiver)
    }

    /// Ends the wait of a request.
    pub(crate) fn leave(&self, ticket: u64, end: ReleaseDecision, caps: &Caps) {
        let mut state = self.lock();
        state.senders.retain(|(other, _)| *other != ticket);
        state.table.leave(ticket, end, Instant::now());
        set_gate(&state, caps);
    }

    /// Returns the setting of the operator.
    #[must_use]
    pub fn on_cap(&self) -> OnCap {
        self.on_cap
    }

    /// Returns the longest time from the arrival of a request to its answer.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn set_gate(state: &State, caps: &Caps) {
    // The gate is also closed while retries are expected: only calls that find it closed are checked for being retries.
    let is_closed = state.is_paused || state.table.is_at_cap() || state.table.has_told();
    caps.set_gate(if is_closed { Gate::Closed } else { Gate::Open });
}

impl State {
    /// Ends the waits of the calls at a cap, in the order of their arrival, up to the first that does not fit, and of all
    /// that wait for a pause.
    fn pass_all(&mut self, caps: &Arc<Caps>, by: Option<&str>) {
        let by: Box<str> = by.unwrap_or(SIDECAR).into();
        // The rest of the caps is kept for the first call that does not fit.
        let mut is_kept = false;
        for waiting in self.table.waiting().to_vec() {
            if waiting.is_released {
                continue;
            }
            let was_paused = waiting.cause == HoldCause::Paused;
            let end = if was_paused { ReleaseDecision::Resume } else { ReleaseDecision::Approve };
            let reserved = if is_kept { None } else { caps.reserve_held(waiting.request, Instant::now()).ok() };
            match reserved {
                Some(reservation) => self.send(waiting.ticket, Release::Go(reservation, end, by.clone())),
                None if was_paused => self.send(waiting.ticket, Release::Resume(by.clone())),
                None => is_kept = true,
            }
        }
    }

    fn send(&mut self, ticket: u64, release: Release) {
        if let Some(at) = self.senders.iter().position(|(other, _)| *other == ticket) {
            self.table.release(ticket);
            // A receiver that is gone gives the share back.
            let _ = self.senders.swap_remove(at).1.send(release);
        }
    }
}

pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
