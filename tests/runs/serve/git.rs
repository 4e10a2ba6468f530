//! Runs of the daemon on repositories: the clone, pushes through the sidecar, publication, pull request and merge, with
//! a repository of this host as the forge.

use std::path::{Path, PathBuf};

use sluice_testkit::client::ClientAnswer;

use super::*;
use crate::repo::{git, repository};

/// Commits a change, and pushes it as agents do.
pub(super) const COMMIT_AND_PUSH: &str =
    "cd repo && echo four >> text && git add -A && git commit -qm 'Add a line' && git push -q 2>&1";

/// A state directory with a project, and the bare repository of the project.
pub(super) struct Forge {
    pub(super) sluice: Sluice,
    bare: PathBuf,
    _upstream: Upstream,
}

impl Forge {
    pub(super) async fn new(settings: &str) -> Self {
        let upstream = Upstream::never().start().await;
        let sluice = Sluice::to(&upstream);
        let bare = bare_repository(&sluice);
        let config = format!(
            "[[projects]]\nname = 'site'\nowners = ['root', 'alice']\nrepository = '{}'\nforge = 'local'\n{settings}\n",
            bare.display()
        );
        sluice.file("sluice.toml", &config);
        Self { sluice, bare, _upstream: upstream }
    }

    /// Branches at the forge.
    pub(super) fn branches(&self) -> Vec<String> {
        let text = git(&self.bare, &["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/"]);
        text.lines().map(str::to_owned).collect()
    }

    /// Path of the bare repository.
    pub(super) fn bare(&self) -> &Path {
        &self.bare
    }

    fn file(&self, branch: &str, path: &str) -> String {
        git(&self.bare, &["show", &format!("{branch}:{path}")])
    }

    /// Kept workspace of a run, which may not exist.
    pub(super) fn kept(&self, id: &str) -> PathBuf {
        self.sluice.state().join("kept").join(format!("{id}.0"))
    }

    pub(super) fn remove_kept(&self) {
        std::fs::remove_dir_all(self.sluice.state().join("kept")).expect("we are root");
    }
}

/// A bare repository with one commit on `main`.
fn bare_repository(sluice: &Sluice) -> PathBuf {
    let work = repository(sluice, "origin", 0);
    let bare = sluice.dir().join("forge.git");
    git(&work, &["clone", "--quiet", "--bare", &work.display().to_string(), &bare.display().to_string()]);
    bare
}

pub(super) fn on_repository(script: &str, repository: Value) -> Value {
    let mut request = shell(script);
    request["project"] = json!("site");
    request["repository"] = repository;
    request
}

pub(super) async fn branch_of(daemon: &Daemon<'_>, id: &str) -> Value {
    daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json()
}

/// Returns the data of the event `git.received` of a run.
pub(super) async fn received(daemon: &Daemon<'_>, id: &str) -> Value {
    let events = daemon.events(id).await;
    let received = events.iter().find(|event| event["event_type"] == "git.received").expect("it is told");
    received["event_data"].clone()
}

async fn post(daemon: &Daemon<'_>, id: &str, path: &str, body: Value) -> ClientAnswer {
    daemon.request("POST", &format!("/api/v1/sandboxes/{id}/git/{path}"), &body).await
}

#[tokio::test]
async fn a_pushed_branch_waits_for_a_person() {
    let forge = Forge::new("merge = true").await;
    let daemon = forge.sluice.serve().await;
    let repository = json!({ "ticket": "ABC-1", "title": "Add a line", "pull_request": true });

    let id = daemon.create(on_repository(COMMIT_AND_PUSH, repository)).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());

    let branch = branch_of(&daemon, &id).await;
    assert_eq!((&branch["branch"], &branch["base_branch"]), (&json!("feature/ABC-1-add-a-line"), &json!("main")));
    assert_eq!((&branch["commits"], &branch["files"][0]["path"]), (&json!(1), &json!("text")), "{branch}");
    assert_eq!((&branch["published_sha"], &branch["publish"]), (&Value::Null, &json!("approve")), "{branch}");
    assert_eq!(forge.branches(), ["main"], "nothing leaves without a person");
    let kinds = types(&daemon.events(&id).await);
    for kind in ["git.pushed", "git.received"] {
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }

    let moved = post(&daemon, &id, "publish", json!({ "head_sha": branch["base_sha"] })).await.expect(409);
    assert_eq!(moved.json()["error"]["code"], "head_moved");
    let published = post(&daemon, &id, "publish", json!({ "head_sha": branch["head_sha"] })).await.expect(200).json();
    assert_eq!(published["published_sha"], branch["head_sha"]);
    assert_eq!(forge.branches(), ["feature/ABC-1-add-a-line", "main"]);
    let opened = post(&daemon, &id, "pr", Value::Null).await.expect(200).json();
    let again = post(&daemon, &id, "pr", Value::Null).await.expect(200).json();
    assert_eq!(opened["number"], again["number"], "there is one pull request");
    let own = post(&daemon, &id, "pr/merge", json!({ "head_sha": branch["head_sha"] })).await.expect(403);
    assert_eq!(own.json()["error"]["code"], "second_person");
    assert_eq!(forge.file("feature/ABC-1-add-a-line", "text"), "one\ntwo\nthree\nfour\n");
}

