//! Steps, retries and the end of a run.

use super::*;
use crate::budget::BudgetError;
use crate::idempotency::{IdempotencyError, IdempotencyKey, KeyReservation};
use crate::run::{Run, RunPhase};

fn next(daemon: &Daemon) -> NextAttempt {
    NextAttempt { daemon: daemon.process.clone(), next_try_us: 70, reason: "internal".to_owned() }
}

impl Daemon {
    async fn retry(&self, run_id: &str) -> Result<Sandbox, SandboxError> {
        let generation = self.find(run_id).await.generation;
        self.store.retry_sandbox(&id(run_id), generation, next(self), 60).await
    }

    async fn reopen(&self, run_id: &str) -> Result<Sandbox, SandboxError> {
        let generation = self.find(run_id).await.generation;
        self.store.reopen_sandbox(&id(run_id), generation, reopening(next(self)), 60).await
    }

    async fn fail(&self, run_id: &str) {
        assert_eq!(self.claim(100).await.as_deref(), Some(run_id));
        self.step(run_id, SandboxStep::Decide(failed("internal"))).await;
    }

    /// Closes the row of an attempt, as the controller does, with the spending in its audit file.
    async fn close(&self, sandbox: &Sandbox, spent: i64) {
        let closed = Run { phase: RunPhase::Closed, ..Run::new() };
        self.store.record(&sandbox.key, 1, &closed, None).await.expect("it is ours");
        let (run, attempt) = (sandbox.key.run_id.as_str(), sandbox.key.attempt);
        self.sql(&format!(
            "INSERT INTO readings (run_id, attempt, worth, lines, ended, read_us) VALUES ('{run}', {attempt}, 'complete', 9, 1, 1);
             INSERT INTO receipts (source_system, source_reference, payload_hash, run_id, attempt, call, call_id, account,
                                   graph_id, method, path, stream, origin_us, origin_day, arrived_us, arrived_day)
             VALUES ('sluice-audit', '{run}/{attempt}/1', hex(zeroblob(32)), '{run}', {attempt}, 1, '1', 'acct', '', 'POST',
                     '/', 0, 1, '2026-11-20', 1, '2026-11-20');
             INSERT INTO entries (receipt, source_system, source_reference, payload_hash, status, cost_usd, nano_usd,
                                  price_source, origin_us, origin_day, arrived_us, arrived_day)
             SELECT id, 'made-up', source_reference || '#', payload_hash, 'posted', 'x', {spent}, 'x', 1, '2026-11-20', 1,
                    '2026-11-20'
             FROM receipts WHERE source_reference = '{run}/{attempt}/1'"
        ));
    }
}

static R1: std::sync::LazyLock<RunId> = std::sync::LazyLock::new(|| id("r1"));

