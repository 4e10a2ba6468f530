use super::*;
use crate::forge::merge_request::MergeOutcome;
use crate::forge::pull_request::PullRequestState;
use crate::forge::tests::{Counted, Scripted, TOKEN, answer, raw, token};
use crate::forge::{Forge, merge};

const HEAD: &str = "0123456789abcdef0123456789abcdef01234567";
const OTHER: &str = "76543210fedcba9876543210fedcba9876543210";

fn forge(url: &str) -> Forge {
    let repository = "o/r".parse().expect("a name");
    let credential = GitHubCredential::Token(token());
    GitHub::new(&Upstream::at(url), repository, credential).expect("an address").into()
}

/// A pull request as GitHub shows it, with these members replaced.
fn shown(members: Value) -> Value {
    let mut shown = json!({
        "number": 7, "node_id": "PR_x", "state": "open", "draft": false, "title": "t", "mergeable": true,
        "merged_at": null, "merge_commit_sha": OTHER,
        "head": {"ref": "feature/a", "sha": HEAD, "repo": {"full_name": "O/r"}},
        "base": {"ref": "main", "sha": OTHER, "repo": {"full_name": "O/r"}},
    });
    if let (Some(shown), Value::Object(members)) = (shown.as_object_mut(), members) {
        shown.extend(members);
    }
    shown
}

fn get(members: Value) -> String {
    answer(200, &shown(members))
}

fn request() -> MergeRequest<'static> {
    MergeRequest { method: MergeMethod::Squash, head_sha: HEAD, base: "main", title: "ours", message: "Sluice-Run: r" }
}

const NEW: NewPullRequest<'_> =
    NewPullRequest { head: "feature/a", head_sha: HEAD, base: "main", title: "t", body: "b", is_draft: true };

/// The answers to the deletion of the branch after a merge.
fn deletion() -> [String; 3] {
    [answer(200, &json!({"object": {"sha": HEAD}})), answer(200, &json!({"default_branch": "main"})), raw(204, "", "")]
}

async fn merged(answers: Vec<String>) -> (Result<MergeOutcome, ForgeError>, Vec<u64>, Vec<String>) {
    let server = Scripted::start(answers).await;
    let pause = Counted::default();
    let outcome = merge(&forge(&server.url), 7, &request(), &pause).await;
    (outcome, pause.seconds(), server.lines().await)
}

#[tokio::test]
async fn a_merge_waits_until_the_forge_has_decided() {
    let mut answers = vec![
        get(json!({"mergeable": null, "draft": true})),
        get(json!({"mergeable": null, "draft": true})),
        get(json!({"draft": true})),
        answer(200, &json!({"data": {}})),
        get(json!({"mergeable": null})),
        get(json!({})),
        answer(200, &json!({"merged": true, "sha": OTHER, "message": "Pull Request successfully merged"})),
    ];
    answers.extend(deletion());

    let (outcome, seconds, lines) = merged(answers).await;

    let expected = MergeOutcome::Merged { commit: Some(OTHER.into()), branch: BranchDeletion::Deleted };
    assert_eq!(outcome.expect("it is merged"), expected);
    assert_eq!(seconds, [1, 2, 4]);
    let (look, branch) = ("GET /repos/o/r/pulls/7", "/repos/o/r/git");
    assert_eq!(
        lines,
        [
            look,
            look,
            look,
            "POST /graphql",
            look,
            look,
            "PUT /repos/o/r/pulls/7/merge",
            &format!("GET {branch}/ref/heads/feature/a"),
            "GET /repos/o/r",
            &format!("DELETE {branch}/refs/heads/feature/a"),
        ]
    );
}

