//! Approvals of publications: the daemon asks a person about the branch of a run, and publishes the commit that was
//! approved.

use std::fs;

use super::git::{COMMIT_AND_PUSH, Forge, branch_of, on_repository};
use super::*;
use crate::repo::git;

const CI_FILE: &str = "cd repo && mkdir .github && echo 'on: push' > .github/ci.yml && git add -A && git commit -qm 'Add CI' && git push -q 2>&1";

/// Runs a program on the repository, and returns the id of the run and its one approval.
async fn asked(daemon: &Daemon<'_>, script: &str, repository: Value) -> (String, Value) {
    let id = daemon.create(on_repository(script, repository)).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    let approvals = approvals(daemon, &id).await;
    assert_eq!(approvals.len(), 1, "{approvals:?}");
    (id, approvals[0].clone())
}

async fn approvals(daemon: &Daemon<'_>, id: &str) -> Vec<Value> {
    let listed = daemon.get(&format!("/api/v1/sandboxes/{id}/approvals")).await.expect(200).json();
    listed["approvals"].as_array().expect("a list").clone()
}

/// Decides about an approval, and returns status and answer.
async fn decide(daemon: &Daemon<'_>, id: &str, approval: &Value, decision: &str) -> (u16, Value) {
    let path =
        format!("/api/v1/sandboxes/{id}/approvals/{}/decision", approval["approval_id"].as_str().expect("an id"));
    let body = json!({ "decision": decision, "digest": approval["digest"] });
    let answer = daemon.request("POST", &path, &body).await;
    (answer.status, answer.json())
}

async fn waiting(daemon: &Daemon<'_>) -> Vec<String> {
    let listed = daemon.get("/api/v1/sandboxes?waiting_for=person").await.expect(200).json();
    let runs = listed["sandboxes"].as_array().expect("a list").iter();
    runs.map(|run| run["sandbox_id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn a_guarded_change_is_published_after_its_approval() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let repository = json!({ "ticket": "ABC-1", "title": "Add CI", "pull_request": true });
    let (id, approval) = asked(&daemon, CI_FILE, repository).await;

    let subject = &approval["subject"];
    let head = branch_of(&daemon, &id).await["head_sha"].clone();
    assert_eq!((&approval["kind"], &approval["cap"], &subject["head_sha"]), (&json!("publish"), &Value::Null, &head));
    assert_eq!((&subject["guarded_paths"], &subject["commits"]), (&json!([".github/ci.yml"]), &json!(1)), "{subject}");
    assert_eq!((forge.branches(), waiting(&daemon).await), (vec!["main".to_owned()], vec![id.clone()]));
    let listed = daemon.command(["approvals"]).finish().await.expect(0).stdout;
    assert!(listed.contains(&id) && listed.contains("publish"), "{listed}");
    let (status, error) =
        decide(&daemon, &id, &json!({ "approval_id": approval["approval_id"], "digest": "ab".repeat(32) }), "approve")
            .await;
    assert_eq!((status, &error["error"]["code"]), (409, &json!("approval_changed")), "{error}");
    let (status, error) = decide(&daemon, &id, &approval, "cancel").await;
    assert_eq!((status, &error["error"]["details"]["field"]), (422, &json!("decision")), "{error}");
    assert_eq!(forge.branches(), ["main"], "nothing leaves without a decision");

    let [name, digest] = ["approval_id", "digest"].map(|name| approval[name].as_str().expect("a text"));
    let words = ["approve", &id, name, "--yes", "--digest", digest, "--reason", "it is ours"];
    let said = daemon.command(words).finish().await.expect(0).stdout;
    assert_eq!(said, format!("approval {name}: approved; feature/ABC-1-add-ci is published\n"));
    assert_eq!(forge.branches(), ["feature/ABC-1-add-ci", "main"]);
    let branch = branch_of(&daemon, &id).await;
    assert_eq!((&branch["published_sha"], &branch["pull_request"]["number"]), (&head, &json!(1)), "{branch}");
    let (status, error) = decide(&daemon, &id, &approval, "deny").await;
    assert_eq!((status, &error["error"]["code"]), (409, &json!("already_decided")), "{error}");
    assert_eq!(waiting(&daemon).await, [""; 0]);
    daemon.stop().await;
    let audited = forge.sluice.command(["audit", "approvals", "--json"]).finish().await.expect(0).value();
    let audited = &audited["approvals"][0];
    assert_eq!((&audited["head_sha"], &audited["fault"]), (&head, &Value::Null), "{audited}");
    assert!(audited["applied_at"].is_string(), "{audited}");
}

#[tokio::test]
async fn a_denied_branch_stays_and_asks_no_more() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let (id, approval) = asked(&daemon, COMMIT_AND_PUSH, json!({})).await;
    assert_eq!(approval["subject"]["guarded_paths"], json!([]), "{approval}");

    let (status, denied) = decide(&daemon, &id, &approval, "deny").await;
    assert_eq!((status, &denied["decision"]), (200, &json!("deny")), "{denied}");
    daemon.kill().await;
    let daemon = forge.sluice.serve().await;

    assert_eq!(approvals(&daemon, &id).await.len(), 1);
    assert_eq!((forge.branches(), waiting(&daemon).await), (vec!["main".to_owned()], Vec::<String>::new()));
}

#[tokio::test]
async fn a_publication_by_hand_closes_its_approval() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let (id, approval) = asked(&daemon, COMMIT_AND_PUSH, json!({})).await;

    let head = approval["subject"]["head_sha"].as_str().expect("a commit");
    daemon.command(["push", &id, "--head", head]).finish().await.expect(0);

    assert_eq!(approvals(&daemon, &id).await[0]["decision"], "changed");
    let (status, error) = decide(&daemon, &id, &approval, "approve").await;
    assert_eq!((status, &error["error"]["code"]), (409, &json!("already_decided")), "{error}");
}

