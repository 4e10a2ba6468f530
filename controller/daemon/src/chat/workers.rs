//! Decisions about the workers of chat sessions: which one gets a turn, which one is interrupted, and which one ends.
//!
//! Pure.

use std::collections::HashMap;
use std::time::Duration;

use sluice_contract::RunId;
use sluice_contract::time::duration_micros;
use sluice_state::chats::{ChatWorker, QueuePressure};
use sluice_state::sandboxes::SandboxState;

/// Interrupts that a turn without a client gets before its run is cancelled.
const INTERRUPTS_MAX: u32 = 3;
/// Time that a worker has to end after the request to end.
const END_GRACE: Duration = Duration::from_secs(30);
/// Time that is added to the idle time of a worker: the daemon ends the worker earlier, and the worker ends by itself
/// only while the daemon is dead.
pub(crate) const STAY_MARGIN: Duration = Duration::from_secs(60);

/// Room for another worker of a principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkerSlot {
    /// The limit allows another worker.
    Free,
    /// The limit allows another worker when this one has ended.
    InPlaceOf(RunId),
    /// All workers of the principal have a turn.
    None,
}

/// Step for a turn whose client has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeftTurn {
    /// The worker takes messages.
    Interrupt,
    /// The agent cannot be interrupted.
    Cancel,
}

/// Returns whether a worker can get the next turn.
pub(crate) fn is_free(worker: &ChatWorker) -> bool {
    worker.told_to_end_us.is_none() && worker.turn.end.is_some() && worker.state == SandboxState::Running
}

/// Returns the room for another worker of a principal that may have `max` workers.
pub(crate) fn room(workers: &[ChatWorker], principal: &str, max: u32) -> WorkerSlot {
    let own = || workers.iter().filter(|worker| worker.principal == principal && worker.told_to_end_us.is_none());
    if own().count() < usize::try_from(max).unwrap_or(usize::MAX) {
        return WorkerSlot::Free;
    }
    longest_idle(own()).map_or(WorkerSlot::None, WorkerSlot::InPlaceOf)
}

/// Returns the step for a turn whose client has left.
pub(crate) fn left_turn(worker: &ChatWorker) -> LeftTurn {
    let takes_messages = worker.state == SandboxState::Running && worker.takes_messages;
    if takes_messages && worker.turn.interrupts < INTERRUPTS_MAX { LeftTurn::Interrupt } else { LeftTurn::Cancel }
}

/// Returns the workers that have waited for the time `idle`, and for each principal the longest idle ones beyond its
/// limit.
pub(crate) fn to_end(workers: &[ChatWorker], idle: Duration, max: u32, now_us: i64) -> Vec<RunId> {
    let mut counts: HashMap<&str, usize> = HashMap::new();
    let mut living: Vec<_> = workers.iter().filter(|worker| worker.told_to_end_us.is_none()).collect();
    // Workers with a turn come first, since they stay. The others follow, the shortest wait first.
    living.sort_by_key(|worker| std::cmp::Reverse(idle_since(worker).unwrap_or(i64::MAX)));
    living.retain(|worker| {
        let count = counts.entry(worker.principal.as_str()).or_default();
        *count += 1;
        let is_over = *count > usize::try_from(max).unwrap_or(usize::MAX);
        idle_since(worker).is_some_and(|since| is_over || now_us.saturating_sub(since) >= duration_micros(idle))
    });
    living.into_iter().map(|worker| worker.key.run_id.clone()).collect()
}

/// Returns the worker that is ended for a run in the queue: the longest idle one, one at a time.
pub(crate) fn gives_way(
    workers: &[ChatWorker],
    pressure: &QueuePressure,
    host_max: u32,
    owner_max: u32,
) -> Option<RunId> {
    if pressure.waiting.is_empty() || workers.iter().any(|worker| worker.told_to_end_us.is_some()) {
        return None;
    }
    let active: u32 = pressure.active.iter().map(|(_, count)| count).sum();
    if active >= host_max {
        return longest_idle(workers.iter());
    }
    let is_full = |owner: &String| pressure.active.iter().any(|(name, count)| name == owner && *count >= owner_max);
    let full: Vec<_> = pressure.waiting.iter().filter(|owner| is_full(owner)).collect();
    longest_idle(workers.iter().filter(|worker| full.contains(&&worker.owner)))
}

