use super::*;
use proptest::prelude::*;

fn caps(limits: CapLimits) -> Arc<Caps> {
    Caps::new(CapLimits { concurrency: if limits.concurrency == 0 { 1000 } else { limits.concurrency }, ..limits })
}

fn reason(result: &Result<Reservation, Refusal>) -> Option<Reason> {
    result.as_ref().err().map(|refusal| refusal.reason)
}

#[test]
fn required_thinking_fits_or_the_call_is_refused() {
    let output = |wanted| Some(OutputRequest { wanted, choices: 1, least: 2048, ..OutputRequest::default() });
    let granted = |left: u64, wanted| {
        let caps = Caps::new(CapLimits { tokens: Some(left), concurrency: 9, ..CapLimits::default() });
        let request = CapRequest { output: output(wanted), strict: true, ..CapRequest::default() };
        caps.reserve(request, Instant::now()).ok().and_then(|reservation| reservation.output())
    };
    assert_eq!(granted(10_000, 32_000), Some(5000));
    assert_eq!((granted(4095, 32_000), granted(2048, 32_000)), (Some(2048), Some(2048)));
    assert_eq!((granted(2047, 32_000), granted(1500, 1500), granted(1499, 1500)), (None, Some(1500), None));
}

#[test]
fn a_burst_passes_exactly_up_to_the_cap() {
    let now = Instant::now();
    let request = CapRequest { tokens: 10, femtos: 100 * FEMTOS_PER_NANO, strict: true, output: None };
    for limits in [
        CapLimits { calls: Some(7), ..CapLimits::default() },
        CapLimits { tokens: Some(79), ..CapLimits::default() },
        CapLimits { nanos: Some(700), ..CapLimits::default() },
        CapLimits { rate: Some(7), ..CapLimits::default() },
        CapLimits { concurrency: 7, ..CapLimits::default() },
    ] {
        let caps = caps(limits);
        let burst: Vec<_> = (0..70).map(|_| caps.reserve(request, now)).collect();
        assert_eq!(burst.iter().filter(|one| one.is_ok()).count(), 7, "{limits:?}");
    }
}

#[test]
fn a_guess_takes_no_more_than_what_is_left() {
    let caps = caps(CapLimits { tokens: Some(1000), ..CapLimits::default() });
    let guess = CapRequest { tokens: 4096, ..CapRequest::default() };
    let first = caps.reserve(guess, Instant::now()).expect("a guess may take all");
    assert_eq!(reason(&caps.reserve(guess, Instant::now())), Some(Reason::BudgetExceeded));
    first.settle(ActualUsage { tokens: Some(15), nanos: None });
    let second = caps.reserve(guess, Instant::now()).expect("985 are left");
    second.settle(ActualUsage { tokens: Some(985), nanos: None });
    assert_eq!(reason(&caps.reserve(guess, Instant::now())), Some(Reason::BudgetExceeded));
}

#[test]
fn an_answer_that_does_not_fit_is_made_shorter() {
    let cap = |tokens| caps(CapLimits { tokens: Some(tokens), ..CapLimits::default() });
    let output = |wanted| Some(OutputRequest { wanted, choices: 2, ..OutputRequest::default() });
    let request = |wanted| CapRequest { tokens: 100, femtos: 0, output: output(wanted), strict: true };
    let granted = |caps: &Arc<Caps>, wanted| caps.reserve(request(wanted), Instant::now());
    let whole = granted(&cap(8100), 4000).expect("it fits");
    assert_eq!((whole.output(), whole.is_lowered(), whole.tokens()), (Some(4000), false, 8100));
    let halved = granted(&cap(16_100), 64_000).expect("half of what fits");
    assert_eq!((halved.output(), halved.is_lowered(), halved.tokens()), (Some(4000), true, 8100));
    let shared = cap(20_100);
    let open: Vec<_> = std::iter::from_fn(|| granted(&shared, 64_000).ok()).take(9).collect();
    assert_eq!(open.iter().map(|it| it.output().unwrap_or(0)).collect::<Vec<_>>(), [5000, 2475, 1212, 1024]);
    assert_eq!(reason(&granted(&cap(2000), 64_000)), Some(Reason::BudgetExceeded), "below the floor");
    assert!(granted(&cap(2000), 950).is_ok(), "so short an answer was wanted");
    let guess = CapRequest { strict: false, tokens: 1_000_000, ..request(64_000) };
    let guessed = cap(50_000).reserve(guess, Instant::now()).expect("a guess refuses nothing");
    assert_eq!((guessed.output(), guessed.tokens()), (Some(12_500), 50_000));
}

