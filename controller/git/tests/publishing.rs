//! The run's branch at a forge.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use hyper::Response;
use sluice_git::{Branch, Credentials, GitError, ObjectId, Published, RepositoryUrl, SecretText};

use crate::support::forge::{TOKEN, USER, allow_pushes, forge};
use crate::support::http::{Whole, serve};
use crate::support::raw_push::{WISHES, commands, pack, push};
use crate::support::{BRANCH, Host, Workspace, commit, git, text};

async fn send(run: &Workspace) -> ObjectId {
    let base = run.repository.head().await.expect("a head");
    let new = commit(&run.directory, "more");
    let list = commands(&[(base.as_str(), &new, &format!("refs/heads/{BRANCH}"))], WISHES);
    let objects = pack(&run.directory, &format!("{new}\n^{base}\n"), &[]);
    push(&run.repository, &[list, objects].concat()).await.pushed.expect("it is accepted").new
}

fn at(bare: &Path, branch: &str) -> String {
    git(bare, ["rev-parse", &format!("refs/heads/{branch}")])
}

/// Publishes to the same bare repository at an address.
async fn publishes(host: &Host, url: &RepositoryUrl, credentials: &Credentials) {
    let bare = host.path("origin.git");
    let run = host.workspace(&bare, "r1", "http://localhost:8080").await;
    let target: Branch = BRANCH.parse().expect("a branch");
    let publish = async |target: &Branch, head: &ObjectId, lease: Option<&ObjectId>| {
        run.repository.publish(url, credentials, target, head, lease).await
    };
    let first = send(&run).await;
    assert_eq!(publish(&target, &first, None).await.expect("it is new"), Published::Pushed);
    assert_eq!(at(&bare, BRANCH), first.to_string());
    assert_eq!(publish(&target, &first, None).await.expect("after a crash"), Published::AlreadyThere);
    let second = send(&run).await;
    assert!(matches!(publish(&target, &first, None).await, Err(GitError::NotTheHead { .. })));
    assert!(matches!(publish(&target, &second, None).await, Err(GitError::BranchTaken { .. })));
    assert_eq!(publish(&target, &second, Some(&first)).await.expect("it moved"), Published::Pushed);
    let third = send(&run).await;
    assert!(matches!(publish(&target, &third, Some(&first)).await, Err(GitError::BranchMoved { .. })));
    let other: Branch = format!("{BRANCH}-2").parse().expect("a branch");
    assert_eq!(publish(&other, &third, None).await.expect("it is new"), Published::Pushed);
    assert_eq!((at(&bare, BRANCH), at(&bare, other.as_str())), (second.to_string(), third.to_string()));
    let refs = git(&bare, ["for-each-ref", "--format=%(refname)"]);
    assert!(!refs.contains("sluice"), "{refs}");
    git(&bare, ["fsck", "--strict"]);
}

#[tokio::test]
async fn a_branch_is_published_to_a_directory() {
    let host = Host::new();
    let origin = host.origin("origin");
    let url = RepositoryUrl::parse(&text(&origin)).expect("an address");
    publishes(&host, &url, &Credentials::None).await;
}

/// A bare repository with the last of three commits.
fn shallow_origin(host: &Host) -> PathBuf {
    host.origin("whole");
    let (work, bare) = (host.path("whole.work"), host.path("origin.git"));
    commit(&work, "second");
    commit(&work, "third");
    let address = format!("file://{}", text(&work));
    git(host.scratch.path(), ["clone", "-q", "--bare", "--depth", "1", &address, &text(&bare)]);
    bare
}

fn count(repository: &Path, revision: &str) -> String {
    git(repository, ["rev-list", "--count", revision])
}

