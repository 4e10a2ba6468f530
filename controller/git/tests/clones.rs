//! Mirrors, repositories of runs, and clones for workspaces.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use sluice_git::{Credentials, GitError, MirrorOptions, RepositoryUrl};

use crate::support::{BRANCH, Host, branch, commit, git, git_command, identity, run_id, text, write};

#[tokio::test]
async fn a_clone_has_its_own_objects() {
    let host = Host::new();
    let origin = host.origin("origin");
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    assert_eq!(fs::read_to_string(run.directory.join("README.md")).expect("a file"), "hello\n");
    assert_eq!(git(&run.directory, ["rev-parse", "--abbrev-ref", "HEAD"]), BRANCH);
    assert_eq!(git(&run.directory, ["remote", "get-url", "origin"]), "http://localhost:8080/git/r1.git");
    assert_eq!(git(&run.directory, ["config", "user.email"]), "r1@sluice.invalid");
    assert_eq!(git(&run.directory, ["status", "--porcelain"]), "");
    git(&run.directory, ["fsck", "--strict"]);
    let git_directory = run.directory.join(".git");
    assert!(!git_directory.join("objects/info/alternates").exists());
    assert!(!git_directory.join("hooks").exists());
    let config = fs::read_to_string(git_directory.join("config")).expect("a file");
    assert!(!config.contains(&text(host.scratch.path())), "{config}");
    for pack in fs::read_dir(git_directory.join("objects/pack")).expect("packs") {
        assert_eq!(pack.expect("an entry").metadata().expect("a file").nlink(), 1);
    }
}

#[tokio::test]
async fn repositories_belong_to_the_user_of_git_alone() {
    let host = Host::new();
    let origin = host.origin("origin");
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    let repository = host.path("state/git/runs/r1.git");
    let metadata = fs::metadata(&repository).expect("a directory");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o700);
    if nix::unistd::geteuid().is_root() {
        assert_eq!((metadata.uid(), metadata.gid()), (65522, 65522));
        assert_eq!(fs::metadata(run.directory.join("README.md")).expect("a file").uid(), 65522);
    }
    assert_eq!(
        git(&repository, ["for-each-ref", "--format=%(refname)"]),
        format!("refs/heads/{BRANCH}\nrefs/sluice/base")
    );
}

#[tokio::test]
async fn a_second_attempt_begins_at_the_pushed_head() {
    let host = Host::new();
    let origin = host.origin("origin");
    let server = crate::support::relay::relay(&host.home).await;
    let run = host.workspace(&origin, "r1", &server.address).await;
    let head = commit(&run.directory, "one");
    assert!(crate::support::git_async(&run.directory, ["push"]).await.0);
    let again = host.home.run_repository(&run_id("r1")).expect("a record").expect("a repository");
    let second = host.path("second");
    again.clone_into(&second, &branch(), "http://localhost:8080/git/r1.git", &identity()).await.expect("a clone");
    assert_eq!(git(&second, ["rev-parse", "HEAD"]), head);
    let other = again.clone_into(&host.path("third"), &"feature/y".parse().expect("a branch"), "x", &identity()).await;
    assert!(matches!(other, Err(GitError::OtherBranch { .. })));
    host.home.remove_run(&run_id("r1")).expect("removed");
    assert!(host.home.run_repository(&run_id("r1")).expect("no error").is_none());
}

/// Bug: a git that was killed left its locks, and no later run got the new commits of its base.
#[tokio::test]
async fn the_locks_of_a_killed_git_stop_no_fetch() {
    let host = Host::new();
    let origin = host.origin("origin");
    let (server, _) = crate::support::forge::forge(host.scratch.path(), false).await;
    let url = RepositoryUrl::parse(&format!("{}/origin.git", server.address)).expect("an address");
    let mirror =
        async || host.home.mirror(&url, &Credentials::None, &MirrorOptions::default()).await.expect("a mirror");
    mirror().await;
    let mirrors = host.path("state/git/mirrors");
    let mut entries = fs::read_dir(&mirrors).expect("mirrors").map(|entry| entry.expect("an entry").path());
    let repository = entries.find(|path| path.extension().is_some_and(|end| end == "git")).expect("a mirror");
    for reference in git(&repository, ["for-each-ref", "--format=%(refname)"]).lines().chain(["shallow", "HEAD"]) {
        fs::write(repository.join(format!("{reference}.lock")), "").expect("it is ours");
    }
    let work = host.path("origin.work");
    let head = commit(&work, "more");
    git(&work, ["push", "-q", &text(&origin), "main"]);
    assert_eq!(mirror().await.tip().as_str(), head);
}

/// Bug: after `rel`, a mirror could not fetch `rel/1`.
#[tokio::test]
async fn a_base_may_become_a_directory_of_branches() {
    let host = Host::new();
    let origin = host.origin("origin");
    let (server, _) = crate::support::forge::forge(host.scratch.path(), false).await;
    for address in [text(&origin), format!("{}/origin.git", server.address)] {
        let url = RepositoryUrl::parse(&address).expect("an address");
        for (old, new) in [("main", "rel"), ("rel", "rel/1"), ("rel/1", "main")] {
            git(&origin, ["branch", "-m", old, new]);
            let options = MirrorOptions { base: Some(new.parse().expect("a branch")), ..MirrorOptions::default() };
            let mirror = host.home.mirror(&url, &Credentials::None, &options).await.expect("a mirror");
            assert_eq!(mirror.tip().as_str(), git(&origin, ["rev-parse", new]));
        }
    }
}

