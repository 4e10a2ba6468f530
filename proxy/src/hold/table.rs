//! The table of the holds of a run: which requests wait, which clients were told to try again, and what was denied.
//!
//! Pure: times and ids are given. A request belongs to the hold of its body: a client that was told to try again sends
//! a new request, and nothing else in it names the first one.

use std::time::{Duration, Instant};

use sluice_contract::Hash;
use sluice_contract::control::{HELD_MAX, HoldCause, HoldDecision};
use sluice_contract::record::ReleaseDecision;

use crate::caps::CapRequest;

/// Number of times that a client sends a request, if it is told to try again: SDKs stop after the third. Other clients
/// send more, but the header with their name cannot be trusted.
pub(crate) const ATTEMPTS: u32 = 3;
/// Time for which repeats of a denied request are answered from memory. Loops around clients repeat for a few minutes.
const DENIED_FOR: Duration = Duration::from_secs(600);
/// Time within which a client that was told to try again does so, once it can go on.
const RETRY_WITHIN: Duration = Duration::from_secs(120);
/// Maximum number of holds in memory. Beyond it, the oldest hold without a waiting request is forgotten, and a denied
/// one only if no other can be.
const HOLDS_MAX: usize = 64;
/// Maximum number of waits of one process. A sandbox that leaves at once, again and again, would fill the disk with
/// their records.
const WAITS_MAX: u64 = 1000;

/// The holds of a run.
#[derive(Debug, Default)]
pub(crate) struct HoldTable {
    holds: Vec<Hold>,
    waiting: Vec<WaitingRequest>,
    /// Number of waits so far.
    waits: u64,
}

/// Requests with the same body, on which a person decides together.
#[derive(Debug)]
pub(crate) struct Hold {
    body: Hash,
    pub(crate) id: String,
    pub(crate) cause: HoldCause,
    pub(crate) model: Option<Box<str>>,
    /// Amounts that each of its requests asks of the caps.
    pub(crate) request: CapRequest,
    /// Arrival of the first request.
    pub(crate) since: Instant,
    /// Number of requests so far.
    pub(crate) requests: u64,
    /// Attempts of clients that were told to try again and have not done so yet.
    told: Vec<u32>,
    /// End of the time in which they are expected, once they can go on.
    retry_until: Option<Instant>,
    /// End of the time for which it is denied.
    denied_until: Option<Instant>,
}

/// A request that waits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct WaitingRequest {
    pub(crate) ticket: u64,
    pub(crate) cause: HoldCause,
    pub(crate) request: CapRequest,
    /// True if its wait is over, and it has not left yet.
    pub(crate) is_released: bool,
    body: Hash,
    attempt: u32,
}

/// A request that finds no room in the caps, or the run paused.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ArrivingRequest<'a> {
    pub(crate) body: Hash,
    pub(crate) cause: HoldCause,
    pub(crate) model: Option<&'a str>,
    pub(crate) request: CapRequest,
    /// Number of its attempt, if it has waited for the end of a pause and waits at a cap now.
    pub(crate) attempt: Option<u32>,
}

/// Decision on a request that arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Admission {
    /// The request waits, in this place.
    Waits(HoldPlace),
    /// The request repeats one that was denied.
    Denied,
    /// As many requests as may wait do so now.
    Full,
    /// The run has waited as often as may be recorded.
    Exhausted,
}

/// Place of a waiting request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HoldPlace {
    pub(crate) ticket: u64,
    pub(crate) hold_id: String,
    pub(crate) attempt: u32,
    /// True if its client will not try again.
    pub(crate) is_last: bool,
}

/// Reason why a decision on a hold is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Undecidable {
    /// There is no such hold, or no longer.
    Unknown,
    /// The client would not try again.
    LastAttempt,
    /// The call waits for the end of a pause, so there is no cap to decide on.
    Paused,
}