/// Returns the workers that were requested to end, and have not ended in time.
pub(crate) fn overdue(workers: &[ChatWorker], now_us: i64) -> Vec<RunId> {
    let is_overdue = |worker: &&ChatWorker| {
        let is_late = |told_us: i64| now_us.saturating_sub(told_us) >= duration_micros(END_GRACE);
        let may_be_ended = worker.state == SandboxState::Running && !worker.is_held;
        may_be_ended && worker.told_to_end_us.is_some_and(is_late)
    };
    workers.iter().filter(is_overdue).map(|worker| worker.key.run_id.clone()).collect()
}

fn longest_idle<'a>(workers: impl Iterator<Item = &'a ChatWorker>) -> Option<RunId> {
    let idle = workers.filter_map(|worker| idle_since(worker).map(|since| (since, worker)));
    idle.min_by_key(|(since, _)| *since).map(|(_, worker)| worker.key.run_id.clone())
}

/// Returns the time since which a worker waits; `None` if it has a turn, is held, or ends. Work that was observed after
/// the turn, such as a call for a message of the owner, begins the wait anew.
fn idle_since(worker: &ChatWorker) -> Option<i64> {
    let waits = worker.state == SandboxState::Running && !worker.is_held;
    worker.turn.end.filter(|_| waits).map(|end| end.time_us().max(worker.worked_us.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use sluice_state::chats::{ChatTurn, TurnEnd};

    use super::*;

    const SECOND: i64 = 1_000_000;

    fn worker(run: &str, principal: &str, idle_since_s: Option<i64>) -> ChatWorker {
        let end = idle_since_s.map(|seconds| TurnEnd::Waiting(seconds * SECOND));
        ChatWorker {
            key: format!("{run}.0").parse().expect("a key"),
            owner: format!("owner of {principal}"),
            principal: principal.to_owned(),
            state: SandboxState::Running,
            is_held: false,
            takes_messages: true,
            turn: ChatTurn { number: 1, message: None, is_resumable: false, begin_seq: 0, interrupts: 0, end },
            told_to_end_us: None,
            worked_us: None,
        }
    }

    fn told(worker: ChatWorker, seconds: i64) -> ChatWorker {
        ChatWorker { told_to_end_us: Some(seconds * SECOND), ..worker }
    }

    fn names(ids: &[RunId]) -> Vec<&str> {
        ids.iter().map(RunId::as_str).collect()
    }

    fn id(text: &str) -> RunId {
        text.parse().expect("an id")
    }

    #[test]
    fn a_waiting_worker_gets_the_turn() {
        assert!(is_free(&worker("r1", "p", Some(1))));
        assert!(!is_free(&worker("r1", "p", None)));
        assert!(!is_free(&told(worker("r1", "p", Some(1)), 2)));
        assert!(!is_free(&ChatWorker { state: SandboxState::Completing, ..worker("r1", "p", Some(1)) }));
    }

    #[test]
    fn the_longest_idle_worker_makes_room() {
        let workers = [
            worker("r1", "p", None),
            worker("r2", "p", Some(9)),
            worker("r3", "p", Some(5)),
            worker("r4", "q", Some(1)),
        ];
        assert_eq!(room(&workers, "p", 4), WorkerSlot::Free);
        assert_eq!(room(&workers, "p", 3), WorkerSlot::InPlaceOf(id("r3")));
        assert_eq!(room(&workers[..1], "p", 1), WorkerSlot::None);
        let ending = [worker("r1", "p", None), told(worker("r2", "p", Some(9)), 10)];
        assert_eq!(room(&ending, "p", 2), WorkerSlot::Free, "one that ends makes room already");
        let worked =
            [ChatWorker { worked_us: Some(10 * SECOND), ..worker("r3", "p", Some(5)) }, worker("r2", "p", Some(9))];
        assert_eq!(room(&worked, "p", 2), WorkerSlot::InPlaceOf(id("r2")), "work is no idle time");
    }

    #[test]
    fn workers_end_after_their_time_and_beyond_the_limit() {
        let workers = [
            worker("r1", "p", None),
            worker("r2", "p", Some(9)),
            worker("r3", "p", Some(5)),
            worker("r4", "q", Some(9)),
        ];
        let ended = |idle_s, max, now_s: i64| {
            let ended = to_end(&workers, Duration::from_secs(idle_s), max, now_s * SECOND);
            names(&ended).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert!(ended(60, 10, 60).is_empty());
        assert_eq!(ended(60, 10, 65), ["r3"]);
        assert_eq!(ended(60, 2, 10), ["r3"]);
        assert_eq!(ended(60, 1, 10), ["r2", "r3"], "the one with a turn stays, and others have limits of their own");
        assert!(to_end(&[told(worker("r1", "p", Some(1)), 2)], Duration::ZERO, 1, SECOND).is_empty(), "it was told");
    }

    #[test]
    fn an_idle_worker_gives_way_to_the_queue() {
        let workers = [worker("r1", "p", None), worker("r2", "p", Some(9)), worker("r3", "q", Some(5))];
        let active = vec![("owner of p".to_owned(), 2), ("owner of q".to_owned(), 1)];
        let waits = |owner: &str| QueuePressure { active: active.clone(), waiting: vec![owner.to_owned()] };
        assert_eq!(gives_way(&workers, &waits("x"), 4, 4), None, "there are places");
        assert_eq!(gives_way(&workers, &waits("x"), 3, 4), Some(id("r3")));
        assert_eq!(gives_way(&workers, &waits("owner of p"), 4, 2), Some(id("r2")), "its owner has no place");
        assert_eq!(gives_way(&workers, &waits("x"), 4, 2), None, "another owner's place does not help");
        assert_eq!(gives_way(&workers, &QueuePressure { waiting: vec![], ..waits("x") }, 1, 1), None);
        let ending = [told(worker("r2", "p", Some(9)), 10), worker("r3", "q", Some(5))];
        assert_eq!(gives_way(&ending, &waits("x"), 1, 1), None, "one at a time");
    }

    #[test]
    fn a_turn_is_interrupted_where_that_is_possible() {
        let with = |interrupts| {
            let worker = worker("r1", "p", None);
            ChatWorker { turn: ChatTurn { interrupts, ..worker.turn.clone() }, ..worker }
        };
        assert_eq!((left_turn(&with(0)), left_turn(&with(2))), (LeftTurn::Interrupt, LeftTurn::Interrupt));
        assert_eq!(left_turn(&with(3)), LeftTurn::Cancel, "it does not end its turn");
        assert_eq!(left_turn(&ChatWorker { takes_messages: false, ..with(0) }), LeftTurn::Cancel);
        assert_eq!(left_turn(&ChatWorker { state: SandboxState::Creating, ..with(0) }), LeftTurn::Cancel);
    }

    #[test]
    fn a_held_worker_stays() {
        let held = ChatWorker { is_held: true, ..worker("r1", "p", Some(1)) };
        assert!(to_end(std::slice::from_ref(&held), Duration::ZERO, 0, 100 * SECOND).is_empty());
        assert!(overdue(&[told(held, 2)], 100 * SECOND).is_empty());
    }

    #[test]
    fn a_worker_that_does_not_end_is_overdue() {
        let workers = [told(worker("r1", "p", Some(1)), 2), worker("r2", "p", Some(1))];
        assert!(overdue(&workers, 31 * SECOND).is_empty());
        assert_eq!(names(&overdue(&workers, 32 * SECOND)), ["r1"]);
    }
}
