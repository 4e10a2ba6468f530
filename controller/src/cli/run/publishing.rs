//! The branch of a run at its end: recorded, and published if that was requested.

use sluice_contract::text::error_chain;
use sluice_contract::{RunId, RunKey};
use sluice_git::ObjectId;
use sluice_git::forge::Forge;
use sluice_runs::host::Host;
use sluice_runs::outcome::CompletedRun;
use sluice_runs::project_access;
use sluice_runs::project_repository::ProjectRepository;
use sluice_runs::publication::{Consent, Publication, PublicationError, RunSummary};
use sluice_runs::run_clone::{CloneReport, RunClone};
use sluice_runs::verdict::ErrorCode;
use sluice_state::git_runs::{GitRun, NewGitRun, PublishRule};
use sluice_state::store::{StoreError, now_us};

use super::args::RunArgs;
use super::clone::{project_of, rule};
use crate::settings::Settings;

/// Records that the run has a branch.
///
/// # Errors
/// Errors of the database.
pub(super) async fn begin(
    args: &RunArgs,
    settings: &Settings,
    host: &Host,
    key: &RunKey,
    clone: &RunClone,
) -> Result<(), StoreError> {
    let (_, project) = project_of(&settings.projects, &clone.url);
    let new = NewGitRun {
        run_id: key.run_id.clone(),
        url: clone.url.to_string(),
        base_branch: clone.options.base.as_ref().map(ToString::to_string),
        branch: clone.branch.to_string(),
        ticket: args.ticket.clone(),
        title: args.title.clone(),
        publish: rule(args, &project),
        wants_pull_request: args.pr,
    };
    host.store.begin_git_run(new, now_us()).await
}

/// Records the collected commits, and publishes them if the run has succeeded and the rule allows it. A requested step that
/// was not done becomes the error of the run.
pub(super) async fn end(settings: &Settings, host: &Host, key: &RunKey, clone: &RunClone, done: &mut CompletedRun) {
    let Some(mut report) = done.report.exchange.git.take() else { return };
    let ok = done.report.ok;
    let published = publish(settings, host, key, clone, &mut report, done).await;
    if let Err(error) = published {
        let error = with_advice(&error, &key.run_id, &report);
        done.notes.push(format!("git: the branch stays on this host: {error}"));
        report.held = Some(error.clone());
        if ok {
            done.report.ok = false;
            done.report.exit_code = sluice_contract::exit::OUTPUT_FAILED.into();
            done.report.error_code = Some(ErrorCode::OutputFailed.as_str());
            done.report.error_message = Some(error);
        }
    }
    done.report.exchange.git = Some(report);
}

async fn publish(
    settings: &Settings,
    host: &Host,
    key: &RunKey,
    clone: &RunClone,
    report: &mut CloneReport,
    done: &mut CompletedRun,
) -> Result<(), PublicationError> {
    for step in report.steps() {
        host.store.record_git_step(&key.run_id, step, now_us()).await?;
    }
    let (_, project) = project_of(&settings.projects, &clone.url);
    let publication = Publication { store: &host.store, home: &clone.home, project: &project, run_id: &key.run_id };
    let row = publication.row().await?;
    if !report.has_commits() {
        return Ok(());
    }
    let head: Option<ObjectId> = report.head.parse().ok();
    let is_asked = row.new.publish == PublishRule::Auto;
    if !is_asked || !done.report.ok {
        done.notes.push(next_commands(row.new.publish, &key.run_id, report));
        return Ok(());
    }
    let branch = publication.publish(&Consent { head, has_guarded: false }).await?;
    done.notes.push(format!("git: published as {branch} at {}", project.url));
    report.published = Some(branch);
    if row.new.wants_pull_request {
        let recorded = RunSummary::of_record(&host.layout.records(), &host.store, key).await?;
        let cost = RunSummary::cost(done.report.cost_usd.as_ref());
        let summary = RunSummary { done: done.report.content.clone(), cost, ..recorded };
        request(&publication, &project, &summary, report, done).await;
    }
    Ok(())
}

