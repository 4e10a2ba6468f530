//! Quotas of runs against a model.

use std::collections::VecDeque;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

const RUNS: [&str; 2] = ["r0", "r1"];
const QUOTA: EventQuota = EventQuota { bytes: 2500, events: 6, diff_bytes: 640 };

/// An agent's event of a run: size of its data, and of its diff.
#[derive(Debug, Clone, Copy)]
struct Report {
    run: usize,
    data: usize,
    diff: usize,
}

/// Expected events of the agent of one run in the log: position, size, and size of the diff; none if it was removed.
#[derive(Debug, Default)]
struct Model {
    events: VecDeque<(i64, u64, Option<u64>)>,
}

impl Model {
    fn bytes(&self) -> u64 {
        self.events.iter().map(|(_, bytes, _)| bytes).sum()
    }

    fn diffs(&self) -> u64 {
        self.events.iter().filter_map(|(_, _, diff)| *diff).sum()
    }

    fn append(&mut self, seq: i64, bytes: u64, diff: u64) {
        if diff > 0 && self.diffs() + diff > QUOTA.diff_bytes {
            let room = (QUOTA.diff_bytes - QUOTA.diff_bytes / 16).saturating_sub(diff);
            while self.diffs() > room {
                let oldest = self.events.iter_mut().find(|(_, _, diff)| diff.is_some_and(|bytes| bytes > 0));
                oldest.expect("something has these bytes").2 = None;
            }
        }
        while self.bytes() + bytes > QUOTA.bytes || self.events.len() as u64 + 1 > QUOTA.events {
            self.events.pop_front();
        }
        self.events.push_back((seq, bytes, Some(diff)));
    }
}

async fn check(reports: Vec<Report>) {
    let log = Log::new();
    let mut models = [Model::default(), Model::default()];
    let mut of_system = Vec::new();
    for Report { run, data, diff } in reports {
        let text = "x".repeat(diff);
        let event = NewLoggedEvent {
            event_data: format!("\"{}\"", "x".repeat(data)),
            diff: (diff > 0).then_some(EventDiff { text, truncated: false }),
            ..agent(RUNS[run], "agent.file_edited")
        };
        let bytes = event.bytes();
        let seq = log.append_within(event, QUOTA).await;
        models[run].append(seq, bytes, diff as u64);
        of_system.push(log.append_within(system(RUNS[run], "llm.call"), QUOTA).await);
    }
    let kept = log.store.events_after(0, EventFilter::default(), 1000).await.expect("it is readable").events;
    let (system, agents): (Vec<_>, Vec<_>) = kept.iter().partition(|event| event.source == EventSource::System);
    assert_eq!(system.iter().map(|event| event.seq).collect::<Vec<_>>(), of_system, "nothing of the system is evicted");
    for (run, model) in RUNS.iter().zip(&models) {
        let of_run = agents.iter().filter(|event| event.sandbox_id.as_deref() == Some(run));
        let seqs: Vec<_> = of_run.map(|event| event.seq).collect();
        assert_eq!(seqs, model.events.iter().map(|(seq, _, _)| *seq).collect::<Vec<_>>());
        for (seq, _, diff) in &model.events {
            let found = log.store.event_diff(*seq).await.expect("it is readable");
            let size = match found {
                None => Some(0),
                Some(StoredDiff::Kept(diff)) => Some(diff.text.len() as u64),
                Some(StoredDiff::Removed) => None,
            };
            assert_eq!(size, *diff, "event {seq}");
        }
        let sums = (model.bytes(), model.events.len() as u64, model.diffs());
        assert!(sums.0 <= QUOTA.bytes && sums.1 <= QUOTA.events && sums.2 <= QUOTA.diff_bytes, "{sums:?}");
        let (bytes, events, diffs) = sums;
        let agrees = format!("bytes = {bytes} AND events = {events} AND diff_bytes = {diffs}");
        let rows = format!("event_totals WHERE sandbox_id = '{run}'");
        assert!(model.events.is_empty() || log.holds(&agrees, &rows), "{agrees}");
    }
}

fn report() -> impl Strategy<Value = Report> {
    let diff = prop_oneof![2 => Just(0), 3 => 1..300usize];
    (0..2usize, 0..900usize, diff).prop_map(|(run, data, diff)| Report { run, data, diff })
}

proptest! {
    #![proptest_config(Config { cases: 24, max_shrink_iters: 200, ..Config::default() })]

    /// The newest events and diffs of each run are kept, as many as its quota allows.
    #[test]
    fn quotas_keep_what_the_model_keeps(reports in proptest::collection::vec(report(), 0..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be built");
        runtime.block_on(check(reports));
    }
}