#[tokio::test]
async fn uncommitted_secrets_stay_on_the_host() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let script =
        "cd repo && echo KEY=canary > .env && echo four >> text && git add text && git commit -qm 'Add a line'";

    let id = daemon.create(on_repository(script, json!({ "pull_request": true }))).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());

    let branch = branch_of(&daemon, &id).await;
    let name = branch["branch"].as_str().expect("it has a name");
    assert_eq!(branch["published_sha"], branch["head_sha"], "{branch}");
    assert_eq!(branch["pull_request"]["number"], 1, "{branch}");
    assert_eq!(forge.file(name, "text"), "one\ntwo\nthree\nfour\n");
    assert!(!git(&forge.bare, &["ls-tree", "-r", "--name-only", name]).contains(".env"));
    assert!(git(&forge.bare, &["for-each-ref", "refs/sluice/"]).is_empty());
}

#[tokio::test]
async fn changes_of_ci_files_need_a_person() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let script = "cd repo && mkdir -p .GitHub/workflows && echo x > .GitHub/workflows/ci.yml && git add -A && \
                  git commit -qm ci && git push -q";

    let id = daemon.create(on_repository(script, json!({}))).await;
    daemon.ended(&id).await;

    assert_eq!(forge.branches(), ["main"]);
    let branch = branch_of(&daemon, &id).await;
    assert_eq!(branch["guarded_paths"], json!([".GitHub/workflows/ci.yml"]), "{branch}");
    let consent = json!({ "head_sha": branch["head_sha"] });
    let held = post(&daemon, &id, "publish", consent).await.expect(409).json();
    assert_eq!(held["error"]["code"], "guarded_paths", "{held}");
    let consent = json!({ "head_sha": branch["head_sha"], "accept_guarded_paths": true });
    post(&daemon, &id, "publish", consent).await.expect(200);
    assert_eq!(forge.branches().len(), 2);
}

#[tokio::test]
async fn a_push_elsewhere_is_refused_with_advice() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let script = "cd repo && echo four >> text && git commit -qam x && ! git push origin HEAD:refs/heads/main 2> ../said && \
                  cat ../said && ! git fetch origin 2> ../said && cat ../said";

    let id = daemon.create(on_repository(script, json!({ "ticket": "ABC-2" }))).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());

    let said = forge.sluice.command(["logs", &id]).finish().await.expect(0).stdout;
    assert!(said.contains("feature/ABC-2"), "it names the branch that is allowed: {said}");
    assert_eq!(forge.branches(), ["main"]);
}

#[tokio::test]
async fn planted_programs_do_not_run_on_the_host() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let canary = forge.sluice.dir().join("canary");
    let touch = format!("touch {}", canary.display());
    let script = format!(
        "cd repo && git config core.fsmonitor '{touch}' && git config filter.z.clean '{touch}' && \
         echo '* filter=z diff=z' > .gitattributes && git config diff.z.textconv '{touch}' && \
         mkdir -p .git/hooks && printf '#!/bin/sh\\n{touch}\\n' > .git/hooks/post-commit && chmod +x .git/hooks/post-commit && \
         mkdir nested && git init -q nested && git -C nested config core.fsmonitor '{touch}' && \
         echo four >> text && git -c core.fsmonitor= -c filter.z.clean=cat add text && \
         git -c core.fsmonitor= -c core.hooksPath=/dev/null commit -qm x"
    );

    let id = daemon.create(on_repository(&script, json!({}))).await;
    daemon.ended(&id).await;

    let branch = branch_of(&daemon, &id).await;
    assert_eq!(branch["commits"], 1, "{branch}\n{}", daemon.process().stderr());
    daemon.get(&format!("/api/v1/sandboxes/{id}/git/diff")).await.expect(200);
    assert!(!canary.exists(), "a program of the sandbox ran on the host");
}