#[tokio::test]
async fn a_run_goes_through_its_states() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    assert!(matches!(daemon.try_step("r1", SandboxStep::Start).await, Err(SandboxError::IllegalStep(_))));
    assert!(matches!(daemon.try_step("r1", SandboxStep::Claim).await, Err(SandboxError::IllegalStep(_))));
    daemon.claim(10).await.expect("it is in the queue");
    for (step, state) in [
        (SandboxStep::Start, SandboxState::Running),
        (SandboxStep::Complete, SandboxState::Completing),
        (SandboxStep::Resume, SandboxState::Running),
        (SandboxStep::Decide(SandboxVerdict::Success), SandboxState::Completing),
    ] {
        assert_eq!(daemon.step("r1", step).await.state, state);
        assert_eq!(daemon.agent_state("a").await, AgentState::Connected);
    }
    let ended = daemon.step("r1", SandboxStep::Finish).await;
    assert_eq!((ended.state, ended.ended_us, ended.generation), (SandboxState::Completed, Some(50), 6));
    assert_eq!(daemon.find("r1").await, ended);
    assert_eq!(daemon.agent_state("a").await, AgentState::Idle);
    let events = daemon.events().await;
    let types: Vec<_> = events.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!((types[0], types[types.len() - 1]), ("sandbox.created", "sandbox.stopped"));
    assert_eq!(types[1..types.len() - 1], ["run.state_changed"; 6]);
    assert_eq!(events[1].event_data, r#"{"from":"PENDING","reason":"claimed","to":"CREATING"}"#);
    assert_eq!(events[7].event_data, r#"{"failure_code":null,"outcome":"success","state":"COMPLETED"}"#);
}

#[tokio::test]
async fn a_stale_generation_is_refused() {
    let daemon = Daemon::new(&["a"]).await;
    let created = daemon.create(daemon.sandbox("r1", "a"), 1).await;
    daemon.claim(10).await.expect("it is in the queue");
    let stale = daemon.store.step_sandbox(&id("r1"), created.generation, SandboxStep::Start, "test", 1).await;
    assert!(matches!(stale, Err(SandboxError::StaleGeneration { found: 1 })));
    let unknown = daemon.store.step_sandbox(&id("r2"), 0, SandboxStep::Start, "test", 1).await;
    assert!(matches!(unknown, Err(SandboxError::NotFound(_))));
    let r1 = id("r1");
    let (one, two) = tokio::join!(
        daemon.store.step_sandbox(&r1, 1, SandboxStep::Start, "test", 1),
        daemon.store.step_sandbox(&r1, 1, SandboxStep::Decide(failed("stale_start")), "test", 1),
    );
    assert_eq!((one.is_ok(), two.is_ok()), (true, false));
}

#[tokio::test]
async fn a_cancelled_queue_entry_holds_nothing() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.budget(100).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    assert_eq!(daemon.held().await, 40);
    daemon.step("r1", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    assert_eq!((daemon.held().await, daemon.agent_state("a").await), (0, AgentState::Idle));
    assert_eq!(daemon.store.open_runs().await.expect("it is readable"), []);
    assert_eq!(daemon.claim(100).await, None);
}

#[tokio::test]
async fn retries_wait_and_are_counted() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(NewSandbox { max_retries: 1, ..daemon.sandbox("r1", "a") }, 1).await;
    assert!(matches!(daemon.retry("r1").await, Err(SandboxError::IllegalStep(_))));
    daemon.fail("r1").await;
    let retried = daemon.retry("r1").await.expect("it has a retry");
    assert_eq!((retried.key.to_string(), retried.state), ("r1.1".to_owned(), SandboxState::Pending));
    assert_eq!((retried.verdict, retried.claimed_us, retried.deadline_us), (None, None, Some(1100)));
    assert_eq!(daemon.agent_state("a").await, AgentState::Connected);
    assert_eq!(daemon.claim(69).await, None);
    daemon.fail("r1").await;
    assert_eq!(daemon.find("r1").await.deadline_us, Some(1100), "retries do not move the deadline");
    assert!(matches!(daemon.retry("r1").await, Err(SandboxError::RetriesSpent(1))));
    daemon.step("r1", SandboxStep::Finish).await;
    assert_eq!(daemon.agent_state("a").await, AgentState::Idle);
}

#[tokio::test]
async fn a_retry_keeps_the_message_of_the_failure() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    daemon.claim(10).await.expect("it is in the queue");
    let failure = SandboxVerdict::Failed { code: "internal".to_owned(), message: Some("a fault".to_owned()) };
    daemon.step("r1", SandboxStep::Decide(failure)).await;

    let retried = daemon.retry("r1").await.expect("it has retries");

    let change = daemon.store.last_state_change(&R1).await.expect("it is readable");
    let expected = serde_json::json!({
        "from": "COMPLETING", "to": "PENDING", "reason": "internal", "error_message": "a fault"
    });
    assert_eq!(change, expected);
    let cause = async |run: &Sandbox| daemon.store.wait_cause(run).await.expect("it is readable");
    let turn = WaitCause { waiting_for: "turn", reason: None, error_message: None };
    assert_eq!(cause(&retried).await, Some(turn), "its time is past");
    let retry = WaitCause {
        waiting_for: "retry",
        reason: Some("internal".to_owned()),
        error_message: Some("a fault".to_owned()),
    };
    assert_eq!(cause(&Sandbox { next_try_us: i64::MAX, ..retried }).await, Some(retry));
}