/// The forge is away at the decision, as if the daemon had been killed between the decision and the publication.
#[tokio::test]
async fn an_approved_publication_is_made_by_the_next_daemon() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let (id, approval) = asked(&daemon, COMMIT_AND_PUSH, json!({ "ticket": "ABC-2", "pull_request": true })).await;
    let away = forge.sluice.dir().join("away.git");
    fs::rename(forge.bare(), &away).expect("it is there");

    let (status, error) = decide(&daemon, &id, &approval, "approve").await;
    assert_eq!((status, &error["error"]["code"]), (502, &json!("publish_failed")), "{error}");
    let message = error["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("the approval is recorded, and "), "{message}");
    let decided = approvals(&daemon, &id).await.remove(0);
    assert_eq!((&decided["decision"], &decided["applied_at"]), (&json!("approve"), &Value::Null), "{decided}");
    daemon.kill().await;
    fs::rename(&away, forge.bare()).expect("it is there");
    let daemon = forge.sluice.serve().await;

    let made = async || approvals(&daemon, &id).await[0]["applied_at"].is_string();
    assert!(poll(PATIENCE, made).await, "{}", daemon.process().stderr());
    assert_eq!(forge.branches(), ["feature/ABC-2", "main"]);
    assert_eq!(branch_of(&daemon, &id).await["pull_request"]["number"], 1);
    daemon.stop().await;
    forge.sluice.command(["audit", "approvals"]).finish().await.expect(0);
}

/// The forge takes the branch, and refuses the pull request, because its base does not exist.
#[tokio::test]
async fn a_refused_pull_request_is_opened_later() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let (id, approval) = asked(&daemon, COMMIT_AND_PUSH, json!({ "ticket": "ABC-3", "pull_request": true })).await;
    git(forge.bare(), &["branch", "-m", "main", "trunk"]);

    let (status, error) = decide(&daemon, &id, &approval, "approve").await;
    assert_eq!((status, &error["error"]["code"]), (502, &json!("pr_failed")), "{error}");
    let branch = branch_of(&daemon, &id).await;
    assert_eq!(branch["published_sha"], approval["subject"]["head_sha"], "{branch}");
    assert!(branch["last_error"].as_str().is_some_and(|error| error.contains("main")), "{branch}");
    assert_eq!(approvals(&daemon, &id).await[0]["applied_at"], Value::Null);
    let control = fs::read_to_string(forge.sluice.state().join("audit/control.jsonl")).expect("it is there");
    let lines =
        ["git.publish", "git.pull_request", "pr_failed"].map(|word| control.matches(&format!("\"{word}\"")).count());
    assert_eq!(lines, [1, 2, 1], "{control}");
    daemon.stop().await;
    git(forge.bare(), &["branch", "-m", "trunk", "main"]);
    let daemon = forge.sluice.serve().await;

    let made = async || approvals(&daemon, &id).await[0]["applied_at"].is_string();
    assert!(poll(PATIENCE, made).await, "{}", daemon.process().stderr());
    assert_eq!(forge.branches(), ["feature/ABC-3", "main"]);
    assert_eq!(branch_of(&daemon, &id).await["pull_request"]["number"], 1);
}

/// Only the address that a person saw gets the commit, whatever the operator has configured meanwhile.
#[tokio::test]
async fn another_repository_does_not_get_the_approved_commit() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let (id, approval) = asked(&daemon, COMMIT_AND_PUSH, json!({})).await;
    daemon.stop().await;
    let other = forge.sluice.dir().join("other.git");
    git(
        forge.sluice.dir(),
        &["clone", "--quiet", "--bare", &forge.bare().display().to_string(), &other.display().to_string()],
    );
    let config = forge.sluice.dir().join("sluice.toml");
    let text = fs::read_to_string(&config).expect("it is there");
    fs::write(&config, text.replace("forge.git", "other.git")).expect("it is ours");
    let daemon = forge.sluice.serve().await;

    let (status, error) = decide(&daemon, &id, &approval, "approve").await;

    assert_eq!((status, &error["error"]["code"]), (409, &json!("repository_changed")), "{error}");
    assert_eq!(git(&other, &["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n");
    assert_eq!(forge.branches(), ["main"]);
}
