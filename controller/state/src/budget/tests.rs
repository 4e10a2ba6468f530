use proptest::prelude::*;

use super::*;

mod accounts;
mod log_file;

fn balance(granted: i128, spent: i128, held: i128) -> Balance {
    Balance { granted, spent, held }
}

#[test]
fn a_run_holds_at_most_the_remainder() {
    let rows = [
        // granted, spent, held, cap, amount that it holds
        ((100, 0, 0), Some(100), Some(100)),
        ((100, 0, 0), Some(101), None),
        ((100, 40, 30), Some(30), Some(30)),
        ((100, 40, 30), Some(31), None),
        ((100, 0, 0), None, Some(10)),
        ((100, 95, 0), None, Some(5)),
        ((100, 100, 0), None, None),
        ((100, 0, 100), None, None),
        ((100, 120, 0), None, None),
        ((100, 120, 0), Some(0), None),
        ((0, 0, 0), Some(0), None),
        ((100, 0, 0), Some(0), Some(0)),
        ((i128::from(i64::MAX) * 2, 0, 0), Some(i64::MAX), Some(i64::MAX)),
    ];
    for ((granted, spent, held), cap, expected) in rows {
        let admitted = balance(granted, spent, held).admit(cap, 10).ok();
        assert_eq!(admitted, expected, "{granted} - {spent} - {held}, {cap:?}");
    }
}

#[test]
fn unknown_amounts_stay_held() {
    let read = |open: &[Option<i64>]| HoldState::Read { open: open.to_vec() };
    let rows = [
        // hold, billed, after, still held
        (100, 0, HoldState::Uncertain, 100),
        (100, 30, HoldState::Uncertain, 70),
        (100, 130, HoldState::Uncertain, 0),
        (100, 30, read(&[]), 0),
        (100, 30, read(&[Some(20), Some(5)]), 25),
        (100, 30, read(&[Some(20), None]), 70),
        (100, 90, read(&[Some(20), None]), 20),
        (100, 130, read(&[Some(20)]), 20),
        (0, 0, read(&[None]), 0),
    ];
    for (hold, billed, after, expected) in rows {
        assert_eq!(still_held(hold, billed, &after), expected, "{hold}, {billed}, {after:?}");
    }
}

#[test]
fn a_shortfall_names_account_amounts_and_advice() {
    let short = |asked, balance| Shortfall { account: "acct-1".into(), asked, balance }.to_string();
    assert_eq!(
        short(Some(500_000_000), balance(2_000_000_000, 1_200_000_000, 400_000_000)),
        "account acct-1 has $0.4 left of its budget ($2 granted, $1.2 spent, $0.4 held), and this run asks for $0.5 \
         (--max-cost-usd); lower that, wait for runs that hold some, or give more: sluice budget add acct-1 USD"
    );
    assert!(short(None, balance(0, 5_400, 0)).starts_with("account acct-1 has -$0.0000054 left of its budget"));
}

/// A run of the model below.
#[derive(Debug, Clone)]
struct Run {
    hold: i64,
    billed: i128,
    after: HoldState,
}

#[derive(Debug, Clone)]
enum Op {
    Admit(Option<i64>),
    /// A call of the run is billed, with a cost in percent of the hold.
    BookedReceipt(usize, i64),
    /// The run ends with calls of unknown cost; each has a reservation or not.
    End(usize, Vec<bool>),
    /// The operator adds to the budget.
    Grant(i64),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => proptest::option::of(0..400i64).prop_map(Op::Admit),
        3 => (0..8usize, 0..150i64).prop_map(|(run, part)| Op::BookedReceipt(run, part)),
        3 => (0..8usize, proptest::collection::vec(any::<bool>(), 0..3)).prop_map(|(run, open)| Op::End(run, open)),
        1 => (0..200i64).prop_map(Op::Grant),
    ]
}

proptest! {
    /// In any order of events, the holds never exceed the budget, and only a call above the hold of its run takes an
    /// account below zero.
    #[test]
    fn no_admission_takes_an_account_below_zero(ops in proptest::collection::vec(op(), 0..60)) {
        let mut runs: Vec<Run> = Vec::new();
        let (mut granted, mut overshot) = (1000i128, 0i128);
        let stands = |runs: &[Run], granted| Balance {
            granted,
            spent: runs.iter().map(|run| run.billed).sum(),
            held: runs.iter().map(|run| still_held(run.hold, run.billed, &run.after)).sum(),
        };
        for op in ops {
            let before = stands(&runs, granted);
            match op {
                Op::Admit(cap) => {
                    let admitted = before.admit(cap, 100);
                    prop_assert_eq!(admitted.is_ok(), before.left() > 0 && cap.is_none_or(|cap| i128::from(cap) <= before.left()));
                    if let Ok(hold) = admitted {
                        runs.push(Run { hold, billed: 0, after: HoldState::Uncertain });
                        prop_assert!(stands(&runs, granted).left() >= 0);
                        prop_assert_eq!(stands(&runs, granted).left(), before.left() - i128::from(hold));
                    }
                }
                Op::BookedReceipt(at, part) => if let Some(run) = runs.get_mut(at).filter(|run| run.after == HoldState::Uncertain) {
                    run.billed += i128::from(run.hold * part / 100);
                }
                Op::End(at, open) => if let Some(run) = runs.get_mut(at).filter(|run| run.after == HoldState::Uncertain) {
                    // The sidecar reserves at most the rest of the cap.
                    let mut rest = (i128::from(run.hold) - run.billed).max(0);
                    let open = open.into_iter().map(|known| {
                        let part = rest / 2;
                        rest -= part;
                        known.then(|| i64::try_from(part).unwrap_or(0))
                    });
                    run.after = HoldState::Read { open: open.collect() };
                }
                Op::Grant(more) => granted += i128::from(more),
            }
            overshot = overshot.max(runs.iter().map(|run| (run.billed - i128::from(run.hold)).max(0)).sum());
            prop_assert!(stands(&runs, granted).left() >= -overshot);
        }
    }
}
