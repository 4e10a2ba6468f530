//! Senders, a worker, a sidecar and crashes in any order, against a model.

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Add { urgent: bool, immediate: bool },
    Delete(usize),
    Promote(usize),
    Take { lease: bool, limit: u32 },
    Acknowledge(usize),
    Worker,
    Offer,
    Injected(usize, InjectionStatus),
    Later,
    Crash,
}

fn op() -> impl Strategy<Value = Op> {
    let status =
        proptest::sample::select(vec![InjectionStatus::Sent, InjectionStatus::Acknowledged, InjectionStatus::Lost]);
    prop_oneof![
        6 => (any::<bool>(), proptest::bool::weighted(0.3)).prop_map(|(urgent, immediate)| Op::Add { urgent, immediate }),
        2 => (0..12usize).prop_map(Op::Delete),
        2 => (0..12usize).prop_map(Op::Promote),
        4 => (any::<bool>(), 1..4u32).prop_map(|(lease, limit)| Op::Take { lease, limit }),
        3 => (0..12usize).prop_map(Op::Acknowledge),
        1 => Just(Op::Worker),
        3 => Just(Op::Offer),
        4 => (0..12usize, status).prop_map(|(message, status)| Op::Injected(message, status)),
        1 => Just(Op::Later),
        2 => Just(Op::Crash),
    ]
}

#[derive(Debug, Clone)]
struct ModelMessage {
    id: String,
    urgent: bool,
    immediate: bool,
    state: MessageState,
    until_us: i64,
    by_call: bool,
}

#[derive(Debug, Default)]
struct Model {
    messages: Vec<ModelMessage>,
    has_worker: bool,
    entries: u64,
    now_us: i64,
}

impl Model {
    /// Returns the positions of messages in the order of their delivery.
    fn ordered(&self, is_selected: impl Fn(&ModelMessage) -> bool) -> Vec<usize> {
        let mut found: Vec<_> = (0..self.messages.len()).filter(|at| is_selected(&self.messages[*at])).collect();
        found.sort_by_key(|at| (!self.messages[*at].urgent, *at));
        found
    }

    fn id(&self, at: usize) -> String {
        self.messages.get(at).map_or_else(|| "msg-none".to_owned(), |message| message.id.clone())
    }

    fn change(&mut self, at: usize) -> Option<&mut ModelMessage> {
        self.messages.get_mut(at).filter(|message| message.state.is_changeable())
    }

    /// Takes messages for a worker, and returns them.
    fn take(&mut self, lease: bool, limit: u32) -> Vec<String> {
        let now_us = self.now_us;
        let is_free = |message: &ModelMessage| {
            let is_over = message.state == MessageState::Leased && message.until_us <= now_us;
            !message.immediate && (message.state == MessageState::Queued || is_over)
        };
        let taken = self.ordered(is_free).into_iter().take(limit as usize);
        taken
            .map(|at| {
                let message = &mut self.messages[at];
                message.state = if lease { MessageState::Leased } else { MessageState::Delivered };
                message.until_us = now_us + LEASE_US;
                message.id.clone()
            })
            .collect()
    }

    /// Returns the sidecar's messages; messages that it is not to have any longer are queued again.
    fn offer(&mut self) -> Vec<String> {
        use MessageState::{Offered, Queued, Sent};
        let mut list = Vec::new();
        for at in self.ordered(|message| matches!(message.state, Queued | Offered | Sent)) {
            let message = &mut self.messages[at];
            message.state = match (message.state, self.has_worker && !message.immediate) {
                (Sent, _) => Sent,
                (_, true) => Queued,
                (_, false) => Offered,
            };
            if message.state != Queued {
                list.push(message.id.clone());
            }
        }
        list
    }

    fn inject(&mut self, at: usize, status: InjectionStatus) {
        use MessageState::{Delivered, Lost, Sent};
        self.entries += 1;
        let message = &mut self.messages[at];
        message.by_call = true;
        message.state = match (status, message.state) {
            (InjectionStatus::Sent, Delivered) => Delivered,
            (InjectionStatus::Sent, _) => Sent,
            (InjectionStatus::Acknowledged, _) => Delivered,
            (InjectionStatus::Lost, _) => Lost,
        };
    }
}

