use proptest::prelude::*;
use proptest::test_runner::Config;
use tempfile::TempDir;

use super::*;
use crate::store::Store;
use crate::test_sandbox;

fn open() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("there is room");
    let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
    (directory, store)
}

fn new_agent(owner: &str, agent_id: &str) -> NewAgent {
    NewAgent { owner: owner.to_owned(), ..test_sandbox::new_agent(agent_id) }
}

fn explicit(target: AgentState) -> TransitionRequest {
    TransitionRequest { target, observed: None, expected_generation: None, is_explicit: true, by_admin: false }
}

async fn register(store: &Store, owner: &str, agent_id: &str) -> Agent {
    match store.register_agent(new_agent(owner, agent_id)).await.expect("it is writable") {
        Registered::Created(agent) => agent,
        Registered::Existing(agent) => panic!("{agent:?} was there"),
    }
}

#[tokio::test]
async fn a_registration_is_done_once() {
    let (_directory, store) = open();
    let created = register(&store, "o", "a").await;
    assert_eq!((created.state, created.generation, created.ephemeral), (AgentState::Unknown, 0, false));
    let other = NewAgent { billing_account_id: "other".into(), ..new_agent("o", "a") };
    let again = store.register_agent(other).await.expect("it is writable");
    assert_eq!(again, Registered::Existing(created.clone()), "a second registration changes nothing");
    assert_eq!(register(&store, "p", "a").await.owner, "p", "an id belongs to its owner");
    assert_eq!(store.find_agent("o", "a").await.expect("it is readable"), Some(created));
    assert_eq!(store.find_agent("o", "b").await.expect("it is readable"), None);
}

#[tokio::test]
async fn agents_are_listed_in_pages() {
    let (_directory, store) = open();
    for (owner, id) in [("p", "b"), ("o", "b"), ("o", "a"), ("q", "a")] {
        register(&store, owner, id).await;
    }
    let list = async |owner, after: Option<(&str, &str)>, limit| -> Vec<String> {
        let after = after.map(|(owner, id)| (owner.to_owned(), id.to_owned()));
        let agents = store.list_agents(owner, after, limit).await.expect("it is readable");
        agents.into_iter().map(|agent| format!("{}/{}", agent.owner, agent.agent_id)).collect()
    };
    assert_eq!(list(None, None, 3).await, ["o/a", "o/b", "p/b"]);
    assert_eq!(list(None, Some(("p", "b")), 3).await, ["q/a"]);
    assert_eq!(list(Some("o"), None, 9).await, ["o/a", "o/b"]);
    assert_eq!(list(Some("o"), Some(("o", "a")), 9).await, ["o/b"]);
}

#[tokio::test]
async fn one_of_two_moves_succeeds() {
    let (directory, store) = open();
    register(&store, "o", "a").await;
    let other = Store::open(&directory.path().join("sluice.db")).expect("it is there");
    let seen = TransitionRequest {
        observed: Some(AgentState::Unknown),
        expected_generation: Some(0),
        ..explicit(AgentState::Connected)
    };
    let (one, two) = tokio::join!(store.transition_agent("o", "a", seen), other.transition_agent("o", "a", seen));
    assert_eq!(usize::from(one.is_ok()) + usize::from(two.is_ok()), 1);
    let refused = one.and(two).expect_err("one is late");
    assert!(matches!(refused, AgentError::Transition(TransitionError::StaleGeneration { found: 1 })), "{refused}");
}

#[tokio::test]
async fn a_connected_agent_is_not_deleted() {
    let (_directory, store) = open();
    register(&store, "o", "a").await;
    store.transition_agent("o", "a", explicit(AgentState::Connected)).await.expect("it is possible");
    assert!(matches!(store.delete_agent("o", "a").await, Err(AgentError::Connected(_))));
    assert!(matches!(store.delete_agent("p", "a").await, Err(AgentError::NotFound(_))));
    let idle = store.idle_agents_without_runs().await.expect("it is writable");
    assert_eq!(idle.iter().map(|agent| agent.state).collect::<Vec<_>>(), [AgentState::Idle]);
    store.delete_agent("o", "a").await.expect("it is idle");
    assert_eq!(store.find_agent("o", "a").await.expect("it is readable"), None);
}

