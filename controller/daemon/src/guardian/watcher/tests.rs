use serde_json::{Value, json};
use sluice_state::events::{EventSource, NewLoggedEvent};
use sluice_state::messages::MessageFilter;
use sluice_state::sandboxes::{DesiredState, SandboxStep, SandboxVerdict};

use super::*;
use crate::guardian::{GuardianRules, RepetitionRule, SilenceRule};
use crate::test_daemon::TestDaemon;

fn rules(action: GuardianAction) -> GuardianRules {
    let repeated_tool = Some(RepetitionRule { count: 3, within: Duration::from_secs(600), action });
    GuardianRules { repeated_tool, ..GuardianRules::default() }
}

async fn guardian(daemon: &TestDaemon, host: GuardianRules) -> Guardian {
    let settings = GuardianSettings { host, ..GuardianSettings::default() };
    let context = Arc::clone(&daemon.running.context);
    let cursor = context.store.newest_event().await.expect("it is readable");
    Guardian { cursor, ..Guardian::new(context, settings) }
}

/// Reads the new events, and carries out the actions of the rules.
async fn read(guardian: &mut Guardian) {
    guardian.read().await.expect("it works");
    guardian.perform_due().await.expect("it works");
}

async fn look(guardian: &mut Guardian) {
    guardian.look().await.expect("it works");
    guardian.perform_due().await.expect("it works");
}

async fn report(daemon: &TestDaemon, id: &str, count: u64) {
    report_of(daemon, id, None, count).await;
}

/// Reports the same tool call this many times for an attempt.
async fn report_of(daemon: &TestDaemon, id: &str, attempt: Option<u32>, count: u64) {
    let data = json!({"tool_name": "Bash", "input": {"command": "CANARY"}}).to_string();
    let event = NewLoggedEvent::of_run("alice", id, "agent.tool_use", data, now_us());
    let event = NewLoggedEvent { source: EventSource::Worker, attempt, ..event };
    let events = vec![event; usize::try_from(count).expect("a few")];
    for part in events.chunks(5000) {
        daemon.store().append_events(part.to_vec(), EventQuota::default()).await.expect("there is room");
    }
}

/// Ends a run that waits as failed.
async fn fail(daemon: &TestDaemon, id: &str) {
    let failed = SandboxVerdict::Failed { code: "internal".to_owned(), message: None };
    daemon.step(id, SandboxStep::Drop(failed)).await;
}

async fn retry(daemon: &TestDaemon, id: &str) {
    let retried = daemon.request("slu_alice", "POST", &format!("/api/v1/sandboxes/{id}/retry"), None).await;
    assert_eq!(retried.status, 200, "{retried:?}");
}

async fn interventions(daemon: &TestDaemon) -> Vec<Value> {
    let filter = EventFilter { types: vec!["guardian.*".to_owned()], ..EventFilter::default() };
    let mut found = Vec::new();
    let mut after = 0;
    loop {
        let batch = daemon.store().events_after(after, filter.clone(), 500).await.expect("it is readable");
        found.extend(batch.events.iter().map(|event| serde_json::from_str(&event.event_data).expect("it is JSON")));
        after = batch.next;
        if batch.is_newest {
            return found;
        }
    }
}

#[tokio::test]
async fn a_hit_is_one_event_and_one_nudge() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let mut guardian = guardian(&daemon, rules(GuardianAction::Nudge)).await;
    report(&daemon, &id, 9).await;
    read(&mut guardian).await;
    read(&mut guardian).await;

    let found = interventions(&daemon).await;
    assert_eq!((found.len(), &found[0]["rule"], &found[0]["performed"]), (1, &json!("repeated_tool"), &json!(true)));
    let run_id = id.parse().expect("an id");
    let page = daemon.store().list_messages(&run_id, MessageFilter::default(), 10).await;
    let messages = page.expect("it is readable").messages;
    let [message] = &messages[..] else { panic!("{messages:?}") };
    assert_eq!((message.sender.as_str(), message.source.as_deref()), ("guardian:repeated_tool", Some("guardian")));
    assert!(message.content.starts_with("[GUARDIAN INTERVENTION - guidance] "), "{}", message.content);
    assert!(!message.content.contains("CANARY"));
}

#[tokio::test]
async fn a_flood_is_read_in_parts() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let mut guardian = guardian(&daemon, rules(GuardianAction::Notify)).await;
    report(&daemon, &id, 100_000).await;
    let newest = daemon.store().newest_event().await.expect("it is readable");
    let mut turns = 0;
    while guardian.cursor < newest {
        read(&mut guardian).await;
        turns += 1;
    }
    assert!((2..=10).contains(&turns), "{turns}");
    assert_eq!(interventions(&daemon).await.len(), 1, "the rule rests after a hit");
}

