//! Exports a run's branch from this host: its publication, its pull request, and the merge.
//!
//! Publishing is egress, since the forge runs the agent's code with a network of its own. So a publication names the
//! commit that was reviewed, and confirms changes of files that CI executes. It goes to the repository that the run began
//! with, and to no other. Each step is recorded after it was done, and can be repeated: before an object is created, the
//! forge is asked whether it exists. A push is also recorded before it is made. One step of a run is made at a time.

use sluice_contract::RunId;
use sluice_git::forge::{Forge, MergeMethod, MergeOutcome, MergeRequest, NewPullRequest, RuntimePause, merge};
use sluice_git::pull_request_text::{self, PullRequestFacts};
use sluice_git::{BranchSummary, GitHome, ObjectId, RepositoryUrl, RunRepository, visible_path};
use sluice_state::git_runs::{GitRun, GitStep, PublishRule};
use sluice_state::store::{Store, now_us};

use crate::project_access;
use crate::project_repository::ProjectRepository;
use crate::run_locks::RunLocks;

mod push;
mod summary;

pub use crate::publication_error::PublicationError;
pub use summary::{RunSummary, last_task};

use push::BranchPush;

/// Locks of publications, pull requests and merges: two at once would both find that nothing was done yet. Another process
/// is not locked out: the forge, and the records of pushes, show it what was done.
static EXPORTS: RunLocks = RunLocks::new();

/// The branch of a run, and the targets of its publication.
#[derive(Debug)]
pub struct Publication<'a> {
    /// Database.
    pub store: &'a Store,
    /// Repositories of this host.
    pub home: &'a GitHome,
    /// Repository of the project.
    pub project: &'a ProjectRepository,
    /// Run.
    pub run_id: &'a RunId,
}

/// Consent to a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Consent {
    /// Commit that was reviewed; `None` for the newest one.
    pub head: Option<ObjectId>,
    /// True if changes of guarded paths may be published.
    pub has_guarded: bool,
}