#[tokio::test]
async fn conflicts_and_moved_heads_are_not_attempted() {
    let moved = json!({"head": {"ref": "feature/a", "sha": OTHER, "repo": {"full_name": "o/r"}}});
    let fork = json!({"head": {"ref": "feature/a", "sha": HEAD, "repo": {"full_name": "evil/r"}}});
    let refused = |text: &str| MergeOutcome::Refused(text.into());
    for (answers, expected) in [
        (vec![get(json!({"mergeable": null})), get(json!({"mergeable": false}))], MergeOutcome::HasConflicts),
        (vec![get(json!({"mergeable": false, "draft": true}))], MergeOutcome::HasConflicts),
        (vec![get(moved)], MergeOutcome::HeadMoved),
        (vec![get(fork)], refused("the branch is of another repository")),
        (
            vec![get(json!({"head": {"ref": "feature/a", "sha": HEAD, "repo": null}}))],
            refused("the branch is of another repository"),
        ),
        (vec![get(json!({"state": "closed"}))], refused("it is closed")),
    ] {
        let (outcome, _, lines) = merged(answers).await;
        assert_eq!(outcome.expect("it has an end"), expected);
        assert!(lines.iter().all(|line| line.starts_with("GET /repos/o/r/pulls/7")), "{lines:?}");
    }
}

#[tokio::test]
async fn an_answer_to_a_merge_is_an_end() {
    let message = |text: &str| json!({"message": text});
    for (status, body, expected) in [
        (409, message("Head branch was modified. Review and try the merge again."), MergeOutcome::HeadMoved),
        (
            405,
            message("At least 1 approving review is required\u{202e}"),
            MergeOutcome::Refused("At least 1 approving review is required<U+202E>".into()),
        ),
        (422, message(TOKEN), MergeOutcome::Refused("(token)".into())),
    ] {
        let (outcome, ..) = merged(vec![get(json!({})), answer(status, &body)]).await;
        assert_eq!(outcome.expect("it has an end"), expected);
    }
    let mut answers =
        vec![get(json!({})), answer(405, &message("Base branch was modified. Review and try the merge again."))];
    answers.extend([get(json!({})), answer(200, &json!({"merged": true, "sha": OTHER}))]);
    answers.extend(deletion());
    let (outcome, seconds, _) = merged(answers).await;
    assert!(matches!(outcome, Ok(MergeOutcome::Merged { .. })) && seconds == [1], "{outcome:?}");
}

#[tokio::test]
async fn a_merge_with_a_lost_answer_is_found() {
    let mut answers = vec![get(json!({})), String::new()];
    answers.push(get(json!({"state": "closed", "merged_at": "2026-11-23T00:00:00Z"})));
    answers.extend(deletion());

    let (outcome, seconds, lines) = merged(answers).await;

    let expected = MergeOutcome::Merged { commit: Some(OTHER.into()), branch: BranchDeletion::Deleted };
    assert_eq!(outcome.expect("it is merged"), expected);
    assert_eq!((seconds, lines.iter().filter(|line| line.starts_with("PUT")).count()), (vec![1], 1));
}

#[tokio::test]
async fn a_forge_that_never_decides_ends_the_wait() {
    let answers = (0..40).map(|_| get(json!({"mergeable": null}))).collect();
    let (outcome, seconds, lines) = merged(answers).await;
    assert!(matches!(outcome, Err(ForgeError::Undecided(7))), "{outcome:?}");
    assert_eq!((seconds.iter().sum::<u64>(), lines.len()), (4 * 65 + 7, 40));
}

