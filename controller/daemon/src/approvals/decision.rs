//! The decision of a person: checked, recorded, written with the budget, and carried out.

use http::StatusCode;
use serde_json::{Value, json};
use sluice_contract::Hash;
use sluice_contract::text::error_chain;
use sluice_state::approvals::{
    Approval, ApprovalDecision, ApprovalError, DecisionRequest, RaisableCap, raised_run_cap,
};
use sluice_state::control_log::ControlEntry;
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::now_us;

use super::apply::apply;
use super::raise_rule::{RaiseRefusal, RaiseRule, check, check_session, highest};
use crate::agent_accounts;
use crate::api_error::ApiError;
use crate::context::ApiContext;
use crate::permission::Operation;
use crate::principal::{Principal, Way};
use crate::second_person::is_second_person;

/// A decision of a person.
#[derive(Debug, Clone)]
pub(crate) struct DecisionInput {
    pub(crate) decision: ApprovalDecision,
    /// Digest of the approval as the person saw it.
    pub(crate) digest: String,
    /// New values of caps, as the request has them.
    pub(crate) raise: Vec<(RaisableCap, i64)>,
    pub(crate) reason: Option<String>,
    /// Hash of the request.
    pub(crate) request: Hash,
}

/// Decides about an approval of a run that the principal may control.
///
/// # Errors
/// 402, 403, 404, 409, 422, 503; then nothing is decided.
pub(crate) async fn decide(
    context: &ApiContext,
    principal: &Principal,
    sandbox: &Sandbox,
    id: &str,
    input: DecisionInput,
) -> Result<Approval, ApiError> {
    const OPERATION: &str = "approval.decide";
    let found = context.store.find_approval(&sandbox.key.run_id, id).await?.ok_or_else(ApiError::not_found)?;
    if let Some(decision) = found.decision {
        return Err(ApprovalError::Decided(decision.as_str()).into());
    }
    if found.digest != input.digest {
        return Err(ApprovalError::Changed.into());
    }
    if found.cap.is_none() {
        check_publication(principal, input.decision)?;
    }
    let raise = raise_of(&found, &input)?;
    if let Some(raise) = raise {
        check_raise(context, principal, sandbox, raise).await?;
    }
    let entry = ControlEntry {
        operation: OPERATION.to_owned(),
        object: Some(format!("{}/{id}", sandbox.key.run_id)),
        owner: Some(sandbox.owner.clone()),
        request: Some(input.request),
        before: Some(values(&found)),
        after: Some(json!({
            "approval_digest": found.digest,
            "decision": input.decision.as_str(),
            "raise": raise.map(|(cap, _, to)| cap.show(to)),
        })),
        reason: input.reason.clone(),
        ..ControlEntry::default()
    };
    let seq = context.record(principal, entry).await?;
    match carry_out(context, principal, sandbox, (found, raise), input).await {
        Ok(approval) => Ok(approval),
        Err(error) => Err(context.record_failure(principal, OPERATION, seq, error).await),
    }
}

/// Writes the decision, and then carries it out. No other system changes before the transaction has checked the budget of
/// the account, and whether another decision was first.
async fn carry_out(
    context: &ApiContext,
    principal: &Principal,
    sandbox: &Sandbox,
    (found, raise): (Approval, Option<(RaisableCap, i64, i64)>),
    input: DecisionInput,
) -> Result<Approval, ApiError> {
    let request = DecisionRequest {
        run_id: sandbox.key.run_id.clone(),
        id: found.id,
        digest: input.digest,
        decision: input.decision,
        raise: raise.map(|(_, _, to)| to),
        run_cap: sandbox.cap,
        by: principal.id.clone(),
        reason: input.reason,
    };
    let mut decided = context.store.decide_approval(request, now_us()).await?;
    if decided.cap.is_none() {
        // `crate::git` carries it out.
        return Ok(decided);
    }
    // The decision is recorded. A LiteLLM or a sidecar that cannot be reached now gets it at the next check.
    match apply(context, &decided).await {
        Ok(()) => decided.applied_us = Some(now_us()),
        Err(error) => {
            (context.log)(&format!("run {}: approval {}: {}", sandbox.key, decided.id, error_chain(&error)));
        }
    }
    context.work.notify_one();
    Ok(decided)
}