#[test]
fn a_smaller_guess_refuses_no_call_that_a_larger_one_lets_through() {
    let left = CapLimits { tokens: Some(8100), bounds: OutputBounds::Off, ..CapLimits::default() };
    let output = Some(OutputRequest { wanted: 1000, choices: 1, is_bounded: true, ..OutputRequest::default() });
    for tokens in [0, 7100, 7101, 8000, 8100, 8200] {
        let guess = CapRequest { tokens, output, ..CapRequest::default() };
        let granted = caps(left).reserve(guess, Instant::now()).expect("a guess refuses nothing");
        assert_eq!(granted.output(), Some(1000), "{tokens}");
        assert!(granted.tokens() <= 8100, "{tokens}: {}", granted.tokens());
    }
}

#[test]
fn without_bounds_of_the_sidecar_calls_are_refused() {
    let cap = |tokens| caps(CapLimits { tokens: Some(tokens), bounds: OutputBounds::Off, ..CapLimits::default() });
    let reserve = |caps: &Arc<Caps>, tokens, is_bounded| {
        let output = Some(OutputRequest { wanted: 4000, choices: 2, is_bounded, ..OutputRequest::default() });
        caps.reserve(CapRequest { tokens, femtos: 0, output, strict: true }, Instant::now())
    };
    let named = reserve(&cap(8100), 100, true).expect("it fits");
    assert_eq!((named.tokens(), named.is_lowered(), named.is_strict()), (8100, false, true));
    let refused = reserve(&cap(8099), 100, true).expect_err("nothing shortens it");
    assert!(refused.message.contains("needs up to 8100"), "{}", refused.message);

    // An assumed length takes what is left, and is no upper bound.
    let assumed = reserve(&cap(1100), 100, false).expect("it might fit");
    assert_eq!((assumed.tokens(), assumed.is_strict()), (1100, false));
    assert!(!reserve(&cap(9000), 100, false).expect("it might fit").is_strict());
    let refused = reserve(&cap(99), 100, false).expect_err("the prompt alone does not fit");
    assert!(refused.message.contains("needs up to 100;"), "{}", refused.message);
}

#[test]
fn a_call_may_fit_after_open_calls() {
    let caps = caps(CapLimits { tokens: Some(3000), calls: Some(3), ..CapLimits::default() });
    let output = Some(OutputRequest { wanted: 64_000, choices: 1, ..OutputRequest::default() });
    let request = |tokens| CapRequest { tokens, femtos: 0, output, strict: true };
    assert!(!caps.may_fit_later(&request(0)), "no call is open");
    let open = caps.reserve(request(900), Instant::now()).expect("it fits");
    assert_eq!(reason(&caps.reserve(request(900), Instant::now())), Some(Reason::BudgetExceeded));
    assert_eq!(
        (caps.may_fit_later(&request(900)), caps.may_fit_later(&request(1977))),
        (true, false),
        "1,024 for the answer"
    );
    open.settle(ActualUsage { tokens: Some(1500), nanos: None });
    let open = caps.reserve(request(100), Instant::now()).expect("1,500 are left");
    assert_eq!((caps.may_fit_later(&request(476)), caps.may_fit_later(&request(477))), (true, false));
    let _third = caps.reserve(CapRequest::default(), Instant::now()).expect("it takes nothing");
    assert!(!caps.may_fit_later(&request(100)), "three calls are all");
    drop(open);
}

#[test]
fn dollars_are_granted_without_rounding_in_the_clients_favour() {
    let caps = caps(CapLimits { nanos: Some(10), ..CapLimits::default() });
    // 1.5 nano-dollars a token.
    let output = Some(OutputRequest { wanted: 5000, choices: 1, femtos: 1_500_000, ..OutputRequest::default() });
    let request = CapRequest { tokens: 0, femtos: 1, output, strict: true };
    assert_eq!(
        caps.reserve(request, Instant::now()).map_err(|refusal| refusal.reason).err(),
        Some(Reason::BudgetExceeded)
    );
    let short = CapRequest { output: output.map(|output| OutputRequest { wanted: 6, ..output }), ..request };
    let reserved = caps.reserve(short, Instant::now()).expect("nine and a bit");
    assert_eq!((reserved.nanos(), reserved.output()), (10, Some(6)));
}

