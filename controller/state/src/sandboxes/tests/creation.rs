//! Creation of runs, and the state after a failed one.

use super::*;
use crate::agents::AgentError;
use crate::budget::BudgetError;
use crate::idempotency::{IdempotencyError, IdempotencyKey, KeyReservation};
use crate::store::RunDriver;

#[tokio::test]
async fn a_creation_does_all_or_nothing() {
    let daemon = Daemon::new(&["a", "b"]).await;
    daemon.budget(100).await;
    let created = daemon.store.create_sandbox(daemon.sandbox("r1", "a"), 5).await.expect("it can be created");
    assert!(created.is_budget_checked);
    assert_eq!((created.agent.state, created.agent.generation), (AgentState::Connected, 1));
    assert_eq!((created.sandbox.cap, daemon.held().await), (Some(40), 40));
    assert_eq!(daemon.find("r1").await, created.sandbox);
    let open = daemon.store.open_runs_of(RunDriver::Daemon).await.expect("it is readable");
    assert_eq!((open.len(), open[0].entry.key.to_string()), (1, "r1.0".to_owned()));
    let events = daemon.events().await;
    assert_eq!(events.len(), 1);
    assert_eq!((events[0].event_type.as_str(), events[0].owner.as_str()), ("sandbox.created", "o"));
    assert_eq!(events[0].event_data, r#"{"mount_paths":[],"name":null,"sandbox_id":"r1"}"#);

    let before = daemon.agent("b").await;
    let too_much = NewSandbox { cap: Some(61), ..daemon.sandbox("r2", "b") };
    let refused = daemon.store.create_sandbox(too_much, 6).await;
    assert!(
        matches!(refused, Err(CreationError::Sandbox(SandboxError::Budget(BudgetError::Insufficient(_))))),
        "{refused:?}"
    );
    let unknown = NewSandbox { depends_on: BTreeSet::from([id("r1"), id("r9")]), ..daemon.sandbox("r2", "b") };
    let refused = daemon.store.create_sandbox(unknown, 6).await;
    assert!(matches!(refused, Err(CreationError::Sandbox(SandboxError::UnknownDependency(name))) if name == "r9"));
    daemon.store.check_sandbox(daemon.sandbox("r2", "b"), 6).await.expect("it could be created");
    assert_eq!(daemon.agent("b").await, before);
    assert_eq!((daemon.held().await, daemon.events().await.len()), (40, 1));
    assert_eq!(daemon.store.find_sandbox(None, &id("r2")).await.expect("it is readable"), None);
    assert_eq!(daemon.store.open_runs().await.expect("it is readable").len(), 1);
    daemon.create(daemon.sandbox("r2", "b"), 7).await;
}

#[tokio::test]
async fn one_of_two_creations_gets_the_agent() {
    let daemon = Daemon::new(&["a"]).await;
    let creations: Vec<_> = (0..20)
        .map(|number| {
            let (store, new) = (daemon.store.clone(), daemon.sandbox(&format!("r{number}"), "a"));
            tokio::spawn(async move { store.create_sandbox(new, 1).await })
        })
        .collect();
    let mut created = 0;
    for creation in creations {
        match creation.await.expect("it does not panic") {
            Ok(_) => created += 1,
            Err(error) => {
                assert!(
                    matches!(error, CreationError::Sandbox(SandboxError::Agent(AgentError::HasLiveRun { .. }))),
                    "{error}"
                );
            }
        }
    }
    assert_eq!((created, daemon.events().await.len()), (1, 1));
}

#[tokio::test]
async fn a_budget_for_ten_admits_ten() {
    let daemon = Daemon::new(&[]).await;
    daemon.budget(100).await;
    let creations: Vec<_> = (0..100)
        .map(|number| {
            let new = NewSandbox { cap: Some(10), ..daemon.ephemeral(&format!("r{number}")) };
            let store = daemon.store.clone();
            tokio::spawn(async move { store.create_sandbox(new, 1).await.is_ok() })
        })
        .collect();
    let mut created = 0;
    for creation in creations {
        created += usize::from(creation.await.expect("it does not panic"));
    }
    assert_eq!((created, daemon.held().await), (10, 100));
}

#[tokio::test]
async fn agents_that_may_not_run_are_refused() {
    let daemon = Daemon::new(&["a", "b"]).await;
    daemon.sql("UPDATE agents SET allow_sandbox = 0 WHERE owner = 'o' AND agent_id = 'a'");
    let refusal = async |agent: &str| match daemon.store.create_sandbox(daemon.sandbox("r1", agent), 1).await {
        Err(CreationError::Sandbox(SandboxError::Agent(error))) => error,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refusal("a").await, AgentError::NotAllowed(_)));
    assert!(matches!(refusal("x").await, AgentError::NotFound(_)));
    for target in [AgentState::Connected, AgentState::Suspended] {
        daemon.store.transition_agent("o", "b", moved(target)).await.expect("it is possible");
    }
    assert!(matches!(refusal("b").await, AgentError::Suspended(_)));
}

