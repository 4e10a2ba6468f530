//! Hostile pushes: each is refused, leaves nothing, and starts nothing.

use std::fs;
use std::io::Write as _;

use sluice_git::{GitError, RunRepository};

use crate::support::delta_bomb::delta_chain;
use crate::support::raw_push::{WISHES, ZERO, commands, feed, line, pack, push};
use crate::support::{BRANCH, Host, Workspace, branch, commit, git, identity, listing, write};

const REF: &str = "refs/heads/feature/AB-1-add-x";

async fn workspace(host: &Host) -> Workspace {
    let origin = host.origin("origin");
    host.workspace(&origin, "r1", "http://localhost:8080").await
}

/// Sends a push that has to be refused with these words, and leave everything as it was.
async fn refused(host: &Host, repository: &RunRepository, body: &[u8], words: &str) {
    let before = listing(&host.path("state/git/runs/r1.git"));
    let received = push(repository, body).await;
    assert!(received.pushed.is_none());
    let reason = received.refused.unwrap_or_default();
    assert!(reason.contains(words), "{reason:?} has no {words:?}");
    assert_eq!(listing(&host.path("state/git/runs/r1.git")), before);
}

fn head(run: &Workspace) -> String {
    git(&run.directory, ["rev-parse", "HEAD"])
}

#[tokio::test]
async fn wrong_commands_are_refused_before_git_starts() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let new = commit(&run.directory, "one");
    let objects = pack(&run.directory, &format!("{new}\n^{base}\n"), &[]);
    let sub = format!("{REF}/sub");
    let cert = [line("push-cert\0 report-status"), b"0000".to_vec()].concat();
    let shallow = [line(&format!("shallow {base}")), commands(&[(&base, &new, REF)], WISHES)].concat();
    let many: Vec<(&str, &str, &str)> = vec![(&base, &new, REF); 1000];
    for (list, words) in [
        (commands(&[(&base, &new, REF), (ZERO, &new, "refs/heads/y")], WISHES), "one branch"),
        (commands(&[(&base, &new, REF), (&base, &new, REF)], WISHES), "one branch"),
        (commands(&many, WISHES), "more than 64 commands"),
        (commands(&[(ZERO, &new, &sub)], WISHES), "only the branch"),
        (commands(&[(&base, &new, "HEAD")], WISHES), "only the branch"),
        (commands(&[(&base, &new, "refs/sluice/base")], WISHES), "only the branch"),
        (commands(&[(&base, ZERO, REF)], WISHES), "cannot be deleted"),
        (commands(&[(ZERO, &new, REF)], WISHES), "the branch is at"),
        (commands(&[(&base, &new, REF)], "report-status push-options"), "not offered"),
        (cert, "signed pushes"),
        (shallow, "was cut"),
        (b"zzzz".to_vec(), "not in the form of git"),
    ] {
        refused(&host, &run.repository, &[list, objects.clone()].concat(), words).await;
    }
    refused(&host, &run.repository, b"00", "ends inside").await;
    let good = [commands(&[(&base, &new, REF)], WISHES), objects].concat();
    assert!(push(&run.repository, &good).await.pushed.is_some());
}

#[tokio::test]
async fn objects_of_another_run_cannot_be_named() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let other = host.workspace(&host.path("origin.git"), "r2", "http://localhost:8080").await;
    write(&other.directory, "secret.txt", "hidden");
    let secret = commit(&other.directory, "secret");
    let list = commands(&[(&base, &secret, REF)], WISHES);
    let mine = pack(&other.directory, &format!("{secret}\n^{base}\n"), &[]);
    assert!(push(&other.repository, &[list.clone(), mine].concat()).await.pushed.is_some());
    let empty = pack(&run.directory, &format!("{base}\n^{base}\n"), &[]);
    refused(&host, &run.repository, &[list, empty].concat(), "are missing").await;
}

#[tokio::test]
async fn packs_without_all_objects_are_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let noise: String = (0..2000).map(|number| format!("line {number}\n")).collect();
    write(&run.directory, "a.txt", &noise);
    let first = commit(&run.directory, "first");
    write(&run.directory, "a.txt", format!("{noise}more\n"));
    let second = commit(&run.directory, "second");
    let list = commands(&[(&base, &second, REF)], WISHES);
    let thin = pack(&run.directory, &format!("{second}\n^{first}\n"), &["--thin"]);
    refused(&host, &run.repository, &[list.clone(), thin].concat(), "not accepted").await;
    let gap = pack(&run.directory, &format!("{second}\n^{first}\n"), &[]);
    refused(&host, &run.repository, &[list.clone(), gap].concat(), "did not receive expected object").await;
    let mut broken = pack(&run.directory, &format!("{second}\n^{base}\n"), &[]);
    let middle = broken.len() / 2;
    broken[middle] ^= 1;
    refused(&host, &run.repository, &[list.clone(), broken].concat(), "not accepted").await;
    refused(
        &host,
        &run.repository,
        &[list.clone(), b"PACK\0\0\0\x02\xff\xff\xff\xff".to_vec()].concat(),
        "objects, and at most",
    )
    .await;
    refused(&host, &run.repository, &[list.clone(), b"KCAP\0\0\0\x02\0\0\0\x01".to_vec()].concat(), "cannot be read")
        .await;
    let good = pack(&run.directory, &format!("{second}\n^{base}\n"), &[]);
    refused(&host, &run.repository, &[list.clone(), good[..good.len() - 30].to_vec()].concat(), "not accepted").await;
    assert!(push(&run.repository, &[list, good].concat()).await.pushed.is_some());
}

