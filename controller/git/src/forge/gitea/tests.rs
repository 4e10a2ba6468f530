//! Tests against answers written by hand from Gitea's sources (`modules/structs`, `routers/api/v1/repo/pull.go`), not
//! against a server.

use super::*;
use crate::forge::merge_request::{MergeMethod, MergeOutcome};
use crate::forge::tests::{Counted, Scripted, TOKEN, answer, raw, token};
use crate::forge::{Forge, merge};

const HEAD: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "76543210fedcba9876543210fedcba9876543210";

fn forge(url: &str) -> Forge {
    Gitea::new(&Upstream::at(url), "o/r".parse().expect("a name"), token()).expect("an address").into()
}

fn shown(members: Value) -> Value {
    let mut shown = json!({
        "id": 1, "url": "https://evil/", "number": 7, "state": "open", "title": "t", "draft": false, "mergeable": true,
        "merged": false, "merged_at": null, "merge_commit_sha": null, "merge_base": OTHER,
        "head": {"label": "feature/a", "ref": "feature/a", "sha": HEAD, "repo_id": 1, "repo": {"id": 1, "full_name": "o/r"}},
        "base": {"label": "main", "ref": "main", "sha": OTHER, "repo_id": 1, "repo": {"id": 1, "full_name": "o/r"}},
    });
    if let (Some(shown), Value::Object(members)) = (shown.as_object_mut(), members) {
        shown.extend(members);
    }
    shown
}

const NEW: NewPullRequest<'_> = NewPullRequest {
    head: "feature/a",
    head_sha: HEAD,
    base: "main",
    title: "[WIP] wip: t",
    body: "b",
    is_draft: true,
};

fn get(members: Value) -> String {
    answer(200, &shown(members))
}

async fn merged(answers: Vec<String>) -> (MergeOutcome, Vec<u64>, Vec<String>) {
    let request =
        MergeRequest { method: MergeMethod::Squash, head_sha: HEAD, base: "main", title: "ours", message: "m" };
    let (server, pause) = (Scripted::start(answers).await, Counted::default());
    let outcome = merge(&forge(&server.url), 7, &request, &pause).await.expect("it has an end");
    (outcome, pause.seconds(), server.lines().await)
}

#[tokio::test]
async fn a_draft_is_marked_by_its_title() {
    let new = NEW;
    let server = Scripted::start(vec![
        answer(404, &json!({"message": "not found"})),
        answer(201, &shown(json!({"title": "WIP: t", "draft": true, "mergeable": false}))),
    ])
    .await;
    let forge = forge(&server.url);

    let opened = forge.publish(&new, &Counted::default()).await.expect("it is opened");

    assert!(opened.is_draft && opened.mergeable.is_none());
    assert_eq!(opened.url, Some(format!("{}/o/r/pulls/7", server.url)));
    let seen = server.seen().await;
    assert_eq!(seen[0].line, "GET /api/v1/repos/o/r/pulls/main/feature/a");
    assert!(seen[0].head.contains(&format!("authorization: token {TOKEN}\r\n")), "{:?}", seen[0]);
    assert_eq!(seen[1].body, json!({"title": "WIP: t", "body": "b", "head": "feature/a", "base": "main"}));
}

#[tokio::test]
async fn a_merged_pull_request_hides_no_open_one() {
    let at = |sha: &str| json!({"label": "feature/a", "ref": "feature/a", "sha": sha, "repo": {"full_name": "o/r"}});
    let old = |sha: &str| get(json!({"state": "closed", "merged": true, "number": 6, "head": at(sha)}));
    let open = answer(200, &json!([shown(json!({"number": 8, "base": at(OTHER)})), shown(json!({"head": at(OTHER)}))]));
    let (none, new) = (|| answer(200, &json!([])), answer(201, &shown(json!({"number": 9}))));
    for (answers, number) in
        [(vec![old(OTHER), open], 7), (vec![old(OTHER), none(), new], 9), (vec![old(HEAD), none()], 6)]
    {
        let server = Scripted::start(answers).await;
        let found = forge(&server.url).publish(&NEW, &Counted::default()).await.expect("there is one");
        assert_eq!(found.number, number);
        server.seen().await;
    }
}

