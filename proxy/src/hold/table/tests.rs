use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn arriving(body: u8) -> ArrivingRequest<'static> {
    let cause = HoldCause::MaxCalls;
    ArrivingRequest { body: Hash::of(&[body]), cause, model: Some("m"), request: CapRequest::default(), attempt: None }
}

/// A table, and a clock that a test moves.
struct Fixture {
    table: HoldTable,
    now: Instant,
    ids: u64,
}

impl Fixture {
    fn new() -> Self {
        Self { table: HoldTable::default(), now: Instant::now(), ids: 0 }
    }

    fn enter(&mut self, body: u8) -> Admission {
        self.ids += 1;
        self.table.enter(arriving(body), format!("hold-{}", self.ids), self.now)
    }

    #[track_caller]
    fn waits(&mut self, body: u8) -> HoldPlace {
        match self.enter(body) {
            Admission::Waits(place) => place,
            other => panic!("it was to wait, not {other:?}"),
        }
    }

    fn end(&mut self, place: &HoldPlace, end: ReleaseDecision) {
        self.table.leave(place.ticket, end, self.now);
    }
}

#[test]
fn a_retry_belongs_to_the_hold_of_its_body() {
    let mut held = Fixture::new();
    let first = held.waits(1);
    held.end(&first, ReleaseDecision::Timeout);
    let other = held.waits(2);
    let second = held.waits(1);
    assert_eq!((&second.hold_id, second.is_last), (&first.hold_id, false));
    assert_ne!(other.hold_id, first.hold_id);
    let order: Vec<_> = held.table.waiting().iter().map(|waiting| waiting.ticket).collect();
    assert_eq!(order, [second.ticket, other.ticket], "it has kept its place");
    held.end(&second, ReleaseDecision::Later);
    let third = held.waits(1);
    assert_eq!((&third.hold_id, third.is_last), (&first.hold_id, true), "SDKs stop after it");
    let counts: Vec<_> = held.table.undecided().map(|(hold, waiting)| (hold.requests, waiting)).collect();
    assert_eq!(counts, [(3, 1), (1, 1)]);
}

#[test]
fn a_client_that_does_not_come_again_is_forgotten() {
    let mut held = Fixture::new();
    let first = held.waits(1);
    held.end(&first, ReleaseDecision::Timeout);
    held.now += 10 * RETRY_WITHIN;
    held.table.forget_absent(held.now);
    assert!(held.table.has_told(), "a person may think for hours");

    held.table.expect_retries(held.now);
    held.now += RETRY_WITHIN - SECOND;
    held.table.forget_absent(held.now);
    assert!(held.table.has_told());
    held.now += SECOND;
    held.table.forget_absent(held.now);

    assert!(!held.table.has_told());
    assert_eq!(held.table.undecided().count(), 0);
}

#[test]
fn a_wait_at_a_cap_after_a_pause_is_the_same_attempt() {
    let mut held = Fixture::new();
    for _ in 1..ATTEMPTS {
        let place = held.waits(1);
        held.end(&place, ReleaseDecision::Timeout);
    }
    let paused = held.waits(1);
    held.end(&paused, ReleaseDecision::Resume);
    let again = ArrivingRequest { attempt: Some(paused.attempt), ..arriving(1) };
    let Admission::Waits(place) = held.table.enter(again, paused.hold_id.clone(), held.now) else { panic!("it waits") };
    assert_eq!((&place.hold_id, place.attempt, place.is_last), (&paused.hold_id, ATTEMPTS, true));
}

#[test]
fn requests_that_wait_together_are_first_attempts() {
    let mut held = Fixture::new();
    let places = [held.waits(1), held.waits(1), held.waits(1)];
    assert!(places.iter().all(|place| place.hold_id == places[0].hold_id && !place.is_last));
    for place in &places {
        held.end(place, ReleaseDecision::Timeout);
    }
    let places = [held.waits(1), held.waits(1), held.waits(1)];
    assert!(places.iter().all(|place| !place.is_last), "each is the second one of its client");
    held.end(&places[0], ReleaseDecision::Timeout);
    assert!(held.waits(1).is_last);
}

#[test]
fn a_hold_ends_with_its_last_request() {
    for end in [ReleaseDecision::Approve, ReleaseDecision::Resume, ReleaseDecision::Left, ReleaseDecision::Draining] {
        let mut held = Fixture::new();
        let (one, two) = (held.waits(1), held.waits(1));
        held.end(&one, end);
        assert_eq!(held.table.undecided().count(), 1, "{end:?}");
        held.end(&two, end);
        assert_eq!((held.table.undecided().count(), held.table.is_at_cap()), (0, false), "{end:?}");
        assert_ne!(held.waits(1).hold_id, one.hold_id);
    }
}

#[test]
fn a_retry_that_passes_ends_its_hold() {
    let mut held = Fixture::new();
    let places = [held.waits(1), held.waits(1)];
    for place in &places {
        held.end(place, ReleaseDecision::Timeout);
    }
    held.table.pass(Hash::of(&[1]));
    assert_eq!((held.table.undecided().count(), held.table.has_told()), (1, true), "the other client is to come");
    held.table.pass(Hash::of(&[2]));
    held.table.pass(Hash::of(&[1]));
    assert_eq!((held.table.undecided().count(), held.table.has_told()), (0, false));
}