#[tokio::test]
async fn a_pull_request_is_opened_once() {
    let none = || answer(200, &json!([]));
    let failed = || answer(502, &json!({}));
    let open = answer(201, &shown(json!({"draft": true})));
    let existing = || answer(200, &json!([shown(json!({}))]));
    for (answers, waits, opened) in [
        (vec![none(), open.clone()], vec![], 1),
        (vec![existing()], vec![], 0),
        // The answer is lost, and the next read finds the opened pull request.
        (vec![none(), String::new(), existing()], vec![1], 1),
        (vec![failed(), failed(), failed(), none(), open], vec![1, 2, 4], 1),
    ] {
        let (server, pause) = (Scripted::start(answers).await, Counted::default());
        let found = forge(&server.url).publish(&NEW, &pause).await.expect("there is one");
        assert_eq!((found.number, found.head_sha.as_str(), found.state), (7, HEAD, PullRequestState::Open));
        assert_eq!(pause.seconds(), waits);
        let lines = server.lines().await;
        assert_eq!(lines.iter().filter(|line| line.starts_with("POST")).count(), opened);
        assert!(lines[0].contains("/pulls?state=all&head=o%3Afeature%2Fa&base=main&"), "{lines:?}");
    }
    let (server, pause) = (Scripted::start((0..4).map(|_| failed()).collect()).await, Counted::default());
    assert!(forge(&server.url).publish(&NEW, &pause).await.expect_err("it failed").is_retryable());
    assert_eq!(pause.seconds(), [1, 2, 4]);
    server.seen().await;
}

#[tokio::test]
async fn pull_requests_of_others_are_not_found() {
    let side = |branch: &str, name: &str| json!({"ref": branch, "sha": HEAD, "repo": {"full_name": name}});
    let others = json!([
        shown(json!({"head": side("feature/a", "evil/r")})),
        shown(json!({"head": side("feature/b", "o/r")})),
        shown(json!({"base": side("release", "o/r")})),
    ]);
    let ours = json!([
        shown(json!({"number": 9, "state": "closed"})),
        shown(json!({"number": 8})),
        shown(json!({"state": "closed"}))
    ]);
    let server = Scripted::start(vec![answer(200, &others), answer(200, &ours)]).await;
    let forge = forge(&server.url);
    assert_eq!(forge.find_pull_request(&NEW).await.expect("it answers"), None);
    let found = forge.find_pull_request(&NEW).await.expect("it answers");
    assert_eq!(found.map(|one| (one.number, one.url)), Some((8, Some(format!("{}/o/r/pull/8", server.url)))));
    server.seen().await;
}

/// Bug: a second run on a ticket, with the same branch name, got the merged pull request of the first run.
#[tokio::test]
async fn a_merged_pull_request_serves_its_commit_alone() {
    let old = |sha: &str| {
        let head = json!({"ref": "feature/a", "sha": sha, "repo": {"full_name": "o/r"}});
        answer(200, &json!([shown(json!({"state": "closed", "merged_at": "2026-11-23T00:00:00Z", "head": head}))]))
    };
    let opened = answer(201, &shown(json!({"number": 8})));
    for (answers, number) in [(vec![old(OTHER), opened], 8), (vec![old(HEAD)], 7)] {
        let server = Scripted::start(answers).await;
        let found = forge(&server.url).publish(&NEW, &Counted::default()).await.expect("there is one");
        assert_eq!(found.number, number);
        server.seen().await;
    }
}

#[tokio::test]
async fn hostile_members_are_refused() {
    let side = |branch: &str, sha: &str| json!({"ref": branch, "sha": sha, "repo": {"full_name": "o/r"}});
    for members in [
        json!({"head": side("a..b", HEAD)}),
        json!({"head": side("-x", HEAD)}),
        json!({"head": side("feature/a", "HEAD")}),
        json!({"base": side("\u{202e}", HEAD)}),
        json!({"merged_at": "2026-11-23T00:00:00Z", "merge_commit_sha": "--upload-pack=x"}),
        json!({"number": -1}),
        json!({"number": "7"}),
    ] {
        let server = Scripted::start(vec![get(members.clone())]).await;
        let error = forge(&server.url).pull_request(7).await.expect_err("it is hostile");
        assert!(matches!(error, ForgeError::Unexpected(..)), "{members}: {error:?}");
        server.seen().await;
    }
}

