//! The branch of a one-shot run, in the state directory.

use serde_json::{Value, json};
use sluice_contract::{RunId, RunKey, exit};
use sluice_daemon::run_policy::Project;
use sluice_git::forge::{MergeMethod, MergeOutcome};
use sluice_git::{GitHome, ObjectId, RepositoryUrl, RunRepository, visible_path};
use sluice_runs::host::HostSettings;
use sluice_runs::project_access;
use sluice_runs::project_repository::ProjectRepository;
use sluice_runs::publication::{Consent, Publication, RunSummary, guarded_of};
use sluice_runs::run_clone::CloneReport;
use sluice_state::control_log::ControlEntry;
use sluice_state::layout::Layout;
use sluice_state::store::{Store, now_us};

use super::change::{BranchChange, PullRequestPlace, ShownCommit, ShownFile};
use crate::cli::error::CommandError;
use crate::cli::operator_record::{self, RecordedOperation};
use crate::cli::run::project_of;

/// Maximum size of a patch.
const PATCH_MAX: usize = 64 << 20;

/// A run with a clone.
pub(super) struct HostBranch {
    layout: Layout,
    store: Store,
    home: GitHome,
    project: ProjectRepository,
    run: RunId,
    key: RunKey,
    repository: RunRepository,
}

impl HostBranch {
    /// Opens the branch; `None` if the run has no clone.
    pub(super) async fn open(
        host: HostSettings,
        projects: &[Project],
        store: Store,
        key: &RunKey,
    ) -> Result<Option<Self>, CommandError> {
        let failed = |error: &dyn std::error::Error| CommandError::failed(error);
        let run = key.run_id.clone();
        let row = store.find_git_run(&run).await.map_err(|error| failed(&error))?;
        let Some(row) = row else { return Ok(None) };
        let url = RepositoryUrl::parse(&row.new.url).map_err(|error| failed(&error))?;
        let (_, project) = project_of(projects, &url);
        let home = host.git;
        let gone = || {
            let message = format!("the repository of run {run} was removed, since its time is over (record_keep)");
            CommandError::wrong_usage(message)
        };
        let repository = home.run_repository(&run).map_err(|error| failed(&error))?.ok_or_else(gone)?;
        if row.head_sha.is_none() {
            // The run's own command was killed before it recorded the branch.
            let report = CloneReport::of(&repository, &row.new.url, &row.new.branch, 0).await;
            for step in report.steps() {
                store.record_git_step(&run, step, now_us()).await.map_err(|error| failed(&error))?;
            }
        }
        let layout = Layout::at(&host.state_dir);
        Ok(Some(Self { layout, store, home, project, key: key.clone(), repository, run }))
    }

    pub(super) fn run(&self) -> &str {
        self.run.as_str()
    }

    fn publication(&self) -> Publication<'_> {
        Publication { store: &self.store, home: &self.home, project: &self.project, run_id: &self.run }
    }

    async fn summary(&self) -> Result<RunSummary, CommandError> {
        let summary = RunSummary::of_record(&self.layout.records(), &self.store, &self.key).await;
        summary.map_err(|error| CommandError::failed(&error))
    }

    pub(super) async fn change(&self) -> Result<BranchChange, CommandError> {
        let look = self.repository.look().await.map_err(|error| CommandError::failed(&error))?;
        let files = look.files.iter().map(|file| ShownFile {
            path: visible_path(&file.path),
            added: file.added,
            removed: file.removed,
        });
        let commits =
            look.commits.iter().map(|one| ShownCommit { id: one.id.to_string(), subject: one.subject.clone() });
        Ok(BranchChange {
            branch: self.repository.branch().ok().flatten().map(|branch| branch.to_string()),
            base: look.base.to_string(),
            head: look.head.to_string(),
            commits: commits.collect(),
            files: files.collect(),
            guarded: guarded_of(&look),
            is_too_large: look.too_large,
        })
    }

    pub(super) async fn patch(&self) -> Result<Vec<u8>, CommandError> {
        let patch = self.repository.diff(PATCH_MAX).await.map_err(|error| CommandError::failed(&error))?;
        let large = || CommandError { code: exit::FAILED, message: "the change is too large for a patch".to_owned() };
        patch.ok_or_else(large)
    }

    pub(super) async fn publish(&self, head: ObjectId, has_guarded: bool) -> Result<(String, String), CommandError> {
        let after = json!({ "head": head.to_string(), "accept_guarded": has_guarded });
        let recorded = self.begin("git.publish", after)?;
        let consent = Consent { head: Some(head), has_guarded };
        let published = self.publication().publish(&consent).await.map_err(|error| CommandError::failed(&error));
        let branch = recorded.end(published)?;
        Ok((branch, self.project.url.to_string()))
    }

    /// Records an operation on the branch before it takes effect.
    fn begin(&self, operation: &str, after: Value) -> Result<RecordedOperation, CommandError> {
        let entry = ControlEntry {
            operation: operation.to_owned(),
            object: Some(self.run.to_string()),
            after: Some(after),
            ..ControlEntry::default()
        };
        operator_record::begin(self.layout.state(), entry)
    }

    pub(super) async fn open_pull_request(&self) -> Result<PullRequestPlace, CommandError> {
        let recorded = self.begin("git.pull_request", json!({}))?;
        recorded.end(self.try_open_pull_request().await)
    }

    async fn try_open_pull_request(&self) -> Result<PullRequestPlace, CommandError> {
        let failed = |error| CommandError::failed(&error);
        let forge = project_access::forge(&self.project, &self.home).map_err(failed)?;
        let summary = self.summary().await?;
        let row = self.publication().open_pull_request(&forge, &summary).await.map_err(failed)?;
        Ok(PullRequestPlace { branch: row.new.branch, number: row.pull_request, url: row.pull_request_url })
    }

    pub(super) async fn merge(&self, head: &ObjectId, method: MergeMethod) -> Result<Option<String>, CommandError> {
        let recorded = self.begin("git.merge", json!({ "head": head.to_string(), "method": method.as_str() }))?;
        recorded.end(self.try_merge(head, method).await)
    }

    async fn try_merge(&self, head: &ObjectId, method: MergeMethod) -> Result<Option<String>, CommandError> {
        let failed = |error| CommandError::failed(&error);
        let forge = project_access::forge(&self.project, &self.home).map_err(failed)?;
        let outcome = self.publication().merge(&forge, &self.summary().await?, head, method).await.map_err(failed)?;
        let reason = match outcome {
            MergeOutcome::Merged { commit, .. } => return Ok(commit),
            MergeOutcome::HasConflicts => "it has conflicts with its base; let a new run resolve them".to_owned(),
            MergeOutcome::HeadMoved => "the branch has moved at the forge; look again".to_owned(),
            MergeOutcome::Refused(reason) => reason,
        };
        Err(CommandError { code: exit::FAILED, message: format!("the pull request was not merged: {reason}") })
    }
}
