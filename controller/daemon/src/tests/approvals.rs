//! Approvals over HTTP, with the control socket of a scripted sidecar.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use sluice_contract::RunKey;
use sluice_state::approvals::{ApprovalAsk, ApprovalOutcome, PublicationAsk, RaisableCap};
use sluice_state::store::now_us;
use tokio::time::timeout;

use super::fake_sidecar::FakeSidecar;
use super::sessions::log_in;
use crate::approvals::{ApprovalWatcher, upkeep};
use crate::live_run::LiveRun;
use crate::run_policy::RunPolicy;
use crate::test_daemon::{TestAnswer, TestDaemon, policy};

/// A daemon with one running run of alice, with a cap of 10 calls.
struct Asking {
    daemon: TestDaemon,
    id: String,
}

impl Asking {
    async fn new() -> Self {
        Self::with(policy()).await
    }

    async fn with(policy: RunPolicy) -> Self {
        Self::created_by("slu_alice", json!({}), policy).await
    }

    /// Makes the same; the request has these members too.
    async fn created_by(token: &str, more: Value, policy: RunPolicy) -> Self {
        let daemon = TestDaemon::with_policy(Some(policy), |_| {}).await;
        let mut body = json!({ "task": "x", "on_cap": "ask", "limits": { "max_calls": 10 }, "max_cost_usd": 1 });
        body.as_object_mut().expect("members").extend(more.as_object().expect("members").clone());
        let id = daemon.create(token, body).await;
        daemon.claim().await;
        daemon.step(&id, sluice_state::sandboxes::SandboxStep::Start).await;
        Self { daemon, id }
    }

    fn key(&self) -> RunKey {
        format!("{}.0", self.id).parse().expect("a key")
    }

    fn sidecar(&self, used_calls: u64) -> FakeSidecar {
        let control = self.daemon.running.context.layout.run(&self.key()).control;
        FakeSidecar::start(&control, json!({ "max_calls": 10, "max_cost_usd": "1" }), json!({ "calls": used_calls }))
    }

    /// Lets the watcher of the attempt check its caps until its approvals meet this condition.
    async fn watch(&self, mut is_done: impl FnMut(&[Value]) -> bool) -> Vec<Value> {
        let live = Arc::new(LiveRun::default());
        let watcher = ApprovalWatcher::new(Arc::clone(&self.daemon.running.context), self.key(), Arc::clone(&live));
        let looks = async {
            let mut committed = self.daemon.store().events_committed();
            loop {
                live.notice_calls();
                let found = self.list().await;
                if is_done(&found) {
                    return found;
                }
                let _ = timeout(Duration::from_millis(20), committed.changed()).await;
            }
        };
        tokio::select! {
            never = watcher.run() => match never {},
            found = timeout(Duration::from_secs(60), looks) => found.expect("it comes in time"),
        }
    }

    /// Makes an approval, as the watcher does.
    async fn ask(&self, cap: RaisableCap, old: i64, ask_timeout_us: i64) -> Value {
        let ask = ApprovalAsk {
            id: format!("apr-{}", cap.as_str()),
            key: self.key(),
            cap,
            old,
            asked: None,
            highest: None,
            is_held: true,
            ask_timeout_us,
        };
        let asked = self.daemon.store().ask_approval(ask, now_us()).await.expect("it is writable");
        assert!(matches!(asked, ApprovalOutcome::Open(_)), "{asked:?}");
        self.list().await.into_iter().find(|it| it["cap"] == cap.as_str()).expect("it is listed")
    }

    async fn list(&self) -> Vec<Value> {
        let path = format!("/api/v1/sandboxes/{}/approvals", self.id);
        let listed = self.daemon.get("slu_alice", &path).await;
        assert_eq!(listed.status, 200, "{listed:?}");
        listed.json()["approvals"].as_array().expect("a list").clone()
    }

    fn path(&self, approval: &Value) -> String {
        let id = approval["approval_id"].as_str().expect("an id");
        format!("/api/v1/sandboxes/{}/approvals/{id}/decision", self.id)
    }