#[tokio::test]
async fn a_clock_that_jumps_back_delays_no_retry_for_long() {
    const HOUR_US: i64 = 3600 * 1_000_000;
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(NewSandbox { run_time_us: 2 * HOUR_US, ..daemon.sandbox("r1", "a") }, HOUR_US).await;
    assert_eq!(daemon.claim(HOUR_US).await.as_deref(), Some("r1"));
    let run = daemon.step("r1", SandboxStep::Decide(failed("internal"))).await;
    let next_try_us = HOUR_US + RETRY_WAIT_MAX_US;
    let next = NextAttempt { daemon: daemon.process.clone(), next_try_us, reason: "internal".to_owned() };
    let retried = daemon.store.retry_sandbox(&id("r1"), run.generation, next, HOUR_US).await.expect("it has retries");
    assert_eq!(retried.deadline_us, Some(3 * HOUR_US));
    assert_eq!(daemon.claim(HOUR_US).await, None, "the longest wait is kept");
    assert_eq!(daemon.claim(next_try_us - 1).await, None);
    assert_eq!(daemon.claim(1).await.as_deref(), Some("r1"), "it would wait for an hour more");
    assert_eq!(daemon.find("r1").await.deadline_us, Some(3 * HOUR_US), "nothing moves the deadline");
}

#[tokio::test]
async fn attempts_share_one_cap() {
    let daemon = Daemon::new(&[]).await;
    daemon.budget(1000).await;
    daemon.create(NewSandbox { cap: Some(100), ..daemon.ephemeral("r1") }, 1).await;
    daemon.fail("r1").await;
    assert!(matches!(daemon.retry("r1").await, Err(SandboxError::CapSpent)), "what it spent is not known");
    daemon.close(&daemon.find("r1").await, 30).await;
    let second = daemon.retry("r1").await.expect("70 are left");
    assert_eq!((second.cap, second.attempt_cap, daemon.held().await), (Some(100), Some(70), 70));
    daemon.fail("r1").await;
    daemon.close(&second, 70).await;
    assert!(matches!(daemon.retry("r1").await, Err(SandboxError::CapSpent)));
    daemon.step("r1", SandboxStep::Finish).await;
    assert!(matches!(daemon.reopen("r1").await, Err(SandboxError::CapSpent)));
    assert_eq!(daemon.agent("r1").await, None, "a refused retry leaves nothing");
}

#[tokio::test]
async fn a_run_that_never_started_has_its_cap() {
    let daemon = Daemon::new(&[]).await;
    daemon.budget(1000).await;
    daemon.create(NewSandbox { cap: Some(100), ..daemon.ephemeral("r1") }, 1).await;
    daemon.step("r1", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
    assert_eq!(daemon.store.unread_runs(9).await.expect("it is readable"), [], "there is no file to read");
    let second = daemon.reopen("r1").await.expect("nothing was spent");
    assert_eq!((second.cap, second.attempt_cap, daemon.held().await), (Some(100), Some(100), 100));
}

#[tokio::test]
async fn an_attempt_with_a_possible_sidecar_spent_all() {
    for possible in [
        "UPDATE runs SET phase = 'closed'",
        "UPDATE runs SET phase = 'creating'",
        "UPDATE runs SET sidecar_pid = 5",
        "INSERT INTO witnesses VALUES ('r1', 0, 0, hex(zeroblob(32)), 0)",
    ] {
        let daemon = Daemon::new(&[]).await;
        daemon.create(NewSandbox { cap: Some(100), ..daemon.ephemeral("r1") }, 1).await;
        daemon.sql(possible);
        daemon.step("r1", SandboxStep::Drop(SandboxVerdict::Cancelled)).await;
        assert!(matches!(daemon.reopen("r1").await, Err(SandboxError::CapSpent)), "{possible}");
        let unread = daemon.store.unread_runs(9).await.expect("it is readable");
        assert_eq!(unread, [daemon.find("r1").await.key], "{possible}");
    }
}

#[tokio::test]
async fn a_retry_needs_room_in_the_budget() {
    let daemon = Daemon::new(&[]).await;
    daemon.budget(100).await;
    daemon.create(NewSandbox { cap: Some(100), ..daemon.ephemeral("r1") }, 1).await;
    daemon.fail("r1").await;
    daemon.close(&daemon.find("r1").await, 10).await;
    daemon.create(NewSandbox { cap: Some(50), ..daemon.ephemeral("r2") }, 1).await;
    let refused = daemon.retry("r1").await;
    assert!(matches!(refused, Err(SandboxError::Budget(BudgetError::Insufficient(_)))), "{refused:?}");
    assert_eq!(daemon.find("r1").await.key.attempt, 0);
}

#[tokio::test]
async fn a_person_can_reopen_a_failed_run() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    daemon.create(daemon.ephemeral("r2"), 2).await;
    daemon.end("r1", SandboxVerdict::Success).await;
    assert!(matches!(daemon.reopen("r1").await, Err(SandboxError::IllegalStep(_))));
    daemon.end("r2", SandboxVerdict::Cancelled).await;
    assert_eq!(daemon.agent("r2").await, None);
    let reopened = daemon.reopen("r2").await.expect("it was cancelled");
    assert_eq!((reopened.key.attempt, reopened.ended_us, reopened.deadline_us), (1, None, None));
    assert!(daemon.agent("r2").await.expect("it is there again").ephemeral);
    daemon.create(daemon.sandbox("r3", "a"), 3).await;
    daemon.step("r3", SandboxStep::Drop(failed("timeout"))).await;
    daemon.create(daemon.sandbox("r4", "a"), 4).await;
    assert!(matches!(daemon.reopen("r3").await, Err(SandboxError::Agent(_))), "its agent has another run");
}

