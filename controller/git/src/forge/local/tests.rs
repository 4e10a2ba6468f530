use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::*;
use crate::forge::git::GitFuture;
use crate::forge::merge_request::MergeOutcome;
use crate::forge::tests::Counted;
use crate::forge::{Forge, merge};

/// Git in one bare repository, without the configuration of the person who runs the tests.
struct TestGit(PathBuf);

fn git(directory: &Path, arguments: &[&str]) -> (i32, Vec<u8>) {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs([
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_AUTHOR_DATE", "1700000000 +0000"),
        ])
        .output()
        .expect("git runs");
    (output.status.code().unwrap_or(-1), output.stdout)
}

impl RunGit for TestGit {
    fn run<'a>(&'a self, arguments: &'a [&'a str]) -> GitFuture<'a> {
        let (code, stdout) = git(&self.0, arguments);
        Box::pin(std::future::ready(Ok(GitOutput { code, stdout })))
    }
}

/// A bare repository with `main`, `feature/a` that changes one line, and `feature/b` that changes the same line.
struct Fixture {
    _directory: TempDir,
    bare: PathBuf,
    records: PathBuf,
    forge: Forge,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let bare = directory.path().join("bare.git");
        let (code, _) = git(directory.path(), &["init", "--quiet", "--bare", "--initial-branch=main", "bare.git"]);
        assert_eq!(code, 0);
        let records = directory.path().join("forge/records");
        let forge: Forge = LocalForge::new(Box::new(TestGit(bare.clone())), records.clone()).into();
        let fixture = Self { _directory: directory, bare, records, forge };
        let base = fixture.commit(&[], &[("README", "one\n"), ("x", "x\n")]);
        fixture.set("main", &base);
        fixture.set("feature/a", &fixture.commit(&[&base], &[("README", "two\n"), ("x", "x\n")]));
        fixture.set("feature/b", &fixture.commit(&[&base], &[("README", "three\n"), ("x", "x\n")]));
        fixture
    }

    fn git(&self, arguments: &[&str]) -> String {
        let (code, stdout) = git(&self.bare, arguments);
        assert_eq!(code, 0, "{arguments:?}");
        String::from_utf8(stdout).expect("it is text").trim().to_owned()
    }

    /// Commits these files without a work tree.
    fn commit(&self, parents: &[&str], files: &[(&str, &str)]) -> String {
        let mut lines = String::new();
        for (name, content) in files {
            let path = self.bare.join("content");
            std::fs::write(&path, content).expect("it is written");
            let blob = self.git(&["hash-object", "-w", path.to_str().expect("a path")]);
            lines += &format!("100644 {blob} 0\t{name}\n");
        }
        let index = self.bare.join("lines");
        std::fs::write(&index, lines).expect("it is written");
        let script = "rm -f index && git update-index --index-info <lines && git write-tree";
        let output = Command::new("sh")
            .args(["-c", script])
            .current_dir(&self.bare)
            .env("GIT_DIR", ".")
            .output()
            .expect("sh runs");
        let tree = String::from_utf8(output.stdout).expect("it is text").trim().to_owned();
        let mut arguments = vec!["-c", "user.name=t", "-c", "user.email=t@t", "commit-tree", &tree, "-m", "c"];
        arguments.extend(parents.iter().flat_map(|parent| ["-p", *parent]));
        self.git(&arguments)
    }

    fn set(&self, branch: &str, commit: &str) {
        self.git(&["update-ref", &format!("refs/heads/{branch}"), commit]);
    }

    fn at(&self, branch: &str) -> String {
        self.git(&["rev-parse", &format!("refs/heads/{branch}")])
    }

    async fn open(&self, head: &str) -> PullRequest {
        let head_sha = &self.at(head);
        let new = NewPullRequest { head, head_sha, base: "main", title: "t", body: "b", is_draft: true };
        self.forge.publish(&new, &Counted::default()).await.expect("it is opened")
    }

    async fn merge(&self, number: u64, method: MergeMethod, head_sha: &str) -> MergeOutcome {
        let request = MergeRequest { method, head_sha, base: "main", title: "ours", message: "Sluice-Run: r" };
        merge(&self.forge, number, &request, &Counted::default()).await.expect("it has an end")
    }
}

const NEW: NewPullRequest<'_> =
    NewPullRequest { head: "feature/a", head_sha: "", base: "main", title: "t", body: "b", is_draft: true };

#[tokio::test]
async fn a_pull_request_is_opened_once() {
    let fixture = Fixture::new();
    let first = fixture.open("feature/a").await;
    assert_eq!((first.number, first.is_draft, first.mergeable), (1, true, Some(true)));
    assert_eq!(fixture.open("feature/a").await, first);
    assert_eq!(fixture.open("feature/b").await.number, 2);
    let other = NewPullRequest { base: "other", ..NEW };
    assert_eq!(fixture.forge.find_pull_request(&other).await.expect("it answers"), None);
    let names: Vec<_> = std::fs::read_dir(&fixture.records)
        .expect("it is a directory")
        .map(|one| one.expect("one").file_name())
        .collect();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(matches!(fixture.forge.pull_request(3).await, Err(ForgeError::NotFound(_))));
    let new = NewPullRequest { head: "absent", ..NEW };
    assert!(matches!(fixture.forge.open_pull_request(&new).await, Err(ForgeError::NotFound(_))));
}

