//! The branch of a run at its end: recorded, and published if that was requested.

use sluice_contract::RunKey;
use sluice_contract::text::error_chain;
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
        let error = with_advice(&error, key, &report);
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
        let (run, head) = (&key.run_id, &report.head);
        let advice = match row.new.publish {
            PublishRule::Never => format!("git: see it with sluice diff {run}"),
            _ => format!("git: see it with sluice diff {run}, publish it with sluice push {run} --head {head}"),
        };
        done.notes.push(advice);
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

/// Returns the error with the command that a person would use.
fn with_advice(error: &PublicationError, key: &RunKey, report: &CloneReport) -> String {
    let (text, run, head) = (error_chain(error), &key.run_id, &report.head);
    match error {
        PublicationError::Guarded { .. } => {
            format!("{text}: sluice push {run} --head {head} --accept-guarded")
        }
        _ => format!("{text}; sluice push {run} --head {head} tries again"),
    }
}