#[tokio::test]
async fn a_forged_committer_is_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    git(&run.directory, ["config", "user.email", "boss@example.org"]);
    let forged = commit(&run.directory, "forged");
    git(&run.directory, ["config", "user.email", "r1@sluice.invalid"]);
    let new = commit(&run.directory, "honest");
    let objects = pack(&run.directory, &format!("{new}\n^{base}\n"), &[]);
    let body = [commands(&[(&base, &new, REF)], WISHES), objects].concat();
    refused(&host, &run.repository, &body, &format!("commit {forged} has another committer")).await;
}

/// Makes a commit of a tree that only the sandbox's own git would write.
fn commit_of(run: &Workspace, tree: &str, base: &str) -> String {
    let words = ["hash-object", "-t", "commit", "-w", "--stdin", "--literally"];
    let who = "Sluice r1 <r1@sluice.invalid> 1700000000 +0000";
    let text = format!("tree {tree}\nparent {base}\nauthor {who}\ncommitter {who}\n\nx\n");
    String::from_utf8(feed(&run.directory, &words, text.as_bytes())).expect("text").trim().to_owned()
}

fn tree_of(run: &Workspace, entries: &[(&str, &str, &str)]) -> String {
    let mut bytes = Vec::new();
    for (mode, name, id) in entries {
        bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        bytes.extend((0..20).map(|place| u8::from_str_radix(&id[2 * place..2 * place + 2], 16).expect("hex")));
    }
    let words = ["hash-object", "-t", "tree", "-w", "--stdin", "--literally"];
    String::from_utf8(feed(&run.directory, &words, &bytes)).expect("text").trim().to_owned()
}

fn blob_of(run: &Workspace, content: &[u8]) -> String {
    let id = feed(&run.directory, &["hash-object", "-w", "--stdin"], content);
    String::from_utf8(id).expect("text").trim().to_owned()
}

fn push_of(run: &Workspace, base: &str, new: &str) -> Vec<u8> {
    let objects = pack(&run.directory, &format!("{new}\n^{base}\n"), &[]);
    [commands(&[(base, new, REF)], WISHES), objects].concat()
}

#[tokio::test]
async fn trees_with_dangerous_names_are_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let blob = blob_of(&run, b"[core]\n\tfsmonitor = touch /tmp/canary\n");
    let inner = tree_of(&run, &[("100644", "config", &blob)]);
    for (mode, name, id) in [
        ("40000", ".git", &inner),
        ("40000", ".GIT", &inner),
        ("40000", "git~1", &inner),
        ("40000", ".g\u{200c}it", &inner),
        ("40000", "..", &inner),
        ("40000", ".", &inner),
        ("100644", "a/b", &blob),
        ("120000", ".gitmodules", &blob),
    ] {
        let new = commit_of(&run, &tree_of(&run, &[(mode, name, id)]), &base);
        refused(&host, &run.repository, &push_of(&run, &base, &new), "not accepted").await;
    }
    let twins = commit_of(&run, &tree_of(&run, &[("100644", "a", &blob), ("100644", "a", &blob)]), &base);
    refused(&host, &run.repository, &push_of(&run, &base, &twins), "not accepted").await;
    let url = blob_of(&run, b"[submodule \"x\"]\n\tpath = x\n\turl = --upload-pack=evil\n");
    let submodule = commit_of(&run, &tree_of(&run, &[("100644", ".gitmodules", &url)]), &base);
    refused(&host, &run.repository, &push_of(&run, &base, &submodule), "not accepted").await;
}

#[tokio::test]
async fn bombs_of_trees_are_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let blob = blob_of(&run, b"x");
    let mut bomb = tree_of(&run, &[("100644", "a", &blob)]);
    for _ in 0..10 {
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
        bomb = tree_of(&run, &names.map(|name| ("40000", name, &bomb[..])));
    }
    let new = commit_of(&run, &bomb, &base);
    refused(&host, &run.repository, &push_of(&run, &base, &new), "more than 1000000 files").await;
    let mut deep = tree_of(&run, &[("100644", "a", &blob)]);
    for _ in 0..64 {
        deep = tree_of(&run, &[("40000", "d", &deep)]);
    }
    let new = commit_of(&run, &deep, &base);
    refused(&host, &run.repository, &push_of(&run, &base, &new), "directories 65 deep").await;
}