#[tokio::test]
async fn heartbeats_are_recorded_in_a_batch() {
    let (_directory, store) = open();
    register(&store, "o", "a").await;
    let beat = |agent_id: &str, time_us| Heartbeat { owner: "o".to_owned(), agent_id: agent_id.to_owned(), time_us };
    let beats = vec![beat("a", 5), beat("gone", 6), beat("a", 9), beat("a", 7)];
    store.record_heartbeats(beats).await.expect("it is writable");
    let agent = store.find_agent("o", "a").await.expect("it is readable").expect("it is there");
    assert_eq!((agent.last_heartbeat_us, agent.generation), (Some(9), 0));
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Move { target: AgentState, by_admin: bool, stale: bool },
    Sweep,
    Delete,
    Register,
}

fn op() -> impl Strategy<Value = Op> {
    let target = proptest::sample::select(AgentState::ALL.to_vec());
    prop_oneof![
        8 => (target, any::<bool>(), proptest::bool::weighted(0.2))
            .prop_map(|(target, by_admin, stale)| Op::Move { target, by_admin, stale }),
        1 => Just(Op::Sweep),
        1 => Just(Op::Delete),
        1 => Just(Op::Register),
    ]
}

/// The rules of the registry, written a second time: state, number of connections, suspension by an admin.
type Model = Option<(AgentState, u64, bool)>;

fn expect(model: Model, op: Op) -> (bool, Model) {
    use AgentState::{Connected, Idle, Suspended, Unknown};
    match (model, op) {
        (None, Op::Register) => (true, Some((Unknown, 0, false))),
        (None, Op::Move { .. } | Op::Delete) => (false, None),
        (Some((Connected, generation, _)), Op::Sweep) => (true, Some((Idle, generation, false))),
        (Some((state, ..)), Op::Delete) if state != Connected => (true, None),
        (Some(_), Op::Delete) => (false, model),
        (_, Op::Register | Op::Sweep) => (true, model),
        (Some(_), Op::Move { stale: true, .. }) => (false, model),
        (Some((state, generation, locked)), Op::Move { target, by_admin, .. }) => match (state, target) {
            (Unknown | Idle, Connected) => (true, Some((Connected, generation + 1, false))),
            (Suspended, Connected) if by_admin || !locked => (true, Some((Connected, generation + 1, false))),
            (Connected, Idle) => (true, Some((Idle, generation, false))),
            (Unknown | Connected | Idle, Suspended) => (true, Some((Suspended, generation, by_admin))),
            _ => (false, model),
        },
    }
}

async fn check(ops: Vec<Op>) {
    let (_directory, store) = open();
    let mut model = None;
    for op in ops {
        let generation = model.map_or(0, |(_, generation, _): (AgentState, u64, bool)| generation);
        let done = match op {
            Op::Register => store.register_agent(new_agent("o", "a")).await.map(drop),
            Op::Delete => store.delete_agent("o", "a").await,
            Op::Sweep => store.idle_agents_without_runs().await.map(drop),
            Op::Move { target, by_admin, stale } => {
                let expected_generation = Some(generation + u64::from(stale));
                let request = TransitionRequest { expected_generation, by_admin, ..explicit(target) };
                store.transition_agent("o", "a", request).await.map(drop)
            }
        };
        let (is_possible, next) = expect(model, op);
        assert_eq!(done.is_ok(), is_possible, "{model:?} {op:?} {done:?}");
        model = next;
        let agent = store.find_agent("o", "a").await.expect("it is readable");
        assert_eq!(agent.map(|agent| (agent.state, agent.generation, agent.suspended_by_admin)), model, "{op:?}");
    }
}

proptest! {
    #![proptest_config(Config { cases: 24, max_shrink_iters: 200, ..Config::default() })]

    /// The registry and its rules agree in any order of requests.
    #[test]
    fn the_registry_follows_its_model(ops in proptest::collection::vec(op(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be built");
        runtime.block_on(check(ops));
    }
}