    async fn decide(&self, token: &str, approval: &Value, more: Value) -> TestAnswer {
        let mut body = json!({ "decision": "approve", "digest": approval["digest"] });
        if let Value::Object(members) = more {
            members.into_iter().for_each(|(name, value)| body[name] = value);
        }
        self.daemon.request(token, "POST", &self.path(approval), Some(&body)).await
    }

    async fn types(&self) -> Vec<String> {
        let path = format!("/api/v1/sandboxes/{}/events?limit=100", self.id);
        let events = self.daemon.get("slu_alice", &path).await.json();
        let events = events["events"].as_array().expect("a list").clone();
        let names = events.iter().rev().filter_map(|event| event["event_type"].as_str().map(str::to_owned));
        names.filter(|name| name.starts_with("approval.")).collect()
    }
}

#[tokio::test]
async fn a_cap_that_is_nearly_used_up_is_raised() {
    let asking = Asking::new().await;
    let sidecar = asking.sidecar(8);

    let found = asking.watch(|found| !found.is_empty()).await;
    let [asked] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&asked["kind"], &asked["cap"]), (&json!("cap"), &json!("max_calls")));
    assert_eq!((&asked["old"], &asked["new"], &asked["held_at"]), (&json!("10"), &json!("20"), &Value::Null));
    let stale = asking.decide("slu_alice", asked, json!({ "digest": "0".repeat(64) })).await;
    assert_eq!(stale.error(), (409, "approval_changed".to_owned()));
    let raise = json!({ "raise": { "max_calls": 50 }, "reason": "the release" });
    let decided = asking.decide("slu_alice", asked, raise).await;
    let again = asking.decide("slu_alice", asked, json!({})).await;

    assert_eq!(decided.status, 200, "{decided:?}");
    let decided = decided.json();
    assert_eq!((&decided["decision"], &decided["raised_to"]), (&json!("approve"), &json!("50")));
    assert!(decided["applied_at"].is_string(), "{decided}");
    assert_eq!(again.error(), (409, "already_decided".to_owned()));
    let [raised] = &sidecar.requests("POST /caps")[..] else { panic!("one raise") };
    let digest = asked["digest"].as_str().expect("a digest");
    let reason = raised["reason"].as_str().unwrap_or_default();
    assert_eq!(raised["max_calls"], 50);
    assert!(reason.contains(digest) && reason.ends_with("the release"), "{raised}");
    assert_eq!(raised["by"], format!("token:{}", asking.daemon.token_id("slu_alice")));
    assert_eq!(asking.types().await, ["approval.requested", "approval.decided"]);
    let log = asking.daemon.control_log();
    let line = log.iter().find(|line| line.operation == "approval.decide").expect("it is recorded");
    assert_eq!(line.after.as_ref().map(|after| &after["approval_digest"]), Some(&asked["digest"]));
    assert_eq!((line.reason.as_deref(), line.source.is_some()), (Some("the release"), true));
}

#[tokio::test]
async fn a_call_that_waits_is_denied() {
    let asking = Asking::new().await;
    let sidecar = asking.sidecar(10);
    sidecar.hold("hold-1", "max_calls", "11");

    let found = asking.watch(|found| found.iter().any(|one| one["held_at"].is_string())).await;
    let shown = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", asking.id)).await.json();
    let denied = asking.decide("slu_alice", &found[0], json!({ "decision": "deny" })).await;

    assert_eq!(shown["waiting_for"], "approval", "{shown}");
    assert_eq!(denied.json()["decision"], "deny", "{denied:?}");
    let told = sidecar.requests("POST /held/hold-1");
    assert_eq!((told.len(), &told[0]["decision"]), (1, &json!("deny")));
    // The next call at the same cap is refused without another question.
    sidecar.hold("hold-2", "max_calls", "11");
    asking.watch(|_| !sidecar.requests("POST /held/hold-2").is_empty()).await;
    assert_eq!(asking.list().await.len(), 1);
}

