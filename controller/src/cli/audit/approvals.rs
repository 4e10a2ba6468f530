//! `sluice audit approvals`: lists each request with its decision, the decider, the digest, time, address, and the effect.
//!
//! Both the database and the control log have each decision. A decision that only one of them has is a fault.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::Value;
use sluice_contract::{RunId, exit};
use sluice_state::approvals::{Approval, ApprovalDecision, RaisableCap};
use sluice_state::control_log::{self, ControlLine};
use sluice_state::layout::Layout;
use sluice_state::store::Store;

use super::super::database::open_for_queries;
use super::super::error::CommandError;
use super::super::object::CommandObject;
use super::super::output::{dash, print, print_object, terminal_width};
use super::super::parse::since;
use super::super::sandbox_object::timestamp;
use super::super::table::{Column, Table};
use super::keys::own_keys;

mod asked_run;
mod missing;

use asked_run::AskedRun;
use missing::{MissingDecision, missing_decisions, missing_text};

const EXAMPLES: &str = "\
Examples:
  sluice audit approvals --since 30d
  sluice audit approvals --run r_0f8fad5bd9cb469fa165 --json";

/// Selection of approvals.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct AuditApprovalsArgs {
    /// Only those of this run: its id, the name of a daemon's run, or the beginning of its id; RUN.ATTEMPT is one attempt
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// Only those of runs that this account pays for
    #[arg(long, value_name = "ACCOUNT")]
    account: Option<String>,
    /// Only those that were asked since then: a time, or how long ago, such as 30d
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// An approval as an auditor reads it.
#[derive(Debug, Serialize)]
struct AuditedApproval {
    approval_id: String,
    run: String,
    account: String,
    kind: &'static str,
    cap: Option<&'static str>,
    old: Option<String>,
    new: Option<String>,
    digest: String,
    asked_at: String,
    held_at: Option<String>,
    decision: Option<&'static str>,
    decided_at: Option<String>,
    decided_by: Option<String>,
    role: Option<String>,
    /// Way on which the decision came.
    way: Option<String>,
    /// Address from which the decision came.
    source: Option<String>,
    reason: Option<String>,
    /// Number of its line in the control log.
    control_seq: Option<u64>,
    raised_to: Option<String>,
    /// Commit of a publication.
    head_sha: Option<String>,
    applied_at: Option<String>,
    /// Difference between database and control log; null if there is none.
    fault: Option<&'static str>,
}

/// The data of the command's object.
#[derive(Debug, Serialize)]
struct AuditedApprovals {
    approvals: Vec<AuditedApproval>,
}

