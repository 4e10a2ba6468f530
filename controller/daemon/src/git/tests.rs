//! The end of a branch, after a crash between each two of its steps.

use std::fs::File;
use std::path::Path;
use std::process::Command;

use sluice_git::RunRepository;
use sluice_git::forge::{NewPullRequest, RuntimePause};
use sluice_runs::project_access;
use sluice_runs::project_repository::{ForgeKind, ForgeSettings, ProjectRepository};
use sluice_runs::publication::{Consent, Publication};
use sluice_runs::run_clone::CloneReport;
use sluice_state::git_runs::{GitStep, PublishRule};
use tempfile::TempDir;

use super::export::summary;
use super::*;
use crate::test_daemon::{TestDaemon, policy};

const BRANCH: &str = "feature/ABC-1";

fn git(directory: &Path, words: &[&str]) -> String {
    let identity = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "safe.directory=*"];
    let output = Command::new("git").args(identity).args(words).current_dir(directory).output().expect("there is git");
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
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
        let scratch = tempfile::tempdir().expect("there is room");
        let bare = scratch.path().join("forge.git");
        git(scratch.path(), &["init", "--quiet", "--initial-branch=main", "origin"]);
        git(&scratch.path().join("origin"), &["commit", "--quiet", "--allow-empty", "--message", "start"]);
        git(scratch.path(), &["clone", "--quiet", "--bare", "origin", "forge.git"]);
        let mut policy = policy();
        let url = sluice_git::RepositoryUrl::parse(&bare.display().to_string()).expect("an address");
        policy.projects[0].repository = Some(ProjectRepository {
            forge: ForgeSettings { kind: ForgeKind::Local, api: None },
            publish: PublishRule::Auto,
            ..ProjectRepository::of(url)
        });
        let daemon = TestDaemon::with_policy(Some(policy), |_| {}).await;
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
        let (name, email) = (clone.identity.name(), clone.identity.email());
        std::fs::write(work.join("text"), "one").expect("there is room");
        git(&work, &["add", "text"]);
        let committer = [&format!("user.name={name}"), &format!("user.email={email}")];
        git(&work, &["-c", committer[0], "-c", committer[1], "commit", "--quiet", "--message", "Add a file"]);
        let refs = [format!("refs/heads/{BRANCH}"), format!("^{}", repository.base())];
        git(&work, &["bundle", "create", "--quiet", "../bundle", &refs[0], &refs[1]]);
        let bundle = File::open(scratch.path().join("bundle")).expect("it was made");
        repository.import_bundle(bundle).await.expect("it is right");
        Self { daemon, run, repository, scratch }
    }

    /// Does the first of the steps, as a daemon has that is killed then.
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
                2 => {
                    let branch = BRANCH.parse().expect("a branch");
                    let none = sluice_git::Credentials::None;
                    repository.publish(&project.url, &none, &branch, &head, None).await.expect("it is free");
                }
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

    async fn report(&self) -> CloneReport {
        CloneReport::of(&self.repository, "x", BRANCH, 0).await
    }

    async fn kinds(&self) -> Vec<String> {
        let filter = EventFilter { sandbox_id: Some(self.run.key.run_id.to_string()), ..EventFilter::default() };
        let query = EventQuery { filter, limit: 100, ..EventQuery::default() };
        let page = self.daemon.store().list_events(query).await.expect("it is readable");
        let mut kinds: Vec<_> = page.events.into_iter().map(|event| event.event_type).collect();
        kinds.retain(|kind| kind.starts_with("git."));
        kinds.sort();
        kinds
    }
}

#[tokio::test]
async fn a_crash_between_any_steps_changes_no_end() {
    for count in 0..=7 {
        let test = CommittedRun::new().await;
        test.steps(count).await;
        let context = &test.daemon.running.context;

        complete(context, &test.run, &test.report().await, true).await;

        let bare = test.scratch.path().join("forge.git");
        let branches = git(&bare, &["for-each-ref", "--format=%(refname:lstrip=2) %(objectname)", "refs/heads/"]);
        let (base, head) = (test.repository.base(), test.repository.head().await.expect("it is readable"));
        assert_eq!(branches, format!("{BRANCH} {head}\nmain {base}"), "after {count} steps");
        let row = context.store.find_git_run(&test.run.key.run_id).await.expect("it is readable").expect("it is there");
        assert_eq!((row.pull_request, row.published_sha.as_deref()), (Some(1), Some(head.as_str())), "after {count}");
        assert_eq!((row.last_error, row.retry_count), (None, 0), "after {count} steps");
        assert_eq!(test.kinds().await, ["git.published", "git.pull_request", "git.received"], "after {count} steps");
    }
}