#[tokio::test]
async fn runs_that_have_ended_are_left_alone() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let mut guardian = guardian(&daemon, rules(GuardianAction::Notify)).await;
    look(&mut guardian).await;
    assert_eq!(guardian.runs.len(), 1);
    daemon.end(&id).await;
    report(&daemon, &id, 5).await;
    read(&mut guardian).await;
    look(&mut guardian).await;
    assert_eq!((guardian.runs.len(), interventions(&daemon).await.len()), (0, 0));
    let mut without = Guardian { settings: GuardianSettings::default(), ..guardian };
    let (other, _) = daemon.working_run().await;
    report(&daemon, &other, 5).await;
    read(&mut without).await;
    assert_eq!(interventions(&daemon).await.len(), 0);
}

/// Bug: a late event of an ended run hid the rules from its next attempt.
#[tokio::test]
async fn a_retried_run_has_its_rules_at_once() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let mut guardian = guardian(&daemon, rules(GuardianAction::Notify)).await;
    fail(&daemon, &id).await;
    report_of(&daemon, &id, Some(0), 1).await;
    read(&mut guardian).await;
    retry(&daemon, &id).await;
    report_of(&daemon, &id, Some(1), 3).await;
    read(&mut guardian).await;
    assert_eq!(interventions(&daemon).await.len(), 1);
}

/// Bug: a hit that waited while the database could not be used reached the next attempt of its run.
#[tokio::test]
async fn a_hit_does_not_reach_the_next_attempt() {
    let daemon = TestDaemon::with_runs().await;
    let id = daemon.create("slu_alice", json!({ "task": "x" })).await;
    let mut guardian = guardian(&daemon, rules(GuardianAction::Notify)).await;
    report_of(&daemon, &id, Some(0), 3).await;
    guardian.read().await.expect("it works");
    assert_eq!(guardian.due.len(), 1);
    fail(&daemon, &id).await;
    retry(&daemon, &id).await;
    guardian.perform_due().await.expect("it works");
    assert_eq!((guardian.due.len(), interventions(&daemon).await.len()), (0, 0));
}

#[tokio::test]
async fn a_rule_pauses_and_never_resumes() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    let mut guardian = guardian(&daemon, rules(GuardianAction::Pause)).await;
    report(&daemon, &id, 3).await;
    read(&mut guardian).await;
    let run_id = id.parse().expect("an id");
    let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    assert_eq!(run.desired_state, DesiredState::Paused);
    let log = daemon.control_log();
    let line = log.last().expect("it is recorded");
    let said = (line.operation.as_str(), line.principal.as_str(), line.reason.as_deref());
    assert_eq!(said, ("sandbox.pause", "daemon", Some("the same tool call was repeated")));
    // Events that a paused run still reports match rules, and change nothing.
    let mut again = Guardian { runs: HashMap::new(), ..guardian };
    report(&daemon, &id, 3).await;
    read(&mut again).await;
    let performed: Vec<_> = interventions(&daemon).await.iter().map(|found| found["performed"].clone()).collect();
    assert_eq!(performed, [json!(true), json!(false)]);
    let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
    assert_eq!(run.desired_state, DesiredState::Paused);
}

async fn call(daemon: &TestDaemon, id: &str, event_type: &str) {
    let event = NewLoggedEvent::of_run("alice", id, event_type, "{}".to_owned(), now_us());
    let event = NewLoggedEvent { attempt: Some(0), ..event };
    daemon.store().append_events(vec![event], EventQuota::default()).await.expect("there is room");
}

#[tokio::test]
async fn a_call_from_before_a_restart_is_no_silence() {
    let daemon = TestDaemon::with_runs().await;
    let (id, _) = daemon.working_run().await;
    for event_type in ["llm.call_started", "llm.call", "llm.call_started"] {
        call(&daemon, &id, event_type).await;
    }
    let silence = Some(SilenceRule { after: Duration::ZERO, action: GuardianAction::Notify });
    let mut guardian = guardian(&daemon, GuardianRules { silence, ..GuardianRules::default() }).await;
    look(&mut guardian).await;
    assert_eq!(interventions(&daemon).await.len(), 0, "a call is under way");
    call(&daemon, &id, "llm.call").await;
    read(&mut guardian).await;
    look(&mut guardian).await;
    assert_eq!(interventions(&daemon).await.len(), 1);
}
