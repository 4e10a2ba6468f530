use sluice_contract::RunId;
use tempfile::TempDir;

use super::*;
use crate::budget::BudgetError;
use crate::creation::NewSandbox;
use crate::events::EventFilter;
use crate::git_runs::GitStep;
use crate::process::Process;
use crate::sandboxes::{ClaimLimits, Sandbox, SandboxStep, SandboxVerdict};
use crate::store::Store;
use crate::test_sandbox::new_sandbox;

mod histories;

/// A database with one working run, whose cap is 100 nano-USD.
struct OneRun {
    directory: TempDir,
    store: Store,
}

const CAP: i64 = 100;
const HOUR: i64 = 3_600_000_000;

fn run_id() -> RunId {
    "r1".parse().expect("an id")
}

impl OneRun {
    async fn new(budget: Option<i64>) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        if let Some(budget) = budget {
            store.set_budget(&"acct".parse().expect("a name"), budget).await.expect("it is writable");
        }
        let daemon = Process::current().expect("there is /proc");
        let new = NewSandbox { cap: Some(CAP), run_time_us: HOUR, ..new_sandbox("r1") };
        store.create_sandbox(new, 1).await.expect("it can be created");
        let limits = ClaimLimits { host: 1, project: 1, owner: 1 };
        store.claim_next(&daemon, limits, 2).await.expect("it is writable");
        let one = Self { directory, store };
        one.step(SandboxStep::Start).await;
        one
    }

    async fn run(&self) -> Sandbox {
        self.store.find_sandbox(None, &run_id()).await.expect("it is readable").expect("it is there")
    }

    async fn step(&self, step: SandboxStep) {
        let generation = self.run().await.generation;
        self.store.step_sandbox(&run_id(), generation, step, "test", 3).await.expect("it is legal");
    }

    async fn ask(&self, cap: RaisableCap, old: i64, asked: Option<i64>, now_us: i64) -> ApprovalOutcome {
        let ask = ApprovalAsk {
            id: format!("apr-{now_us}"),
            key: self.run().await.key,
            cap,
            old,
            asked,
            highest: None,
            is_held: asked.is_some(),
            ask_timeout_us: HOUR,
        };
        self.store.ask_approval(ask, now_us).await.expect("it is writable")
    }

    async fn open(&self, cap: RaisableCap, old: i64, asked: Option<i64>, now_us: i64) -> Approval {
        match self.ask(cap, old, asked, now_us).await {
            ApprovalOutcome::Open(approval) => approval,
            other => panic!("{other:?}"),
        }
    }

    async fn decide(
        &self,
        of: &Approval,
        decision: ApprovalDecision,
        raise: Option<i64>,
    ) -> Result<Approval, ApprovalError> {
        let request = DecisionRequest { run_cap: self.run().await.cap, ..request(of, decision, raise) };
        self.store.decide_approval(request, 500).await
    }

    async fn held(&self) -> i128 {
        let budgets = self.store.budgets(None).await.expect("it is readable");
        budgets[0].1.held
    }

    async fn types(&self) -> Vec<String> {
        let events = self.store.events_after(0, EventFilter::default(), 1000).await.expect("it is readable").events;
        events.into_iter().map(|event| event.event_type).filter(|name| name.starts_with("approval.")).collect()
    }
}

fn request(of: &Approval, decision: ApprovalDecision, raise: Option<i64>) -> DecisionRequest {
    DecisionRequest {
        run_id: run_id(),
        id: of.id.clone(),
        digest: of.digest.clone(),
        decision,
        raise,
        run_cap: Some(CAP),
        by: "token:1".to_owned(),
        reason: Some("go on".to_owned()),
    }
}

fn word<T>(result: &Result<T, ApprovalError>) -> &'static str {
    match result {
        Ok(_) => "ok",
        Err(ApprovalError::NotFound) => "not_found",
        Err(ApprovalError::Changed) => "changed",
        Err(ApprovalError::Decided(_)) => "decided",
        Err(ApprovalError::NotRaised(_)) => "not_raised",
        Err(ApprovalError::Budget(BudgetError::Insufficient(_))) => "insufficient",
        Err(_) => "other",
    }
}