#[tokio::test]
async fn a_merge_commit_without_an_id_is_refused() {
    let answers = vec![get(json!({})), answer(200, &json!({"merged": true, "sha": "\u{1b}[31m"}))];
    let (outcome, ..) = merged(answers).await;
    assert!(matches!(outcome, Err(ForgeError::Unexpected(..))), "{outcome:?}");
}

#[tokio::test]
async fn a_branch_at_another_commit_stays() {
    let at = |sha: &str| answer(200, &json!({"object": {"sha": sha}}));
    let default = |name: &str| answer(200, &json!({"default_branch": name}));
    let kept = |text: &str| BranchDeletion::Kept(text.into());
    for (answers, expected) in [
        (vec![at(OTHER)], BranchDeletion::Moved),
        (vec![answer(404, &json!({}))], BranchDeletion::Deleted),
        (vec![at(HEAD), default("feature/a")], kept("it is the default branch")),
        (
            vec![at(HEAD), default("main"), answer(422, &json!({"message": "Reference does not exist"}))],
            BranchDeletion::Deleted,
        ),
        (
            vec![at(HEAD), default("main"), answer(422, &json!({"message": "Cannot delete this protected branch"}))],
            kept("Cannot delete this protected branch"),
        ),
    ] {
        let server = Scripted::start(answers).await;
        assert_eq!(forge(&server.url).delete_branch("feature/a", HEAD).await.expect("it answers"), expected);
        server.seen().await;
    }
}

#[tokio::test]
async fn scopes_of_a_token_are_told() {
    let repository = json!({"default_branch": "main"}).to_string();
    let server =
        Scripted::start(vec![raw(200, "x-oauth-scopes: repo, workflow\r\n", &repository), raw(200, "", &repository)])
            .await;
    let forge = forge(&server.url);
    assert_eq!(forge.token_scopes().await.expect("it answers"), Some(vec!["repo".into(), "workflow".into()]));
    assert_eq!(forge.token_scopes().await.expect("it answers"), None);
    assert!(!format!("{forge:?}").contains("secret"));
    let seen = server.seen().await;
    assert!(seen[0].head.contains(&format!("authorization: Bearer {TOKEN}\r\n")), "{:?}", seen[0]);
    assert!(seen[0].head.contains("user-agent: sluice") && seen[0].head.contains("x-github-api-version: 2022-11-28"));
}

#[tokio::test]
async fn a_failure_of_graphql_is_an_error() {
    let failed = json!({"data": null, "errors": [{"message": format!("Resource not accessible by {TOKEN}")}]});
    let server = Scripted::start(vec![answer(200, &failed)]).await;
    let Forge::GitHub(forge) = forge(&server.url) else { panic!("it is GitHub") };
    let draft = forge.read(serde_json::from_value(shown(json!({}))).expect("it is one"), "GET").expect("it is one");
    let error = forge.mark_ready(&draft).await.expect_err("it failed");
    assert!(
        matches!(&error, ForgeError::Refused(_, 200, text) if text == "Resource not accessible by (token)"),
        "{error:?}"
    );
    let seen = server.seen().await;
    assert_eq!(seen[0].body["variables"], json!({"id": "PR_x"}));
}

#[test]
fn addresses_of_an_own_server_are_known() {
    for (api, graphql, web) in [
        ("https://api.github.com", "https://api.github.com", "https://github.com"),
        ("https://ghe.example/api/v3", "https://ghe.example/api", "https://ghe.example"),
        ("https://ghe.example/api/v3/", "https://ghe.example/api", "https://ghe.example"),
    ] {
        assert_eq!(siblings(api), (graphql.to_owned(), web.to_owned()));
    }
}

#[test]
fn a_file_that_is_no_key_is_refused() {
    for pem in [
        "",
        "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----",
    ] {
        let error = AppKey::of_pem(1, 2, pem).expect_err(pem);
        assert!(error.to_string().starts_with("its file is not the private RSA key"), "{error}");
    }
}