impl Publication<'_> {
    /// Returns the state of the branch.
    ///
    /// # Errors
    /// [`PublicationError::NoRepository`]
    pub async fn row(&self) -> Result<GitRun, PublicationError> {
        self.store.find_git_run(self.run_id).await?.ok_or(PublicationError::NoRepository)
    }

    /// Returns the state of the branch if the project still has the repository that the run began with. Nothing was
    /// reviewed for another repository.
    ///
    /// # Errors
    /// [`PublicationError::NoRepository`], [`PublicationError::OtherRepository`]
    pub async fn row_at_project(&self) -> Result<GitRun, PublicationError> {
        let row = self.row().await?;
        if is_repository_of(&row, self.project) { Ok(row) } else { Err(PublicationError::OtherRepository) }
    }

    /// Returns the summary of the run's branch.
    ///
    /// # Errors
    /// [`PublicationError`]
    pub async fn look(&self) -> Result<BranchSummary, PublicationError> {
        Ok(self.repository()?.look().await?)
    }

    /// Publishes the branch, and returns its name at the forge. A branch that is already published is left unchanged.
    ///
    /// # Errors
    /// [`PublicationError`]; the failure is recorded, and the branch stays on this host.
    pub async fn publish(&self, consent: &Consent) -> Result<String, PublicationError> {
        let _lock = EXPORTS.lock(self.run_id).await;
        let repository = self.repository()?;
        let look = repository.look().await?;
        // Read after the look: another process that was pushing an older commit has recorded that push by now.
        let row = self.row_at_project().await?;
        if self.project.publish == PublishRule::Never {
            return Err(PublicationError::Never);
        }
        let head = admit(&row, &look, consent)?;
        if row.published_sha.as_deref() == Some(head.as_str()) {
            return Ok(row.new.branch);
        }
        let pushed = self.push(&row, &repository, &head).await;
        let branch = self.recorded(pushed).await?;
        let step = GitStep::Published { branch: branch.clone(), sha: head.as_str().to_owned() };
        self.store.record_git_step(self.run_id, step, now_us()).await?;
        Ok(branch)
    }

    /// Opens the pull request of the published branch, as a draft, or returns the existing one.
    ///
    /// # Errors
    /// [`PublicationError`]; the failure is recorded, and the branch stays at the forge.
    pub async fn open_pull_request(&self, forge: &Forge, summary: &RunSummary) -> Result<GitRun, PublicationError> {
        let _lock = EXPORTS.lock(self.run_id).await;
        let row = self.row_at_project().await?;
        let head_sha = row.published_sha.clone().ok_or(PublicationError::NotPublished)?;
        if row.pull_request.is_some() {
            return Ok(row);
        }
        let facts = self.facts(&row, summary);
        let (title, body) = (pull_request_text::title(&facts), pull_request_text::body(&facts));
        let base = row.new.base_branch.as_deref().ok_or(PublicationError::NotPublished)?;
        let (head, head_sha) = (row.new.branch.as_str(), head_sha.as_str());
        let new = NewPullRequest { head, head_sha, base, title: &title, body: &body, is_draft: true };
        let opened = self.recorded(forge.publish(&new, &RuntimePause).await.map_err(Into::into)).await?;
        let step = GitStep::Requested { number: opened.number, url: opened.url.unwrap_or_default() };
        self.store.record_git_step(self.run_id, step, now_us()).await?;
        self.row().await
    }

    /// Merges the pull request if the branch is still the reviewed commit.
    ///
    /// # Errors
    /// [`PublicationError`]
    pub async fn merge(
        &self,
        forge: &Forge,
        summary: &RunSummary,
        head: &ObjectId,
        method: MergeMethod,
    ) -> Result<MergeOutcome, PublicationError> {
        if !self.project.may_merge {
            return Err(PublicationError::MergeIsOff);
        }
        let _lock = EXPORTS.lock(self.run_id).await;
        let row = self.row_at_project().await?;
        let number = row.pull_request.ok_or(PublicationError::NoPullRequest)?;
        if row.published_sha.as_deref() != Some(head.as_str()) {
            return Err(PublicationError::HeadMoved { head: row.published_sha.unwrap_or_default() });
        }
        let base = row.new.base_branch.as_deref().ok_or(PublicationError::NotPublished)?;
        let facts = self.facts(&row, summary);
        let (title, message) = (pull_request_text::title(&facts), pull_request_text::commit_message(&facts));
        let request = MergeRequest { method, head_sha: head.as_str(), base, title: &title, message: &message };
        let outcome = self.recorded(merge(forge, number, &request, &RuntimePause).await.map_err(Into::into)).await?;
        if let MergeOutcome::Merged { commit, .. } = &outcome {
            let sha = commit.clone().unwrap_or_else(|| head.as_str().to_owned());
            self.store.record_git_step(self.run_id, GitStep::Merged { sha }, now_us()).await?;
        }
        Ok(outcome)
    }

    fn repository(&self) -> Result<RunRepository, PublicationError> {
        self.home.run_repository(self.run_id)?.ok_or(PublicationError::NoClone)
    }

    /// Pushes the commit to the branch of the run at the forge, and returns its name there.
    async fn push(
        &self,
        row: &GitRun,
        repository: &RunRepository,
        head: &ObjectId,
    ) -> Result<String, PublicationError> {
        let (store, run_id, url) = (self.store, self.run_id, &self.project.url);
        let credentials = project_access::credentials(self.project).await?;
        let push = BranchPush { store, run_id, repository, url, credentials: &credentials, head };
        push.push(row).await
    }

    fn facts<'a>(&'a self, row: &'a GitRun, summary: &'a RunSummary) -> PullRequestFacts<'a> {
        PullRequestFacts {
            ticket: row.new.ticket.as_deref(),
            title: row.new.title.as_deref(),
            asked: &summary.asked,
            done: &summary.done,
            cost: &summary.cost,
            run_id: self.run_id.as_str(),
            audit_head: &summary.audit_head,
        }
    }

    /// Records a failure, and returns the result.
    async fn recorded<T>(&self, done: Result<T, PublicationError>) -> Result<T, PublicationError> {
        if let Err(error) = &done {
            let step = GitStep::Failed { error: error.public_text() };
            self.store.record_git_step(self.run_id, step, now_us()).await?;
        }
        done
    }
}

/// Returns true if the repository that the run began with is still the repository of the project, in any spelling of
/// its address.
#[must_use]
pub fn is_repository_of(row: &GitRun, project: &ProjectRepository) -> bool {
    RepositoryUrl::parse(&row.new.url).is_ok_and(|url| url.is_same_place(&project.url))
}

/// Checks whether the branch may be exported, and returns the commit to export.
fn admit(row: &GitRun, look: &BranchSummary, consent: &Consent) -> Result<ObjectId, PublicationError> {
    if row.new.publish == PublishRule::Never {
        return Err(PublicationError::Never);
    }
    if look.head == look.base {
        return Err(PublicationError::Nothing);
    }
    if consent.head.as_ref().is_some_and(|head| *head != look.head) {
        return Err(PublicationError::HeadMoved { head: look.head.to_string() });
    }
    // Unknown paths cannot be reviewed.
    if look.too_large {
        return Err(PublicationError::TooLarge);
    }
    let guarded = guarded_of(look);
    if !guarded.is_empty() && !consent.has_guarded {
        return Err(PublicationError::Guarded { head: look.head.to_string(), paths: guarded });
    }
    Ok(look.head.clone())
}

/// Returns the changed paths that need an approval, as text for people.
#[must_use]
pub fn guarded_of(look: &BranchSummary) -> Vec<String> {
    look.guarded().map(|(path, _)| visible_path(path)).collect()
}