/// Bug: the next attempt of a run wrote one blob under many names until the disk of the host was full.
#[tokio::test]
async fn one_blob_with_many_names_is_not_checked_out() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let mut tree = blob_of(&run, &vec![0; 1 << 20]);
    let names: Vec<String> = (0..26).map(|number| number.to_string()).map(|name| format!("d{name}")).collect();
    for mode in ["100644", "40000", "40000"] {
        let mut entries: Vec<(&str, &str, &str)> =
            names.iter().map(|name| (mode, name.as_str(), tree.as_str())).collect();
        entries.sort_unstable_by_key(|(_, name, _)| format!("{name}/"));
        tree = tree_of(&run, &entries);
    }
    let new = commit_of(&run, &tree, &base);
    assert!(push(&run.repository, &push_of(&run, &base, &new)).await.pushed.is_some());
    let again = host.path("again");
    let made = run.repository.clone_into(&again, &branch(), "http://localhost:8080", &identity()).await;
    assert!(matches!(made, Err(GitError::CheckoutSize { .. })), "{made:?}");
    assert!(!again.exists());
}

#[tokio::test]
async fn a_blob_that_inflates_is_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let mut file = fs::File::create(run.directory.join("zeros.bin")).expect("it is ours");
    for _ in 0..101 {
        file.write_all(&vec![0; 1 << 20]).expect("there is space");
    }
    let new = commit(&run.directory, "bomb");
    refused(&host, &run.repository, &push_of(&run, &base, &new), "remove the file from the commits").await;
}

/// The pack has less than 100 KB. Git reaches its memory limit, or the limit for one object refuses the pack.
#[tokio::test]
async fn chains_of_deltas_that_inflate_are_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let new = commit(&run.directory, "bomb");
    for (deltas, words) in [(16, "not accepted"), (11, "remove the file from the commits")] {
        let pack = delta_chain(deltas);
        assert!(pack.len() < 100_000, "{}", pack.len());
        refused(&host, &run.repository, &[commands(&[(&base, &new, REF)], WISHES), pack].concat(), words).await;
    }
    let good = push_of(&run, &base, &new);
    assert!(push(&run.repository, &good).await.pushed.is_some());
}

/// Bug: each push had a limit, but the number of pushes had none.
#[tokio::test]
async fn the_pushes_of_a_run_have_a_limit_together() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let new = commit(&run.directory, "one");
    let body = push_of(&run, &base, &new);
    let filler = host.path("state/git/runs/r1.git/objects/pack/pack-filler.keep");
    fs::File::create(&filler).and_then(|file| file.set_len(4 << 30)).expect("it is ours");
    refused(&host, &run.repository, &body, "more than 4 GiB together").await;
    fs::remove_file(&filler).expect("it is ours");
    assert!(push(&run.repository, &body).await.pushed.is_some());
}

/// Bug: the bytes of refused pushes did not count, so a run could have any amount of data read and checked.
#[tokio::test]
async fn refused_pushes_use_up_the_bytes_too() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let new = commit(&run.directory, "one");
    let body = push_of(&run, &base, &new);
    let record = |bytes: u64| run.repository.record_push(1, bytes, |_| true).expect("it is writable");
    // The list of commands is not a part of the pack, so the pack has room.
    record((4_u64 << 30) - body.len() as u64);
    assert!(push(&run.repository, &body).await.pushed.is_some());
    let next = commit(&run.directory, "two");
    record(body.len() as u64 - 50);
    refused(&host, &run.repository, &push_of(&run, &new, &next), "more than 4 GiB together").await;
}

#[tokio::test]
async fn ids_of_other_objects_are_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let blob = blob_of(&run, b"x");
    let tree = git(&run.directory, ["rev-parse", "HEAD^{tree}"]);
    for (id, words) in [(&blob, "is not a commit"), (&tree, "is not a commit")] {
        let objects = feed(&run.directory, &["pack-objects", "--stdout", "-q"], format!("{id}\n").as_bytes());
        let body = [commands(&[(&base, id, REF)], WISHES), objects].concat();
        refused(&host, &run.repository, &body, words).await;
    }
    assert_eq!(BRANCH, &REF["refs/heads/".len()..]);
}

#[tokio::test]
async fn a_second_push_at_once_is_refused() {
    let host = Host::new();
    let run = workspace(&host).await;
    let base = head(&run);
    let new = commit(&run.directory, "one");
    let body = push_of(&run, &base, &new);
    let lock = fs::File::options().write(true).open(host.path("state/git/runs/r1.lock")).expect("a lock");
    lock.lock().expect("it is free");
    refused(&host, &run.repository, &body, "another push").await;
    // A child of another test may have a copy of the descriptor.
    lock.unlock().expect("it is ours");
    assert!(push(&run.repository, &body).await.pushed.is_some());
}