#[tokio::test]
async fn only_those_who_may_decide() {
    let asking = Asking::new().await;
    let asked = asking.ask(RaisableCap::MaxCalls, 10, 3_600_000_000).await;
    let other = asking.decide("slu_bob", &asked, json!({})).await;
    let never = json!({ "approval_id": "apr-never", "digest": asked["digest"] });
    let never = asking.decide("slu_alice", &never, json!({})).await;
    let viewer = asking.decide("slu_viewer", &asked, json!({})).await;
    assert_eq!((other.status, never.status), (404, 404));
    assert_eq!(other.body, never.body, "what belongs to another owner is not there");
    assert_eq!(viewer.error(), (403, "forbidden".to_owned()));
    assert_eq!(asking.list().await[0]["decision"], Value::Null);
}

#[tokio::test]
async fn a_browser_session_denies_and_raises_nothing() {
    let asking = Asking::new().await;
    let asked = asking.ask(RaisableCap::MaxCalls, 10, 3_600_000_000).await;
    let browser = log_in(&asking.daemon, "slu_alice", false).await;
    let decide = async |decision: &str| {
        let body = json!({ "decision": decision, "digest": asked["digest"] });
        browser.api("POST", &asking.path(&asked), Some(&body)).await
    };

    let raised = decide("approve").await;
    let open = asking.list().await;
    let denied = decide("deny").await;

    assert_eq!(raised.error(), (403, "needs_token".to_owned()));
    assert_eq!(open[0]["decision"], Value::Null);
    assert_eq!(denied.status, 200, "{denied:?}");
}

#[tokio::test]
async fn a_token_raises_caps_of_its_accounts_alone() {
    let asking = Asking::with(RunPolicy { session_approval_max: Some(3_000_000_000), ..policy() }).await;
    let _sidecar = asking.sidecar(1);
    let cost = asking.ask(RaisableCap::MaxCostUsd, 1_000_000_000, 3_600_000_000).await;
    let calls = asking.ask(RaisableCap::MaxCalls, 10, 3_600_000_000).await;
    let browser = log_in(&asking.daemon, "slu_alice2", false).await;
    let body = json!({ "decision": "approve", "digest": cost["digest"] });

    let by_session = browser.api("POST", &asking.path(&cost), Some(&body)).await;
    let by_token =
        [asking.decide("slu_alice2", &cost, json!({})).await, asking.decide("slu_alice2", &calls, json!({})).await];
    let open = asking.list().await;
    let denied = asking.decide("slu_alice2", &cost, json!({ "decision": "deny" })).await;
    let of_account = asking.decide("slu_alice", &calls, json!({})).await;

    for refused in by_token.iter().chain([&by_session]) {
        assert_eq!(refused.error(), (403, "account_not_allowed".to_owned()));
    }
    assert!(open.iter().all(|approval| approval["decision"].is_null()), "{open:?}");
    assert_eq!((denied.status, of_account.status), (200, 200), "{denied:?} {of_account:?}");
}

#[tokio::test]
async fn a_browser_session_raises_up_to_its_amount() {
    let asking = Asking::with(RunPolicy { session_approval_max: Some(3_000_000_000), ..policy() }).await;
    let budget = json!({ "kind": "set", "usd": "100" });
    asking.daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&budget)).await;
    let _sidecar = asking.sidecar(1);
    let asked = asking.ask(RaisableCap::MaxCostUsd, 1_000_000_000, 3_600_000_000).await;
    let browser = log_in(&asking.daemon, "slu_alice", false).await;
    let approve = async |usd: &str| {
        let body = json!({ "decision": "approve", "digest": asked["digest"], "raise": { "max_cost_usd": usd } });
        browser.api("POST", &asking.path(&asked), Some(&body)).await
    };

    let above = approve("3.01").await;
    let within = approve("3").await;

    assert_eq!(above.error(), (403, "needs_token".to_owned()));
    assert_eq!(within.status, 200, "{within:?}");
    assert_eq!(asking.list().await[0]["raised_to"], "3");
}

