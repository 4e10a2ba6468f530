//! Tests of the publication of a branch: after a crash between any two steps, and for a repository, a rule or a size
//! that keeps the branch on this host. Tests of the push limits.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use sluice_git::forge::{NewPullRequest, RuntimePause};
use sluice_git::{ObjectId, RunRepository};
use sluice_runs::project_access;
use sluice_runs::project_repository::{ForgeKind, ForgeSettings, ProjectRepository};
use sluice_runs::publication::{Consent, Publication};
use sluice_runs::run_clone::CloneReport;
use sluice_state::events::LoggedEvent;
use sluice_state::git_runs::{BegunPush, GitStep, PublishRule};
use tempfile::TempDir;

use super::export::summary;
use super::*;
use crate::daemon::Daemon;
use crate::run_policy::RunPolicy;
use crate::test_daemon::{TestDaemon, policy};

mod exports;
mod pushes;

const BRANCH: &str = "feature/ABC-1";

fn git(directory: &Path, words: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "safe.directory=*"];
    let output = Command::new("git").args(identity).args(words).current_dir(directory).output().expect("there is git");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// Returns the policy with a project that has the bare repository.
fn policy_of(bare: &Path, publish: PublishRule) -> RunPolicy {
    let mut policy = policy();
    let url = sluice_git::RepositoryUrl::parse(&bare.display().to_string()).expect("an address");
    policy.projects[0].repository = Some(ProjectRepository {
        forge: ForgeSettings { kind: ForgeKind::Local, api: None },
        publish,
        ..ProjectRepository::of(url)
    });
    policy
}

/// A run with one commit in its repository, and the forge that does not have it.
struct CommittedRun {
    daemon: TestDaemon,
    run: Sandbox,
    repository: RunRepository,
    scratch: TempDir,
}

impl CommittedRun {
    async fn new() -> Self {
        Self::with(PublishRule::Auto).await
    }

    async fn with(publish: PublishRule) -> Self {
        let scratch = tempfile::tempdir().expect("there is room");
        let bare = scratch.path().join("forge.git");
        git(scratch.path(), &["init", "--quiet", "--initial-branch=main", "origin"]);
        git(&scratch.path().join("origin"), &["commit", "--quiet", "--allow-empty", "--message", "start"]);
        git(scratch.path(), &["clone", "--quiet", "--bare", "origin", "forge.git"]);
        let daemon = TestDaemon::with_policy(Some(policy_of(&bare, publish)), |_| {}).await;
        let request =
            json!({ "task": "x", "project": "site", "repository": { "ticket": "ABC-1", "pull_request": true } });
        let id = daemon.create("slu_alice", request).await.parse().expect("an id");
        let run = daemon.store().find_sandbox(None, &id).await.expect("it is readable").expect("it is there");
        let context = &daemon.running.context;
        let stored = context.stored_request(&id).await.expect("it is there").repository.expect("it has one");
        let clone = begin(context, &run, &stored).await.expect("it can begin");
        let mirror = clone.home.mirror(&clone.url, &clone.credentials, &clone.options).await.expect("it is there");
        let repository = mirror.run_repository(&id).await.expect("there is room");
        let work = scratch.path().join("work");
        repository.clone_into(&work, &clone.branch, "http://localhost/x.git", &clone.identity).await.expect("a clone");
        let made = Self { daemon, run, repository, scratch };
        made.commit("one").await;
        made
    }

    /// Commits a file in the clone, and imports the commit into the repository of the run.
    async fn commit(&self, text: &str) {
        let work = self.scratch.path().join("work");
        let identity = self.repository.identity().expect("it is readable").expect("it has one");
        std::fs::write(work.join("text"), text).expect("there is room");
        git(&work, &["add", "text"]);
        let committer = [format!("user.name={}", identity.name()), format!("user.email={}", identity.email())];
        git(&work, &["-c", &committer[0], "-c", &committer[1], "commit", "--quiet", "--message", "Change a file"]);
        let refs = [format!("refs/heads/{BRANCH}"), format!("^{}", self.repository.base())];
        git(&work, &["bundle", "create", "--quiet", "../bundle", &refs[0], &refs[1]]);
        let bundle = File::open(self.scratch.path().join("bundle")).expect("it was made");
        self.repository.import_bundle(bundle).await.expect("it is right");
    }

    async fn head(&self) -> String {
        self.repository.head().await.expect("it is readable").to_string()
    }

    async fn row(&self) -> GitRun {
        let found = self.daemon.store().find_git_run(&self.run.key.run_id).await;
        found.expect("it is readable").expect("it was begun")
    }