impl HoldTable {
    /// Takes in a request; `new_id` becomes the id of its hold, if it is the first one.
    pub(crate) fn enter(&mut self, arriving: ArrivingRequest<'_>, new_id: String, now: Instant) -> Admission {
        self.holds.retain(|hold| hold.denied_until.is_none_or(|until| until > now));
        self.forget_absent(now);
        let known = self.place_of(arriving.body);
        if known.is_some_and(|at| self.holds[at].denied_until.is_some()) {
            return Admission::Denied;
        }
        if self.waits >= WAITS_MAX {
            return Admission::Exhausted;
        }
        if self.waiting.len() >= HELD_MAX {
            return Admission::Full;
        }
        let ArrivingRequest { body, cause, model, request, attempt } = arriving;
        let at = known.unwrap_or_else(|| {
            self.forget_one();
            let (model, told) = (model.map(Into::into), Vec::new());
            self.holds.push(Hold {
                body,
                id: new_id,
                cause,
                model,
                request,
                since: now,
                requests: 0,
                told,
                retry_until: None,
                denied_until: None,
            });
            self.holds.len() - 1
        });
        let hold = &mut self.holds[at];
        hold.requests += u64::from(attempt.is_none());
        let attempt = attempt.unwrap_or_else(|| hold.next_attempt());
        (hold.cause, hold.request) = (cause, request);
        let hold_id = hold.id.clone();
        self.waits += 1;
        let ticket = self.waits;
        // A retry has the place of its hold: what a hold asks counts the calls of the holds before it, and no others.
        let place = self.waiting.partition_point(|waiting| self.place_of(waiting.body) <= Some(at));
        self.waiting.insert(place, WaitingRequest { ticket, cause, request, is_released: false, body, attempt });
        Admission::Waits(HoldPlace { ticket, hold_id, attempt, is_last: attempt >= ATTEMPTS })
    }

    fn place_of(&self, body: Hash) -> Option<usize> {
        self.holds.iter().position(|hold| hold.body == body)
    }

    /// Takes note of a request that passes without a wait: it may be the retry of a client that was told to try again.
    pub(crate) fn pass(&mut self, body: Hash) {
        if let Some(at) = self.place_of(body) {
            self.holds[at].next_attempt();
            self.forget_if_over(at);
        }
    }

    /// Notes that the wait of a request is over.
    pub(crate) fn release(&mut self, ticket: u64) {
        let released = self.waiting.iter_mut().filter(|waiting| waiting.ticket == ticket);
        released.for_each(|waiting| waiting.is_released = true);
    }

    /// Ends the wait of a request.
    pub(crate) fn leave(&mut self, ticket: u64, end: ReleaseDecision, now: Instant) {
        let Some(at) = self.waiting.iter().position(|waiting| waiting.ticket == ticket) else { return };
        let left = self.waiting.remove(at);
        let Some(at) = self.place_of(left.body) else { return };
        let hold = &mut self.holds[at];
        match end {
            ReleaseDecision::Later | ReleaseDecision::Timeout => {
                hold.told.push(left.attempt);
                hold.retry_until = None;
            }
            ReleaseDecision::Deny => hold.deny(now),
            ReleaseDecision::Approve
            | ReleaseDecision::Resume
            | ReleaseDecision::Left
            | ReleaseDecision::Interrupted
            | ReleaseDecision::Draining => {}
        }
        self.forget_if_over(at);
    }

    /// Notes that clients can go on: those that were told to try again do so soon, or have left.
    pub(crate) fn expect_retries(&mut self, now: Instant) {
        for hold in self.holds.iter_mut().filter(|hold| !hold.told.is_empty()) {
            hold.retry_until.get_or_insert(now + RETRY_WITHIN);
        }
    }

    /// Forgets clients that have not tried again in time.
    pub(crate) fn forget_absent(&mut self, now: Instant) {
        for at in (0..self.holds.len()).rev() {
            let hold = &mut self.holds[at];
            if hold.retry_until.is_some_and(|until| until <= now) {
                hold.told.clear();
                hold.retry_until = None;
                self.forget_if_over(at);
            }
        }
    }

    /// Forgets a hold without waiting or expected requests, unless it is denied.
    fn forget_if_over(&mut self, at: usize) {
        let hold = &self.holds[at];
        let is_over = hold.told.is_empty() && hold.denied_until.is_none();
        if is_over && self.waiting.iter().all(|waiting| waiting.body != hold.body) {
            self.holds.remove(at);
        }
    }

