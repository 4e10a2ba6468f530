//! Questions, decisions, lost sidecars and killed daemons in any order, against a model.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

const BUDGET: i64 = 1000;

#[derive(Debug, Clone)]
enum Op {
    /// The sidecar reports the cap in force, and perhaps a call that waits.
    Ask(Option<i64>),
    /// A person decides on the digest of this many asks ago.
    Decide {
        back: usize,
        decision: ApprovalDecision,
        raise: Option<i64>,
    },
    /// The sidecar gets the decision.
    Apply,
    Expire,
    /// The daemon is killed, and another one opens the database.
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let decision =
        proptest::sample::select(vec![ApprovalDecision::Approve, ApprovalDecision::Approve, ApprovalDecision::Deny]);
    prop_oneof![
        5 => proptest::option::of(1..600i64).prop_map(Op::Ask),
        5 => (0..3usize, decision, proptest::option::of(1..900i64))
            .prop_map(|(back, decision, raise)| Op::Decide { back, decision, raise }),
        3 => Just(Op::Apply),
        1 => Just(Op::Expire),
        1 => Just(Op::Crash),
    ]
}

/// Expected state: the cap, the value that the sidecar has, the digests that people saw.
#[derive(Debug)]
struct Model {
    cap: i64,
    of_sidecar: i64,
    seen: Vec<Approval>,
    decided: usize,
    /// The cap that was denied last.
    denied_at: Option<i64>,
}

async fn play(ops: Vec<Op>) {
    let mut one = OneRun::new(Some(BUDGET)).await;
    let mut model = Model { cap: CAP, of_sidecar: CAP, seen: Vec::new(), decided: 0, denied_at: None };
    let key = one.run().await.key;
    for (at, op) in ops.into_iter().enumerate() {
        let now = 10 + i64::try_from(at).expect("a few");
        match op {
            Op::Ask(asked) if model.of_sidecar == model.cap => {
                let asked = asked.map(|more| model.cap + more);
                match one.ask(RaisableCap::MaxCostUsd, model.cap, asked, now).await {
                    ApprovalOutcome::Open(approval) => {
                        assert_eq!(approval.cap.map(|(_, old, _)| old), Some(model.cap));
                        assert_ne!(model.denied_at, Some(model.cap));
                        model.seen.push(approval);
                    }
                    ApprovalOutcome::Denied(_) => assert_eq!(model.denied_at, Some(model.cap)),
                    outcome => panic!("the run works, and the cap is in force: {outcome:?}"),
                }
            }
            // A sidecar that does not have the last raise yet reports the cap before it.
            Op::Ask(asked) => {
                let asked = asked.map(|more| model.of_sidecar + more);
                let outcome = one.ask(RaisableCap::MaxCostUsd, model.of_sidecar, asked, now).await;
                assert_eq!(outcome, ApprovalOutcome::Raised);
            }
            Op::Decide { back, decision, raise } => decide(&one, &mut model, (back, decision, raise)).await,
            Op::Apply => {
                for approval in one.store.unapplied_approvals(&key).await.expect("it is readable") {
                    model.of_sidecar = approval.raised_to.unwrap_or(model.of_sidecar);
                    one.store.record_applied(&approval.id, now).await.expect("it is writable");
                }
                assert_eq!(model.of_sidecar, model.cap, "each raise reaches the sidecar");
            }
            Op::Expire => {
                for approval in one.store.expire_approvals(now + HOUR + 100).await.expect("it is writable") {
                    assert_eq!(approval.decision, Some(ApprovalDecision::Expired));
                    // No person had to decide while no call waited.
                    if approval.held_us.is_some() {
                        model.denied_at = Some(model.cap);
                    }
                    model.decided += 1;
                }
            }
            Op::Crash => one.store = Store::open(&one.directory.path().join("sluice.db")).expect("it is there"),
        }
        let run = one.run().await;
        assert_eq!((run.cap, run.attempt_cap), (Some(model.cap), Some(model.cap)));
        assert_eq!(one.held().await, i128::from(model.cap), "the hold is the cap");
        let all = one.store.approvals_of(&run.key.run_id).await.expect("it is readable");
        assert!(all.iter().filter(|it| it.decision.is_none()).count() <= 1, "{all:?}");
        assert_eq!(all.iter().filter(|it| it.decision.is_some()).count(), model.decided, "{all:?}");
    }
}

async fn decide(one: &OneRun, model: &mut Model, (back, decision, raise): (usize, ApprovalDecision, Option<i64>)) {
    let Some(seen) = model.seen.iter().rev().nth(back).cloned() else { return };
    let (_, old, proposed) = seen.cap.expect("it is about a cap");
    let present = one.store.find_approval(&run_id(), &seen.id).await.expect("it is readable").expect("it was made");
    let result = one.decide(&seen, decision, raise).await;
    let to = raise.unwrap_or(proposed);
    let expected = match () {
        () if present.decision.is_some() => "decided",
        () if present.digest != seen.digest => "changed",
        () if decision == ApprovalDecision::Deny => "ok",
        () if to <= old => "not_raised",
        () if to > BUDGET => "insufficient",
        () => "ok",
    };
    assert_eq!(word(&result), expected, "{present:?} {decision:?} {raise:?}");
    if let Ok(decided) = result {
        model.decided += 1;
        match decision {
            ApprovalDecision::Approve => model.cap = decided.raised_to.expect("it is raised"),
            _ => model.denied_at = Some(model.cap),
        }
    }
}

proptest! {
    #![proptest_config(Config::with_cases(48))]

    #[test]
    fn caps_holds_and_decisions_agree_after_any_history(ops in proptest::collection::vec(op(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(play(ops));
    }
}