async fn perform(fixture: &mut Fixture, model: &mut Model, op: Op) {
    let now_us = model.now_us;
    match op {
        Op::Add { urgent, immediate } => {
            let inject_mode = if immediate { InjectMode::Immediate } else { InjectMode::NextTurn };
            let id = fixture.add(MessageToSend { urgent, inject_mode, ..new("x") }).await;
            let (state, until_us, by_call) = (MessageState::Queued, 0, false);
            model.messages.push(ModelMessage { id, urgent, immediate, state, until_us, by_call });
        }
        Op::Delete(at) => {
            let done = fixture.store.delete_message(&run_id(), &model.id(at), now_us).await.is_ok();
            let was_deleted = model.messages.get(at).is_some_and(|message| message.state == MessageState::Deleted);
            let expected = model.change(at).map(|message| message.state = MessageState::Deleted).is_some();
            assert_eq!(done, expected || was_deleted);
        }
        Op::Promote(at) => {
            let done = fixture.store.promote_message(&run_id(), &model.id(at), now_us).await.is_ok();
            assert_eq!(done, model.change(at).map(|message| message.urgent = true).is_some());
        }
        Op::Take { lease, limit } => {
            let mode = if lease { TakeMode::Lease } else { TakeMode::Consume };
            let taken = fixture.store.take_messages(&key(), mode, limit, now_us).await.expect("it works");
            let taken: Vec<_> = taken.into_iter().map(|message| message.id).collect();
            assert_eq!(taken, model.take(lease, limit), "{model:?}");
        }
        Op::Acknowledge(at) => {
            let done = fixture.store.acknowledge_messages(&key(), vec![model.id(at)], now_us).await.expect("it works");
            let leased = model.messages.get_mut(at).filter(|message| {
                message.state == MessageState::Leased || message.state == MessageState::Delivered && !message.by_call
            });
            assert_eq!(done.len(), usize::from(leased.is_some()));
            if let Some(message) = leased {
                message.state = MessageState::Delivered;
            }
        }
        Op::Worker => {
            fixture.store.note_worker(&key(), now_us).await.expect("it is writable");
            model.has_worker = true;
        }
        Op::Offer => {
            let injection = fixture.store.offer_messages(&key()).await.expect("it works");
            fixture.store.take_back_messages(injection.withdrawn).await.expect("it is writable");
            let listed: Vec<_> = injection.list.into_iter().map(|message| message.message_id).collect();
            assert_eq!(listed, model.offer(), "{model:?}");
        }
        // The sidecar reports only messages that it has, or had.
        Op::Injected(at, status) => {
            let is_there = model.messages.get(at).is_some_and(|message| {
                message.state == MessageState::Offered || message.by_call && message.state != MessageState::Lost
            });
            if is_there {
                model.inject(at, status);
                fixture.injected(model.entries, &model.id(at), status).await;
            }
        }
        Op::Later => model.now_us += LEASE_US,
        Op::Crash => fixture.reopen(),
    }
}

async fn check(ops: Vec<Op>) {
    let (mut fixture, mut model) = (Fixture::new().await, Model { now_us: 10, ..Model::default() });
    for op in ops {
        perform(&mut fixture, &mut model, op).await;
        for message in &model.messages {
            assert_eq!(fixture.state(&message.id).await, message.state, "{model:?}");
        }
    }
    let types = fixture.event_types().await;
    let queued = types.iter().filter(|name| *name == "message.queued").count();
    assert_eq!(queued, model.messages.len(), "each message has its event");
}

proptest! {
    #![proptest_config(Config { cases: 32, max_shrink_iters: 300, ..Config::default() })]

    /// In any order of requests and crashes, no message is delivered twice or forgotten.
    #[test]
    fn messages_follow_their_model(ops in proptest::collection::vec(op(), 0..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be built");
        runtime.block_on(check(ops));
    }
}
