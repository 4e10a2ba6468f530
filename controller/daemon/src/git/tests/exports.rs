//! Exports of a branch: after a lost record, with another repository of the project, by a person, and two at a time.

use super::*;
use crate::run_refusal::RunRefusal;

impl CommittedRun {
    /// Completes the branch of the run, which has succeeded.
    async fn complete(&self) {
        complete(&self.daemon.running.context, &self.run, &self.report().await, true).await;
    }

    /// Returns how often a person was asked.
    async fn asked(&self) -> usize {
        self.events().await.iter().filter(|event| event.event_type == "approval.requested").count()
    }
}

/// Bug: the branch was published a second time, as NAME-2, if it moved after a push that was not recorded.
#[tokio::test]
async fn a_branch_that_moved_keeps_its_name() {
    let test = CommittedRun::new().await;
    test.steps(3).await;
    test.commit("two").await;

    test.complete().await;

    let head = test.head().await;
    assert_eq!(test.branches_of("forge.git"), test.with_branch_at(&head));
    let row = test.row().await;
    assert_eq!((row.new.branch.as_str(), row.published_sha), (BRANCH, Some(head)));
    let begun = test.daemon.store().begun_git_pushes(&test.run.key.run_id).await.expect("it is readable");
    assert_eq!(begun, [], "all of them are done");
}

#[tokio::test]
async fn a_published_branch_moves_after_a_lost_record() {
    let test = CommittedRun::new().await;
    test.steps(4).await;
    let published = test.repository.head().await.expect("it is readable");
    test.commit("two").await;
    test.push_unrecorded(Some(&published)).await;
    test.commit("three").await;

    test.complete().await;

    let head = test.head().await;
    assert_eq!(test.branches_of("forge.git"), test.with_branch_at(&head));
    assert_eq!(test.row().await.published_sha, Some(head));
}

/// Bug: the branch was pushed to the present address of the project, which nobody had reviewed.
#[tokio::test]
async fn another_repository_gets_no_branch() {
    let test = CommittedRun::new().await;
    git(test.scratch.path(), &["clone", "--quiet", "--bare", "forge.git", "other.git"]);
    let test = test.restarted_with("other.git").await;

    test.complete().await;

    let path = |rest: &str| format!("/api/v1/sandboxes/{}/git/{rest}", test.run.key.run_id);
    let body = json!({ "head_sha": test.head().await });
    for (path, body) in [(path("publish"), Some(&body)), (path("pr"), None)] {
        let posted = test.daemon.request("slu_alice", "POST", &path, body).await;
        assert_eq!(posted.error(), (409, "repository_changed".to_owned()), "{path}");
    }
    for bare in ["forge.git", "other.git"] {
        assert_eq!(test.branches_of(bare), format!("main {}", test.repository.base()), "{bare}");
    }
    assert_eq!(test.kinds().await, ["git.held", "git.received"]);
    let context = &test.daemon.running.context;
    let stored = context.stored_request(&test.run.key.run_id).await.expect("it is there").repository;
    let refused = begin(context, &test.run, &stored.expect("it has one")).await.expect_err("another attempt");
    assert!(matches!(&refused, RunRefusal::Owner(text) if text.contains("another repository")), "{refused:?}");
}

#[tokio::test]
async fn a_large_change_is_held_with_a_reason() {
    let test = CommittedRun::with(PublishRule::Approve).await;
    let report = CloneReport { too_large: true, ..test.report().await };

    complete(&test.daemon.running.context, &test.run, &report, true).await;

    assert_eq!((test.kinds().await, test.asked().await), (vec!["git.held".to_owned(), "git.received".to_owned()], 0));
    let held = test.events().await.into_iter().find(|event| event.event_type == "git.held").expect("it is there");
    assert!(held.event_data.contains("5,000 files"), "{}", held.event_data);
}

/// Bug: after the publication of an earlier attempt, nobody was asked about the commits of the next one.
#[tokio::test]
async fn commits_after_a_publication_are_asked_about() {
    let test = CommittedRun::with(PublishRule::Approve).await;
    test.steps(4).await;
    test.complete().await;
    assert_eq!(test.asked().await, 0, "the forge has all of them");
    test.commit("two").await;

    test.complete().await;

    assert_eq!(test.asked().await, 1);
    assert_eq!(test.branches_of("forge.git").lines().count(), 2, "nothing leaves without a decision");
}

/// Bug: both requests found no pull request, and each opened one.
#[tokio::test]
async fn two_requests_open_one_pull_request() {
    let test = CommittedRun::new().await;
    test.steps(5).await;
    let (context, run) = (&test.daemon.running.context, &test.run);

    let (first, second) = tokio::join!(open_pull_request(context, run), open_pull_request(context, run));

    let numbers = [first, second].map(|opened| opened.expect("the forge is local").pull_request);
    assert_eq!(numbers, [Some(1); 2]);
    let records = context.git.forge_records(&project(context, run).expect("it has one").url);
    assert_eq!(std::fs::read_dir(records).expect("it is there").count(), 1);
}

#[tokio::test]
async fn a_difference_names_its_commit() {
    let test = CommittedRun::new().await;
    let seen = test.head().await;
    let path = format!("/api/v1/sandboxes/{}/git", test.run.key.run_id);
    let diff = async |head: &str| test.daemon.get("slu_alice", &format!("{path}/diff?head_sha={head}")).await;
    let shown = diff(&seen).await;
    assert!(shown.status == 200 && shown.head.contains(&format!("x-head-sha: {seen}")), "{shown:?}");
    test.commit("two").await;

    assert_eq!(diff(&seen).await.error(), (409, "head_moved".to_owned()));
    assert_eq!(diff("x").await.status, 422);
    let branch = test.daemon.get("slu_alice", &path).await.json();
    assert_eq!((&branch["head_sha"], &branch["commits"]), (&json!(test.head().await), &json!(2)), "one look has both");
}