#[tokio::test]
async fn an_unfinished_repository_is_made_again() {
    let host = Host::new();
    let origin = host.origin("origin");
    let mirror = host.mirror_of(&origin).await;
    fs::create_dir_all(host.path("state/git/runs/r1.new/objects")).expect("it is ours");
    fs::create_dir_all(host.path("state/git/runs/r1.git/objects")).expect("it is ours");
    let first = mirror.run_repository(&run_id("r1")).await.expect("a repository");
    let second = mirror.run_repository(&run_id("r1")).await.expect("a repository");
    assert_eq!((first.base(), first.base_branch().as_str()), (second.base(), "main"));
    assert_eq!(second.head().await.expect("a head"), *mirror.tip());
}

#[tokio::test]
async fn submodules_and_lfs_are_refused_unless_allowed() {
    let host = Host::new();
    for (name, file, content) in [
        ("a", ".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://example.org/x\n"),
        ("b", "deep/.gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n"),
    ] {
        let work = host.path(&format!("{name}.work"));
        let bare = host.origin(name);
        write(&work, file, content);
        commit(&work, "more");
        git(&work, ["push", "-q", &text(&bare), "main"]);
        let url = RepositoryUrl::parse(&text(&bare)).expect("an address");
        let refused = host.home.mirror(&url, &Credentials::None, &MirrorOptions::default()).await;
        match (name, refused.expect_err("it is refused")) {
            ("a", GitError::Submodules { .. }) | ("b", GitError::Lfs { .. }) => {}
            (name, error) => panic!("{name}: {error}"),
        }
        let options = MirrorOptions { without_submodules: true, without_lfs: true, ..MirrorOptions::default() };
        host.home.mirror(&url, &Credentials::None, &options).await.expect("it is allowed");
    }
}

#[tokio::test]
async fn the_default_branch_is_found_and_followed() {
    let host = Host::new();
    let origin = host.origin("origin");
    git(&origin, ["branch", "-m", "main", "trunk"]);
    git(&origin, ["symbolic-ref", "HEAD", "refs/heads/gone"]);
    let mirror = host.mirror_of(&origin).await;
    assert_eq!(mirror.base().as_str(), "trunk");
    let work = host.path("origin.work");
    let head = commit(&work, "more");
    git(&work, ["push", "-q", &text(&origin), "main:trunk"]);
    assert_eq!(host.mirror_of(&origin).await.tip().as_str(), head);
    git(&origin, ["branch", "-m", "trunk", "other"]);
    let url = RepositoryUrl::parse(&text(&origin)).expect("an address");
    let missing = host.home.mirror(&url, &Credentials::None, &MirrorOptions::default()).await;
    assert!(matches!(missing, Err(GitError::NoDefaultBranch { .. })));
    let options = MirrorOptions { base: Some("nope".parse().expect("a branch")), ..MirrorOptions::default() };
    let missing = host.home.mirror(&url, &Credentials::None, &options).await;
    assert!(matches!(missing, Err(GitError::UnknownBranch { .. })));
}

/// Bug: the host, as root, wrote the configuration of a clone through a link that a compromised git could have left.
#[tokio::test]
async fn the_host_follows_no_link_of_git() {
    let host = Host::new();
    let origin = host.origin("origin");
    host.mirror_of(&origin).await.run_repository(&run_id("r1")).await.expect("a repository");
    let victim = host.path("victim");
    write(&victim, "config", "mine");
    let path = text(&victim);
    for (name, replace) in [
        ("git-file", format!("ln -sf {path}/config .git/config")),
        ("git-directory", format!("mv .git ../moved && ln -s {path} .git")),
    ] {
        let script = format!("/usr/bin/git \"$@\" || exit\ncase \" $* \" in *\" checkout \"*) {replace};; esac");
        let home = host.with_git(name, &script);
        let repository = home.run_repository(&run_id("r1")).expect("a record").expect("a repository");
        let clone = host.path("r1.work");
        let made = repository.clone_into(&clone, &branch(), "http://localhost:8080", &identity()).await;
        assert!(matches!(made, Err(GitError::File { .. })), "{name}: {made:?}");
        assert_eq!(fs::read_to_string(victim.join("config")).expect("a file"), "mine", "{name}");
        assert!(!clone.exists());
    }
}

/// The configurations of both repositories have a program for the filter of the base, as a compromised git could have
/// left them.
#[tokio::test]
async fn a_hostile_base_runs_nothing_in_a_clone() {
    let host = Host::new();
    let bare = host.origin("origin");
    let work = host.path("origin.work");
    write(&work, ".gitattributes", "* filter=evil diff=evil text=auto\n");
    write(&work, "a.txt", "x");
    write(&work, "link/..x", "x");
    commit(&work, "attributes");
    git(&work, ["push", "-q", &text(&bare), "main"]);
    let repository = host.mirror_of(&bare).await.run_repository(&run_id("r1")).await.expect("a repository");
    for directory in [&bare, &host.path("state/git/runs/r1.git")] {
        for setting in ["filter.evil.smudge", "filter.evil.process", "core.fsmonitor"] {
            git(directory, ["config", setting, "echo canary"]);
        }
    }
    let clone = host.path("r1.work");
    repository.clone_into(&clone, &branch(), "http://localhost:8080", &identity()).await.expect("a clone");
    assert_eq!(fs::read_to_string(clone.join("a.txt")).expect("a file"), "x");
    let settings = git_command(&clone, ["config", "--get-regexp", "^(filter|core.fsmonitor|core.hookspath)"]).output();
    assert!(settings.expect("git starts").stdout.is_empty());
}