#[tokio::test]
async fn raises_stay_within_limits_and_budgets() {
    let of_host = RunPolicy { max_cost_max: Some(3_000_000_000), second_person: Some(4_000_000_000), ..policy() };
    let asking = Asking::with(of_host).await;
    let budget = json!({ "kind": "set", "usd": "2" });
    asking.daemon.request("slu_admin", "PUT", "/api/v1/budgets/acct-1", Some(&budget)).await;
    let _sidecar = asking.sidecar(1);
    let asked = asking.ask(RaisableCap::MaxCostUsd, 1_000_000_000, 3_600_000_000).await;
    for (token, raise, expected) in [
        ("slu_alice", json!({ "max_cost_usd": 3.5 }), (403, "admin_only")),
        ("slu_alice", json!({ "max_calls": 5 }), (422, "invalid_field")),
        ("slu_alice", json!({ "max_cost_usd": 1 }), (422, "invalid_field")),
        ("slu_admin", json!({ "max_cost_usd": 5 }), (402, "insufficient_credits")),
    ] {
        let refused = asking.decide(token, &asked, json!({ "raise": raise })).await.error();
        assert_eq!(refused, (expected.0, expected.1.to_owned()), "{raise}");
    }
    let approved = asking.decide("slu_alice", &asked, json!({ "raise": { "max_cost_usd": "2.5" } })).await;
    assert_eq!(approved.status, 200, "{approved:?}");
    let run = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", asking.id)).await.json();
    assert_eq!(run["max_cost_usd"], "2.5");
    let failed: Vec<_> = asking.daemon.control_log().into_iter().filter(|line| line.result != "accepted").collect();
    assert!(failed.iter().any(|line| line.result == "insufficient_credits"), "{failed:?}");
}

#[tokio::test]
async fn the_creator_of_a_run_is_no_second_person() {
    let of_alice = json!({ "owner_id": "alice" });
    for (creator, more, from_admin) in [("slu_admin", of_alice, 403), ("slu_alice", json!({}), 200)] {
        let policy = RunPolicy { second_person: Some(2_000_000_000), ..policy() };
        let asking = Asking::created_by(creator, more, policy).await;
        let account = if creator == "slu_admin" { "acct-host" } else { "acct-1" };
        let (path, budget) = (format!("/api/v1/budgets/{account}"), json!({ "kind": "set", "usd": "100" }));
        asking.daemon.request("slu_admin", "PUT", &path, Some(&budget)).await;
        let _sidecar = asking.sidecar(1);
        let asked = asking.ask(RaisableCap::MaxCostUsd, 1_000_000_000, 3_600_000_000).await;
        let above = json!({ "raise": { "max_cost_usd": 3 } });

        let of_owner = asking.decide("slu_alice", &asked, above.clone()).await;
        assert_eq!(of_owner.error(), (403, "second_person".to_owned()), "{creator}");
        let of_admin = asking.decide("slu_admin", &asked, above).await;

        assert_eq!(of_admin.status, from_admin, "{creator}: {of_admin:?}");
        if from_admin == 403 {
            assert_eq!(of_admin.error().1, "second_person");
            let below = asking.decide("slu_admin", &asked, json!({ "raise": { "max_cost_usd": 2 } })).await;
            assert_eq!(below.status, 200, "{below:?}");
        }
    }
}

#[tokio::test]
async fn a_decision_reaches_a_sidecar_that_was_not_there() {
    let asking = Asking::new().await;
    let asked = asking.ask(RaisableCap::MaxCalls, 10, 3_600_000_000).await;
    let decided = asking.decide("slu_alice", &asked, json!({})).await;
    assert_eq!((decided.status, &decided.json()["applied_at"]), (200, &Value::Null), "{decided:?}");

    let sidecar = asking.sidecar(1);
    let found = asking.watch(|found| found[0]["applied_at"].is_string()).await;

    assert_eq!(sidecar.requests("POST /caps").len(), 1);
    assert_eq!(found[0]["raised_to"], "20");
}

