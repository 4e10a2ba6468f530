//! Appends, removals and readers in any order.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    /// An agent's event of a run, with this many bytes.
    Agent(usize, usize),
    /// The system's event of a run.
    System(usize),
    /// Removal of agents' and of all other events that were appended before these steps.
    Expire(i64, i64),
    /// One batch for a reader.
    Read(usize, u32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..2usize, 0..400usize).prop_map(|(run, size)| Op::Agent(run, size)),
        2 => (0..2usize).prop_map(Op::System),
        1 => (0..40i64, 0..20i64).prop_map(|(agent, system)| Op::Expire(agent, system)),
        4 => (0..3usize, 1..4u32).prop_map(|(reader, limit)| Op::Read(reader, limit)),
    ]
}

struct Reader {
    filter: EventFilter,
    cursor: i64,
    seen: BTreeSet<i64>,
    gaps: Vec<EventGap>,
}

impl Reader {
    async fn read(&mut self, log: &Log, limit: u32) -> bool {
        let batch = log.store.events_after(self.cursor, self.filter.clone(), limit).await.expect("it is readable");
        for event in &batch.events {
            assert!(event.seq > self.cursor && event.seq <= batch.next && self.seen.insert(event.seq), "seen twice");
        }
        if let Some(gap) = batch.gap {
            assert!(gap.from > self.cursor && gap.from <= gap.to && gap.to <= batch.next, "{gap:?}");
            self.gaps.push(gap);
        }
        self.cursor = batch.next;
        batch.is_newest
    }
}

const RUNS: [&str; 2] = ["r0", "r1"];
const QUOTA: EventQuota = EventQuota { bytes: 1500, events: 4, diff_bytes: 0 };

async fn check(ops: Vec<Op>) {
    let log = Log::new();
    let reader = |filter| Reader { filter, cursor: 0, seen: BTreeSet::new(), gaps: Vec::new() };
    let mut readers = [reader(EventFilter::default()), reader(of_run("r0")), reader(of_run("r1"))];
    let (mut appended, mut time, mut oldest_system) = (Vec::new(), 0, 0);
    for op in ops {
        time += 1;
        match op {
            Op::Agent(run, size) => {
                let event_data = format!("\"{}\"", "x".repeat(size));
                let event = NewLoggedEvent { event_data, created_us: time, ..agent(RUNS[run], "agent.message") };
                appended.push((log.append_within(event, QUOTA).await, run, false, time));
            }
            Op::System(run) => {
                let event = NewLoggedEvent { created_us: time, ..system(RUNS[run], "llm.call") };
                appended.push((log.append_within(event, QUOTA).await, run, true, time));
            }
            Op::Expire(agent_before_us, system_before_us) => {
                oldest_system = oldest_system.max(system_before_us);
                log.store.remove_old_events(EventAges { agent_before_us, system_before_us }).await.expect("ours");
            }
            Op::Read(reader, limit) => drop(readers[reader].read(&log, limit).await),
        }
    }
    for (number, reader) in readers.iter_mut().enumerate() {
        while !reader.read(&log, 2).await {}
        for (seq, run, is_system, time) in &appended {
            let is_selected = number == 0 || number - 1 == *run;
            let is_in_gap = reader.gaps.iter().any(|gap| (gap.from..=gap.to).contains(seq));
            let is_seen = reader.seen.contains(seq);
            assert!(!is_selected || is_seen || is_in_gap, "event {seq} was lost");
            assert!(is_selected || !is_seen);
            assert!(!is_selected || !is_system || is_seen || *time < oldest_system, "{seq} was evicted");
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 24, max_shrink_iters: 200, ..Config::default() })]

    /// Each event is seen once by each reader, or lies in a gap that was reported to it.
    #[test]
    fn each_event_is_seen_or_reported_missing(ops in proptest::collection::vec(op(), 0..50)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be built");
        runtime.block_on(check(ops));
    }
}