/// Bug: the run was refused, since an agent that is CONNECTED cannot become CONNECTED.
#[tokio::test]
async fn a_resumed_agent_accepts_a_run_at_once() {
    let daemon = Daemon::new(&["a"]).await;
    for target in [AgentState::Suspended, AgentState::Connected] {
        daemon.store.transition_agent("o", "a", moved(target)).await.expect("it is possible");
    }
    let created = daemon.store.create_sandbox(daemon.sandbox("r1", "a"), 1).await.expect("it has no run");
    assert_eq!((created.agent.state, created.agent.generation), (AgentState::Connected, 1));
    let second = daemon.store.create_sandbox(daemon.sandbox("r2", "a"), 2).await;
    assert!(
        matches!(second, Err(CreationError::Sandbox(SandboxError::Agent(AgentError::HasLiveRun { .. })))),
        "{second:?}"
    );
}

#[tokio::test]
async fn a_name_is_free_after_its_run() {
    let daemon = Daemon::new(&[]).await;
    let named = |run_id: &str| NewSandbox { name: Some("web".into()), ..daemon.ephemeral(run_id) };
    daemon.create(named("r1"), 1).await;
    let refused = daemon.store.create_sandbox(named("r2"), 2).await;
    assert!(matches!(refused, Err(CreationError::Sandbox(SandboxError::NameTaken(_)))));
    daemon.create(NewSandbox { owner: "p".into(), ..named("p1") }, 2).await;
    daemon.step("r1", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    daemon.create(named("r2"), 3).await;
    let by_name = async |owner: &str| -> Option<String> {
        let found = daemon.store.find_sandbox_by_name(owner, "web").await.expect("it is readable");
        found.map(|sandbox| sandbox.key.run_id.as_str().to_owned())
    };
    assert_eq!(by_name("o").await.as_deref(), Some("r2"));
    daemon.step("r2", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    assert_eq!(by_name("o").await.as_deref(), Some("r2"), "the newest that has ended");
    assert_eq!((by_name("p").await.as_deref(), by_name("q").await), (Some("p1"), None));
}

#[tokio::test]
async fn the_queue_of_an_owner_is_bounded() {
    let daemon = Daemon::new(&[]).await;
    let new = |run_id: &str| NewSandbox { queued_max: 2, ..daemon.ephemeral(run_id) };
    daemon.create(new("r1"), 1).await;
    daemon.create(new("r2"), 1).await;
    assert!(matches!(
        daemon.store.create_sandbox(new("r3"), 1).await,
        Err(CreationError::Sandbox(SandboxError::QueueFull(2)))
    ));
    daemon.claim(1).await.expect("there is room");
    daemon.create(new("r3"), 1).await;
}

#[tokio::test]
async fn an_idempotency_key_names_its_run() {
    let daemon = Daemon::new(&["a"]).await;
    let key = IdempotencyKey {
        principal: "tok_1".into(),
        method: "POST".into(),
        route: "/sandboxes".into(),
        key: "k".into(),
        request_hash: sluice_contract::Hash::of(b"x"),
    };
    let new = || NewSandbox { idempotency: Some(key.clone()), ..daemon.sandbox("r1", "a") };
    let refused = daemon.store.create_sandbox(new(), 1).await;
    assert!(matches!(refused, Err(CreationError::Sandbox(SandboxError::Idempotency(IdempotencyError::Lost)))));
    assert_eq!(daemon.agent_state("a").await, AgentState::Unknown);
    daemon.store.reserve_key(key.clone(), 1).await.expect("it is free");
    daemon.create(new(), 1).await;
    let again = daemon.store.reserve_key(key.clone(), 2).await.expect("it is known");
    assert_eq!(again, KeyReservation::Done { object_id: "r1".to_owned() });
}

#[tokio::test]
async fn a_used_id_stays_used() {
    let daemon = Daemon::new(&[]).await;
    daemon.create(daemon.ephemeral("r1"), 1).await;
    daemon.step("r1", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    let again = daemon.store.create_sandbox(daemon.ephemeral("r1"), 2).await;
    assert!(again.expect_err("it is used").to_string().contains("there is a run r1.0 already"));
    let connection = rusqlite::Connection::open(daemon.directory.path().join("sluice.db")).expect("it is there");
    assert!(connection.execute("DELETE FROM sandboxes", []).is_err());
}