/// Checks that a principal may raise a cap of a run, given as the cap, its old and its new value, and that the raise can be
/// carried out.
async fn check_raise(
    context: &ApiContext,
    principal: &Principal,
    sandbox: &Sandbox,
    (cap, old, to): (RaisableCap, i64, i64),
) -> Result<(), ApiError> {
    // Limits bound the run, and not one attempt: raises of several attempts add up.
    let of_run = raised_run_cap(sandbox.cap, (cap, old, to));
    if principal.way == Way::Session {
        let max = context.policy.as_ref().and_then(|policy| policy.session_approval_max);
        check_session(max, (cap, of_run))?;
    }
    let second_person = context.policy.as_ref().and_then(|policy| policy.second_person);
    let rule = RaiseRule { highest: highest(context.policy.as_deref(), cap), second_person };
    let creator = context.stored_request(&sandbox.key.run_id).await?.creator;
    let is_second = is_second_person(principal, &sandbox.owner, creator.as_ref());
    check(rule, (cap, of_run), principal.role, is_second)?;
    // More calls and more tokens cost money, too.
    agent_accounts::check(principal, &sandbox.account)?;
    if cap == RaisableCap::MaxCostUsd {
        context.check_budget_log(&sandbox.account).await?;
    }
    check_key(context, sandbox).await
}

/// Checks a decision about a publication. A publication leaves this host, so an approval needs the right to publish,
/// which no session has.
fn check_publication(principal: &Principal, decision: ApprovalDecision) -> Result<(), ApiError> {
    match decision {
        ApprovalDecision::Approve => principal.require(Operation::Publish).map(drop),
        ApprovalDecision::Cancel => {
            Err(ApiError::invalid("decision", "a publication is approved or denied: no run waits for it"))
        }
        ApprovalDecision::Deny | ApprovalDecision::Expired | ApprovalDecision::Changed => Ok(()),
    }
}

/// Returns the cap that an approval raises, its old and its new value.
fn raise_of(approval: &Approval, input: &DecisionInput) -> Result<Option<(RaisableCap, i64, i64)>, ApiError> {
    let named = |cap: RaisableCap| ApiError::invalid("raise", format!("this approval is about {}", cap.as_str()));
    match (input.decision, approval.cap) {
        (ApprovalDecision::Approve, Some((cap, old, new))) => {
            if let Some((other, _)) = input.raise.iter().find(|(named, _)| *named != cap) {
                let message = format!("this approval is about {}, and not {}", cap.as_str(), other.as_str());
                return Err(ApiError::invalid("raise", message));
            }
            let to = input.raise.first().map_or(new, |(_, to)| *to);
            if to > old { Ok(Some((cap, old, to))) } else { Err(ApprovalError::NotRaised(cap.show(old)).into()) }
        }
        (_, Some((cap, _, _))) if !input.raise.is_empty() => Err(named(cap)),
        (_, None) if !input.raise.is_empty() => {
            Err(ApiError::invalid("raise", "this approval is about a publication, and raises no cap"))
        }
        _ => Ok(None),
    }
}

/// Checks that the virtual key of the run, if it has one, is at the current upstream: a key at another LiteLLM cannot
/// be raised later either.
async fn check_key(context: &ApiContext, sandbox: &Sandbox) -> Result<(), ApiError> {
    let Some(host) = context.execs.host() else { return Ok(()) };
    let upstream = host.litellm.as_ref().map(|(upstream, _)| upstream.as_str());
    let keys = host.store.live_keys().await?;
    if keys.iter().filter(|key| key.key == sandbox.key).all(|key| Some(key.upstream.as_str()) == upstream) {
        return Ok(());
    }
    let message = "the virtual key of the run is at a LiteLLM that is not the upstream any more, so the cap stays; start \
                   the daemon with that upstream, or cancel the run";
    Err(ApiError::new(StatusCode::CONFLICT, "key_not_raised", message))
}

fn values(approval: &Approval) -> Value {
    let cap = approval.cap;
    json!({
        "attempt": approval.key.attempt,
        "cap": cap.map(|(cap, _, _)| cap.as_str()),
        "kind": approval.kind(),
        "new": cap.map(|(cap, _, new)| cap.show(new)),
        "old": cap.map(|(cap, old, _)| cap.show(old)),
    })
}

