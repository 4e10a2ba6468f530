//! The clone that a run begins with.

use sluice_git::{Branch, CommitterIdentity};
use sluice_runs::project_access;
use sluice_runs::project_repository::ProjectRepository;
use sluice_runs::publication::is_repository_of;
use sluice_runs::run_clone::{AdoptedClone, CloneCollector, RunClone};
use sluice_state::git_runs::{NewGitRun, PublishRule};
use sluice_state::sandboxes::Sandbox;
use sluice_state::store::{StoreError, now_us};

use crate::context::ApiContext;
use crate::run_refusal::RunRefusal;
use crate::stored_request::{StoredRepository, StoredRequest};

/// Returns the clone of an attempt, and records that the run has a branch. A new attempt gets a new clone, on the
/// commits that the run has pushed. The attempt is refused if the project has another repository than at the first
/// attempt.
///
/// # Errors
/// [`RunRefusal`]
pub(crate) async fn begin(
    context: &ApiContext,
    run: &Sandbox,
    stored: &StoredRepository,
) -> Result<RunClone, RunRefusal> {
    let project = project(context, run).ok_or_else(|| {
        RunRefusal::Owner("the project of the run has no repository any more; ask an admin to set it".to_owned())
    })?;
    let branch: Branch = stored.branch.parse().map_err(RunRefusal::host)?;
    let base: Option<Branch> = stored.base.as_deref().map(str::parse).transpose().map_err(RunRefusal::host)?;
    let new = NewGitRun {
        run_id: run.key.run_id.clone(),
        url: project.url.to_string(),
        base_branch: stored.base.clone(),
        branch: stored.branch.clone(),
        ticket: stored.ticket.clone(),
        title: stored.title.clone(),
        publish: PublishRule::of(&stored.publish).unwrap_or(PublishRule::Never),
        wants_pull_request: stored.pull_request,
    };
    context.store.begin_git_run(new, now_us()).await.map_err(RunRefusal::host)?;
    let begun = context.store.find_git_run(&run.key.run_id).await.map_err(RunRefusal::host)?;
    if begun.is_some_and(|row| !is_repository_of(&row, project)) {
        let message = "the project has another repository now than when the run began; create a new run";
        return Err(RunRefusal::Owner(message.to_owned()));
    }
    Ok(RunClone {
        home: context.git.clone(),
        url: project.url.clone(),
        credentials: project_access::credentials(project).await.map_err(RunRefusal::host)?,
        options: project.mirror_options(run.project.clone().unwrap_or_default(), base),
        branch,
        identity: identity(project, run).map_err(RunRefusal::host)?,
    })
}

/// Returns the clone of a run that an earlier daemon began; `None` if it has none.
///
/// # Errors
/// Errors of the database.
pub(crate) async fn adopted(
    context: &ApiContext,
    run: &Sandbox,
    stored: &StoredRequest,
    collector: CloneCollector,
) -> Result<Option<AdoptedClone>, StoreError> {
    let row = context.store.find_git_run(&run.key.run_id).await?;
    let (home, keep_workspace) = (context.git.clone(), stored.keep_workspace);
    Ok(row.map(|row| AdoptedClone { home, url: row.new.url, collector, keep_workspace }))
}

/// Returns the repository of a run's project.
pub(crate) fn project<'a>(context: &'a ApiContext, run: &Sandbox) -> Option<&'a ProjectRepository> {
    let projects = &context.policy.as_ref()?.projects;
    projects.iter().find(|project| Some(&project.name) == run.project.as_ref())?.repository.as_ref()
}

/// Returns the author of the run's commits.
fn identity(project: &ProjectRepository, run: &Sandbox) -> Result<CommitterIdentity, sluice_git::IdentityError> {
    match &project.author {
        Some(author) => Ok(author.clone()),
        None => CommitterIdentity::new(&format!("Sluice run {}", run.key.run_id), "run@sluice.invalid"),
    }
}
