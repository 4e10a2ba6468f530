//! Limits of the requests of a sandbox to the controller.
//!
//! Pure: the time is given. A request over these bounds never reaches the controller.

use std::time::{Duration, Instant};

use sluice_contract::record::RelayCounts;

use crate::refusal::{Reason, Refusal};

/// Maximum number of requests at once.
const AT_ONCE: usize = 8;
/// Time between two requests of a steady stream: 10 a second.
const EACH: Duration = Duration::from_millis(100);
/// Number of requests that may come together.
const BURST: u32 = 20;

/// Kind of a request to the controller, as far as the bounds tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayKind {
    /// Answered at once.
    Short,
    /// A long poll.
    Poll,
    /// A push to the run's repository.
    Push,
}

/// Requests that are under way, and the rate of those before them.
#[derive(Debug, Default)]
pub(super) struct RelayBounds {
    open: usize,
    is_polling: bool,
    is_pushing: bool,
    /// Time at which the bucket of the rate is empty again.
    empty_at: Option<Instant>,
    pub(super) counts: RelayCounts,
}

impl RelayBounds {
    /// Takes in a request.
    ///
    /// # Errors
    /// `relay_busy`
    pub(super) fn enter(&mut self, kind: RelayKind, now: Instant) -> Result<(), Refusal> {
        if self.open >= AT_ONCE {
            return Err(busy("eight requests to the controller are open, which is the limit; wait for one to end"));
        }
        if kind == RelayKind::Poll && self.is_polling {
            return Err(busy("another request waits for the controller already; one at a time may have wait"));
        }
        if kind == RelayKind::Push && self.is_pushing {
            return Err(busy("another push is under way; wait for its end"));
        }
        let from = self.empty_at.map_or(now, |at| at.max(now));
        if (from + EACH).duration_since(now) > EACH * BURST {
            return Err(busy("more than 10 requests a second to the controller; wait a second"));
        }
        self.empty_at = Some(from + EACH);
        self.open += 1;
        self.is_polling |= kind == RelayKind::Poll;
        self.is_pushing |= kind == RelayKind::Push;
        Ok(())
    }

    /// Ends a request.
    pub(super) fn leave(&mut self, kind: RelayKind) {
        self.open -= 1;
        self.is_polling &= kind != RelayKind::Poll;
        self.is_pushing &= kind != RelayKind::Push;
    }
}

fn busy(message: &'static str) -> Refusal {
    Refusal::new(Reason::RelayBusy, message).retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_at_once_and_one_of_a_kind() {
        let (mut bounds, now) = (RelayBounds::default(), Instant::now());
        for kind in [RelayKind::Poll, RelayKind::Push] {
            bounds.enter(kind, now).expect("the first one");
            assert_eq!(bounds.enter(kind, now).expect_err("a second one").reason, Reason::RelayBusy, "{kind:?}");
        }
        for _ in 2..AT_ONCE {
            bounds.enter(RelayKind::Short, now).expect("there is room");
        }
        assert!(bounds.enter(RelayKind::Short, now).is_err());
        for kind in [RelayKind::Poll, RelayKind::Push] {
            bounds.leave(kind);
            bounds.enter(kind, now).expect("the one before has ended");
        }
    }

    #[test]
    fn ten_a_second_after_a_burst() {
        let (mut bounds, start) = (RelayBounds::default(), Instant::now());
        let mut admitted = 0;
        for tick in 0..1000 {
            if bounds.enter(RelayKind::Short, start + tick * Duration::from_millis(10)).is_ok() {
                bounds.leave(RelayKind::Short);
                admitted += 1;
            }
        }
        // Ten seconds.
        assert_eq!(admitted, BURST + 99);
    }
}