#[tokio::test]
async fn a_reopened_run_needs_room_in_the_queue() {
    let daemon = Daemon::new(&[]).await;
    daemon.create(daemon.ephemeral("r1"), 1).await;
    daemon.end("r1", SandboxVerdict::Cancelled).await;
    daemon.create(daemon.ephemeral("r2"), 2).await;
    let reopen = async |queued_max| {
        let full = Reopening { queued_max, ..reopening(next(&daemon)) };
        daemon.store.reopen_sandbox(&id("r1"), daemon.find("r1").await.generation, full, 60).await
    };
    assert!(matches!(reopen(1).await, Err(SandboxError::QueueFull(1))));
    assert_eq!(daemon.agent("r1").await, None, "nothing is left of it");
    assert_eq!(reopen(2).await.expect("there is room").key.attempt, 1);
}

#[tokio::test]
async fn a_key_is_completed_with_its_attempt_alone() {
    let daemon = Daemon::new(&[]).await;
    daemon.create(daemon.ephemeral("r1"), 1).await;
    daemon.end("r1", SandboxVerdict::Cancelled).await;
    let key = IdempotencyKey {
        principal: "token:a".to_owned(),
        method: "POST".to_owned(),
        route: "/retry".to_owned(),
        key: "k".to_owned(),
        request_hash: sluice_contract::Hash::of(b""),
    };
    let reopen = async |queued_max| {
        let keyed = Reopening { queued_max, idempotency: Some(key.clone()), ..reopening(next(&daemon)) };
        daemon.store.reopen_sandbox(&id("r1"), daemon.find("r1").await.generation, keyed, 60).await
    };
    assert!(matches!(reopen(1).await, Err(SandboxError::Idempotency(_))), "it was never reserved");
    daemon.store.reserve_key(key.clone(), 1).await.expect("it is new");
    assert!(matches!(reopen(0).await, Err(SandboxError::QueueFull(0))));
    assert!(matches!(daemon.store.reserve_key(key.clone(), 2).await, Err(IdempotencyError::InUse)), "it is not done");
    reopen(1).await.expect("there is room");
    let done = daemon.store.reserve_key(key.clone(), 3).await.expect("it is known");
    assert_eq!(done, KeyReservation::Done { object_id: "r1".to_owned() });
}

#[tokio::test]
async fn a_suspension_lets_the_run_end() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    let idle = daemon.store.transition_agent("o", "a", moved(AgentState::Idle)).await;
    assert!(idle.expect_err("it has a run").to_string().contains("live run"));
    daemon.store.transition_agent("o", "a", moved(AgentState::Suspended)).await.expect("it is possible");
    assert!(daemon.store.delete_agent("o", "a").await.is_err());
    daemon.end("r1", SandboxVerdict::Success).await;
    assert_eq!(daemon.agent_state("a").await, AgentState::Suspended);
}

#[tokio::test]
async fn signs_of_life_are_no_changes() {
    let daemon = Daemon::new(&["a"]).await;
    let created = daemon.create(daemon.sandbox("r1", "a"), 1).await;
    let seen = |work_us, observed_work_us, heartbeat: Option<(i64, &str)>| SandboxActivity {
        key: created.key.clone(),
        work_us,
        observed_work_us,
        heartbeat: heartbeat.map(|(time, status)| (time, Some(status.to_owned()))),
    };
    let unknown = SandboxActivity { key: "r9.0".parse().expect("a key"), ..seen(Some(1), None, None) };
    let batch = vec![seen(Some(5), None, Some((7, "running"))), unknown, seen(Some(3), Some(3), Some((6, "idle")))];
    daemon.store.record_activity(batch).await.expect("it is writable");
    let found = daemon.find("r1").await;
    assert_eq!((found.last_work_us, found.last_observed_work_us), (Some(5), Some(3)));
    assert_eq!((found.last_heartbeat_us, found.heartbeat_status.as_deref()), (Some(7), Some("running")));
    assert_eq!(found.generation, created.generation);
}