pub(super) async fn approvals(state: &Path, args: &AuditApprovalsArgs) -> Result<ExitCode, CommandError> {
    let failed = |error: &dyn std::error::Error| CommandError::failed(error);
    let keys = own_keys(state)?.public().map_err(|error| failed(&error))?;
    let (path, mut lines) = (Layout::at(state).control_log(), BTreeMap::new());
    if path.exists() {
        control_log::verify(&path, &keys, |line| take(&mut lines, line)).map_err(|error| failed(&error))?;
    }
    // If two people decide at once, one of them is refused.
    let lines: BTreeMap<_, _> = lines.into_values().collect();
    // Read after the log: an approval is in the database before its decision is in the log.
    let store = open_for_queries(state)?;
    let since_us = args.since.as_deref().map(since).transpose()?;
    let asked = match &args.run {
        Some(name) => Some(AskedRun::find(&store, &lines, name).await?),
        None => None,
    };
    let all = store.all_approvals().await.map_err(|error| failed(&error))?;
    let mut missing = {
        let known: BTreeSet<_> =
            all.iter().map(|(approval, _)| (approval.key.run_id.as_str(), approval.id.as_str())).collect();
        missing_decisions(&lines, &known, since_us)
    };
    if let Some(run) = &asked {
        missing.retain(|decision| decision.run_id == run.run_id.as_str());
    }
    if let Some(account) = &args.account {
        missing = paid_by(&store, missing, account).await?;
    }
    let is_asked = |(approval, account): &(Approval, String)| {
        asked.as_ref().is_none_or(|asked| asked.has(&approval.key))
            && args.account.as_ref().is_none_or(|asked| asked == account)
            && since_us.is_none_or(|since| approval.created_us >= since)
    };
    let all = all.into_iter().filter(is_asked);
    let found: Vec<_> = all.map(|(approval, account)| audited(approval, account, &lines)).collect();
    let faults = found.iter().filter(|approval| approval.fault.is_some()).count();
    let missing = missing_text(&missing, if asked.is_some() { " about this run" } else { "" });
    let error = disagreement(faults, missing).map(|message| CommandError { code: exit::FAILED, message });
    if args.json {
        print_object(&CommandObject::of(error.as_ref(), AuditedApprovals { approvals: found }));
    } else {
        print(&text(&found, terminal_width()));
    }
    match error {
        Some(error) if !args.json => Err(error),
        Some(error) => Ok(ExitCode::from(error.code)),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Returns the decisions about runs that an account pays for, and the decisions about runs that the database does not
/// know: the control log does not say who pays for these.
async fn paid_by(
    store: &Store,
    missing: Vec<MissingDecision>,
    account: &str,
) -> Result<Vec<MissingDecision>, CommandError> {
    let mut paid = Vec::new();
    for decision in missing {
        let sandbox = match decision.run_id.parse::<RunId>() {
            Ok(run_id) => store.find_sandbox(None, &run_id).await.map_err(|error| CommandError::failed(&error))?,
            Err(_) => None,
        };
        if sandbox.is_none_or(|sandbox| sandbox.account == account) {
            paid.push(decision);
        }
    }
    Ok(paid)
}

/// Returns the ways in which database and control log do not agree; `None` if they do. `missing` is the text about decisions
/// that the database does not have.
fn disagreement(faults: usize, missing: Option<String>) -> Option<String> {
    if faults == 0 {
        return missing;
    }
    let faults =
        format!("{faults} approvals are not in the control log as the database has them; the column FAULT says which");
    Some(match missing {
        Some(missing) => format!("{faults}; {missing}"),
        None => faults,
    })
}

/// Keeps the lines of decisions that took effect, by their numbers.
fn take(lines: &mut BTreeMap<u64, (String, ControlLine)>, line: &ControlLine) {
    if matches!(line.operation.as_str(), "approval.decide" | "approval.expire")
        && line.result == "accepted"
        && let Some((_, id)) = line.object.as_deref().and_then(|object| object.split_once('/'))
    {
        lines.insert(line.seq, (id.to_owned(), line.clone()));
    }
    // A second line says that the operation of the first one failed.
    if line.operation == "approval.decide" && line.result != "accepted" {
        let failed = line.object.as_deref().and_then(|seq| seq.parse::<u64>().ok());
        failed.map(|seq| lines.remove(&seq));
    }
}

fn audited(approval: Approval, account: String, lines: &BTreeMap<String, ControlLine>) -> AuditedApproval {
    let line = lines.get(&approval.id);
    let cap = approval.cap.map(|(cap, _, _)| cap);
    let value = |value: Option<i64>| cap.zip(value).map(|(cap, value)| cap.show(value));
    AuditedApproval {
        fault: fault(&approval, line),
        kind: approval.kind(),
        run: approval.key.to_string(),
        account,
        cap: cap.map(RaisableCap::as_str),
        old: value(approval.cap.map(|(_, old, _)| old)),
        new: value(approval.cap.map(|(_, _, new)| new)),
        raised_to: value(approval.raised_to),
        head_sha: head_sha(&approval),
        asked_at: timestamp(approval.created_us),
        held_at: approval.held_us.map(timestamp),
        decided_at: approval.decided_us.map(timestamp),
        applied_at: approval.applied_us.map(timestamp),
        decision: approval.decision.map(ApprovalDecision::as_str),
        decided_by: approval.decided_by,
        role: line.map(|line| line.role.clone()),
        way: line.map(|line| line.way.clone()),
        source: line.and_then(|line| line.source.clone()),
        reason: approval.reason,
        control_seq: line.map(|line| line.seq),
        digest: approval.digest,
        approval_id: approval.id,
    }
}

/// Returns the commit that a publication is about.
fn head_sha(approval: &Approval) -> Option<String> {
    let subject: Value = serde_json::from_str(&approval.subject).ok()?;
    subject["head_sha"].as_str().map(str::to_owned)
}

/// Returns the first difference between an approval and its line in the control log.
fn fault(approval: &Approval, line: Option<&ControlLine>) -> Option<&'static str> {
    let is_of_person = matches!(
        approval.decision,
        Some(ApprovalDecision::Approve | ApprovalDecision::Deny | ApprovalDecision::Cancel)
    );
    let Some(line) = line else { return is_of_person.then_some("the control log has no such decision") };
    let after = |name: &str| line.after.as_ref().and_then(|after| after[name].as_str().map(str::to_owned));
    if after("approval_digest").as_deref() != Some(&approval.digest) {
        return Some("the control log has another digest");
    }
    let decision = approval.decision.filter(|decision| *decision != ApprovalDecision::Changed);
    if decision.is_some() && after("decision").as_deref() != decision.map(ApprovalDecision::as_str) {
        return Some("the control log has another decision");
    }
    if is_of_person && approval.decided_by.as_deref() != Some(&line.principal) {
        return Some("the control log has another person");
    }
    let raised = approval.cap.zip(approval.raised_to).map(|((cap, _, _), to)| Value::from(cap.show(to)));
    let logged = line.after.as_ref().map(|after| after["raise"].clone()).filter(|raise| !raise.is_null());
    (raised.is_some() && raised != logged).then_some("the control log has another value")
}

const COLUMNS: [Column; 10] = [
    Column::text("APPROVAL"),
    Column::text("RUN"),
    Column::text("CAP").optional(2),
    Column::number("OLD").optional(3),
    Column::number("NEW").optional(4),
    Column::text("DECISION"),
    Column::text("BY").optional(1),
    Column::text("FROM").optional(7),
    Column::text("DIGEST").optional(6),
    Column::text("FAULT").optional(5),
];

fn text(approvals: &[AuditedApproval], terminal: Option<usize>) -> String {
    let mut table = Table::new(terminal, COLUMNS);
    for approval in approvals {
        let from = approval.source.as_ref().or(approval.way.as_ref());
        table.row([
            approval.approval_id.clone(),
            approval.run.clone(),
            approval.cap.unwrap_or(approval.kind).to_owned(),
            dash(approval.old.as_ref()),
            dash(approval.raised_to.as_ref().or(approval.new.as_ref())),
            approval.decision.unwrap_or("open").to_owned(),
            dash(approval.decided_by.as_ref()),
            dash(from),
            approval.digest.get(..8).unwrap_or_default().to_owned(),
            dash(approval.fault),
        ]);
    }
    table.take()
}
