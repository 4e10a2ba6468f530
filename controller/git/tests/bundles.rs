//! The bundle at the end of a run.

use std::fs::{self, File};

use sluice_git::GitError;

use crate::support::raw_push::{WISHES, commands, pack, push};
use crate::support::{BRANCH, Host, Workspace, commit, git, listing, text, write};

const WIP: &str = "refs/sluice/wip/r1";

async fn workspace(host: &Host) -> Workspace {
    let origin = host.origin("origin");
    host.workspace(&origin, "r1", "http://localhost:8080").await
}

/// Makes a bundle as the helper container does.
fn bundle(host: &Host, run: &Workspace, refs: &[&str]) -> File {
    let path = host.path("run.bundle");
    let base = format!("^{}", run.repository.base());
    let path_text = text(&path);
    let words = ["bundle", "create", "-q", &path_text, &base].into_iter().chain(refs.iter().copied());
    git(&run.directory, words);
    File::open(path).expect("a bundle")
}

/// Makes a commit of the work tree under the ref for uncommitted changes.
fn snapshot(run: &Workspace) -> String {
    git(&run.directory, ["stash", "push", "-q", "--include-untracked"]);
    let id = git(&run.directory, ["rev-parse", "stash@{0}"]);
    git(&run.directory, ["update-ref", WIP, &id]);
    id
}

#[tokio::test]
async fn a_bundle_brings_commits_and_uncommitted_work() {
    let host = Host::new();
    let run = workspace(&host).await;
    write(&run.directory, "a.txt", "a");
    let new = commit(&run.directory, "one");
    write(&run.directory, "README.md", "SECRET=1");
    let wip = snapshot(&run);
    let file = bundle(&host, &run, &[&format!("refs/heads/{BRANCH}"), WIP]);
    let imported = run.repository.import_bundle(file).await.expect("it is accepted");
    assert_eq!(imported.pushed.map(|push| push.new.to_string()), Some(new.clone()));
    assert_eq!(imported.uncommitted.map(|id| id.to_string()), Some(wip));
    assert_eq!(run.repository.head().await.expect("a head").as_str(), new);
    let advertised = String::from_utf8(run.repository.advertise().await.expect("it is made")).expect("text");
    assert!(!advertised.contains("wip"));
    let again = run.repository.import_bundle(File::open(host.path("run.bundle")).expect("a bundle")).await;
    assert_eq!(again.expect("it is accepted").pushed, None);
}

#[tokio::test]
async fn a_branch_behind_its_pushes_is_nothing_new() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = run.repository.base().to_string();
    let first = commit(&run.directory, "one");
    let second = commit(&run.directory, "two");
    let reference = format!("refs/heads/{BRANCH}");
    let objects = pack(&run.directory, &format!("{second}\n^{base}\n"), &[]);
    let pushed = push(&run.repository, &[commands(&[(&base, &second, &reference)], WISHES), objects].concat()).await;
    assert!(pushed.pushed.is_some(), "{:?}", pushed.refused);
    git(&run.directory, ["reset", "-q", "--hard", &first]);
    write(&run.directory, "README.md", "more");
    let wip = snapshot(&run);
    let imported = run.repository.import_bundle(bundle(&host, &run, &[&reference, WIP])).await.expect("it is accepted");
    assert_eq!((imported.pushed, imported.uncommitted.map(|id| id.to_string())), (None, Some(wip)));
    assert_eq!(run.repository.head().await.expect("a head").as_str(), second);
}

#[tokio::test]
async fn hostile_bundles_change_nothing() {
    let host = Host::new();
    let run = workspace(&host).await;
    commit(&run.directory, "one");
    git(&run.directory, ["branch", "other"]);
    let before = listing(&host.path("state/git/runs/r1.git"));
    let file = bundle(&host, &run, &["refs/heads/other"]);
    let refused = run.repository.import_bundle(file).await;
    assert!(matches!(refused, Err(GitError::Bundle(_))), "{refused:?}");
    let whole = {
        bundle(&host, &run, &[&format!("refs/heads/{BRANCH}")]);
        fs::read(host.path("run.bundle")).expect("a bundle")
    };
    let cut = run.repository.import(&whole[..whole.len() - 25]).await;
    assert!(matches!(cut, Err(GitError::Refused(_))), "{cut:?}");
    for bytes in [&b""[..], b"# v2 git bundle\n", &[b'a'; 100_000], &[b'\n'; 10]] {
        assert!(run.repository.import(bytes).await.is_err());
    }
    let directory = File::open(&run.directory).expect("a directory");
    assert!(run.repository.import_bundle(directory).await.is_err());
    assert_eq!(listing(&host.path("state/git/runs/r1.git")), before);
    run.repository.import(&whole[..]).await.expect("it is accepted");
}

#[tokio::test]
async fn notes_name_the_attempt_of_each_commit() {
    let host = Host::new();
    let run = workspace(&host).await;
    let own = host.path("state/git/runs/r1.git");
    let reference = format!("refs/heads/{BRANCH}");
    let note = |commit: &str| git(&own, ["-c", "safe.directory=*", "notes", "--ref=sluice", "show", commit]);
    run.repository.note_commits(&"r1.0".parse().expect("a key"), Some("abc")).await.expect("there is nothing to note");
    let first = commit(&run.directory, "one");
    let second = commit(&run.directory, "two");
    run.repository.import_bundle(bundle(&host, &run, &[&reference])).await.expect("it is accepted");

    run.repository.note_commits(&"r1.0".parse().expect("a key"), Some("abc")).await.expect("there is room");
    let third = commit(&run.directory, "three");
    run.repository.import_bundle(bundle(&host, &run, &[&reference])).await.expect("it is accepted");
    for _ in 0..2 {
        run.repository.note_commits(&"r1.1".parse().expect("a key"), None).await.expect("there is room");
    }

    let of_first = "Sluice-Run: r1.0\nSluice-Audit-Head: abc";
    assert_eq!([note(&first), note(&second), note(&third)], [of_first, of_first, "Sluice-Run: r1.1"]);
    let count = git(&own, ["-c", "safe.directory=*", "rev-list", "--count", "refs/notes/sluice"]);
    assert_eq!(count, "2", "the same notes are not made again");
    let advertised = String::from_utf8(run.repository.advertise().await.expect("it is made")).expect("text");
    assert!(!advertised.contains("notes"), "{advertised}");
}
