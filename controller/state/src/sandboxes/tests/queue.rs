//! Claims.

use super::*;

#[tokio::test]
async fn claims_go_by_priority_then_age() {
    let daemon = Daemon::new(&[]).await;
    for (run_id, priority, created_us) in [("r1", 0, 1), ("r2", 5, 3), ("r3", 5, 2), ("r4", 0, 0), ("r5", -1, 0)] {
        daemon.create(NewSandbox { priority, ..daemon.ephemeral(run_id) }, created_us).await;
    }
    let mut claimed = Vec::new();
    while let Some(run_id) = daemon.claim(100).await {
        claimed.push(run_id);
    }
    assert_eq!(claimed, ["r3", "r2", "r4", "r1", "r5"]);
    let first = daemon.find("r3").await;
    assert_eq!((first.state, first.claimed_us, first.deadline_us), (SandboxState::Creating, Some(100), Some(1100)));
}

#[tokio::test]
async fn one_owner_does_not_take_every_turn() {
    let daemon = Daemon::new(&[]).await;
    for number in 0..3 {
        let new = daemon.ephemeral(&format!("a{number}"));
        daemon.create(NewSandbox { priority: 100, ..new }, 1).await;
    }
    daemon.create(NewSandbox { owner: "p".into(), ..daemon.ephemeral("b0") }, 2).await;
    let mut claimed = Vec::new();
    while let Some(run_id) = daemon.claim(100).await {
        claimed.push(run_id);
    }
    assert_eq!(claimed, ["a0", "b0", "a1", "a2"]);
}

#[tokio::test]
async fn a_closed_attempt_keeps_nobody_from_its_turn() {
    let daemon = Daemon::new(&[]).await;
    for run_id in ["r1", "r2"] {
        daemon.create(daemon.ephemeral(run_id), 1).await;
    }
    daemon.sql("UPDATE runs SET phase = 'closed' WHERE run_id = 'r1'");
    assert_eq!(daemon.claim(2).await.as_deref(), Some("r2"));
    assert_eq!((daemon.find("r1").await.state, daemon.agent("r1").await), (SandboxState::Failed, None));
}

#[tokio::test]
async fn a_swept_run_ends_and_frees_its_agent() {
    let daemon = Daemon::new(&["one", "two"]).await;
    daemon.create(daemon.sandbox("r1", "one"), 1).await;
    daemon.create(daemon.sandbox("r2", "two"), 2).await;
    assert_eq!(daemon.claim(3).await.as_deref(), Some("r1"));
    assert_eq!(daemon.store.end_swept(&id("r1"), 4).await.expect("it is writable"), None, "its attempt is open");
    daemon.sql("UPDATE runs SET phase = 'closed'");
    for (run_id, agent) in [("r1", "one"), ("r2", "two")] {
        let ended = daemon.store.end_swept(&id(run_id), 4).await.expect("it is writable").expect("it was live");
        assert_eq!(
            (ended.state, ended.verdict),
            (SandboxState::Completed, Some(SandboxVerdict::Cancelled)),
            "{run_id}"
        );
        assert_eq!(daemon.agent_state(agent).await, AgentState::Idle);
        assert_eq!(daemon.store.end_swept(&id(run_id), 5).await.expect("it is writable"), None);
    }
    assert_eq!(daemon.claim(6).await, None);
}

#[tokio::test]
async fn each_run_is_claimed_once() {
    let daemon = Daemon::new(&[]).await;
    for number in 0..10 {
        daemon.create(daemon.ephemeral(&format!("r{number}")), 1).await;
    }
    let other = Store::open(&daemon.directory.path().join("sluice.db")).expect("it is there");
    let mut claimed = BTreeSet::new();
    for _ in 0..6 {
        let claim = |store: Store| {
            let process = daemon.process.clone();
            async move { store.claim_next(&process, LIMITS, 2).await.expect("it is writable").claimed }
        };
        let (one, two) = tokio::join!(claim(daemon.store.clone()), claim(other.clone()));
        for claimed_sandbox in [one, two].into_iter().flatten() {
            assert_eq!(claimed_sandbox.run_generation, 1);
            assert!(claimed.insert(claimed_sandbox.sandbox.key.to_string()), "it was claimed twice");
        }
    }
    assert_eq!(claimed.len(), 10);
}

