//! Tests of reading pushed changes.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use sluice_git::guarded_paths::Guard;
use sluice_git::{ChangeStatus, GitHome, GitProgram, MirrorOptions, RepositoryUrl, visible_path};

use crate::support::raw_push::{WISHES, commands, pack, push};
use crate::support::{BRANCH, Host, Workspace, commit, git, run_id, text, write};

async fn workspace(host: &Host) -> Workspace {
    let origin = host.origin("origin");
    host.workspace(&origin, "r1", "http://localhost:8080").await
}

async fn send(run: &Workspace) {
    let (base, new) = (run.repository.head().await.expect("a head"), git(&run.directory, ["rev-parse", "HEAD"]));
    let list = commands(&[(base.as_str(), &new, &format!("refs/heads/{BRANCH}"))], WISHES);
    let objects = pack(&run.directory, &format!("{new}\n^{base}\n"), &[]);
    let received = push(&run.repository, &[list, objects].concat()).await;
    assert!(received.pushed.is_some(), "{:?}", received.refused);
}

#[tokio::test]
async fn a_look_has_both_paths_of_a_rename() {
    let host = Host::new();
    let run = workspace(&host).await;
    git(&run.directory, ["mv", "README.md", ".gitlab-ci.yml"]);
    write(&run.directory, "bin", [0, 1, 2]);
    let odd = std::ffi::OsStr::from_bytes(b"odd\n\x1b[31m\xff");
    std::fs::write(run.directory.join(odd), "x\n").expect("it is ours");
    commit(&run.directory, "one \x1b]0;title\x07");
    send(&run).await;
    let look = run.repository.look().await.expect("a look");
    let paths: Vec<String> = look.files.iter().map(|file| visible_path(&file.path)).collect();
    assert_eq!(paths, [".gitlab-ci.yml", "README.md", "bin", "odd\\n\\u{1b}[31m\\xff"]);
    assert_eq!(look.files[1].status, ChangeStatus::Deleted);
    assert_eq!((look.files[2].added, look.files[3].added), (None, Some(1)));
    assert_eq!((look.ahead, look.too_large), (1, false));
    assert_eq!(look.commits.len(), 1);
    assert!(!look.commits[0].subject.contains('\x1b'));
    let diff = run.repository.diff(1 << 20).await.expect("a diff").expect("it is small");
    assert!(String::from_utf8_lossy(&diff).contains("+++ b/.gitlab-ci.yml"));
    assert_eq!(run.repository.diff(100).await.expect("a diff"), None);
}

/// Bug: a list of commits that took too much CPU time was reported as a failure of the host.
#[tokio::test]
async fn a_look_that_the_kernel_ends_is_too_large() {
    let host = Host::new();
    let run = workspace(&host).await;
    commit(&run.directory, "one");
    send(&run).await;
    for (name, word) in [("git-commits", "rev-list"), ("git-guarded", "--stdin")] {
        let script = format!("case \" $* \" in *\" {word} \"*) kill -KILL $$;; esac\nexec /usr/bin/git \"$@\"");
        let home = host.with_git(name, &script);
        let repository = home.run_repository(&run_id("r1")).expect("a record").expect("a repository");
        assert!(repository.look().await.expect("a look").too_large, "{word}");
    }
}

/// Bug: a change of CI that the next commit took back was published without consent.
#[tokio::test]
async fn a_guarded_change_that_was_taken_back_counts() {
    let host = Host::new();
    let run = workspace(&host).await;
    write(&run.directory, ".github/workflows/x.yml", "on: push\n");
    commit(&run.directory, "add");
    git(&run.directory, ["rm", "-q", ".github/workflows/x.yml"]);
    commit(&run.directory, "remove");
    let entry = format!("160000,{},lib/vendored", "1".repeat(40));
    git(&run.directory, ["update-index", "--add", "--cacheinfo", &entry]);
    git(&run.directory, ["commit", "-q", "-m", "add a submodule"]);
    git(&run.directory, ["update-index", "--force-remove", "lib/vendored"]);
    git(&run.directory, ["commit", "-q", "-m", "remove it"]);
    send(&run).await;
    let look = run.repository.look().await.expect("a look");
    assert_eq!((look.files.len(), look.commits.len(), look.too_large), (0, 4, false));
    let expected = [(&b".github/workflows/x.yml"[..], Guard::Ci), (&b"lib/vendored"[..], Guard::Git)];
    assert_eq!(look.guarded().collect::<Vec<_>>(), expected);
}