#[tokio::test]
async fn only_a_run_that_works_is_paused() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    let pause = |generation| daemon.store.want_pause(&R1, generation, DesiredState::Paused, "pause");
    assert!(pause(0).await.is_err(), "it waits");
    daemon.claim(9).await.expect("it is in the queue");
    let running = daemon.step("r1", SandboxStep::Start).await;
    let paused = pause(running.generation).await.expect("it works");
    assert_eq!(paused.desired_state, DesiredState::Paused);
    assert!(pause(paused.generation).await.is_err(), "it is paused");
    let resumed = daemon.store.want_pause(&R1, paused.generation, DesiredState::Running, "resume").await;
    let resumed = resumed.expect("it is paused");
    let stopped =
        daemon.store.set_desired_state(&R1, resumed.generation, DesiredState::Stopped).await.expect("it lives");
    assert!(pause(stopped.generation).await.is_err(), "it is to end");
}

#[tokio::test]
async fn stopped_clocks_move_the_deadline() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(NewSandbox { run_time_us: 1000, ..daemon.sandbox("r1", "a") }, 1).await;
    daemon.claim(10).await.expect("it is in the queue");
    let stop = async |run: Sandbox, why, now| daemon.store.stop_clocks(&R1, run.generation, why, now).await;
    assert!(stop(daemon.find("r1").await, ClockStop::Paused, 20).await.is_err(), "it does not run");
    let running = daemon.step("r1", SandboxStep::Start).await;
    let held = stop(running, ClockStop::Approval, 100).await.expect("it runs");
    let paused = stop(held, ClockStop::Paused, 150).await.expect("it runs");
    assert_eq!((paused.clocks_stopped_us, paused.paused_us, paused.stopped_us(400)), (Some(100), Some(150), 300));
    let held = daemon.store.end_pause(&R1, paused.generation, Some(ClockStop::Approval), 300).await.expect("it runs");
    assert_eq!((held.clocks_stopped_us, held.paused_us, held.deadline_us), (Some(100), None, Some(1010)));
    let works = daemon.store.end_pause(&R1, held.generation, None, 500).await.expect("it runs");
    assert_eq!((works.clocks_stopped_us, works.stopped_total_us, works.deadline_us), (None, 400, Some(1410)));
    assert_eq!(works.last_observed_work_us, Some(500), "the idle time begins anew");
    let types: Vec<_> = daemon.events().await.into_iter().map(|event| event.event_type).collect();
    assert_eq!(types[types.len() - 2..], ["run.paused", "run.resumed"]);
    daemon.step("r1", SandboxStep::Decide(SandboxVerdict::Cancelled)).await;
    let ended = daemon.step("r1", SandboxStep::Finish).await;
    assert!(stop(ended, ClockStop::Paused, 600).await.is_err(), "it has ended");
}

#[tokio::test]
async fn clocks_stand_still_for_a_day_at_most() {
    let daemon = Daemon::new(&["a"]).await;
    daemon.create(daemon.sandbox("r1", "a"), 1).await;
    daemon.claim(10).await.expect("it is in the queue");
    let mut run = daemon.step("r1", SandboxStep::Start).await;
    for (from, to, total) in
        [(100, 100 + STOPPED_MAX_US / 2, STOPPED_MAX_US / 2), (0, 2 * STOPPED_MAX_US, STOPPED_MAX_US)]
    {
        run = daemon.store.stop_clocks(&R1, run.generation, ClockStop::Paused, from).await.expect("it runs");
        run = daemon.store.end_pause(&R1, run.generation, None, to).await.expect("it runs");
        assert_eq!(run.stopped_total_us, total);
    }
    run = daemon.store.stop_clocks(&R1, run.generation, ClockStop::Paused, 100).await.expect("it runs");
    assert_eq!((run.stopped_us(i64::MAX), run.stopped_us(0)), (0, 0), "nothing is left, and a clock may jump back");
}