    /// Returns false if a decision changes nothing, since it was made before.
    ///
    /// # Errors
    /// [`Undecidable`]
    pub(crate) fn check(&self, hold_id: &str, decision: HoldDecision, now: Instant) -> Result<bool, Undecidable> {
        let hold = self.holds.iter().find(|hold| hold.id == hold_id).ok_or(Undecidable::Unknown)?;
        let is_denied = hold.denied_until.is_some_and(|until| until > now);
        match decision {
            HoldDecision::Deny if is_denied => Ok(false),
            HoldDecision::Deny if hold.cause == HoldCause::Paused && !self.is_one_at_cap(hold) => {
                Err(Undecidable::Paused)
            }
            HoldDecision::Deny => Ok(true),
            HoldDecision::Later if is_denied => Err(Undecidable::Unknown),
            HoldDecision::Later => {
                let mut waiting = self.waiting.iter().filter(|waiting| waiting.body == hold.body).peekable();
                let changes = waiting.peek().is_some();
                if waiting.any(|waiting| waiting.attempt >= ATTEMPTS && waiting.cause != HoldCause::Paused) {
                    return Err(Undecidable::LastAttempt);
                }
                Ok(changes)
            }
        }
    }

    /// Makes a decision, and returns the tickets of the requests that it ends.
    pub(crate) fn decide(&mut self, hold_id: &str, decision: HoldDecision, now: Instant) -> Vec<u64> {
        let Some(hold) = self.holds.iter_mut().find(|hold| hold.id == hold_id) else { return Vec::new() };
        if decision == HoldDecision::Deny {
            hold.deny(now);
        }
        let body = hold.body;
        self.waiting.iter().filter(|waiting| waiting.body == body).map(|waiting| waiting.ticket).collect()
    }

    /// Returns the requests that wait, in the order of the arrival of their holds' first requests.
    pub(crate) fn waiting(&self) -> &[WaitingRequest] {
        &self.waiting
    }

    /// Returns true if a request of the hold waits for room in the caps.
    fn is_one_at_cap(&self, hold: &Hold) -> bool {
        self.waiting.iter().any(|waiting| waiting.body == hold.body && waiting.cause != HoldCause::Paused)
    }

    /// Returns true if calls wait for room in the caps.
    pub(crate) fn is_at_cap(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.cause != HoldCause::Paused)
    }

    /// Returns true if clients were told to try again, and have not done so yet.
    pub(crate) fn has_told(&self) -> bool {
        self.holds.iter().any(|hold| !hold.told.is_empty())
    }

    /// Returns the holds that are not decided, each with the number of its requests that wait, in the order of their
    /// first requests.
    pub(crate) fn undecided(&self) -> impl Iterator<Item = (&Hold, u64)> {
        let waits = |hold: &Hold| self.waiting.iter().filter(|one| one.body == hold.body && !one.is_released).count();
        let all = self.holds.iter().filter(|hold| hold.denied_until.is_none());
        all.map(move |hold| (hold, waits(hold) as u64)).filter(|(hold, waits)| *waits > 0 || !hold.told.is_empty())
    }

    /// Makes room for a hold.
    fn forget_one(&mut self) {
        if self.holds.len() >= HOLDS_MAX {
            let is_idle = |at: &usize| self.waiting.iter().all(|waiting| waiting.body != self.holds[*at].body);
            let idle = (0..self.holds.len()).filter(is_idle);
            // At most eight requests wait, so there is such a hold. A person would be asked again about repeats of a
            // denied request, so a denied hold is the last choice; of equal holds, the first is the oldest.
            let oldest = idle.min_by_key(|at| self.holds[*at].denied_until.is_some());
            if let Some(at) = oldest {
                self.holds.remove(at);
            }
        }
    }
}

impl Hold {
    /// Returns the number of the attempt of a client that comes now.
    fn next_attempt(&mut self) -> u32 {
        // Of several clients that were told to try again, the one with the most attempts is assumed: its attempts end
        // first, so the guess is never too late.
        let latest = self.told.iter().enumerate().max_by_key(|(_, attempt)| **attempt).map(|(at, _)| at);
        latest.map_or(1, |at| self.told.swap_remove(at) + 1)
    }

    fn deny(&mut self, now: Instant) {
        self.told.clear();
        self.denied_until = Some(now + DENIED_FOR);
    }
}

#[cfg(test)]
mod tests;
