//! Calls that wait for a person, with real clients: a pause and an approval cost each client one attempt of its own,
//! and a denial is its last answer. Each client is in a run of the daemon, whose container is frozen meanwhile.

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use sluice_testkit::controller::Daemon;
use sluice_testkit::{Gate, ReceivedRequest, Script, Sluice, Upstream};
use tokio::sync::Mutex;

use super::clients;
use super::sandboxes::{ClientRun, LIMIT, calls_at, requests, start, with_grants};

const ANSWER: &str = "hello from the model";
/// Prompt of the first call of each run, which curl makes.
const FIRST: &str = "the call before the client";

/// One test runs at a time: nine containers are enough load for a small machine.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Returns the shell code of the first call.
fn first_call() -> String {
    let body = json!({"model": "gpt-5.5", "messages": [{"role": "user", "content": FIRST}]});
    format!("curl -sf --json '{body}' http://localhost:8080/v1/chat/completions > /dev/null")
}

/// An upstream that answers the first call of each run when the gate opens, and all others at once.
async fn upstream(gate: &Gate) -> Upstream {
    let gate = gate.clone();
    let answer = move |request: &ReceivedRequest| {
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        if body.to_string().contains(FIRST) {
            Script::provider("first").hold_head(&gate)
        } else if request.target.ends_with("/responses") && body["stream"] == true {
            Script::sse(
                responses_events()
                    .map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap_or_default())),
            )
        } else {
            Script::provider(ANSWER)
        }
    };
    Upstream::with(answer).start().await
}

/// Events of a stream with all events of an item, because Codex requires them.
fn responses_events() -> [Value; 5] {
    let item = |text: &[&str]| {
        let content: Vec<_> =
            text.iter().map(|text| json!({"type": "output_text", "text": text, "annotations": []})).collect();
        json!({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content})
    };
    let response = |status: &str, output: Value| {
        let usage = json!({"input_tokens": 10, "output_tokens": 5, "total_tokens": 15});
        json!({"id": "resp_1", "object": "response", "created_at": 1_790_000_000, "model": "m", "status": status,
            "output": output, "usage": usage})
    };
    let place = json!({"item_id": "msg_1", "output_index": 0, "content_index": 0});
    let mut delta = json!({"type": "response.output_text.delta", "delta": ANSWER});
    delta.as_object_mut().expect("members").extend(place.as_object().expect("members").clone());
    [
        json!({"type": "response.created", "response": response("in_progress", json!([]))}),
        json!({"type": "response.output_item.added", "output_index": 0, "item": item(&[])}),
        delta,
        json!({"type": "response.output_item.done", "output_index": 0, "item": item(&[ANSWER])}),
        json!({"type": "response.completed", "response": response("completed", json!([item(&[ANSWER])]))}),
    ]
}