/// Bug: the boundary that a history once had was written into the directory again, and hid its first commits.
#[tokio::test]
async fn publishing_leaves_the_history_of_a_directory() {
    let host = Host::new();
    let origin = shallow_origin(&host);
    let url = RepositoryUrl::parse(&text(&origin)).expect("an address");
    let early = host.workspace(&origin, "r1", "http://localhost:8080").await;
    assert_eq!(count(&early.directory, "HEAD"), "1");
    git(&origin, ["fetch", "-q", "--unshallow", "origin"]);
    let late = host.workspace(&origin, "r2", "http://localhost:8080").await;
    assert_eq!(count(&late.directory, "HEAD"), "3", "the mirror follows the directory");
    for (run, name) in [(&early, "feature/early"), (&late, "feature/late")] {
        let head = send(run).await;
        let target: Branch = name.parse().expect("a branch");
        let published = run.repository.publish(&url, &Credentials::None, &target, &head, None).await;
        assert_eq!(published.expect("it is new"), Published::Pushed);
        assert_eq!((count(&origin, "main"), count(&origin, name)), ("3".to_owned(), "4".to_owned()), "{name}");
        assert!(!origin.join("shallow").exists(), "{name}");
    }
    git(&origin, ["fsck", "--strict"]);
}

#[tokio::test]
async fn a_directory_without_the_base_gets_no_branch() {
    let host = Host::new();
    let origin = shallow_origin(&host);
    let url = RepositoryUrl::parse(&text(&origin)).expect("an address");
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    let head = send(&run).await;
    std::fs::remove_dir_all(&origin).expect("it is ours");
    git(host.scratch.path(), ["init", "-q", "--bare", &text(&origin)]);
    let target: Branch = BRANCH.parse().expect("a branch");
    let refused = run.repository.publish(&url, &Credentials::None, &target, &head, None).await;
    let Err(GitError::PushRefused { reason, .. }) = refused else { panic!("{refused:?}") };
    assert!(reason.contains("git fetch --unshallow"), "{reason}");
    assert_eq!((git(&origin, ["for-each-ref"]), origin.join("shallow").exists()), (String::new(), false));
}

#[tokio::test]
async fn a_branch_is_published_over_http() {
    let host = Host::new();
    allow_pushes(&host.origin("origin"));
    let (server, _) = forge(host.scratch.path(), true).await;
    let url = RepositoryUrl::parse(&format!("{}/origin.git", server.address)).expect("an address");
    let token = Credentials::Token { username: USER.to_owned(), token: SecretText::new(TOKEN.to_owned()) };
    publishes(&host, &url, &token).await;
}

/// Bug: a push of the sandbox was read while the token was in a file of the same repository.
#[tokio::test]
async fn the_repository_is_locked_while_the_token_is_there() {
    let host = Host::new();
    let origin = host.origin("origin");
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    let head = send(&run).await;
    let locked = Arc::new(Mutex::new(Vec::new()));
    let (seen, lock) = (Arc::clone(&locked), host.path("state/git/runs/r1.lock"));
    let server = serve(move |_| {
        let file = std::fs::File::options().write(true).open(&lock).expect("a lock");
        seen.lock().expect("no panic").push(file.try_lock().is_err());
        async { Response::builder().status(500).body(Whole::new(Vec::new())).expect("a response") }
    })
    .await;
    let url = RepositoryUrl::parse(&format!("{}/origin.git", server.address)).expect("an address");
    let token = Credentials::Token { username: USER.to_owned(), token: SecretText::new(TOKEN.to_owned()) };
    let target: Branch = BRANCH.parse().expect("a branch");
    let failed = run.repository.publish(&url, &token, &target, &head, None).await;
    assert!(matches!(failed, Err(GitError::Failed { .. })), "{failed:?}");
    assert_eq!(*locked.lock().expect("no panic"), [true]);
}

#[tokio::test]
async fn a_refusal_of_the_forge_is_told() {
    let host = Host::new();
    let origin = host.origin("origin");
    allow_pushes(&origin);
    let hook = origin.join("hooks/pre-receive");
    std::fs::create_dir_all(origin.join("hooks")).expect("it is ours");
    std::fs::write(&hook, "#!/bin/sh\nexit 1\n").expect("it is ours");
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    let (server, _) = forge(host.scratch.path(), false).await;
    let url = RepositoryUrl::parse(&format!("{}/origin.git", server.address)).expect("an address");
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    let head = send(&run).await;
    let target: Branch = BRANCH.parse().expect("a branch");
    let refused = run.repository.publish(&url, &Credentials::None, &target, &head, None).await;
    let Err(GitError::PushRefused { reason, .. }) = refused else { panic!("{refused:?}") };
    assert_eq!(reason, "[remote rejected] (pre-receive hook declined)");
}
