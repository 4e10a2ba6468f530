//! Quotas and ages.

use super::*;

#[tokio::test]
async fn a_flood_evicts_only_its_own_agent_events() {
    let log = Log::new();
    let quota = EventQuota { bytes: u64::MAX / 2, events: 3, diff_bytes: 0 };
    log.append_within(agent("r2", "agent.message"), quota).await;
    log.append_within(system("r1", "approval.decided"), quota).await;
    log.append_within(system("r1", "llm.call"), quota).await;
    for _ in 0..10 {
        log.append_within(agent("r1", "agent.message"), quota).await;
    }
    log.append_within(system("r1", "llm.call"), quota).await;
    assert_eq!(seqs(&log.after(0, EventFilter::default()).await.events), [1, 2, 3, 11, 12, 13, 14]);
    // A worker's own reports are not evicted, and an agent cannot report them.
    let worker = NewLoggedEvent { source: EventSource::Worker, ..system("r1", "run.state_changed") };
    log.append_within(worker, quota).await;
    assert_eq!(log.after(14, EventFilter::default()).await.events.len(), 1);
}

#[tokio::test]
async fn what_is_kept_stays_below_the_quota() {
    let log = Log::new();
    let quota = EventQuota { bytes: 10_000, events: 1000, diff_bytes: 5_000 };
    for size in [10, 4000, 9000, 1, 1, 7000, 500] {
        let data = format!("\"{}\"", "x".repeat(size));
        log.append_within(NewLoggedEvent { event_data: data, ..agent("r1", "agent.message") }, quota).await;
        let kept: usize = log.after(0, of_run("r1")).await.events.iter().map(|event| event.event_data.len()).sum();
        assert!(kept <= 10_000, "{kept}");
    }
    let diff = Some(EventDiff { text: "x".repeat(10_000), truncated: false });
    let large = NewLoggedEvent { diff, ..agent("r1", "agent.file_edited") };
    let refused = log.store.append_events(vec![large], quota).await.expect("it is writable").remove(0);
    assert!(matches!(refused, Err(EventFault::OverQuota { .. })), "{refused:?}");
    // The sums follow the rows.
    assert!(log.holds("bytes = (SELECT sum(bytes) FROM events)", "event_totals"));
}

#[tokio::test]
async fn diffs_have_a_quota_of_their_own() {
    let log = Log::new();
    let quota = EventQuota { bytes: 10_000, events: 1000, diff_bytes: 1_600 };
    let edited = |run: &str, size: usize| {
        let diff = Some(EventDiff { text: "x".repeat(size), truncated: true });
        NewLoggedEvent { diff, ..agent(run, "agent.file_edited") }
    };
    let other = log.append_within(edited("r2", 1_600), quota).await;
    let mut seqs_of_run = Vec::new();
    for _ in 0..5 {
        seqs_of_run.push(log.append_within(edited("r1", 400), quota).await);
    }
    let mut kept = Vec::new();
    for seq in &seqs_of_run {
        kept.push(matches!(log.store.event_diff(*seq).await, Ok(Some(StoredDiff::Kept(_)))));
    }
    assert_eq!(kept, [false, false, true, true, true], "a sixteenth is freed at once");
    assert_eq!(log.store.event_diff(seqs_of_run[0]).await.expect("it is readable"), Some(StoredDiff::Removed));
    assert!(matches!(log.store.event_diff(other).await, Ok(Some(StoredDiff::Kept(_)))), "each run has its own");
    assert_eq!(log.after(0, of_run("r1")).await.events.len(), 5, "the events stay");
    let refused = log.store.append_events(vec![edited("r1", 1_601)], quota).await.expect("it is writable").remove(0);
    assert_eq!(refused, Err(EventFault::OverQuota { bytes: 1_601, quota: 1_600 }));
    let agree = "diff_bytes = (SELECT sum(event_diffs.bytes) FROM events JOIN event_diffs USING (seq)
                               WHERE events.sandbox_id = event_totals.sandbox_id)";
    assert!(log.holds(agree, "event_totals"));
    let ages = EventAges { agent_before_us: 2, system_before_us: 2 };
    log.store.remove_old_events(ages).await.expect("it is writable");
    assert!(log.holds("diff_bytes + bytes + events = 0", "event_totals"));
}

#[tokio::test]
async fn a_gap_covers_what_was_removed() {
    let log = Log::new();
    let quota = EventQuota { bytes: u64::MAX / 2, events: 2, diff_bytes: 0 };
    log.append_within(system("r1", "sandbox.created"), quota).await;
    for _ in 0..5 {
        log.append_within(agent("r1", "agent.message"), quota).await;
    }
    log.append_within(NewLoggedEvent { owner: "p".into(), ..system("r2", "a") }, quota).await;
    // 2, 3 and 4 were removed.
    let gap = |from, to| Some(EventGap { from, to });
    assert_eq!(log.after(0, of_run("r1")).await.gap, gap(2, 4));
    assert_eq!(log.after(3, of_run("r1")).await.gap, gap(4, 4));
    assert_eq!(log.after(4, of_run("r1")).await.gap, None);
    assert_eq!(log.after(0, of_run("r2")).await.gap, None);
    let filter = EventFilter { owner: Some("p".into()), ..EventFilter::default() };
    assert_eq!(log.after(0, filter).await.gap, None, "another owner's removals are not told");
    let first = log.store.events_after(0, EventFilter::default(), 1).await.expect("it is readable");
    assert_eq!((first.next, first.gap), (1, None));
    let second = log.store.events_after(1, EventFilter::default(), 1).await.expect("it is readable");
    assert_eq!((second.next, second.gap), (5, gap(2, 4)));
}

#[tokio::test]
async fn ages_remove_events_and_their_diffs() {
    let log = Log::new();
    let at = |event: NewLoggedEvent, created_us| NewLoggedEvent { created_us, ..event };
    let diff = Some(EventDiff { text: "+a".into(), truncated: false });
    let edited = log.append(NewLoggedEvent { diff, ..at(agent("r1", "agent.file_edited"), 10) }).await;
    log.append(at(system("r1", "llm.call"), 10)).await;
    log.append(at(agent("r1", "agent.message"), 30)).await;
    let ages = EventAges { agent_before_us: 20, system_before_us: 5 };
    assert_eq!(log.store.remove_old_events(ages).await.expect("it is writable"), 1);
    let batch = log.after(0, EventFilter::default()).await;
    assert_eq!((seqs(&batch.events), batch.gap), (vec![2, 3], Some(EventGap { from: 1, to: 1 })));
    assert_eq!(log.store.event_diff(edited).await.expect("it is readable"), None);
    let ages = EventAges { agent_before_us: 40, system_before_us: 40 };
    assert_eq!(log.store.remove_old_events(ages).await.expect("it is writable"), 2);
    let batch = log.after(0, EventFilter::default()).await;
    assert_eq!((batch.events.len(), batch.gap, batch.next), (0, Some(EventGap { from: 1, to: 3 }), 3));
    assert_eq!(log.append(system("r1", "a")).await, 4, "a position is used once");
    assert_eq!(log.store.newest_event().await.expect("it is readable"), 4);
}