/// Waits until the container of each run is frozen.
async fn all_are_frozen(runs: &[ClientRun<'_>], state: &str, limit: Duration) {
    for run in runs {
        run.until_within(limit, "not frozen", async || {
            run.shown().await["observed_state"] == state && run.is_frozen().await
        })
        .await;
    }
}

/// Time after which the sidecar tells a client to retry.
const COME_AGAIN: Duration = Duration::from_secs(5);

/// Returns the time of a record.
fn time_of(record: &Value) -> SystemTime {
    humantime::parse_rfc3339(record["ts"].as_str().expect("each has one")).expect("it is a time")
}

/// Fails unless the client got its answer. Returns whether each of its calls was refused only once. If a loaded machine
/// freezes a container later than five seconds after the refusal, the client retries too early and is refused twice. If
/// the five seconds end while the container is frozen, the client retries as soon as its container goes on: that call
/// waits until the gate is open, and is not refused.
async fn spent_one_attempt(sluice: &Sluice, run: &ClientRun<'_>, reason: &str) -> bool {
    let (ended, said) = run.ended().await;
    let name = run.client.name();
    assert_eq!(ended["outcome"], "success", "{name}: {ended}\n{said}");
    assert!(said.contains(ANSWER), "{name}: {said}");
    let audit = sluice.audit(&run.id);
    let held = audit.of_kind("held");
    let holds: Vec<_> = held.iter().map(|held| &held["hold_id"]).collect();
    let distinct: BTreeSet<_> = holds.iter().map(|hold| hold.as_str().expect("an id")).collect();
    assert!(!holds.is_empty(), "{name} never waited");
    for hold in &distinct {
        let times: Vec<_> = held.iter().filter(|held| held["hold_id"] == **hold).map(|held| time_of(held)).collect();
        let span = times[times.len() - 1].duration_since(times[0]).expect("records are in their order");
        // A container that is frozen late lets its client come again, every five seconds.
        assert!(times.len() as u64 <= 2 + span.as_secs() / 5, "{name} waited too often: {holds:?}");
        if let [first, again] = times[..] {
            let waited = again.duration_since(first).expect("records are in their order");
            assert!(waited >= COME_AGAIN, "{name} came again after {waited:?}: {holds:?}");
        }
    }
    // A call that the person's answer releases is not refused.
    let refused = audit.refused_reasons();
    assert!((distinct.len()..=holds.len()).contains(&refused.len()), "{name}: {refused:?} {holds:?}");
    assert!(refused.iter().all(|word| *word == reason), "{name}: {refused:?}");
    // The client sent all calls except the first, which curl made, and one request for each refused attempt.
    let calls = audit.calls().iter().filter(|call| call.result() == "ok").count() - 1;
    assert_eq!(requests(&said), calls + refused.len(), "{name}: {said}");
    let route = run.client.route;
    assert!(audit.intents()[1..].iter().all(|intent| intent["path"] == route), "{name} is not on {route}");
    refused.len() == distinct.len()
}

/// Pauses runs in which a client waits for an answer, and resumes them after `length`. Returns the names of all
/// clients, and the names of the clients that this machine froze too late.
async fn a_pause_of(length: Duration) -> (Vec<String>, Vec<String>) {
    let gate = Gate::new();
    let upstream = upstream(&gate).await;
    let sluice = with_grants(Sluice::to(&upstream));
    let daemon = sluice.serve().await;
    // While this call is under way, the pause does not begin, and other calls wait.
    let first = format!("{} &", first_call());
    let runs = start(&sluice, &daemon, clients::all(), &first, &json!({})).await;
    gate.reached(runs.len()).await;

    let began = Instant::now();
    for run in &runs {
        run.post("pause", &Value::Null).await;
    }
    for run in &runs {
        let closed = async || run.control("GET", "/state", &Value::Null).await["paused"] == true;
        run.until("no pause", closed).await;
        run.go();
    }
    for run in &runs {
        run.until("no call waits", async || !run.waiting().await.is_empty()).await;
    }
    // The gate lets one call end at a time: if a machine needs five seconds to freeze a container, its client retries
    // too early.
    for frozen in 1..=runs.len() {
        gate.step();
        let count = async || {
            let mut count = 0;
            for run in &runs {
                count += usize::from(run.is_frozen().await);
            }
            count >= frozen
        };
        runs[0].until("not frozen", count).await;
    }
    all_are_frozen(&runs, "paused", LIMIT).await;
    tokio::time::sleep(length.saturating_sub(began.elapsed())).await;
    let mut deadlines = Vec::new();
    for run in &runs {
        assert!(run.is_frozen().await, "{}", run.client.name());
        deadlines.push(run.shown().await["deadline_at"].as_str().map(str::to_owned));
        run.post("resume", &Value::Null).await;
    }

    let (mut names, mut late) = (Vec::new(), Vec::new());
    for (run, deadline) in runs.iter().zip(deadlines) {
        names.push(run.client.name().to_owned());
        if !spent_one_attempt(&sluice, run, "paused").await {
            late.push(run.client.name().to_owned());
        }
        let ended = run.shown().await;
        assert!(
            ended["deadline_at"].as_str() > deadline.as_deref(),
            "{}: the clock stood still: {ended}",
            run.client.name()
        );
    }
    daemon.stop().await;
    sluice.assert_nothing_left().await;
    (names, late)
}

/// Names of the clients that [`clients::all`] returns.
const NAMES: [&str; 9] = [
    "claude-claude-sonnet-5", "codex-gpt-6-1-sol", "aider-openai-gpt-5-5-edit", "openai-python", "anthropic-python",
    "openai-node", "anthropic-node", "ai-sdk-gpt-5-5", "ai-sdk-claude-sonnet-5",
];

#[tokio::test]
async fn a_pause_costs_each_client_one_attempt() {
    let _alone = ALONE.lock().await;
    // Other tests load this machine, so containers may be frozen late. The pause of ten minutes has no such allowance.
    let (names, _late) = a_pause_of(Duration::ZERO).await;
    assert_eq!(names, NAMES);
}

/// More than any client waits for an answer, and more than the time limit of the runs.
const TEN_MINUTES: Duration = Duration::from_secs(600);

#[tokio::test]
#[ignore = "ten minutes: make test-pause"]
async fn ten_minutes_of_pause_cost_one_attempt() {
    let (names, late) = a_pause_of(TEN_MINUTES).await;
    assert_eq!(names, NAMES);
    assert_eq!(late, [""; 0], "these clients spent two attempts");
}

/// Waits for the approval of a call that waits, and returns it.
async fn approval(run: &ClientRun<'_>) -> Value {
    let mut found = Value::Null;
    run.until("no approval", async || {
        let approvals = run.get("approvals").await;
        let mut all = approvals["approvals"].as_array().cloned().unwrap_or_default().into_iter();
        found = all.find(|it| it["held_at"].is_string()).unwrap_or_default();
        !found.is_null()
    })
    .await;
    found
}

async fn decide(run: &ClientRun<'_>, decision: &str, more: &Value) {
    let approval = approval(run).await;
    let mut body = json!({"decision": decision, "digest": approval["digest"], "reason": "a test"});
    body.as_object_mut().expect("members").extend(more.as_object().expect("members").clone());
    let id = approval["approval_id"].as_str().expect("an id");
    run.post(&format!("approvals/{id}/decision"), &body).await;
}

/// Starts a run for each client with its cap used up, and waits until each client has a call that waits.
async fn at_the_cap<'a>(sluice: &'a Sluice, daemon: &'a Daemon<'a>) -> Vec<ClientRun<'a>> {
    let asks = json!({"on_cap": "ask", "limits": {"max_calls": 1}});
    let runs = start(sluice, daemon, clients::all(), &first_call(), &asks).await;
    for run in &runs {
        run.go();
    }
    for run in &runs {
        run.until("no call waits", async || !run.waiting().await.is_empty()).await;
    }
    runs
}