#[tokio::test]
async fn a_merge_commit_without_an_id_is_refused() {
    let server = Scripted::start(vec![get(json!({"merged": true, "merge_commit_sha": "\u{1b}[31m"}))]).await;
    let error = forge(&server.url).pull_request(7).await.expect_err("it is hostile");
    assert!(matches!(error, ForgeError::Unexpected(..)), "{error:?}");
}

#[tokio::test]
async fn a_draft_is_made_ready_and_merged() {
    let answers = vec![
        get(json!({"title": "WIP: t", "draft": null, "mergeable": false})),
        answer(201, &shown(json!({}))),
        get(json!({"mergeable": false})),
        get(json!({})),
        raw(200, "", ""),
        answer(200, &json!({"name": "feature/a", "commit": {"id": HEAD}})),
        answer(200, &json!({"default_branch": "main"})),
        raw(204, "", ""),
    ];
    let (outcome, seconds, lines) = merged(answers).await;
    assert_eq!(outcome, MergeOutcome::Merged { commit: None, branch: BranchDeletion::Deleted });
    assert_eq!(seconds, [1]);
    assert_eq!(lines[1], "PATCH /api/v1/repos/o/r/pulls/7");
    assert_eq!(
        lines[4..],
        [
            "POST /api/v1/repos/o/r/pulls/7/merge",
            "GET /api/v1/repos/o/r/branches/feature/a",
            "GET /api/v1/repos/o/r",
            "DELETE /api/v1/repos/o/r/branches/feature/a",
        ]
    );
}

#[tokio::test]
async fn a_pull_request_that_stays_unmergeable_has_conflicts() {
    let (outcome, seconds, lines) = merged((0..10).map(|_| get(json!({"mergeable": false}))).collect()).await;
    assert_eq!((outcome, seconds.iter().sum::<u64>()), (MergeOutcome::HasConflicts, 65));
    assert!(lines.iter().all(|line| line.starts_with("GET")));
}

#[tokio::test]
async fn an_answer_to_a_merge_is_an_end() {
    let message = |text: &str| json!({"message": text, "url": "https://gitea/api/swagger"});
    let conflicts = json!({"Style": "squash", "StdOut": "CONFLICT", "StdErr": "", "Err": {}});
    for (status, body, expected) in [
        (409, message("head out of date"), MergeOutcome::HeadMoved),
        (409, message("merge push out of date"), MergeOutcome::HeadMoved),
        (409, conflicts, MergeOutcome::HasConflicts),
        (
            409,
            message("PushRejected without remote error message"),
            MergeOutcome::Refused("PushRejected without remote error message".into()),
        ),
        (405, message("User not allowed to merge PR"), MergeOutcome::Refused("User not allowed to merge PR".into())),
    ] {
        let (outcome, ..) = merged(vec![get(json!({})), answer(status, &body)]).await;
        assert_eq!(outcome, expected);
    }
}

#[tokio::test]
async fn a_branch_at_another_commit_stays() {
    let at = |sha: &str| answer(200, &json!({"commit": {"id": sha}}));
    for (answers, expected) in [
        (vec![at(OTHER)], BranchDeletion::Moved),
        (vec![answer(404, &json!({}))], BranchDeletion::Deleted),
        (
            vec![
                at(HEAD),
                answer(200, &json!({"default_branch": "main"})),
                answer(403, &json!({"message": "branch protected"})),
            ],
            BranchDeletion::Kept("branch protected".into()),
        ),
    ] {
        let server = Scripted::start(answers).await;
        assert_eq!(forge(&server.url).delete_branch("feature/a", HEAD).await.expect("it answers"), expected);
        server.seen().await;
    }
}