impl From<RaiseRefusal> for ApiError {
    fn from(refusal: RaiseRefusal) -> Self {
        match refusal {
            RaiseRefusal::NeedsToken => Self::needs_token(),
            RaiseRefusal::AdminOnly => {
                let message = "the cap of the run would be above the highest value that the operator lets owners have; \
                               ask an admin";
                Self::new(StatusCode::FORBIDDEN, "admin_only", message)
            }
            RaiseRefusal::SecondPerson => {
                let message = "this cost needs the approval of another person than the run's owner and its creator";
                Self::new(StatusCode::FORBIDDEN, "second_person", message)
            }
        }
    }
}

impl From<ApprovalError> for ApiError {
    fn from(error: ApprovalError) -> Self {
        let conflict = |code, error: &ApprovalError| Self::new(StatusCode::CONFLICT, code, error.to_string());
        match error {
            ApprovalError::NotFound => Self::not_found(),
            ApprovalError::Changed => conflict("approval_changed", &error),
            ApprovalError::Decided(decision) => {
                conflict("already_decided", &error).with_details(json!({ "decision": decision }))
            }
            ApprovalError::NotRaised(_) => Self::invalid("raise", error.to_string()),
            ApprovalError::Budget(error) => error.into(),
            ApprovalError::Sandbox(error) => error.into(),
            ApprovalError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use sluice_state::approvals::{ApprovalAsk, ApprovalOutcome};
    use sluice_state::sandboxes::SandboxStep;

    use super::*;
    use crate::principal::Role;
    use crate::run_policy::RunPolicy;
    use crate::test_daemon::{TestDaemon, policy};

    const USD: i64 = 1_000_000_000;

    #[tokio::test]
    async fn limits_bound_the_cap_of_all_attempts() {
        for (limits, way, code) in [
            (RunPolicy { max_cost_max: Some(3 * USD), ..policy() }, Way::Bearer, "admin_only"),
            (RunPolicy { second_person: Some(3 * USD), ..policy() }, Way::Bearer, "second_person"),
            (RunPolicy { session_approval_max: Some(3 * USD), ..policy() }, Way::Session, "needs_token"),
        ] {
            let daemon = TestDaemon::with_policy(Some(limits), |_| {}).await;
            let body = json!({ "task": "x", "on_cap": "ask", "max_cost_usd": 1 });
            let id = daemon.create("slu_alice", body).await;
            daemon.claim().await;
            daemon.step(&id, SandboxStep::Start).await;
            let run_id = id.parse().expect("an id");
            let run = daemon.store().find_sandbox(None, &run_id).await.expect("it is readable").expect("it is there");
            let ask = ApprovalAsk {
                id: "apr-1".to_owned(),
                key: run.key.clone(),
                cap: RaisableCap::MaxCostUsd,
                old: USD,
                asked: None,
                highest: None,
                is_held: true,
                ask_timeout_us: 3_600_000_000,
            };
            let asked = match daemon.store().ask_approval(ask, now_us()).await.expect("it is writable") {
                ApprovalOutcome::Open(asked) => asked,
                other => panic!("{other:?}"),
            };
            // The run as it would be after attempts that have spent 1.9 dollars.
            let later = Sandbox { cap: Some(2_900_000_000), ..run };
            let principal = Principal { way, ..Principal::for_tests(Role::Owner, "alice", &["acct-1"]) };
            let approve = async |to| {
                let input = DecisionInput {
                    decision: ApprovalDecision::Approve,
                    digest: asked.digest.clone(),
                    raise: vec![(RaisableCap::MaxCostUsd, to)],
                    reason: None,
                    request: Hash::of(b""),
                };
                let decided = decide(&daemon.running.context, &principal, &later, &asked.id, input).await;
                decided.expect_err("the run has another cap").code()
            };

            assert_eq!(approve(1_200_000_000).await, code, "the run would have 3.1 dollars");
            assert_eq!(approve(1_100_000_000).await, "approval_changed", "3 dollars are within all limits");
        }
    }
}