#[tokio::test]
async fn a_repeated_decision_is_made_once() {
    let asking = Asking::new().await;
    let sidecar = asking.sidecar(1);
    let asked = asking.ask(RaisableCap::MaxCalls, 10, 3_600_000_000).await;
    let body = json!({ "decision": "approve", "digest": asked["digest"] });
    let path = asking.path(&asked);
    let send = async |body: &Value| {
        asking.daemon.with_header("slu_alice", ("POST", &path), body, "Idempotency-Key: one").await
    };
    let (first, second) = (send(&body).await, send(&body).await);
    let other = send(&json!({ "decision": "deny", "digest": asked["digest"] })).await;
    assert_eq!((first.status, second.status), (200, 200), "{second:?}");
    assert_eq!(other.error(), (409, "idempotency_conflict".to_owned()));
    assert_eq!(sidecar.requests("POST /caps").len(), 1);
}

#[tokio::test]
async fn nobody_who_decides_denies() {
    let asking = Asking::new().await;
    let sidecar = asking.sidecar(10);
    sidecar.hold("hold-1", "max_calls", "11");
    asking.ask(RaisableCap::MaxCalls, 10, 1).await;

    // The daemon's own loop may be first.
    while sidecar.requests("POST /held/hold-1").is_empty() {
        upkeep::turn(&asking.daemon.running.context).await.expect("all of it can be closed");
    }

    assert_eq!(asking.list().await[0]["decision"], "expired");
    assert_eq!(asking.types().await, ["approval.requested", "approval.expired"]);
    assert!(asking.daemon.control_log().iter().any(|line| line.operation == "approval.expire"));
}

#[tokio::test]
async fn a_run_is_cancelled_in_place_of_a_raise() {
    let asking = Asking::new().await;
    let asked = asking.ask(RaisableCap::MaxCalls, 10, 3_600_000_000).await;
    let decided = asking.decide("slu_alice", &asked, json!({ "decision": "cancel" })).await;
    assert_eq!(decided.status, 200, "{decided:?}");
    let run = asking.daemon.get("slu_alice", &format!("/api/v1/sandboxes/{}", asking.id)).await.json();
    assert_eq!(run["desired_state"], "stopped");
}

#[tokio::test]
async fn a_publication_needs_a_token() {
    let asking = Asking::new().await;
    let ask = PublicationAsk {
        id: "apr-publish".to_owned(),
        key: asking.key(),
        subject: json!({ "head_sha": "a".repeat(40) }).to_string(),
        ask_timeout_us: 3_600_000_000,
    };
    asking.daemon.store().ask_publication(ask, now_us()).await.expect("it is writable");
    let asked = asking.list().await.remove(0);
    assert_eq!((&asked["kind"], &asked["cap"]), (&json!("publish"), &Value::Null), "{asked}");
    let browser = log_in(&asking.daemon, "slu_alice", false).await;
    let by_session = async |decision: &str| {
        let body = json!({ "decision": decision, "digest": asked["digest"] });
        browser.api("POST", &asking.path(&asked), Some(&body)).await
    };

    assert_eq!(by_session("approve").await.error(), (403, "needs_token".to_owned()));
    let raised = asking.decide("slu_alice", &asked, json!({ "raise": { "max_calls": 20 } })).await;
    assert_eq!(raised.error(), (422, "invalid_field".to_owned()), "{raised:?}");
    assert_eq!(asking.decide("slu_viewer", &asked, json!({})).await.status, 403);
    // The run has no repository, so the decision stays and nothing is published.
    let approved = asking.decide("slu_alice", &asked, json!({})).await;
    assert_eq!(approved.error(), (404, "no_repository".to_owned()));
    let decided = asking.list().await.remove(0);
    assert_eq!((&decided["decision"], &decided["applied_at"]), (&json!("approve"), &Value::Null), "{decided}");
    let log = asking.daemon.control_log();
    let results: Vec<_> =
        log.iter().rev().take(3).map(|line| (line.operation.as_str(), line.result.as_str())).collect();
    assert_eq!(results[2], ("approval.decide", "accepted"), "{results:?}");
    assert!(results[..2].iter().all(|(operation, _)| *operation == "git.publish"), "{results:?}");
}
