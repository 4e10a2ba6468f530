//! Merges at a forge of GitHub's kind: only the reviewed commit is merged, by another person, and never with conflicts.

use sluice_testkit::Forge;

use super::forge::{COMMIT_AND_PUSH, body, create, on_repository};
use super::http;
use super::*;

#[tokio::test]
async fn a_conflict_is_reported_and_nothing_is_tried() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\nmerge = true"));
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;
    let repository = json!({"ticket": "AB-8", "pull_request": true});
    let id = create(&http::address(&daemon), &alice, &on_repository(COMMIT_AND_PUSH, repository)).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
    let head = branch["published_sha"].as_str().unwrap_or_else(|| panic!("it is published: {branch}"));
    let main = forge.change_main("one\ntwo\nthree\nfive\n");

    // Root is an admin, and another person than the owner.
    let refused = daemon.command(["merge", &id, "--head", head]).finish().await.expect(1);

    assert!(refused.stderr.contains("has_conflicts"), "{}", refused.stderr);
    assert!(refused.stderr.contains("let a new run resolve them"), "{}", refused.stderr);
    let pull = daemon.get(&format!("/api/v1/sandboxes/{id}/git/pr")).await.expect(200).json();
    assert_eq!((&pull["state"], &pull["mergeable"]), (&json!("open"), &json!(false)), "{pull}");
    let pulls = forge.pulls().await;
    assert_eq!((&pulls[0]["draft"], &pulls[0]["state"]), (&json!(true), &json!("open")), "{pulls:?}");
    let requests = forge.requests().await;
    let changes =
        requests.iter().filter(|request| request["path"].as_str().is_some_and(|path| path.starts_with("/api/")));
    let changes: Vec<_> = changes.filter(|request| request["method"] != "GET").map(|one| &one["path"]).collect();
    assert_eq!(changes, [&json!("/api/v3/repos/octo/app/pulls")], "only the pull request was opened");
    assert_eq!(forge.branches(), ["feature/AB-8", "main"]);
    assert_eq!((forge.git(["rev-parse", "main"]), forge.git(["rev-parse", "feature/AB-8"])), (main, head.to_owned()));
    let control = std::fs::read_to_string(sluice.state().join("audit/control.jsonl")).expect("it is there");
    assert!(control.contains("has_conflicts"), "{control}");
}

#[tokio::test]
async fn a_conflict_ends_the_command_of_the_host() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("merge = true"));
    let run = sluice.run(["--json", "--repo", &forge.url(), "--pr", "--", "sh", "-c", COMMIT_AND_PUSH]);
    let report = run.finish().await.expect(0).json();
    let out = report.git.expect("it has a branch");
    let main = forge.change_main("one\ntwo\nthree\nfive\n");

    let head = out["head"].as_str().expect("a commit");
    let refused = sluice.command(["merge", &report.run_id, "--head", head]).finish().await.expect(1);

    assert!(refused.stderr.contains("it has conflicts with its base"), "{}", refused.stderr);
    assert_eq!(forge.git(["rev-parse", "main"]), main);
    let requests = forge.requests().await;
    assert!(requests.iter().all(|request| request["method"] != "PUT" && request["method"] != "DELETE"), "{requests:?}");
}

/// Runs an agent that pushes a commit, publishes it and opens its pull request. Returns the id and the commit.
async fn published(daemon: &Daemon<'_>, token: &str, ticket: &str) -> (String, String) {
    published_for(daemon, token, ticket, None).await
}

/// Does the same as `published`; an admin may name another owner.
async fn published_for(daemon: &Daemon<'_>, token: &str, ticket: &str, owner: Option<&str>) -> (String, String) {
    let repository = json!({"ticket": ticket, "title": "Add a line", "pull_request": true});
    let mut request = on_repository(COMMIT_AND_PUSH, repository);
    if let Some(owner) = owner {
        request["owner_id"] = json!(owner);
    }
    let id = create(&http::address(daemon), token, &request).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
    let head = branch["published_sha"].as_str().unwrap_or_else(|| panic!("it is published: {branch}"));
    (id, head.to_owned())
}

/// Methods and paths of the requests for a merge, a deletion, or what a draft needs before it.
async fn merging(forge: &Forge) -> Vec<String> {
    let is_one = |path: &str| path.ends_with("/merge") || path.contains("/git/refs/") || path.ends_with("/graphql");
    let requests = forge.requests().await.into_iter().map(|one| (one["method"].clone(), one["path"].clone()));
    let requests = requests.filter_map(|(method, path)| Some((method.as_str()?.to_owned(), path.as_str()?.to_owned())));
    requests.filter(|(_, path)| is_one(path)).map(|(method, path)| format!("{method} {path}")).collect()
}