#[tokio::test]
async fn the_time_of_an_approval_begins_at_the_first_hold() {
    let one = OneRun::new(None).await;
    let early = one.open(RaisableCap::MaxCostUsd, CAP, None, 10).await;
    let held = one.open(RaisableCap::MaxCostUsd, CAP, Some(CAP + 1), HOUR).await;
    let again = one.open(RaisableCap::MaxCostUsd, CAP, Some(CAP + 1), HOUR + 5).await;

    assert_eq!((early.expires_us, early.held_us), (HOUR + 10, None));
    assert_eq!((held.expires_us, held.held_us), (2 * HOUR, Some(HOUR)));
    assert!(held.id == early.id && held.digest != early.digest, "the expiry is part of the digest");
    assert_eq!(again, held, "a second call changes nothing");
    assert_eq!(one.types().await, ["approval.requested", "approval.held"]);
    assert_eq!(word(&one.decide(&early, ApprovalDecision::Approve, None).await), "changed");
    one.decide(&held, ApprovalDecision::Approve, None).await.expect("it is the one of now");
}

#[tokio::test]
async fn a_raise_is_held_of_the_budget() {
    let one = OneRun::new(Some(250)).await;
    let asked = one.open(RaisableCap::MaxCostUsd, CAP, Some(130), 10).await;
    assert_eq!((asked.cap, asked.held_us), (Some((RaisableCap::MaxCostUsd, CAP, 200)), Some(10)));

    let too_much = one.decide(&asked, ApprovalDecision::Approve, Some(251)).await;
    assert_eq!((word(&too_much), one.held().await), ("insufficient", 100));
    assert_eq!(word(&one.decide(&asked, ApprovalDecision::Approve, Some(CAP)).await), "not_raised");
    let approved = one.decide(&asked, ApprovalDecision::Approve, None).await.expect("the budget has enough");

    let run = one.run().await;
    assert_eq!((run.cap, run.attempt_cap, one.held().await), (Some(200), Some(200), 200));
    assert_eq!((approved.raised_to, approved.applied_us), (Some(200), None));
    assert_eq!(one.store.unapplied_approvals(&run.key).await.expect("it is readable"), std::slice::from_ref(&approved));
    one.store.record_applied(&approved.id, 600).await.expect("it is writable");
    assert!(one.store.unapplied_approvals(&run.key).await.expect("it is readable").is_empty());
    assert_eq!(one.types().await, ["approval.requested", "approval.decided"]);
}

#[tokio::test]
async fn a_raise_with_the_old_key_is_reported_once() {
    let one = OneRun::new(None).await;
    let asked = one.open(RaisableCap::MaxCalls, 5, None, 10).await;
    let approved = one.decide(&asked, ApprovalDecision::Approve, None).await.expect("it is open");

    for is_first in [true, false] {
        let recorded = one.store.record_applied_with_old_key(&approved, "status 404", 600).await;
        assert_eq!(recorded.expect("it is writable"), is_first);
    }

    assert_eq!(one.store.unapplied_approvals(&approved.key).await.expect("it is readable"), []);
    assert_eq!(one.types().await, ["approval.requested", "approval.decided", "approval.key_not_raised"]);
    let found = one.store.find_approval(&run_id(), &approved.id).await.expect("it is readable").expect("it is there");
    assert_eq!((found.decision, found.applied_us), (Some(ApprovalDecision::Approve), Some(600)));
}

#[tokio::test]
async fn a_raise_judged_on_another_cap_is_refused() {
    let one = OneRun::new(Some(250)).await;
    let asked = one.open(RaisableCap::MaxCostUsd, CAP, None, 10).await;
    for run_cap in [None, Some(CAP - 1)] {
        let judged = DecisionRequest { run_cap, ..request(&asked, ApprovalDecision::Approve, Some(150)) };
        assert_eq!(word(&one.store.decide_approval(judged, 500).await), "changed");
    }
    assert_eq!((one.run().await.cap, one.held().await), (Some(CAP), 100));
    assert_eq!(word(&one.decide(&asked, ApprovalDecision::Approve, Some(150)).await), "ok");
}