/// The base has changed its CI since the commit at which the side branch begins.
#[tokio::test]
async fn a_merge_counts_only_for_its_own_changes() {
    let host = Host::new();
    let (origin, work) = (host.origin("origin"), host.path("origin.work"));
    let old = git(&work, ["rev-parse", "HEAD"]);
    write(&work, ".github/workflows/ci.yml", "on: push\n");
    commit(&work, "ci");
    git(&work, ["push", "-q", &text(&origin), "main"]);
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    git(&run.directory, ["checkout", "-q", "-b", "side", &old]);
    write(&run.directory, "a.txt", "a");
    commit(&run.directory, "side");
    git(&run.directory, ["checkout", "-q", BRANCH]);
    git(&run.directory, ["merge", "-q", "--no-ff", "--no-edit", "side"]);
    send(&run).await;
    let look = run.repository.look().await.expect("a look");
    assert_eq!((look.ahead, look.guarded().count()), (2, 0));

    git(&run.directory, ["checkout", "-q", "side"]);
    write(&run.directory, "b.txt", "b");
    commit(&run.directory, "more");
    git(&run.directory, ["checkout", "-q", BRANCH]);
    git(&run.directory, ["merge", "-q", "--no-ff", "--no-commit", "side"]);
    write(&run.directory, "CODEOWNERS", "* @me\n");
    commit(&run.directory, "merge");
    git(&run.directory, ["rm", "-q", "CODEOWNERS"]);
    commit(&run.directory, "remove");
    send(&run).await;
    let look = run.repository.look().await.expect("a look");
    assert_eq!(look.guarded().collect::<Vec<_>>(), [(&b"CODEOWNERS"[..], Guard::Reviewers)]);
}

/// Bug: an entry of a submodule was in no look and in no diff, so no person was asked about it.
#[tokio::test]
async fn a_submodule_is_seen_and_needs_an_approval() {
    let host = Host::new();
    let run = workspace(&host).await;
    let entry = format!("160000,{},lib/vendored", "1".repeat(40));
    git(&run.directory, ["update-index", "--add", "--cacheinfo", &entry]);
    git(&run.directory, ["commit", "-q", "-m", "one"]);
    send(&run).await;
    let look = run.repository.look().await.expect("a look");
    assert_eq!(look.files.len(), 1);
    assert_eq!(look.guarded().collect::<Vec<_>>(), [(&b"lib/vendored"[..], Guard::Git)]);
    let diff = run.repository.diff(1 << 20).await.expect("a diff").expect("it is small");
    assert!(String::from_utf8_lossy(&diff).contains("+Subproject commit 1111"));
}

#[tokio::test]
async fn a_look_at_too_many_paths_is_an_answer() {
    let host = Host::new();
    let run = workspace(&host).await;
    for number in 0..5001 {
        write(&run.directory, &format!("many/{number}"), "x");
    }
    commit(&run.directory, "many");
    send(&run).await;
    let look = run.repository.look().await.expect("a look");
    assert!(look.too_large);
    assert_eq!(look.files.len(), 5000);
}

/// The repository has drivers, as a git that was compromised before could have left them.
#[tokio::test]
async fn attributes_of_the_sandbox_start_nothing() {
    let host = Host::new();
    let run = workspace(&host).await;
    let repository = host.path("state/git/runs/r1.git");
    let driver = host.path("driver");
    std::fs::write(&driver, "#!/bin/sh\necho canary\n").expect("it is ours");
    std::fs::set_permissions(&driver, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
    for setting in ["diff.evil.textconv", "diff.evil.command", "core.fsmonitor"] {
        git(&repository, ["config", setting, driver.to_str().expect("plain")]);
    }
    write(&repository, "info/attributes", "* diff=evil filter=evil merge=evil\n");
    write(&run.directory, ".gitattributes", "* diff=evil filter=evil merge=evil\n");
    write(&run.directory, "a.txt", "x\n");
    commit(&run.directory, "one");
    send(&run).await;
    // A child without confinement could start the driver.
    let home = GitHome::new(host.path("state/git"), GitProgram::unconfined("/usr/bin/git".into()));
    let repository = home.run_repository(&run_id("r1")).expect("a record").expect("a repository");
    repository.look().await.expect("a look");
    let diff = repository.diff(1 << 20).await.expect("a diff").expect("it is small");
    let diff = String::from_utf8_lossy(&diff);
    assert!(diff.contains("+* diff=evil") && diff.contains("+x\n") && !diff.contains("canary"), "{diff}");
}

#[tokio::test]
async fn an_unknown_base_has_no_distance() {
    let host = Host::new();
    let origin = host.origin("origin");
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    let (url, main) = (RepositoryUrl::parse(&text(&origin)).expect("an address"), "main".parse().expect("a branch"));
    let unknown = "1".repeat(40).parse().expect("an id");
    let (own, other) = (MirrorOptions::default(), MirrorOptions { depth: Some(1), ..MirrorOptions::default() });
    let base = run.repository.base();
    for (options, branch, base, expected) in [
        (&own, &main, base, Some(0)),
        (&own, &main, &unknown, None),
        (&own, &"gone".parse().expect("a branch"), base, None),
        (&other, &main, base, None),
    ] {
        let found = host.home.commits_since(&url, options, branch, base).await.expect("no fault");
        assert_eq!(found, expected, "{branch} since {base}");
    }
}