/// The sidecar answers after its default of 240 s, and the person ten minutes after the call.
#[tokio::test]
#[ignore = "ten minutes: make test-pause"]
async fn ten_minutes_for_an_approval_cost_one_attempt() {
    let gate = Gate::new();
    gate.open();
    let upstream = upstream(&gate).await;
    let sluice = with_grants(Sluice::to(&upstream));
    let daemon = sluice.serve().await;
    let runs = at_the_cap(&sluice, &daemon).await;
    let began = Instant::now();

    all_are_frozen(&runs, "held", TEN_MINUTES / 2).await;
    assert!(began.elapsed() > Duration::from_secs(200), "the sidecar waits for 240 s");
    tokio::time::sleep(TEN_MINUTES.saturating_sub(began.elapsed())).await;
    for run in &runs {
        assert!(run.is_frozen().await, "{}", run.client.name());
        decide(run, "approve", &json!({"raise": {"max_calls": 20}})).await;
    }

    for run in &runs {
        assert!(spent_one_attempt(&sluice, run, "approval_pending").await, "{}", run.client.name());
    }
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

/// Fails unless our error ended the client, and the client sent one request for each held call after the decision.
async fn assert_denied(sluice: &Sluice, run: &ClientRun<'_>) {
    let (ended, said) = run.ended().await;
    let name = run.client.name();
    let outcome = if run.client.fails { "failed" } else { "success" };
    assert_eq!(ended["outcome"], outcome, "{name}: {ended}\n{said}");
    assert!(said.contains(DENIED) && said.contains(run.client.error), "{name}: {said}");
    let audit = sluice.audit(&run.id);
    let holds: BTreeSet<_> = audit.of_kind("held").iter().map(|held| held["hold_id"].to_string()).collect();
    // The audit log has no record of repeats of a denied call.
    let before = audit.refused_reasons().iter().filter(|reason| *reason == "approval_pending").count();
    assert_eq!(requests(&said), before + holds.len(), "{name} waited {before} times: {holds:?}\n{said}");
}

/// Text in the message of the final answer.
const DENIED: &str = "the operator did not allow this call";

#[tokio::test]
async fn a_denial_is_taken_at_its_first_answer() {
    let _alone = ALONE.lock().await;
    let gate = Gate::new();
    gate.open();
    let upstream = upstream(&gate).await;
    let sluice = with_grants(Sluice::to(&upstream));
    let daemon = sluice.serve().await;
    let runs = at_the_cap(&sluice, &daemon).await;

    for run in &runs {
        decide(run, "deny", &json!({})).await;
    }

    for run in &runs {
        assert_denied(&sluice, run).await;
    }
    assert_eq!(calls_at(&upstream), runs.len(), "only the first calls");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_denial_after_a_freeze_is_taken_too() {
    let _alone = ALONE.lock().await;
    let gate = Gate::new();
    gate.open();
    let upstream = upstream(&gate).await;
    let sluice = with_grants(Sluice::to(&upstream));
    let daemon = sluice.serve().await;
    let runs = at_the_cap(&sluice, &daemon).await;

    // The sidecar does this by itself after 240 s.
    for run in &runs {
        let later = json!({"decision": "later", "by": "a test", "reason": "a person thinks"});
        run.until("not frozen", async || {
            for hold in run.waiting().await {
                run.control("POST", &format!("/held/{hold}"), &later).await;
            }
            run.is_frozen().await
        })
        .await;
    }
    for run in &runs {
        decide(run, "deny", &json!({})).await;
    }

    for run in &runs {
        assert_denied(&sluice, run).await;
    }
    assert_eq!(calls_at(&upstream), runs.len(), "only the first calls");
    daemon.stop().await;
    sluice.assert_nothing_left().await;
}