#[test]
fn a_refusal_names_the_cap_and_what_is_left() {
    let tokens = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
    let request = CapRequest { tokens: 150, femtos: 2_000 * FEMTOS_PER_NANO, strict: true, output: None };
    let said = tokens.reserve(request, Instant::now()).expect_err("too many").message;
    assert!(said.starts_with("of the run's 100 tokens 100 are left, and this call needs up to 150"), "{said}");
    let dollars = caps(CapLimits { nanos: Some(1000), ..CapLimits::default() });
    let said = dollars.reserve(request, Instant::now()).expect_err("too much").message;
    assert!(
        said.starts_with("of the run's $0.000001 $0.000001 are left, and this call needs up to $0.000002"),
        "{said}"
    );
}

#[test]
fn without_prices_known_cost_stops_the_next_call() {
    let caps = caps(CapLimits { nanos: Some(100), ..CapLimits::default() });
    let free = CapRequest::default();
    caps.reserve(free, Instant::now())
        .expect("nothing known yet")
        .settle(ActualUsage { tokens: None, nanos: Some(99) });
    caps.reserve(free, Instant::now()).expect("99 of 100").settle(ActualUsage { tokens: None, nanos: Some(1) });
    assert_eq!(reason(&caps.reserve(free, Instant::now())), Some(Reason::BudgetExceeded));
}

#[test]
fn a_call_without_usage_is_charged_its_reservation() {
    let request = CapRequest { tokens: 60, strict: true, ..CapRequest::default() };
    let charged = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
    charged.reserve(request, Instant::now()).expect("fits").settle(ActualUsage::default());
    assert_eq!(reason(&charged.reserve(request, Instant::now())), Some(Reason::BudgetExceeded));
    assert_eq!(charged.open(), 0);
    let caps = caps(CapLimits { calls: Some(1), tokens: Some(100), ..CapLimits::default() });
    drop(caps.reserve(request, Instant::now()).expect("fits"));
    assert!(caps.reserve(request, Instant::now()).is_ok(), "what was never sent is given back");
}

#[test]
fn calls_that_are_never_sent_come_to_an_end() {
    let caps = caps(CapLimits { calls: Some(5), ..CapLimits::default() });
    let given = (0..UNSENT_MAX + 10).filter(|_| caps.reserve(CapRequest::default(), Instant::now()).is_ok()).count();
    assert_eq!(given as u64, UNSENT_MAX + 5);
}

#[test]
fn the_rate_refills_with_time() {
    let caps = caps(CapLimits { rate: Some(2), ..CapLimits::default() });
    let start = Instant::now();
    let at = |ms: u64| reason(&caps.reserve(CapRequest::default(), start + Duration::from_millis(ms)));
    assert_eq!(
        [at(0), at(0), at(0), at(500), at(500), at(10_000), at(10_000), at(10_000)],
        [None, None, Some(Reason::RateLimited), None, Some(Reason::RateLimited), None, None, Some(Reason::RateLimited)]
    );
}

proptest! {
    /// In every order, the used and reserved amounts stay within a cap of strict calls, and nothing is lost.
    #[test]
    fn strict_calls_never_pass_the_cap(steps in prop::collection::vec((1u64..50, 0u64..3), 1..60)) {
        let caps = caps(CapLimits { tokens: Some(100), ..CapLimits::default() });
        let (mut open, mut settled) = (Vec::new(), 0u64);
        for (tokens, what) in steps {
            if what == 0 {
                if let Ok(reservation) = caps.reserve(CapRequest { tokens, strict: true, ..CapRequest::default() }, Instant::now()) {
                    open.push((reservation, tokens));
                }
            } else if let Some((reservation, tokens)) = open.pop() {
                if what == 1 {
                    settled += tokens / 2;
                    reservation.settle(ActualUsage { tokens: Some(tokens / 2), nanos: None });
                } else {
                    drop(reservation);
                }
            }
            let reserved: u64 = open.iter().map(|(_, tokens)| tokens).sum();
            prop_assert_eq!(caps.lock().tokens, reserved + settled);
            prop_assert!(reserved + settled <= 100);
            prop_assert_eq!(caps.open(), open.len());
        }
    }
}