    /// Returns the branches of a bare repository with their commits.
    fn branches_of(&self, bare: &str) -> String {
        let bare = self.scratch.path().join(bare);
        git(&bare, &["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/"])
    }

    /// Returns the expected branches of a forge that has the run's branch at a commit.
    fn with_branch_at(&self, head: &str) -> String {
        format!("{BRANCH} {head}\nmain {}", self.repository.base())
    }

    /// Does the first `count` steps, like a daemon that is killed after them.
    async fn steps(&self, count: usize) {
        let Self { run, repository, .. } = self;
        let context = &self.daemon.running.context;
        let report = self.report().await;
        let project = project(context, run).expect("it has one");
        let publication = Publication { store: &context.store, home: &context.git, project, run_id: &run.key.run_id };
        let head = repository.head().await.expect("it is readable");
        let forge = project_access::forge(project, &context.git).expect("it is local");
        for step in 0..count {
            match step {
                0 => {
                    let (base_branch, base_sha) = (report.base_branch.clone(), report.base.clone());
                    let cloned = GitStep::Cloned { base_branch, base_sha };
                    context.store.record_git_step(&run.key.run_id, cloned, 1).await.expect("it is writable");
                }
                1 => complete(context, run, &report, false).await,
                2 => self.push_unrecorded(None).await,
                3 => {
                    let consent = Consent { head: Some(head.clone()), has_guarded: false };
                    publication.publish(&consent).await.expect("it is there");
                }
                4 => report_published(context, run, BRANCH, head.as_str()).await,
                5 => {
                    let new = NewPullRequest {
                        head: BRANCH,
                        head_sha: head.as_str(),
                        base: "main",
                        title: "x",
                        body: "x",
                        is_draft: true,
                    };
                    forge.publish(&new, &RuntimePause).await.expect("it is local");
                }
                _ => {
                    let summary = summary(context, run).await.expect("it is readable");
                    publication.open_pull_request(&forge, &summary).await.expect("it is local");
                }
            }
        }
    }

    /// Pushes the head to the forge, like a daemon that is killed before it records the end of the push.
    async fn push_unrecorded(&self, lease: Option<&ObjectId>) {
        let context = &self.daemon.running.context;
        let project = project(context, &self.run).expect("it has one");
        let head = self.repository.head().await.expect("it is readable");
        let begun = BegunPush { branch: BRANCH.to_owned(), sha: head.to_string() };
        context.store.begin_git_push(&self.run.key.run_id, begun).await.expect("it is writable");
        let (branch, none) = (BRANCH.parse().expect("a branch"), sluice_git::Credentials::None);
        self.repository.publish(&project.url, &none, &branch, &head, lease).await.expect("it is there");
    }

    /// Restarts the daemon. The project then has another repository.
    async fn restarted_with(mut self, bare: &str) -> Self {
        let policy = policy_of(&self.scratch.path().join(bare), PublishRule::Auto);
        self.daemon.running.stop().await;
        self.daemon.running = Daemon::start_with(&self.daemon.settings, Some(policy)).await.expect("it starts");
        self
    }

    async fn report(&self) -> CloneReport {
        CloneReport::of(&self.repository, "x", BRANCH, 0).await
    }

    async fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<_> = self.events().await.into_iter().map(|event| event.event_type).collect();
        kinds.retain(|kind| kind.starts_with("git."));
        kinds.sort();
        kinds
    }

    async fn events(&self) -> Vec<LoggedEvent> {
        let filter = EventFilter { sandbox_id: Some(self.run.key.run_id.to_string()), ..EventFilter::default() };
        let query = EventQuery { filter, limit: 100, ..EventQuery::default() };
        self.daemon.store().list_events(query).await.expect("it is readable").events
    }
}

#[tokio::test]
async fn a_crash_between_any_steps_changes_no_end() {
    for count in 0..=7 {
        let test = CommittedRun::new().await;
        test.steps(count).await;
        let context = &test.daemon.running.context;

        complete(context, &test.run, &test.report().await, true).await;

        let head = test.head().await;
        assert_eq!(test.branches_of("forge.git"), test.with_branch_at(&head), "after {count} steps");
        let row = test.row().await;
        assert_eq!((row.pull_request, row.published_sha.as_deref()), (Some(1), Some(head.as_str())), "after {count}");
        assert_eq!((row.last_error, row.retry_count), (None, 0), "after {count} steps");
        assert_eq!(test.kinds().await, ["git.published", "git.pull_request", "git.received"], "after {count} steps");
    }
}