/// Bug: a second run on a ticket, with the same branch name, got the merged pull request of the first run.
#[tokio::test]
async fn a_second_run_gets_its_own_pull_request() {
    let fixture = Fixture::new();
    let first = fixture.open("feature/a").await;
    fixture.merge(first.number, MergeMethod::Squash, &first.head_sha).await;
    fixture.set("feature/a", &fixture.commit(&[&fixture.at("main")], &[("README", "three")]));
    let second = fixture.open("feature/a").await;
    assert_eq!((second.number, second.state), (2, PullRequestState::Open));
}

#[tokio::test]
async fn a_squash_is_one_commit_of_ours() {
    let fixture = Fixture::new();
    let (opened, base) = (fixture.open("feature/a").await, fixture.at("main"));

    let outcome = fixture.merge(opened.number, MergeMethod::Squash, &opened.head_sha).await;

    let commit = fixture.at("main");
    assert_eq!(outcome, MergeOutcome::Merged { commit: Some(commit.clone()), branch: BranchDeletion::Deleted });
    assert_eq!(
        fixture.git(&["log", "-1", "--format=%P|%cn|%an|%B", &commit]),
        format!("{base}|Sluice|Sluice|ours\n\nSluice-Run: r")
    );
    assert_eq!(fixture.git(&["show", "main:README"]), "two");
    assert_eq!(fixture.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/feature/b\nrefs/heads/main");
    // A second merge has the same result.
    assert_eq!(fixture.merge(opened.number, MergeMethod::Squash, &opened.head_sha).await, outcome);
    assert_eq!(fixture.at("main"), commit);
}

#[tokio::test]
async fn a_merge_has_both_parents_a_rebase_is_refused() {
    let fixture = Fixture::new();
    let (opened, base) = (fixture.open("feature/a").await, fixture.at("main"));
    let rebase = fixture.merge(opened.number, MergeMethod::Rebase, &opened.head_sha).await;
    assert_eq!(rebase, MergeOutcome::Refused("a local forge has no rebase; use squash or merge".into()));
    fixture.merge(opened.number, MergeMethod::Merge, &opened.head_sha).await;
    assert_eq!(fixture.git(&["log", "-1", "--format=%P", "main"]), format!("{base} {}", opened.head_sha));
}

#[tokio::test]
async fn conflicts_and_moved_heads_change_nothing() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.open("feature/a").await, fixture.open("feature/b").await);
    fixture.merge(a.number, MergeMethod::Squash, &a.head_sha).await;
    let main = fixture.at("main");
    assert_eq!(fixture.forge.pull_request(b.number).await.expect("it is there").mergeable, Some(false));
    assert_eq!(fixture.merge(b.number, MergeMethod::Squash, &b.head_sha).await, MergeOutcome::HasConflicts);
    fixture.set("feature/b", &main);
    assert_eq!(fixture.merge(b.number, MergeMethod::Squash, &b.head_sha).await, MergeOutcome::HeadMoved);
    assert_eq!(fixture.at("main"), main);
    assert_eq!(fixture.forge.delete_branch("feature/b", &b.head_sha).await.expect("it answers"), BranchDeletion::Moved);
    let kept = fixture.forge.delete_branch("main", &main).await.expect("it answers");
    assert_eq!(kept, BranchDeletion::Kept("it is the default branch".into()));
}

/// The controller is killed between the move of the base and the last record.
#[tokio::test]
async fn a_merge_that_a_crash_cut_off_is_found() {
    let fixture = Fixture::new();
    let opened = fixture.open("feature/a").await;
    fixture.merge(opened.number, MergeMethod::Squash, &opened.head_sha).await;
    let main = fixture.at("main");
    let path = fixture.records.join("1.json");
    let record = std::fs::read_to_string(&path).expect("it is there");
    std::fs::write(&path, record.replace("\"merged\"", "\"open\"")).expect("it is written");
    fixture.set("feature/a", &opened.head_sha);

    let outcome = fixture.merge(opened.number, MergeMethod::Squash, &opened.head_sha).await;

    assert!(matches!(outcome, MergeOutcome::Merged { .. }), "{outcome:?}");
    assert_eq!(fixture.at("main"), main);
}

/// Bug: the merge waited a minute in each of its attempts, and then failed as undecided.
#[tokio::test]
async fn a_merge_without_its_base_is_refused() {
    let fixture = Fixture::new();
    let opened = fixture.open("feature/a").await;
    fixture.git(&["update-ref", "-d", "refs/heads/main"]);
    let (method, head_sha) = (MergeMethod::Squash, &*opened.head_sha);
    let request = MergeRequest { method, head_sha, base: "main", title: "t", message: "m" };
    let pause = Counted::default();

    let outcome = merge(&fixture.forge, opened.number, &request, &pause).await.expect("it is decided");

    assert_eq!(outcome, MergeOutcome::Refused("one of its branches does not exist any more".into()));
    assert!(pause.seconds().is_empty(), "{pause:?}");
    assert!(fixture.forge.pull_request(opened.number).await.expect("it is there").is_draft);
}

#[tokio::test]
async fn the_default_branch_exists() {
    let fixture = Fixture::new();
    assert_eq!(fixture.forge.default_branch().await.expect("there is one"), "main");
    fixture.git(&["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    fixture.set("trunk", &fixture.at("main"));
    fixture.git(&["update-ref", "-d", "refs/heads/main"]);
    assert_eq!(fixture.forge.default_branch().await.expect("there is one"), "trunk");
}