#[tokio::test]
async fn proposals_of_later_attempts_stay_within_the_limit() {
    let one = OneRun::new(None).await;
    // Earlier attempts have spent 900.
    let connection = rusqlite::Connection::open(one.directory.path().join("sluice.db")).expect("it is there");
    connection.execute_batch("UPDATE sandboxes SET cap_nano = 1000").expect("it is writable");
    let ask = |asked| ApprovalAsk {
        id: "apr-1".to_owned(),
        key: "r1.0".parse().expect("a key"),
        cap: RaisableCap::MaxCostUsd,
        old: CAP,
        asked,
        highest: Some(1050),
        is_held: true,
        ask_timeout_us: HOUR,
    };
    for (asked, expected) in [(None, 150), (Some(160), 160)] {
        let open = match one.store.ask_approval(ask(asked), 10).await.expect("it is writable") {
            ApprovalOutcome::Open(open) => open,
            other => panic!("{other:?}"),
        };
        assert_eq!(open.cap, Some((RaisableCap::MaxCostUsd, CAP, expected)));
    }
}

#[tokio::test]
async fn of_two_raises_at_once_one_wins() {
    let one = OneRun::new(Some(1000)).await;
    let asked = one.open(RaisableCap::MaxCostUsd, CAP, None, 10).await;
    let (first, second) = tokio::join!(
        one.decide(&asked, ApprovalDecision::Approve, Some(300)),
        one.decide(&asked, ApprovalDecision::Approve, Some(400))
    );
    let mut words = [word(&first), word(&second)];
    words.sort_unstable();
    assert_eq!(words, ["decided", "ok"]);
    let raised = first.or(second).expect("one of them").raised_to;
    assert_eq!((one.run().await.attempt_cap, one.held().await), (raised, i128::from(raised.expect("it was raised"))));
}

#[tokio::test]
async fn a_decision_after_the_cap_moved_is_refused() {
    let one = OneRun::new(None).await;
    let asked = one.open(RaisableCap::MaxCalls, 5, None, 10).await;
    let stale = Approval { digest: "0".repeat(64), ..asked.clone() };
    assert_eq!(word(&one.decide(&stale, ApprovalDecision::Approve, None).await), "changed");
    // A call needs more than was proposed: another proposal.
    let next = one.open(RaisableCap::MaxCalls, 5, Some(50), 20).await;
    assert_eq!((next.id == asked.id, next.digest == asked.digest, next.held_us), (true, false, Some(20)));
    assert_eq!(word(&one.decide(&asked, ApprovalDecision::Deny, None).await), "changed");
    // The cap has moved by other means.
    let other = one.open(RaisableCap::MaxCalls, 9, None, 30).await;
    assert_eq!(word(&one.decide(&next, ApprovalDecision::Approve, None).await), "decided");
    one.step(SandboxStep::Decide(SandboxVerdict::Success)).await;
    assert_eq!(word(&one.decide(&other, ApprovalDecision::Approve, None).await), "changed", "the run is over");
    assert_eq!(one.ask(RaisableCap::MaxCalls, 9, None, 40).await, ApprovalOutcome::Over);
    assert!(one.store.expire_approvals(i64::MAX).await.expect("it is writable").is_empty());
}

#[tokio::test]
async fn a_denied_cap_is_not_asked_about_again() {
    let one = OneRun::new(None).await;
    let asked = one.open(RaisableCap::MaxTokens, 5, Some(6), 10).await;
    assert!(one.store.is_on_hold(&asked.key).await.expect("it is readable"));
    one.decide(&asked, ApprovalDecision::Deny, None).await.expect("it is open");
    assert!(one.store.runs_on_hold().await.expect("it is readable").is_empty());
    assert!(matches!(one.ask(RaisableCap::MaxTokens, 5, Some(6), 20).await, ApprovalOutcome::Denied(_)));
    let later = one.open(RaisableCap::MaxCalls, 5, Some(6), 30).await;
    let expired = one.store.expire_approvals(30 + HOUR).await.expect("it is writable");
    assert_eq!(
        expired.iter().map(|it| (&it.id, it.decision)).collect::<Vec<_>>(),
        [(&later.id, Some(ApprovalDecision::Expired))]
    );
    assert_eq!(word(&one.decide(&later, ApprovalDecision::Approve, None).await), "decided");
    assert!(matches!(one.ask(RaisableCap::MaxCalls, 5, Some(6), 40).await, ApprovalOutcome::Denied(_)));
}

