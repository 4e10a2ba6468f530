//! Removal of expired data: events, records, kept workspaces and repositories of runs, idempotency keys, messages of
//! webhooks.
//!
//! Rows of runs, receipts, holds and audit files are never removed here.

use std::time::{Duration, SystemTime};

use serde_json::json;
use sluice_contract::text::error_chain;
use sluice_contract::time::duration_micros;
use sluice_runs::repository_retention::remove_old_repositories;
use sluice_state::control_log::ControlEntry;
use sluice_state::events::EventAges;
use sluice_state::record_retention::remove_old_records;
use sluice_state::store::now_us;

use super::{UpkeepSettings, kept_workspaces};
use crate::context::ApiContext;
use crate::loops::LoopFault;

/// Shortest time for which events of the system are kept: they are the record of what was done to a run.
const SYSTEM_KEEP_MIN: Duration = Duration::from_secs(90 * 24 * 3600);
/// Time for which webhook messages are kept that were given up.
const DEAD_KEEP: Duration = Duration::from_secs(7 * 24 * 3600);

/// Retention times.
#[derive(Debug)]
pub(super) struct Keep {
    records: Duration,
    events: Duration,
    /// Names of the webhooks of the settings.
    webhooks: Vec<String>,
}

impl Keep {
    pub(super) fn of(settings: &UpkeepSettings) -> Self {
        Self {
            records: settings.record_keep,
            events: settings.event_keep,
            webhooks: settings.webhooks.iter().map(|webhook| webhook.name.clone()).collect(),
        }
    }
}

/// Removes expired data. A failure does not stop the rest.
pub(super) async fn turn(context: &ApiContext, keep: &Keep) -> Result<(), LoopFault> {
    let (store, now_us) = (&context.store, now_us());
    let events = store.remove_old_events(ages(now_us, keep.events)).await;
    let keys = store.remove_old_keys(now_us).await;
    let messages = store.remove_old_webhook_messages(keep.webhooks.clone(), before(now_us, DEAD_KEEP)).await;
    let records = remove_old_records(&context.layout, store, keep.records).await;
    let workspaces = kept_workspaces::remove_old(context, keep.records, now_us).await;
    let repositories = remove_old_repositories(&context.git, store, keep.records, SystemTime::now()).await;
    let removed = (
        *events.as_ref().unwrap_or(&0),
        records.as_ref().map_or(0, |records| records.removed.len()),
        *workspaces.as_ref().unwrap_or(&0),
        *repositories.as_ref().unwrap_or(&0),
    );
    if removed != (0, 0, 0, 0) {
        let entry = ControlEntry {
            operation: "retention".to_owned(),
            after: Some(json!({
                "events": removed.0, "records": removed.1, "workspaces": removed.2, "repositories": removed.3,
            })),
            ..ControlEntry::default()
        };
        context.record_own(entry).await.map_err(|error| LoopFault::new(error.code()))?;
    }
    events?;
    keys?;
    messages?;
    workspaces?;
    repositories
        .map_err(|error| LoopFault::new(format!("an old repository is not removed: {}", error_chain(&error))))?;
    match records?.remaining.first() {
        Some((key, reason)) => Err(LoopFault::new(format!("the record of run {key} is not removed: {reason}"))),
        None => Ok(()),
    }
}

/// Returns the time for which events of the system are kept.
pub(super) fn system_keep(keep: Duration) -> Duration {
    keep.max(SYSTEM_KEEP_MIN)
}

/// Returns the times before which events are removed.
fn ages(now_us: i64, keep: Duration) -> EventAges {
    EventAges { agent_before_us: before(now_us, keep), system_before_us: before(now_us, system_keep(keep)) }
}

fn before(now_us: i64, keep: Duration) -> i64 {
    now_us.saturating_sub(duration_micros(keep))
}

#[cfg(test)]
mod tests {
    use sluice_state::events::{EventQuota, EventSource, NewLoggedEvent};

    use super::*;
    use crate::test_daemon::TestDaemon;

    const DAY_US: i64 = 24 * 3600 * 1_000_000;

    #[test]
    fn events_of_the_system_are_kept_longer() {
        let days = |count: u64| Duration::from_secs(count * 24 * 3600);
        for (keep, agent, system) in [(30, 30, 90), (120, 120, 120), (1, 1, 90)] {
            let expected =
                EventAges { agent_before_us: (400 - agent) * DAY_US, system_before_us: (400 - system) * DAY_US };
            assert_eq!(ages(400 * DAY_US, days(keep)), expected, "{keep}");
        }
    }

    #[test]
    fn a_clock_before_its_time_removes_nothing() {
        let ages = ages(-5, Duration::from_secs(60));
        assert!(ages.agent_before_us < 0 && ages.system_before_us < 0, "{ages:?}");
    }

    #[tokio::test]
    async fn a_turn_removes_events_and_records_it() {
        let daemon = TestDaemon::start().await;
        let (store, now) = (daemon.store(), now_us());
        let event = |created_us| NewLoggedEvent::of_run("alice", "r1", "sandbox.stopped", "{}".to_owned(), created_us);
        let reported = |created_us| NewLoggedEvent {
            source: EventSource::Agent,
            event_type: "agent.message".to_owned(),
            ..event(created_us)
        };
        let month_ago = now - 31 * DAY_US;
        let events = vec![event(1), event(month_ago), reported(month_ago), reported(now)];
        store.append_events(events, EventQuota::default()).await.expect("it is writable");
        let keep = Keep::of(&UpkeepSettings::default());

        for _ in 0..2 {
            turn(&daemon.running.context, &keep).await.expect("all of it can be removed");
        }

        let left = store.events_after(0, Default::default(), 10).await.expect("it is readable");
        assert_eq!(left.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [2, 4]);
        let log = std::fs::read_to_string(daemon.settings.state.join("audit/control.jsonl")).expect("it is there");
        let lines: Vec<_> = log.lines().filter(|line| line.contains(r#""operation":"retention""#)).collect();
        assert_eq!(lines.len(), 1, "a turn without effect has no line");
        assert!(lines[0].contains(r#""events":2"#), "{lines:?}");
    }
}