#[tokio::test]
async fn another_person_merges_what_was_looked_at() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\nmerge = true"));
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;
    let (id, head) = published(&daemon, &alice, "AB-1").await;
    let start = forge.git(["rev-parse", "main"]);

    let path = format!("/api/v1/sandboxes/{id}/git/pr/merge");
    let consent = json!({"head_sha": head});
    let own = http::send(&http::address(&daemon), &alice, "POST", &path, &consent).await;
    assert_eq!((own.status, &body(&own)["error"]["code"]), (403, &json!("second_person")), "{}", own.text);
    let merged = daemon.request("POST", &path, &consent).await.expect(200).json();

    assert_eq!(merged["number"], 1, "{merged}");
    let commit = forge.git(["rev-parse", "main"]);
    assert_eq!(forge.git(["rev-parse", "main^"]), start, "a squash is one commit");
    assert_eq!(forge.git(["show", "main:text"]), "one\ntwo\nthree\nfour");
    let message = forge.git(["show", "--no-patch", "--format=%B", "main"]);
    assert!(message.starts_with("[AB-1] Add a line") && message.contains(&id), "the message is ours: {message}");
    assert_eq!(forge.branches(), ["main"], "the branch is deleted");
    let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
    assert_eq!(branch["merged_sha"], json!(commit), "{branch}");
    let events = daemon.events(&id).await;
    let told: Vec<_> = events.iter().filter(|event| event["event_type"] == "git.merged").collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0]["event_data"], json!({"number": 1, "sha": commit}));
    let pull = daemon.get(&format!("/api/v1/sandboxes/{id}/git/pr")).await.expect(200).json();
    assert_eq!(pull["state"], "merged", "{pull}");
    let expected = [
        "POST /api/graphql",
        "PUT /api/v3/repos/octo/app/pulls/1/merge",
        "DELETE /api/v3/repos/octo/app/git/refs/heads/feature/AB-1-add-a-line",
    ];
    assert_eq!(merging(&forge).await, expected);
    let control = std::fs::read_to_string(sluice.state().join("audit/control.jsonl")).expect("it is there");
    assert!(control.contains(r#""operation":"git.merge""#) && control.contains(&head), "{control}");
}

#[tokio::test]
async fn an_admin_merges_no_run_that_it_has_created() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\nmerge = true"));
    let daemon = sluice.serve().await;
    let admin = http::token(&sluice, "ops", "admin", "acct-1").await;
    let (id, head) = published_for(&daemon, &admin, "AB-1", Some("alice")).await;
    assert_eq!(daemon.run(&id).await["owner_id"], "alice");

    let path = format!("/api/v1/sandboxes/{id}/git/pr/merge");
    let consent = json!({"head_sha": head});
    let refused = http::send(&http::address(&daemon), &admin, "POST", &path, &consent).await;
    assert_eq!((refused.status, &body(&refused)["error"]["code"]), (403, &json!("second_person")), "{}", refused.text);
    assert!(merging(&forge).await.is_empty());
    daemon.request("POST", &path, &consent).await.expect(200);
}

#[tokio::test]
async fn the_command_merges_over_the_api() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\nmerge = true"));
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;
    let (id, head) = published(&daemon, &alice, "AB-1").await;

    let merged = daemon.command(["merge", &id, "--head", &head, "--json"]).finish().await.expect(0).value();

    assert_eq!(merged["merged"], json!(forge.git(["rev-parse", "main"])), "{merged}");
    assert_eq!(forge.branches(), ["main"]);
    assert!(types(&daemon.events(&id).await).iter().any(|kind| kind == "git.merged"));
    // What was merged is not merged again.
    let again = daemon.command(["merge", &id, "--head", &head, "--json"]).finish().await.expect(0).value();
    assert_eq!(again["merged"], merged["merged"]);
    assert_eq!(merging(&forge).await.iter().filter(|request| request.starts_with("PUT ")).count(), 1);
}

#[tokio::test]
async fn the_command_merges_a_run_of_the_host() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("merge = true"));
    let run =
        sluice.run(["--json", "--repo", &forge.url(), "--ticket", "AB-1", "--pr", "--", "sh", "-c", COMMIT_AND_PUSH]);
    let report = run.finish().await.expect(0).json();
    let head = report.git.expect("it has a branch")["head"].as_str().expect("a commit").to_owned();

    let merged = sluice.command(["merge", &report.run_id, "--head", &head, "--json"]).finish().await.expect(0).value();

    assert_eq!(merged["merged"], json!(forge.git(["rev-parse", "main"])), "{merged}");
    assert_eq!(forge.git(["show", "main:text"]), "one\ntwo\nthree\nfour");
    assert_eq!(forge.branches(), ["main"]);
}

/// Another person pushes to the branch: before the merge looks at the pull request, and between its look and the merge.
#[tokio::test]
async fn a_push_between_look_and_merge_is_refused() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\nmerge = true"));
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;
    let (early, seen_early) = published(&daemon, &alice, "AB-1").await;
    let (late, seen_late) = published(&daemon, &alice, "AB-2").await;
    let main = forge.git(["rev-parse", "main"]);

    let pushed = forge.push_to("feature/AB-1-add-a-line");
    let path = format!("/api/v1/sandboxes/{early}/git/pr/merge");
    let refused = daemon.request("POST", &path, &json!({"head_sha": seen_early})).await.expect(409).json();
    assert_eq!(refused["error"]["code"], "head_moved", "{refused}");
    assert_eq!(merging(&forge).await, [""; 0], "nothing is tried");
    // The owner of the run did not see that commit.
    let unseen = daemon.request("POST", &path, &json!({"head_sha": pushed})).await.expect(409).json();
    assert_eq!(unseen["error"]["code"], "head_moved", "{unseen}");
    forge.push_before_merges();
    let refused = daemon.command(["merge", &late, "--head", &seen_late]).finish().await.expect(1);

    assert!(refused.stderr.contains("head_moved"), "{}", refused.stderr);
    let tried = merging(&forge).await;
    assert_eq!(tried, ["POST /api/graphql", "PUT /api/v3/repos/octo/app/pulls/2/merge"], "the forge refuses it");
    assert_eq!(forge.git(["rev-parse", "main"]), main);
    assert_eq!(forge.branches(), ["feature/AB-1-add-a-line", "feature/AB-2-add-a-line", "main"]);
    for id in [&early, &late] {
        let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
        assert_eq!(branch["merged_sha"], Value::Null, "{branch}");
        assert!(!types(&daemon.events(id).await).iter().any(|kind| kind == "git.merged"), "{id}");
    }
}