#[tokio::test]
async fn a_repository_belongs_to_its_owner() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let id = daemon.create(on_repository(COMMIT_AND_PUSH, json!({}))).await;
    daemon.ended(&id).await;
    let plain = daemon.create(shell("true")).await;

    let missing = daemon.get(&format!("/api/v1/sandboxes/{plain}/git")).await.expect(404);
    assert_eq!(missing.json()["error"]["code"], "no_repository");
    let without = shell("true");
    let without = json!({ "argv": without["argv"], "model": "m", "repository": {} });
    let refused = daemon.request("POST", "/api/v1/sandboxes", &without).await.expect(422).json();
    assert_eq!(refused["error"]["details"]["field"], "project", "{refused}");
    let token = http::token(&forge.sluice, "mallory", "owner", "acct-1").await;
    for path in ["git", "git/commits", "git/diff", "git/pr"] {
        let path = format!("/api/v1/sandboxes/{id}/{path}");
        let seen = http::send(&http::address(&daemon), &token, "GET", &path, &Value::Null).await;
        assert_eq!(seen.status, 404, "{}", seen.text);
    }
}

#[tokio::test]
async fn the_commands_publish_over_the_api() {
    let forge = Forge::new("merge = true").await;
    let daemon = forge.sluice.serve().await;
    let id = daemon.create(on_repository(COMMIT_AND_PUSH, json!({ "ticket": "ABC-3" }))).await;
    daemon.ended(&id).await;
    let head = branch_of(&daemon, &id).await["head_sha"].as_str().expect("it has a head").to_owned();

    let shown = daemon.command(["diff", &id, "--json"]).finish().await.expect(0).value();
    assert_eq!((&shown["head"], &shown["files"][0]["path"]), (&json!(head), &json!("text")), "{shown}");
    let patch = daemon.command(["diff", &id]).finish().await.expect(0).stdout;
    assert!(patch.contains("+four"), "{patch}");
    let pushed = daemon.command(["push", &id, "--head", &head, "--json"]).finish().await.expect(0).value();
    assert_eq!(pushed["branch"], json!("feature/ABC-3"), "{pushed}");
    let opened = daemon.command(["pr", &id, "--json"]).finish().await.expect(0).value();
    assert_eq!(opened["pull_request"], 1, "{opened}");
    // Root is the owner of the run: another person merges it.
    let own = daemon.command(["merge", &id, "--head", &head]).finish().await;
    assert!(own.stderr.contains("second_person"), "{}", own.stderr);

    let control = std::fs::read_to_string(forge.sluice.state().join("audit/control.jsonl")).expect("it is there");
    for operation in ["git.publish", "git.pull_request"] {
        assert!(control.contains(&format!(r#""operation":"{operation}""#)), "{operation}: {control}");
    }
    let kinds = types(&daemon.events(&id).await);
    for kind in ["git.published", "git.pull_request"] {
        assert!(kinds.iter().any(|found| found == kind), "{kind}: {kinds:?}");
    }
}

/// Commits a change without a push, and waits for the file `go`.
pub(super) const COMMIT_AND_WAIT: &str = "cd repo && echo four >> text && git commit -qam 'Add a line' && echo five >> text && touch ../begun && \
                               while [ ! -e ../go ]; do sleep 0.05; done";

/// Waits until the program of a run has made the file `begun`.
pub(super) async fn has_begun(forge: &Forge, id: &str) {
    let begun = forge.sluice.state().join("runs").join(format!("{id}.0")).join("work/begun");
    assert!(poll(PATIENCE, async || begun.exists()).await);
}

#[tokio::test]
async fn a_killed_daemon_loses_no_commits() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let script = format!(
        "{COMMIT_AND_WAIT}; git commit -qam 'Add another' && until git push -q; do sleep 0.1; done && echo six >> text && git commit -qam 'Add a third'"
    );
    let id = daemon.create(on_repository(&script, json!({ "ticket": "ABC-4", "pull_request": true }))).await;
    has_begun(&forge, &id).await;

    daemon.kill().await;
    go(&forge.sluice, &id);
    let daemon = forge.sluice.serve().await;
    let run = daemon.ended(&id).await;

    assert_eq!(
        (&run["outcome"], &run["attempt"]),
        (&json!("success"), &json!(0)),
        "{run}\n{}",
        daemon.process().stderr()
    );
    let branch = branch_of(&daemon, &id).await;
    assert_eq!((&branch["commits"], &branch["published_sha"]), (&json!(3), &branch["head_sha"]), "{branch}");
    assert_eq!(branch["pull_request"]["number"], 1, "{branch}");
    assert_eq!(forge.file("feature/ABC-4", "text"), "one\ntwo\nthree\nfour\nfive\nsix\n");
    let events = daemon.events(&id).await;
    let received: Vec<_> = events.iter().filter(|event| event["event_type"] == "git.received").collect();
    assert_eq!(received.len(), 1, "{received:?}");
    assert_eq!(received[0]["event_data"]["is_complete"], true, "{received:?}");
    assert!(forge.sluice.containers().await.is_empty());
    assert!(!forge.kept(&id).exists(), "all is out");
}

/// The forge is watched, so that the daemon is killed between the publication and what follows it.
#[tokio::test]
async fn publication_goes_on_after_a_kill() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let id = daemon.create(on_repository(COMMIT_AND_PUSH, json!({ "ticket": "ABC-5", "pull_request": true }))).await;
    let published = forge.bare.join("refs/heads/feature/ABC-5");
    assert!(poll(PATIENCE, async || published.exists()).await);

    daemon.kill().await;
    let daemon = forge.sluice.serve().await;
    let run = daemon.ended(&id).await;

    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    assert_eq!(forge.branches(), ["feature/ABC-5", "main"]);
    let branch = branch_of(&daemon, &id).await;
    assert_eq!((&branch["pull_request"]["number"], &branch["last_error"]), (&json!(1), &Value::Null), "{branch}");
    let kinds = types(&daemon.events(&id).await);
    for kind in ["git.received", "git.published", "git.pull_request"] {
        assert_eq!(kinds.iter().filter(|found| *found == kind).count(), 1, "{kind}: {kinds:?}");
    }
}

#[tokio::test]
async fn a_branch_tells_how_far_its_base_has_moved() {
    let forge = Forge::new("").await;
    let daemon = forge.sluice.serve().await;
    let id = daemon.create(on_repository(COMMIT_AND_PUSH, json!({}))).await;
    daemon.ended(&id).await;
    let distance = async || {
        let branch = branch_of(&daemon, &id).await;
        ["ahead", "behind", "diverged"].map(|name| branch[name].clone())
    };
    assert_eq!(distance().await, [json!(1), json!(0), json!(false)]);

    let commit = git(&forge.bare, &["commit-tree", "main^{tree}", "-p", "main", "-m", "Elsewhere"]);
    git(&forge.bare, &["update-ref", "refs/heads/main", commit.trim()]);
    assert_eq!(distance().await[1], json!(0), "a look fetches nothing");
    let next = daemon.create(on_repository("true", json!({}))).await;
    daemon.ended(&next).await;

    assert_eq!(distance().await, [json!(1), json!(1), json!(true)]);
    let other = branch_of(&daemon, &next).await;
    assert_eq!([&other["ahead"], &other["behind"], &other["diverged"]], [&json!(0), &json!(0), &json!(false)]);
}

#[tokio::test]
async fn large_uncommitted_files_are_told_in_events() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let script = format!("{COMMIT_AND_PUSH} && head -c 110000000 /dev/zero > result.bin");

    let id = daemon.create(on_repository(&script, json!({}))).await;
    let run = daemon.ended(&id).await;

    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    let data = received(&daemon, &id).await;
    assert_eq!((&data["is_complete"], &data["has_uncommitted"]), (&json!(true), &json!(false)), "{data}");
    assert!(data["uncommitted_fault"].as_str().is_some_and(|fault| fault.contains("object ")), "{data}");
}

#[tokio::test]
async fn two_runs_at_once_have_their_own_branches() {
    let forge = Forge::new("publish = 'auto'").await;
    let daemon = forge.sluice.serve().await;
    let repository = || json!({ "ticket": "ABC-6", "pull_request": true });
    let (first, second) = tokio::join!(
        daemon.create(on_repository(COMMIT_AND_WAIT, repository())),
        daemon.create(on_repository(COMMIT_AND_WAIT, repository()))
    );
    for id in [&first, &second] {
        has_begun(&forge, id).await;
    }
    for id in [&first, &second] {
        go(&forge.sluice, id);
    }
    let mut published = Vec::new();
    for id in [&first, &second] {
        let run = daemon.ended(id).await;
        assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
        let branch = branch_of(&daemon, id).await;
        let name = branch["branch"].as_str().expect("it has a name").to_owned();
        assert_eq!(json!(git(&forge.bare, &["rev-parse", &name]).trim()), branch["head_sha"], "{branch}");
        published.push(name);
    }
    published.sort();
    assert_eq!(published, ["feature/ABC-6", "feature/ABC-6-2"]);
    assert_eq!(forge.branches(), ["feature/ABC-6", "feature/ABC-6-2", "main"]);
}