#[test]
fn repeats_of_a_denied_request_are_known() {
    let mut held = Fixture::new();
    let place = held.waits(1);
    assert_eq!(held.table.check(&place.hold_id, HoldDecision::Deny, held.now), Ok(true));
    assert_eq!(held.table.decide(&place.hold_id, HoldDecision::Deny, held.now), [place.ticket]);
    held.end(&place, ReleaseDecision::Deny);
    assert_eq!((held.enter(1), held.table.undecided().count()), (Admission::Denied, 0));
    assert_eq!(held.table.check(&place.hold_id, HoldDecision::Deny, held.now), Ok(false), "it is denied already");
    assert_eq!(held.table.check(&place.hold_id, HoldDecision::Later, held.now), Err(Undecidable::Unknown));
    held.waits(2);
    held.now += DENIED_FOR;
    assert_ne!(held.waits(1).hold_id, place.hold_id, "it is asked anew");
}

#[test]
fn a_denied_hold_is_forgotten_last() {
    let mut held = Fixture::new();
    let denied = held.waits(0);
    held.end(&denied, ReleaseDecision::Deny);
    for body in 1..=100 {
        let place = held.waits(body);
        held.end(&place, ReleaseDecision::Timeout);
    }
    assert_eq!((held.enter(0), held.table.undecided().count()), (Admission::Denied, HOLDS_MAX - 1));

    // If all are denied, the oldest is forgotten.
    for body in 101..=200 {
        let place = held.waits(body);
        held.end(&place, ReleaseDecision::Deny);
    }
    assert_eq!((held.enter(200), held.table.undecided().count()), (Admission::Denied, 0));
    assert_ne!(held.waits(0).hold_id, denied.hold_id, "it is asked anew");
}

#[test]
fn a_denial_reaches_a_client_that_waits_to_retry() {
    let mut held = Fixture::new();
    let place = held.waits(1);
    held.end(&place, ReleaseDecision::Timeout);
    held.now += 3600 * SECOND;
    assert_eq!(held.table.decide(&place.hold_id, HoldDecision::Deny, held.now), [0_u64; 0]);
    assert_eq!(held.enter(1), Admission::Denied);
}

#[test]
fn a_client_is_not_sent_away_the_last_time() {
    let mut held = Fixture::new();
    for _ in 1..ATTEMPTS {
        let place = held.waits(1);
        assert_eq!(held.table.check(&place.hold_id, HoldDecision::Later, held.now), Ok(true));
        held.end(&place, ReleaseDecision::Later);
        assert_eq!(held.table.check(&place.hold_id, HoldDecision::Later, held.now), Ok(false), "nothing waits");
    }
    let last = held.waits(1);
    assert_eq!(held.table.check(&last.hold_id, HoldDecision::Later, held.now), Err(Undecidable::LastAttempt));
    assert_eq!(held.table.check("hold-none", HoldDecision::Deny, held.now), Err(Undecidable::Unknown));
}

#[test]
fn a_paused_call_is_not_denied() {
    let mut held = Fixture::new();
    let paused = ArrivingRequest { cause: HoldCause::Paused, ..arriving(1) };
    let Admission::Waits(place) = held.table.enter(paused, "hold-p".to_owned(), held.now) else { panic!("it waits") };
    assert_eq!(held.table.check(&place.hold_id, HoldDecision::Deny, held.now), Err(Undecidable::Paused));
    assert_eq!(held.table.check(&place.hold_id, HoldDecision::Later, held.now), Ok(true));
    assert!(!held.table.is_at_cap());
}

proptest! {
    /// Whatever comes, eight wait at most, and memory stays bounded.
    #[test]
    fn the_table_is_bounded(steps in prop::collection::vec((0_u8..5, 0_u8..200), 1..400)) {
        let mut held = Fixture::new();
        let mut places = Vec::new();
        for (step, at) in steps {
            held.now += SECOND;
            match step {
                0..=2 => match held.enter(at) {
                    Admission::Waits(place) => places.push(place),
                    Admission::Full => prop_assert_eq!(places.len(), HELD_MAX),
                    Admission::Denied | Admission::Exhausted => {}
                },
                _ if places.is_empty() => {}
                _ => {
                    let place = places.remove(usize::from(at) % places.len());
                    let ends = [ReleaseDecision::Timeout, ReleaseDecision::Deny, ReleaseDecision::Left];
                    held.end(&place, ends[usize::from(at) % 3]);
                }
            }
            let mut tickets: Vec<_> = held.table.waiting().iter().map(|waiting| waiting.ticket).collect();
            tickets.sort_unstable();
            let mut expected: Vec<_> = places.iter().map(|place| place.ticket).collect();
            expected.sort_unstable();
            prop_assert_eq!(tickets, expected);
            prop_assert!(held.table.holds.len() <= HOLDS_MAX);
            prop_assert!(held.table.holds.iter().all(|hold| hold.told.len() <= HELD_MAX));
        }
    }

    /// A sandbox that leaves again and again writes a bounded number of records.
    #[test]
    fn the_number_of_waits_is_bounded(body in 0_u8..3) {
        let mut held = Fixture::new();
        for _ in 0..WAITS_MAX {
            let place = held.waits(body);
            held.end(&place, ReleaseDecision::Left);
        }
        prop_assert_eq!(held.enter(body), Admission::Exhausted);
    }
}
