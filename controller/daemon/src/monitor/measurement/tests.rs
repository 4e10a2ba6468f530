use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::time::duration_micros;

use super::*;
use crate::runs::test_run::running;

const SECOND: i64 = 1_000_000;

fn event(event_type: &str, source: EventSource, data: &Value) -> LoggedEvent {
    LoggedEvent {
        seq: 1,
        id: "evt_1".to_owned(),
        owner: "alice".to_owned(),
        sandbox_id: Some("r1".to_owned()),
        attempt: Some(1),
        agent_id: None,
        zone_id: None,
        event_type: event_type.to_owned(),
        source,
        event_data: data.to_string(),
        created_us: 100 * SECOND,
    }
}

fn run() -> Sandbox {
    Sandbox {
        key: "r1.1".parse().expect("a key"),
        next_try_us: 90 * SECOND,
        created_us: 10 * SECOND,
        claimed_us: None,
        started_us: None,
        run_time_us: duration_micros(Duration::from_secs(60)),
        deadline_us: Some(80 * SECOND),
        ..running()
    }
}

fn of_system(event_type: &str, data: &Value) -> Option<Measurement> {
    of_event(&event(event_type, EventSource::System, data), Some(&run()))
}

#[test]
fn a_claim_counts_the_wait_since_the_last_try() {
    let claim = json!({ "from": "PENDING", "to": "CREATING", "reason": "claimed" });
    assert_eq!(of_system("run.state_changed", &claim), Some(Measurement::Claimed { waited: 10.0 }));
    let other = json!({ "from": "CREATING", "to": "RUNNING", "reason": "x" });
    assert_eq!(of_system("run.state_changed", &other), None);
    let before = LoggedEvent { attempt: Some(0), ..event("run.state_changed", EventSource::System, &claim) };
    assert_eq!(of_event(&before, Some(&run())), None, "its wait is not known any more");
}

#[test]
fn an_end_counts_the_time_since_the_first_claim() {
    let data = json!({ "state": "FAILED", "outcome": "failed", "failure_code": "timeout" });
    let ended =
        |took| Measurement::Ended { outcome: "failed".to_owned(), failure_code: Some("timeout".to_owned()), took };
    assert_eq!(of_system("sandbox.stopped", &data), Some(ended(Some(80.0))));
    let dropped = Sandbox { deadline_us: None, ..run() };
    let stopped = event("sandbox.stopped", EventSource::System, &data);
    assert_eq!(of_event(&stopped, Some(&dropped)), Some(ended(None)), "it was never claimed");
}

#[test]
fn a_call_counts_tokens_cost_and_first_byte() {
    let data = json!({
        "call": 1, "call_id": "c", "model": "small", "model_served": null, "result": "ok", "status": 200,
        "usage": { "cache_write": null, "cached_input": 3, "input": 10, "output": 5, "reasoning": null, "total": 15 },
        "cost": { "known": { "usd": "0.000123", "source": "header" } }, "cache_hit": false,
        "timing_us": { "connect": null, "first_token": null, "longest_gap": null, "own": 1, "queue": 1, "total": 9, "ttfb": 250_000 },
        "ts": "2026-11-01T00:00:00.000000Z",
    });
    let usage = Usage { cached_input: Some(3), input: Some(10), output: Some(5), total: Some(15), ..Usage::default() };
    let called = Called {
        model: Some("small".to_owned()),
        result: Some("ok".to_owned()),
        usage,
        nano_usd: 123_000,
        first_byte: Some(0.25),
    };
    assert_eq!(of_system("llm.call", &data), Some(Measurement::Called(called)));
    let lost = json!({ "call_id": "c", "cost": { "unknown": { "reason": null } }, "ts": "x" });
    assert_eq!(of_system("llm.call", &lost), Some(Measurement::Called(Called::default())));
}

#[test]
fn claims_of_agents_count_nothing() {
    let data = json!({ "state": "COMPLETED", "outcome": "success", "result": "ok", "to": "CREATING" });
    for event_type in COUNTED_TYPES {
        for source in [EventSource::Agent, EventSource::Worker] {
            let claimed = event(event_type, source, &data);
            assert_eq!((of_event(&claimed, Some(&run())), needs_run(&claimed)), (None, false), "{event_type}");
        }
        // The event itself is what is counted of a false cost.
        let expected = (event_type == IMPLAUSIBLE_COST).then_some(Measurement::ImplausibleCost);
        assert_eq!(of_system(event_type, &json!("text")), expected);
    }
}

fn approval(decision: ApprovalDecision, held_us: Option<i64>) -> Approval {
    Approval {
        id: "apr-1".to_owned(),
        key: "r1.1".parse().expect("a key"),
        cap: None,
        subject: "{}".to_owned(),
        digest: String::new(),
        created_us: 10 * SECOND,
        expires_us: 900 * SECOND,
        held_us,
        decision: Some(decision),
        decided_by: None,
        reason: None,
        raised_to: None,
        decided_us: Some(70 * SECOND),
        applied_us: None,
    }
}

#[test]
fn the_wait_for_a_person_begins_with_the_first_call() {
    let decided = |decision, waited| Some(Measurement::Decided { decision, waited });
    for (approval, expected) in [
        (approval(ApprovalDecision::Approve, Some(40 * SECOND)), decided("approve", 30.0)),
        (approval(ApprovalDecision::Deny, None), decided("deny", 60.0)),
        (approval(ApprovalDecision::Expired, Some(10 * SECOND)), decided("expired", 60.0)),
        (approval(ApprovalDecision::Changed, Some(40 * SECOND)), None),
    ] {
        assert_eq!(of_approval(&approval), expected, "{approval:?}");
    }
}

#[test]
fn only_the_system_closes_approvals() {
    let data = json!({"approval_id": "apr-1"});
    let closed = |event_type, source| closed_approval(&event(event_type, source, &data));
    assert_eq!(closed("approval.decided", EventSource::System), Some("apr-1".to_owned()));
    assert_eq!(closed("approval.expired", EventSource::System), Some("apr-1".to_owned()));
    assert_eq!(closed("approval.requested", EventSource::System), None);
    assert_eq!(closed("approval.decided", EventSource::Agent), None);
}
