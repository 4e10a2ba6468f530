//! `sluice approvals`, `approve` and `deny`: open approvals and questions of runs, and decisions.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};
use sluice_client::{ApiApproval, ApiClient, ApiRequest, ApiSandboxPage, ApprovalPage};
use sluice_contract::exit;
use sluice_contract::text::sanitize;

use super::branch::FORGE_WORK;
use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{dash, date_time, print, print_json, terminal_width};
use super::retry::idempotent;
use super::server_args::ServerArgs;
use super::table::{Column, Table};

const LIST_EXAMPLES: &str = "\
Examples:
  sluice approvals                    what waits for a decision, of all runs
  sluice approvals nightly --json     all approvals of one run, with their digests";

/// Lists what the system asks about runs: caps that are nearly or wholly used up, and branches that are to be published.
#[derive(Debug, Args)]
#[command(before_help = LIST_EXAMPLES)]
pub(super) struct ApprovalsArgs {
    /// A run of the daemon, with its decided approvals [default: the open ones of all runs]
    #[arg(value_name = "RUN")]
    run: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

const APPROVE_EXAMPLES: &str = "\
Examples:
  sluice approve r_0f8fad5bd9cb469fa165 apr-4f1c2d3e4a5b                      shows it, and asks
  sluice approve r_0f8fad5bd9cb469fa165 apr-4f1c2d3e4a5b --raise-cost 5 --reason \"the release\"
  sluice approve \"$RUN\" \"$APPROVAL\" --yes --digest \"$DIGEST\"                  in a script";

/// Raises a cap, or publishes a branch, about which the system asks. Both ids are needed in full.
#[derive(Debug, Args)]
#[command(before_help = APPROVE_EXAMPLES)]
pub(super) struct ApproveArgs {
    /// The new cap in dollars, in place of the proposed one
    #[arg(long, value_name = "USD")]
    raise_cost: Option<String>,
    /// The new number of calls, in place of the proposed one
    #[arg(long, value_name = "N")]
    raise_calls: Option<u64>,
    /// The new number of tokens, in place of the proposed one
    #[arg(long, value_name = "N")]
    raise_tokens: Option<u64>,
    #[command(flatten)]
    of: DecisionArgs,
}

const DENY_EXAMPLES: &str = "\
Examples:
  sluice deny r_0f8fad5bd9cb469fa165 apr-4f1c2d3e4a5b --reason \"it loops\"";

/// Refuses to raise a cap: the call that waits fails for good, and the run goes on. Or refuses to publish a branch, which stays
/// on this host. Both ids are needed in full.
#[derive(Debug, Args)]
#[command(before_help = DENY_EXAMPLES)]
pub(super) struct DenyArgs {
    #[command(flatten)]
    of: DecisionArgs,
}

/// An approval, and how it is decided.
#[derive(Debug, Args)]
struct DecisionArgs {
    /// The full id of a run of the daemon
    #[arg(value_name = "RUN")]
    run: String,
    /// The full id of the approval
    #[arg(value_name = "APPROVAL_ID")]
    approval: String,
    /// The reason, which the control log keeps, and for a cap the audit log of the run too
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Decide without a question
    #[arg(long)]
    yes: bool,
    /// Decide only if the approval still has this digest, or one that begins so: at least 8 digits
    #[arg(long, value_name = "SHA256")]
    digest: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(super) async fn list(args: &ApprovalsArgs) -> Result<ExitCode, CommandError> {
    let api = args.server.daemon(&args.host)?;
    let approvals = match &args.run {
        Some(name) => {
            let id = named_run::find(&api, name).await?.sandbox.sandbox_id;
            of_run(&api, &id).await?
        }
        None => open_ones(&api).await?,
    };
    if args.json {
        print_json(&json!({ "approvals": approvals }));
    } else {
        print(&text(&approvals, terminal_width()));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the open approvals of all runs.
async fn open_ones(api: &ApiClient) -> Result<Vec<ApiApproval>, CommandError> {
    let (mut open, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let request = ApiRequest::get(&["sandboxes"]).query("waiting_for", "person").query("limit", "500");
        let page: ApiSandboxPage = api.send_in_turn(request.query_of("cursor", cursor.as_deref())).await?;
        for listed in &page.sandboxes {
            let approvals = of_run(api, &listed.sandbox.sandbox_id).await?;
            open.extend(approvals.into_iter().filter(|approval| approval.decision.is_none()));
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(open);
        }
    }
}

async fn of_run(api: &ApiClient, id: &str) -> Result<Vec<ApiApproval>, CommandError> {
    let page: ApprovalPage = api.send_in_turn(ApiRequest::get(&["sandboxes", id, "approvals"])).await?;
    Ok(page.approvals)
}

/// Number of digits of a digest that a list shows, and that `--digest` needs.
const DIGEST_SHOWN: usize = 8;

const COLUMNS: [Column; 8] = [
    Column::text("APPROVAL"),
    Column::text("RUN"),
    Column::text("CAP").optional(1),
    Column::number("OLD").optional(2),
    Column::number("NEW").optional(3),
    Column::text("DIGEST").optional(5),
    Column::text("DECISION").optional(4),
    Column::text("EXPIRES (UTC)").optional(6),
];

fn text(approvals: &[ApiApproval], terminal: Option<usize>) -> String {
    let mut table = Table::new(terminal, COLUMNS);
    for approval in approvals {
        let waits = if approval.held_at.is_some() { "a call waits" } else { "open" };
        table.row([
            approval.approval_id.clone(),
            approval.sandbox_id.clone(),
            approval.cap.as_ref().unwrap_or(&approval.kind).clone(),
            dash(approval.old.as_ref()),
            dash(approval.raised_to.as_ref().or(approval.new.as_ref())),
            approval.digest.get(..DIGEST_SHOWN).unwrap_or_default().to_owned(),
            approval.decision.as_deref().unwrap_or(waits).to_owned(),
            date_time(&approval.expires_at),
        ]);
    }
    table.take()
}

pub(super) async fn approve(args: &ApproveArgs) -> Result<ExitCode, CommandError> {
    let mut raise = Map::new();
    let values = [
        ("max_cost_usd", args.raise_cost.clone().map(Value::from)),
        ("max_calls", args.raise_calls.map(Value::from)),
        ("max_tokens", args.raise_tokens.map(Value::from)),
    ];
    raise.extend(values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    decide(&args.of, "approve", raise).await
}

pub(super) async fn deny(args: &DenyArgs) -> Result<ExitCode, CommandError> {
    decide(&args.of, "deny", Map::new()).await
}

async fn decide(of: &DecisionArgs, decision: &str, raise: Map<String, Value>) -> Result<ExitCode, CommandError> {
    let api = of.server.daemon(&of.host)?;
    let found = of_run(&api, &of.run).await?.into_iter().find(|approval| approval.approval_id == of.approval);
    let unknown = || format!("run {} has no approval {}; sluice approvals lists them", of.run, of.approval);
    let found = found.ok_or_else(|| CommandError::wrong_usage(unknown()))?;
    if found.sandbox_id != of.run {
        return Err(CommandError::wrong_usage(format!(
            "{} is the name of a run; a decision takes the full id, {}",
            of.run, found.sandbox_id
        )));
    }
    if let Some(given) = &of.digest {
        check_digest(given, &found.digest)?;
    }
    if !of.yes && !confirmed(&found, decision, &raise)? {
        return Err(CommandError { code: exit::FAILED, message: "nothing was decided".to_owned() });
    }
    let mut body = json!({ "decision": decision, "digest": found.digest });
    if !raise.is_empty() {
        body["raise"] = raise.into();
    }
    if let Some(reason) = &of.reason {
        body["reason"] = json!(reason);
    }
    let parts = ["sandboxes", of.run.as_str(), "approvals", of.approval.as_str(), "decision"];
    let decided: ApiApproval = api.send(idempotent(ApiRequest::post(&parts).json(&body)).waiting(FORGE_WORK)).await?;
    if of.json {
        print_json(&json!({ "approval": decided }));
    } else {
        print(&format!("{}\n", outcome(&decided)));
    }
    Ok(ExitCode::SUCCESS)
}

/// Checks that the digest of an approval is the given one, or begins with it.
fn check_digest(given: &str, found: &str) -> Result<(), CommandError> {
    if given.len() < DIGEST_SHOWN {
        let message = format!("--digest {given}: give at least {DIGEST_SHOWN} digits; the approval has {found}");
        return Err(CommandError::wrong_usage(message));
    }
    if found.starts_with(&given.to_ascii_lowercase()) {
        return Ok(());
    }
    let message = format!(
        "the approval has the digest {found}, and --digest is {given}: it has changed since it was read, or this is the \
         digest of another one; sluice approvals shows it"
    );
    Err(CommandError { code: exit::FAILED, message })
}

fn outcome(decided: &ApiApproval) -> String {
    let id = &decided.approval_id;
    match (decided.decision.as_deref(), &decided.cap, &decided.raised_to) {
        (Some("approve"), Some(cap), Some(to)) if decided.applied_at.is_some() => {
            format!("approval {id}: approved; {cap} is {to} now")
        }
        (Some("approve"), Some(cap), Some(to)) => {
            format!("approval {id}: approved; {cap} is not {to} yet, and the daemon tries again")
        }
        (Some("approve"), None, _) => {
            let branch = approval_word(decided, "branch");
            format!("approval {id}: approved; {branch} is published")
        }
        (Some("deny"), None, _) => format!("approval {id}: denied; the branch stays on this host"),
        (Some("deny"), _, _) => format!("approval {id}: denied; the call that waits fails, and the run goes on"),
        (decision, _, _) => format!("approval {id}: {}", dash(decision)),
    }
}

/// Shows an approval on the terminal, and asks for a decision.
fn confirmed(approval: &ApiApproval, decision: &str, raise: &Map<String, Value>) -> Result<bool, CommandError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CommandError::wrong_usage(
            "this asks on a terminal; in a script, give --yes, and --digest with what sluice approvals has shown",
        ));
    }
    let cap = approval.cap.as_deref().unwrap_or_default();
    if raise.keys().any(|name| name != cap) {
        let message = match cap {
            "" => "this approval is about a publication; leave out the --raise flag".to_owned(),
            cap => format!("this approval is about {cap}; give the --raise flag of that, or none"),
        };
        return Err(CommandError::wrong_usage(message));
    }
    let raised = raise.get(cap).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let new = if decision == "approve" { raised.or_else(|| approval.new.clone()) } else { None };
    let mut lines = vec![
        format!("run       {} (attempt {})", approval.sandbox_id, approval.attempt),
        format!("account   {}", approval_word(approval, "account")),
        format!("agent     {}", approval_word(approval, "agent_id")),
    ];
    match &approval.cap {
        Some(cap) => lines.push(format!("cap       {cap}: {} -> {}", dash(approval.old.as_ref()), dash(new))),
        None => lines.extend(publication_lines(approval)),
    }
    lines.extend([format!("expires   {}", approval.expires_at), format!("digest    {}", approval.digest)]);
    let mut stderr = io::stderr();
    let shown: String = lines.iter().map(|line| format!("{}\n", sanitize(line))).collect();
    let failed = |error: io::Error| CommandError::failed(&error);
    write!(stderr, "{shown}{decision}? [y/N] ").map_err(failed)?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(failed)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// Returns a text member of an approval's subject, or `-`.
fn approval_word<'a>(approval: &'a ApiApproval, name: &str) -> &'a str {
    approval.subject[name].as_str().unwrap_or("-")
}

/// Returns what a person sees of a branch that is to be published.
fn publication_lines(approval: &ApiApproval) -> Vec<String> {
    let word = |name| approval_word(approval, name);
    let count = |name: &str| approval.subject[name].as_u64().unwrap_or_default();
    let mut lines = vec![
        format!("publish   {} at {}", word("branch"), word("url")),
        format!(
            "commit    {}, {} commits on {}, {} files",
            word("head_sha"),
            count("commits"),
            word("base_branch"),
            count("files")
        ),
    ];
    if approval.subject["pull_request"] == true {
        lines.push("          and opens a pull request".to_owned());
    }
    let guarded: Vec<_> = approval.subject["guarded_paths"].as_array().into_iter().flatten().collect();
    lines.extend(guarded.iter().filter_map(|path| Some(format!("obeyed    {}", path.as_str()?))));
    let more = count("guarded_count").saturating_sub(guarded.len() as u64);
    if more > 0 {
        lines.push(format!("obeyed    and {more} more"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn approval() -> ApiApproval {
        serde_json::from_value(json!({
            "approval_id": "apr-1", "sandbox_id": "r_1", "attempt": 0, "kind": "cap", "subject": {}, "cap": "max_calls",
            "old": "5", "new": "10", "digest": "ab".repeat(32), "created_at": "2026-01-01T00:00:00.000000Z",
            "expires_at": "2026-01-02T00:00:00.000000Z", "held_at": null, "decision": null, "decided_by": null,
            "decided_at": null, "reason": null, "raised_to": null, "applied_at": null,
        }))
        .expect("an approval")
    }

    #[test]
    fn a_list_shows_what_is_open() {
        let held = ApiApproval { held_at: Some("now".to_owned()), ..approval() };
        let shown = text(&[approval(), held], None);
        let rows: Vec<_> = shown.lines().collect();
        assert_eq!(rows.len(), 3, "{shown}");
        assert!(rows[1].contains("abababab") && rows[1].contains("open"), "{shown}");
        assert!(rows[2].contains("a call waits") && rows[2].contains("2026-01-02 00:00:00"), "{shown}");
    }

    #[test]
    fn the_beginning_of_a_digest_is_enough() {
        let found = approval().digest;
        let longer = format!("{found}ab");
        for given in ["abababab", "ABABABABAB", found.as_str()] {
            check_digest(given, &found).expect(given);
        }
        for (given, code) in [("abababa", exit::USAGE), ("abababac", exit::FAILED), (longer.as_str(), exit::FAILED)] {
            let error = check_digest(given, &found).expect_err(given);
            assert_eq!(error.code, code, "{given}");
            assert!(error.message.contains(given) && error.message.contains(&found), "{}", error.message);
        }
    }

    #[test]
    fn an_outcome_says_what_follows() {
        let decided = |decision: &str, to: Option<&str>| ApiApproval {
            decision: Some(decision.to_owned()),
            raised_to: to.map(str::to_owned),
            ..approval()
        };
        let raised = decided("approve", Some("9"));
        assert!(outcome(&raised).ends_with("max_calls is not 9 yet, and the daemon tries again"));
        let applied = ApiApproval { applied_at: Some("now".to_owned()), ..raised };
        assert_eq!(outcome(&applied), "approval apr-1: approved; max_calls is 9 now");
        assert!(outcome(&decided("deny", None)).contains("the run goes on"));
        assert_eq!(outcome(&decided("expired", None)), "approval apr-1: expired");
    }

    #[test]
    fn a_publication_shows_the_commit_and_what_is_obeyed() {
        let subject = json!({
            "branch": "feature/x", "url": "https://forge/app", "head_sha": "ab12", "base_branch": "main", "commits": 2,
            "files": 3, "pull_request": true, "guarded_paths": [".github/ci.yml"], "guarded_count": 4,
        });
        let publish = ApiApproval { kind: "publish".to_owned(), cap: None, subject, ..approval() };
        let expected = [
            "publish   feature/x at https://forge/app",
            "commit    ab12, 2 commits on main, 3 files",
            "          and opens a pull request",
            "obeyed    .github/ci.yml",
            "obeyed    and 3 more",
        ];
        assert_eq!(publication_lines(&publish), expected);
        let decided = |decision: &str| ApiApproval { decision: Some(decision.to_owned()), ..publish.clone() };
        assert_eq!(outcome(&decided("approve")), "approval apr-1: approved; feature/x is published");
        assert_eq!(outcome(&decided("deny")), "approval apr-1: denied; the branch stays on this host");
        assert!(text(&[publish], None).contains("publish"), "the column of the cap");
    }
}