/// Opens the pull request. A failure keeps the branch, and is a part of the report.
async fn request(
    publication: &Publication<'_>,
    project: &ProjectRepository,
    summary: &RunSummary,
    report: &mut CloneReport,
    done: &mut CompletedRun,
) {
    let opened = match project_access::forge(project, publication.home) {
        Ok(forge) => open(publication, &forge, summary).await,
        Err(error) => Err(error),
    };
    match opened {
        Ok(shown) => {
            done.notes.push(format!("git: pull request {shown}"));
            report.pull_request = Some(shown);
        }
        Err(error) => {
            report.pr_failed = true;
            let run = publication.run_id;
            let reason = error_chain(&error);
            done.notes
                .push(format!("git: the pull request could not be opened: {reason}; sluice pr {run} tries again"));
        }
    }
}

async fn open(publication: &Publication<'_>, forge: &Forge, summary: &RunSummary) -> Result<String, PublicationError> {
    Ok(shown(&publication.open_pull_request(forge, summary).await?))
}

/// Returns the address of a pull request, or its number.
fn shown(row: &GitRun) -> String {
    let number = row.pull_request.map(|number| format!("#{number}"));
    row.pull_request_url.clone().filter(|url| !url.is_empty()).or(number).unwrap_or_default()
}

/// Returns the commands for a branch that a person publishes.
fn next_commands(rule: PublishRule, run: &RunId, report: &CloneReport) -> String {
    let see = format!("git: see it with sluice diff {run}");
    match rule {
        PublishRule::Never => see,
        _ if report.too_large => {
            format!("{see}; it is too large for sluice push, so publish it by hand from its repository")
        }
        _ => format!("{see}, publish it with sluice push {run} --head {}", report.head),
    }
}

/// Returns the error with the command that a person would use, if one can succeed.
fn with_advice(error: &PublicationError, run: &RunId, report: &CloneReport) -> String {
    let (text, head) = (error_chain(error), &report.head);
    match error {
        PublicationError::Guarded { .. } => {
            format!("{text}: sluice push {run} --head {head} --accept-guarded")
        }
        // sluice push refuses these, too.
        PublicationError::TooLarge | PublicationError::Never | PublicationError::OtherRepository => text,
        _ => format!("{text}; sluice push {run} --head {head} tries again"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(too_large: bool) -> CloneReport {
        CloneReport { head: "abc".to_owned(), too_large, ..CloneReport::default() }
    }

    fn run() -> RunId {
        "r1".parse().expect("an id")
    }

    #[test]
    fn an_error_names_only_commands_that_can_succeed() {
        for (error, advice) in [
            (PublicationError::TooLarge, None),
            (PublicationError::Never, None),
            (PublicationError::OtherRepository, None),
            (PublicationError::NotPublished, Some("; sluice push r1 --head abc tries again")),
            (
                PublicationError::Guarded { head: "abc".to_owned(), paths: vec!["ci.yml".to_owned()] },
                Some(": sluice push r1 --head abc --accept-guarded"),
            ),
        ] {
            let text = with_advice(&error, &run(), &report(false));
            match advice {
                Some(advice) => assert!(text.ends_with(advice), "{text}"),
                None => assert!(!text.contains("sluice push"), "{text}"),
            }
        }
    }

    #[test]
    fn a_branch_too_large_is_published_by_hand() {
        for (rule, too_large, names_push) in [
            (PublishRule::Never, false, false),
            (PublishRule::Approve, true, false),
            (PublishRule::Approve, false, true),
            (PublishRule::Auto, false, true),
        ] {
            let text = next_commands(rule, &run(), &report(too_large));
            assert!(text.starts_with("git: see it with sluice diff r1"), "{text}");
            assert_eq!(text.contains("sluice push r1 --head abc"), names_push, "{text}");
        }
    }
}