#[tokio::test]
async fn limits_hold_per_host_project_and_owner() {
    let daemon = Daemon::new(&[]).await;
    for (run_id, owner, project) in
        [("r1", "o", Some("x")), ("r2", "o", Some("x")), ("r3", "o", None), ("r4", "o", None), ("r5", "p", Some("y"))]
    {
        let new = NewSandbox { owner: owner.into(), project: project.map(str::to_owned), ..daemon.ephemeral(run_id) };
        daemon.create(new, 1).await;
    }
    let claim = async |host, project, owner| -> Option<String> {
        let limits = ClaimLimits { host, project, owner };
        let claim = daemon.store.claim_next(&daemon.process, limits, 2).await.expect("it is writable");
        claim.claimed.map(|claimed| claimed.sandbox.key.run_id.as_str().to_owned())
    };
    assert_eq!(claim(0, 9, 9).await, None);
    assert_eq!(claim(9, 9, 0).await, None);
    assert_eq!(claim(9, 1, 2).await.as_deref(), Some("r1"));
    assert_eq!(claim(9, 1, 2).await.as_deref(), Some("r5"), "the other owner has none");
    assert_eq!(claim(9, 1, 2).await.as_deref(), Some("r3"), "the project has its run");
    assert_eq!(claim(9, 1, 2).await, None, "the owner has its runs");
    assert_eq!(claim(3, 9, 9).await, None);
    assert_eq!(claim(4, 9, 9).await.as_deref(), Some("r2"));
}

#[tokio::test]
async fn a_failed_dependency_ends_its_dependents() {
    let daemon = Daemon::new(&[]).await;
    let after = |run_id: &str, others: &[&str]| {
        let depends_on = others.iter().map(|other| id(other)).collect();
        NewSandbox { depends_on, priority: 9, ..daemon.ephemeral(run_id) }
    };
    daemon.create(daemon.ephemeral("r1"), 1).await;
    daemon.create(daemon.ephemeral("r2"), 2).await;
    daemon.create(after("r3", &["r1"]), 1).await;
    daemon.create(after("r4", &["r1", "r2"]), 1).await;
    daemon.create(after("r5", &["r4"]), 1).await;
    assert_eq!(daemon.store.sandbox_dependencies(&id("r4")).await.expect("it is readable"), ["r1", "r2"]);
    daemon.end("r1", SandboxVerdict::Success).await;
    assert_eq!(daemon.claim(9).await.as_deref(), Some("r3"));
    daemon.end("r2", failed("internal")).await;
    let claim = daemon.store.claim_next(&daemon.process, LIMITS, 9).await.expect("it is writable");
    assert_eq!(claim.claimed, None);
    let ended: Vec<_> = claim.ended.iter().map(|sandbox| sandbox.key.run_id.as_str()).collect();
    assert_eq!(ended, ["r4", "r5"]);
    let last = daemon.find("r5").await;
    assert_eq!(last.verdict.as_ref().and_then(|verdict| verdict.failure().0), Some("dependency_failed"));
    assert_eq!((last.state, daemon.agent("r5").await), (SandboxState::Failed, None));
    let foreign = NewSandbox { owner: "p".into(), ..after("r6", &["r1"]) };
    let refused = daemon.store.create_sandbox(foreign, 1).await;
    assert!(
        matches!(refused, Err(CreationError::Sandbox(SandboxError::UnknownDependency(_)))),
        "another owner's run tells nothing"
    );
    let itself = daemon.store.create_sandbox(after("r7", &["r7"]), 1).await;
    assert!(matches!(itself, Err(CreationError::Sandbox(SandboxError::UnknownDependency(_)))));
}
