//! Pushes of an ordinary git client from a clone.

use crate::support::raw_push::push;
use crate::support::relay::relay;
use crate::support::{BRANCH, Host, Workspace, commit, git, git_async, write};

async fn started(host: &Host) -> (crate::support::http::Server, Workspace) {
    let server = relay(&host.home).await;
    let origin = host.origin("origin");
    let workspace = host.workspace(&origin, "r1", &server.address).await;
    (server, workspace)
}

#[tokio::test]
async fn two_plain_pushes_move_the_branch() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    for name in ["a.txt", "b.txt"] {
        write(&run.directory, name, "text\n");
        let head = commit(&run.directory, name);
        let (is_done, words) = git_async(&run.directory, ["push"]).await;
        assert!(is_done, "{words}");
        assert_eq!(run.repository.head().await.expect("a head").as_str(), head);
    }
    assert_eq!(git(&run.directory, ["status", "-sb"]), format!("## {BRANCH}...origin/{BRANCH}"));
    let (is_done, words) = git_async(&run.directory, ["push"]).await;
    assert!(is_done && words.contains("up-to-date"), "{words}");
}

/// Bug: a git that was killed left its lock, and every later push of the run failed.
#[tokio::test]
async fn the_lock_of_a_killed_git_stops_no_push() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    std::fs::write(host.path(&format!("state/git/runs/r1.git/refs/heads/{BRANCH}.lock")), "").expect("it is ours");
    let head = commit(&run.directory, "one");
    let (is_done, words) = git_async(&run.directory, ["push"]).await;
    assert!(is_done, "{words}");
    assert_eq!(run.repository.head().await.expect("a head").as_str(), head);
}

#[tokio::test]
async fn no_pack_is_read_beside_credentials() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    let left = host.path("state/git/runs/r1.git/secrets-left");
    std::fs::create_dir(&left).expect("it is ours");
    commit(&run.directory, "one");
    let (is_done, words) = git_async(&run.directory, ["push"]).await;
    assert!(is_done && !left.exists(), "{words}");
}

#[tokio::test]
async fn an_amended_commit_is_refused_with_the_way_out() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    let head = commit(&run.directory, "one");
    assert!(git_async(&run.directory, ["push"]).await.0);
    git(&run.directory, ["commit", "--amend", "-q", "--allow-empty", "-m", "other"]);
    let (is_done, words) = git_async(&run.directory, ["push", "--force"]).await;
    assert!(!is_done && words.contains("pushed commits stay; add new commits on top"), "{words}");
    assert!(words.contains(&format!("git reset --soft {head}")), "{words}");
    git(&run.directory, ["reset", "--soft", &head]);
    commit(&run.directory, "again");
    let (is_done, words) = git_async(&run.directory, ["push"]).await;
    assert!(is_done, "{words}");
}

#[tokio::test]
async fn another_branch_is_refused_with_the_right_name() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    git(&run.directory, ["checkout", "-q", "-b", "mine"]);
    commit(&run.directory, "one");
    let (is_done, words) = git_async(&run.directory, ["push", "origin", "mine"]).await;
    assert!(!is_done && words.contains(&format!("git push origin HEAD:{BRANCH}")), "{words}");
    let (is_done, words) = git_async(&run.directory, ["push", "origin", &format!("HEAD:{BRANCH}")]).await;
    assert!(is_done, "{words}");
    let (is_done, _) = git_async(&run.directory, ["push", "origin", &format!(":{BRANCH}")]).await;
    assert!(!is_done);
    let (is_done, words) = git_async(&run.directory, ["push", "--tags", "origin", "HEAD:refs/tags/v1"]).await;
    assert!(!is_done && words.contains("only the branch"), "{words}");
}

#[tokio::test]
async fn a_push_of_50_megabytes_passes() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    let mut seed = 1_u64;
    let mut noise = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    };
    write(&run.directory, "large.bin", (0..50 << 20).map(&mut noise).collect::<Vec<u8>>());
    let head = commit(&run.directory, "large");
    let (is_done, words) = git_async(&run.directory, ["push"]).await;
    assert!(is_done, "{words}");
    assert_eq!(run.repository.head().await.expect("a head").as_str(), head);
}

#[tokio::test]
async fn a_clone_without_push_options_support_says_so() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    commit(&run.directory, "one");
    let (is_done, words) = git_async(&run.directory, ["push", "-o", "ci.skip"]).await;
    assert!(!is_done && words.contains("push options"), "{words}");
}

#[tokio::test]
async fn the_probe_of_git_gets_an_empty_answer() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    let received = push(&run.repository, b"0000").await;
    assert!(received.report.is_empty() && received.pushed.is_none() && received.refused.is_none());
}

#[tokio::test]
async fn the_advertisement_has_one_ref() {
    let host = Host::new();
    let (_server, run) = started(&host).await;
    let body = String::from_utf8(run.repository.advertise().await.expect("an advertisement")).expect("text");
    assert!(body.starts_with("001f# service=git-receive-pack\n0000"), "{body}");
    assert_eq!(body.matches("refs/").count(), 1, "{body}");
    for word in ["push-options", "push-cert", "delete-refs", "atomic"] {
        assert!(!body.contains(word), "{body}");
    }
}