#[tokio::test]
async fn another_budget_asks_again() {
    let one = OneRun::new(Some(150)).await;
    let asked = one.open(RaisableCap::MaxCostUsd, CAP, None, 10).await;
    assert_eq!(word(&one.decide(&asked, ApprovalDecision::Approve, None).await), "insufficient");
    one.store.set_budget(&"acct".parse().expect("a name"), 500).await.expect("it is writable");
    assert_eq!(one.store.announce_approvals("acct", 20).await.expect("it is writable"), 1);
    assert_eq!(one.store.announce_approvals("other", 20).await.expect("it is writable"), 0);
    assert_eq!(one.types().await, ["approval.requested", "approval.requested"]);
    assert_eq!(word(&one.decide(&asked, ApprovalDecision::Approve, None).await), "ok");
}

#[tokio::test]
async fn a_cancel_stops_the_run() {
    let one = OneRun::new(None).await;
    let asked = one.open(RaisableCap::MaxCalls, 5, Some(6), 10).await;
    one.decide(&asked, ApprovalDecision::Cancel, None).await.expect("it is open");
    assert_eq!(one.run().await.desired_state, crate::sandboxes::DesiredState::Stopped);
}

#[tokio::test]
async fn a_publication_is_asked_about_beyond_the_end_of_its_run() {
    let one = OneRun::new(None).await;
    let key = one.run().await.key;
    let ask = |head: &str, now_us| {
        let subject = format!(r#"{{"head_sha":"{head}"}}"#);
        let ask = PublicationAsk { id: format!("apr-{now_us}"), key: key.clone(), subject, ask_timeout_us: HOUR };
        one.store.ask_publication(ask, now_us)
    };
    let asked = ask("a", 10).await.expect("it is writable").expect("it is the attempt");
    let again = ask("a", 20).await.expect("it is writable").expect("it is the attempt");
    let other = ask("b", 30).await.expect("it is writable").expect("it is the attempt");
    assert_eq!(asked, again, "the same commit is asked about once");
    assert_ne!(asked.digest, other.digest);
    one.step(SandboxStep::Decide(SandboxVerdict::Success)).await;
    one.step(SandboxStep::Finish).await;

    assert_eq!(one.store.expire_approvals(40).await.expect("it is writable"), [], "the end of the run closes none");
    let decided = one.decide(&asked, ApprovalDecision::Approve, None).await.expect("it is open");
    assert_eq!(one.store.unapplied_publications(500).await.expect("it is readable"), [decided]);
    assert_eq!(one.store.unapplied_publications(501).await.expect("it is readable"), [], "it was decided before");
    assert_eq!(one.store.unapplied_approvals(&key).await.expect("it is readable"), [], "no sidecar gets it");
    one.store.settle_publications(&key.run_id, 600).await.expect("it is writable");
    assert_eq!(one.store.unapplied_publications(0).await.expect("it is readable"), []);
    let expired = one.store.expire_approvals(30 + HOUR).await.expect("it is writable");
    assert_eq!(expired.iter().map(|it| it.id.as_str()).collect::<Vec<_>>(), [other.id.as_str()]);
    let before = ask("b", 60).await.expect("it is writable").expect("it is the attempt");
    assert_eq!(before.decision, Some(ApprovalDecision::Expired), "it is not asked about again");
}

#[tokio::test]
async fn another_attempt_or_a_publication_closes_its_approval() {
    let one = OneRun::new(None).await;
    let key = one.run().await.key;
    let ask = |id: &str, subject: &str| PublicationAsk {
        id: id.to_owned(),
        key: key.clone(),
        subject: subject.to_owned(),
        ask_timeout_us: HOUR,
    };
    let by_hand = one.store.ask_publication(ask("apr-1", "{}"), 10).await.expect("it is writable").expect("asked");
    let published = GitStep::Published { branch: "b".to_owned(), sha: "a".to_owned() };
    one.store.record_git_step(&key.run_id, published, 20).await.expect("it is writable");
    assert_eq!(word(&one.decide(&by_hand, ApprovalDecision::Approve, None).await), "decided");
    assert_eq!(one.types().await, ["approval.requested", "approval.expired"]);

    let earlier = one.store.ask_publication(ask("apr-2", "[]"), 30).await.expect("it is writable").expect("asked");
    let connection = rusqlite::Connection::open(one.directory.path().join("sluice.db")).expect("it is there");
    connection.execute_batch("UPDATE sandboxes SET attempt = attempt + 1").expect("it is writable");
    assert_eq!(word(&one.decide(&earlier, ApprovalDecision::Approve, None).await), "changed");
    assert_eq!(one.store.ask_publication(ask("apr-3", "{}"), 40).await.expect("it is writable"), None);
}
