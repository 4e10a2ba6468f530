//! The share of the caps that a call gets: reserved, waited for if open calls have it, and written into the body as a
//! bound.

mod held;

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::body::ParsedBody;
use crate::call::Clock;
use crate::caps::{CapRequest, OutputBounds, Reservation};
use crate::estimate::Estimate;
use crate::intake::BufferedBody;
use crate::policy::Route;
use crate::prices::{Price, RateFactors};
use crate::refusal::{Reason, Refusal};
use crate::run::RunContext;
use held::HeldRequest;

/// Interval at which a waiting call tries again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Share of one call.
#[derive(Debug)]
pub struct Share {
    /// Reservation of the call.
    pub reservation: Reservation,
    /// Output bound that was written into the body.
    pub bound: Option<u64>,
    /// Price of the reservation.
    pub price: Option<(Arc<Price>, RateFactors)>,
}

/// Takes a share of the caps for a call whose body has come at `now`. Known words are counted only if one token for
/// each byte does not fit.
///
/// # Errors
/// The refusals of [`crate::caps::Caps::reserve`], after a wait if only open calls use up the caps; or the answers to a
/// call that waits for a person, or for the end of a pause.
pub async fn take(
    run: &RunContext,
    route: &Route,
    parsed: &mut ParsedBody,
    text: &BufferedBody,
    clock: &mut Clock,
    now: Instant,
) -> Result<Share, Refusal> {
    let mut estimate = Estimate::of(parsed, text.len(), run.prices.as_ref(), route.format);
    let by_bytes = estimate.by_bytes();
    let request = if run.caps.fits(&by_bytes) { by_bytes } else { estimate.by_words(parsed, text.pieces()) };
    let reservation = match run.caps.reserve(request, now) {
        Err(refusal) => {
            let held = HeldRequest { route, parsed, body: text, request };
            Box::pin(wait(run, held, refusal, clock)).await
        }
        reserved => reserved,
    };
    let reservation = reservation.map_err(|refusal| refusal.for_model(parsed.model.as_deref()))?;
    let bound = match run.caps.bounds() {
        OutputBounds::Auto => bound(&estimate, &reservation, route, parsed),
        OutputBounds::Off => None,
    };
    Ok(Share { reservation, bound, price: estimate.price.map(|price| (price, estimate.factors)) })
}

fn may_wait(run: &RunContext, request: &CapRequest, refusal: &Refusal) -> bool {
    refusal.reason == Reason::BudgetExceeded && run.caps.may_fit_later(request)
}

/// Waits for open calls, then for the operator, as far as the settings let it.
async fn wait(
    run: &RunContext,
    held: HeldRequest<'_>,
    mut refusal: Refusal,
    clock: &mut Clock,
) -> Result<Reservation, Refusal> {
    if !run.holds.is_closed() {
        let mut reserved = Err(refusal);
        if run.holds.awaits_retries() {
            // Only expected retries keep the gate closed here, so this call may pass it.
            reserved = run.caps.reserve_held(held.request, Instant::now());
        }
        if let Err(refusal) = &reserved
            && may_wait(run, &held.request, refusal)
        {
            reserved = wait_for_calls(run, held.request, refusal.clone(), clock).await;
        }
        match reserved {
            Ok(reservation) => {
                held::pass(run, &held);
                return Ok(reservation);
            }
            Err(still) => refusal = still,
        }
    }
    run.interrupts.check(clock).map_err(|_| run.interrupts.refuse(held.parsed, held.body))?;
    held::reserve(run, held, refusal, clock).await
}

/// Waits for open calls to free the reserved amounts that they did not use: agents make two calls at once, and some
/// give up if one of them is refused.
async fn wait_for_calls(
    run: &RunContext,
    request: CapRequest,
    mut refusal: Refusal,
    clock: &mut Clock,
) -> Result<Reservation, Refusal> {
    let since = Instant::now();
    let is_interrupted = |clock: &Clock| run.interrupts.check(clock).is_err();
    while since.elapsed() < run.cap_wait && may_wait(run, &request, &refusal) && !is_interrupted(clock) {
        tokio::time::sleep(LOOK_AGAIN).await;
        if run.shutdown.is_draining() {
            return Err(Refusal::draining());
        }
        if run.holds.is_closed() {
            break;
        }
        match run.caps.reserve_held(request, Instant::now()) {
            Err(again) => refusal = again,
            reserved => {
                clock.waited(since);
                return reserved;
            }
        }
    }
    Err(if is_interrupted(clock) { Refusal::interrupted() } else { refusal })
}

/// Bounds the response in the client's place, if the reservation would not be an upper bound otherwise.
fn bound(estimate: &Estimate, reservation: &Reservation, route: &Route, parsed: &mut ParsedBody) -> Option<u64> {
    let granted = reservation.output().filter(|_| reservation.is_limited())?;
    let is_bounded = parsed.max_output.is_some() || estimate.model_is_bounded();
    if is_bounded && !reservation.is_lowered() {
        return None;
    }
    parsed.bound_output(route.format, granted);
    parsed.fit_thinking(granted, estimate.is_claude());
    Some(granted)
}
