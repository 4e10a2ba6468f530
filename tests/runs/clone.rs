//! `--repo URL`: a run works on a clone, and only its branch comes out, by a push or at the end of the run.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use sluice_testkit::Sluice;
use sluice_testkit::controller::{RunReport, unique_run_id};
use sluice_testkit::engine::{Hold, docker, exists, lines};

use crate::agents::without_calls;
use crate::repo::{git, in_repository, repository};
use crate::serve::commands::faults;

pub(crate) const COMMIT: &str = "echo four >>text && git add text && git commit --quiet --message 'Add a line'";

/// A bare repository with one commit on `main`.
pub(crate) fn forge(sluice: &Sluice) -> PathBuf {
    let work = repository(sluice, "origin", 0);
    let bare = sluice.dir().join("forge.git");
    git(&work, &["clone", "--quiet", "--bare", &work.display().to_string(), &bare.display().to_string()]);
    bare
}

pub(crate) fn branches(bare: &Path) -> Vec<String> {
    let text = git(bare, &["for-each-ref", "--format=%(refname)"]);
    text.lines().map(str::to_owned).collect()
}

async fn run(sluice: &Sluice, bare: &Path, flags: &[&str], script: &str, code: i32) -> (RunReport, Value, String) {
    let url = format!("file://{}#main", bare.display());
    let run = sluice.run(["--json", "--repo", &url]).args(flags.iter().copied()).args(in_repository(script));
    let done = run.finish().await.expect(code);
    let mut report = done.json();
    let git = report.git.take().unwrap_or_default();
    (report, git, done.stderr)
}

#[tokio::test]
async fn a_pushed_branch_waits_for_a_person() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!("git status --short; {COMMIT} && git push --quiet && git log --format=%an -1");

    let (report, out, stderr) = run(&sluice, &bare, &["--ticket", "AB-1", "--title", "Add a line"], &script, 0).await;

    assert!(report.stdout.starts_with("Sluice run "), "{}", report.stdout);
    assert_eq!((&out["branch"], &out["base_branch"]), (&"feature/AB-1-add-a-line".into(), &"main".into()), "{out}");
    assert_eq!((&out["ahead"], &out["files"], &out["pushes"]), (&1.into(), &1.into(), &1.into()), "{out}");
    assert_eq!((&out["published"], &out["uncommitted"]), (&Value::Null, &Value::Null), "{out}");
    assert_eq!(branches(&bare), ["refs/heads/main"], "nothing leaves without a person");
    let head = out["head"].as_str().expect("a commit");
    assert!(stderr.contains(&format!("sluice push {} --head {head}", report.run_id)), "{stderr}");

    let shown = sluice.command(["diff", &report.run_id]).finish().await.expect(0);
    assert!(shown.stdout.contains("Add a line") && shown.stdout.contains("+four"), "{}", shown.stdout);
    let base = out["base"].as_str().expect("a commit");
    let moved = sluice.command(["push", &report.run_id, "--head", base]).finish().await.expect(1);
    assert!(moved.stderr.contains(head), "{}", moved.stderr);
    sluice.command(["push", &report.run_id, "--head", head]).finish().await.expect(0);
    assert_eq!(branches(&bare), ["refs/heads/feature/AB-1-add-a-line", "refs/heads/main"]);
    let opened = sluice.command(["pr", &report.run_id, "--json"]).finish().await.expect(0).value();
    assert_eq!(opened["pull_request"], 1, "{opened}");
}

#[tokio::test]
async fn commits_come_out_without_a_push() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!("echo KEY=canary >.env; {COMMIT}; echo five >>text; rm gone");

    let (_, out, stderr) = run(&sluice, &bare, &["--pr"], &script, 0).await;

    assert_eq!((&out["ahead"], &out["pushes"], &out["files"]), (&1.into(), &0.into(), &1.into()), "{out}");
    assert!(out["uncommitted"].is_string() && stderr.contains("were not committed"), "{out}");
    assert_eq!((&out["pr_failed"], &out["held"]), (&false.into(), &Value::Null), "{out}");
    let branch = out["published"].as_str().expect("a branch");
    assert_eq!(branches(&bare), ["refs/heads/main".to_owned(), format!("refs/heads/{branch}")]);
    assert_eq!(git(&bare, &["show", &format!("{branch}:text")]), "one\ntwo\nthree\nfour\n");
    assert!(out["pull_request"].is_string(), "{out}");
    let objects = git(&bare, &["cat-file", "--batch-all-objects", "--batch", "--buffer"]);
    assert!(!objects.contains("KEY=canary") && !objects.contains("five"), "what is not committed stays here");
}

/// Bug: branch and uncommitted work were one pack, so one large build result refused the commits too.
#[tokio::test]
async fn large_uncommitted_files_leave_the_commits_alone() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!("{COMMIT}; head -c 110000000 /dev/zero >result.bin");

    let (_, out, stderr) = run(&sluice, &bare, &["--publish", "auto"], &script, 0).await;

    assert_eq!((&out["ahead"], &out["uncommitted"]), (&1.into(), &Value::Null), "{out}");
    assert!(stderr.contains("what was not committed did not come out: object "), "{stderr}");
    assert!(out["published"].is_string(), "{out}");
}

/// Bug: a local branch behind what the run had pushed was refused as a rewritten one.
#[tokio::test]
async fn a_local_branch_behind_its_pushes_is_no_fault() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!(
        "{COMMIT}; git push -q; git checkout -q -b mine; {COMMIT}; git push -q origin HEAD:feature/AB-3; echo five >>text"
    );

    let (_, out, _) = run(&sluice, &bare, &["--ticket", "AB-3"], &script, 0).await;

    assert_eq!((&out["ahead"], &out["pushes"]), (&2.into(), &2.into()), "{out}");
    assert!(out["uncommitted"].is_string(), "{out}");
}

/// Bug: the new run had no clone.
#[tokio::test]
async fn a_rerun_has_a_clone_of_its_own() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let flags = ["--ticket", "AB-4", "--type", "fix", "--publish", "auto"];
    let (report, first, _) = run(&sluice, &bare, &flags, COMMIT, 0).await;
    assert_eq!(first["published"], "fix/AB-4", "{first}");

    let mut again = sluice.command(["rerun", "--json", &report.run_id]).finish().await.expect(0).json();

    let second = again.git.take().expect("it has a clone");
    assert_eq!((&second["published"], &second["base_branch"]), (&"fix/AB-4-2".into(), &"main".into()), "{second}");
    assert_eq!(branches(&bare), ["refs/heads/fix/AB-4", "refs/heads/fix/AB-4-2", "refs/heads/main"]);
}

#[tokio::test]
async fn a_change_of_ci_needs_a_person() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = "mkdir -p .GitHub/workflows && echo x >.GitHub/workflows/ci.yml && git add -A && git commit -qm x";

    let (report, out, stderr) = run(&sluice, &bare, &["--publish", "auto"], script, 74).await;

    assert_eq!(branches(&bare), ["refs/heads/main"]);
    let held = out["held"].as_str().expect("a reason");
    let head = out["head"].as_str().expect("a commit");
    assert!(held.contains(".GitHub/workflows/ci.yml"), "{held}");
    assert!(stderr.contains(&format!("sluice push {} --head {head} --accept-guarded", report.run_id)), "{stderr}");
    let push = ["push", &report.run_id, "--head", head];
    sluice.command(push).finish().await.expect(1);
    sluice.command(push).args(["--accept-guarded"]).finish().await.expect(0);
    assert_eq!(branches(&bare).len(), 2);
}

#[tokio::test]
async fn a_push_elsewhere_names_the_allowed_branch() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!(
        "{COMMIT}; git push origin HEAD:refs/heads/main; git push origin --delete main; git fetch; git push -q; \
         git commit -q --amend -m other; git push --force"
    );

    // A branch that was rewritten after its push does not come out at the end either.
    let (report, out, _) = run(&sluice, &bare, &["--ticket", "AB-2"], &format!("{script}; true"), 74).await;

    assert!(report.error_message.expect("an error").contains("pushed commits stay"));
    assert!(report.workspace.is_some(), "what did not come out is kept");
    let said = report.stderr;
    assert!(said.contains("feature/AB-2"), "{said}");
    assert!(said.contains("this repository takes a push only"), "{said}");
    assert_eq!(out["pushes"], 1, "{out}\n{said}");
    assert_eq!(branches(&bare), ["refs/heads/main"]);
}

/// Each refused push counts. The sidecar refuses some of them earlier, since it takes ten requests a second.
#[tokio::test]
async fn git_shows_that_a_run_pushes_too_often() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!(
        "{COMMIT}; n=0; while [ $n != 300 ]; do git push -q origin HEAD:refs/heads/main >../said 2>&1; \
         grep -q 'within an hour' ../said && break; grep -q 429 ../said && sleep 1; n=$((n + 1)); done; cat ../said"
    );

    let (report, out, _) = run(&sluice, &bare, &["--ticket", "AB-8", "--timeout", "10m"], &script, 0).await;

    let said = &report.stdout;
    assert!(said.contains("remote: this run has pushed 30 times within an hour"), "{said}");
    assert!(said.contains("they are collected at the end of the run"), "{said}");
    assert_eq!((&out["ahead"], &out["pushes"]), (&1.into(), &0.into()), "{out}");
}

#[tokio::test]
async fn nothing_in_the_clone_runs_on_the_host() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let canary = sluice.dir().join("canary");
    let evil = format!("#!/bin/sh\\ntouch {}\\ncat\\n", canary.display());
    let script = format!(
        "printf '{evil}' >evil.sh && chmod 755 evil.sh && echo '* filter=z diff=z' >.gitattributes && \
         for c in core.fsmonitor filter.z.clean filter.z.smudge diff.z.textconv core.sshCommand uploadpack.packObjectsHook; do \
         git config $c /workspace/repo/evil.sh; done; \
         for h in pre-commit post-commit pre-push reference-transaction; do cp evil.sh .git/hooks/$h; done; \
         git config --add include.path /etc/passwd.none; git init -q nested && git -C nested config core.fsmonitor ../evil.sh; \
         {COMMIT}; true"
    );

    let (_, out, _) = run(&sluice, &bare, &[], &script, 0).await;

    assert!(!canary.exists(), "the host has run a program of the sandbox");
    assert!(out["head"].is_string(), "{out}");
}

#[tokio::test]
async fn a_clone_that_is_gone_keeps_what_was_pushed() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!("{COMMIT} && git push --quiet; cd ..; rm -rf repo; ln -s /etc repo");

    let (report, out, _) = run(&sluice, &bare, &[], &script, 74).await;

    assert_eq!((&out["ahead"], &out["pushes"]), (&1.into(), &1.into()), "{out}");
    assert!(report.error_message.expect("an error").contains("/workspace/repo is missing"));
    assert!(report.workspace.is_some(), "what did not come out is kept");
}

#[tokio::test]
async fn commits_have_notes_that_stay_here() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let script = format!("{COMMIT} && git push --quiet; {COMMIT}");

    let (report, out, _) = run(&sluice, &bare, &["--publish", "auto"], &script, 0).await;

    let verified = sluice.command(["audit", "verify", &report.run_id, "--json"]).finish().await.expect(0).value();
    let audit_head = verified["files"][0]["detail"]["head"].as_str().expect("a hash");
    let own = sluice.state().join("git/runs").join(format!("{}.git", report.run_id));
    let seen = |words: &[&str]| {
        let ran = Command::new("git").args(["-c", "safe.directory=*", "-C"]).arg(&own).args(words).output();
        let ran = ran.expect("git is there");
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    let [base, head] = ["base", "head"].map(|name| out[name].as_str().expect("a commit"));
    let commits = seen(&["rev-list", &format!("{base}..{head}")]);
    assert_eq!(commits.lines().count(), 2, "{commits}");
    for commit in commits.lines() {
        let note = seen(&["notes", "--ref=sluice", "show", commit]);
        let lines: Vec<_> = note.lines().collect();
        assert_eq!(lines[0], format!("Sluice-Run: {}.0", report.run_id));
        assert_eq!(lines[1], format!("Sluice-Audit-Head: {audit_head}"));
    }
    assert_eq!(git(&bare, &["for-each-ref", "refs/notes/"]), "");
    assert_eq!(branches(&bare).len(), 2);
}

#[tokio::test]
async fn submodules_and_lfs_are_left_out_on_request() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let work = sluice.dir().join("origin");
    std::fs::write(work.join(".gitmodules"), "[submodule \"x\"]\n\tpath = x\n\turl = https://forge.test/x\n")
        .expect("it is ours");
    std::fs::write(work.join(".gitattributes"), "*.bin filter=lfs\n").expect("it is ours");
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "--message", "Add a submodule"]);
    git(&work, &["push", "--quiet", &bare.display().to_string(), "HEAD:main"]);
    let repo = bare.display().to_string();
    let start = async |settings: &str, code| {
        let project = format!("[[projects]]\nname = 'site'\nowners = ['root']\nrepository = '{repo}'\n{settings}\n");
        sluice.file("sluice.toml", &project);
        let url = format!("file://{repo}");
        sluice.run(["--repo", &url, "--", "cat", "repo/.gitmodules"]).finish().await.expect(code)
    };

    for (settings, member) in [("", "without_submodules = true"), ("without_submodules = true", "without_lfs = true")] {
        let refused = start(settings, 125).await;
        assert!(refused.stderr.contains(member), "{}", refused.stderr);
    }
    let ran = start("without_submodules = true\nwithout_lfs = true", 0).await;
    assert!(ran.stdout.contains("path = x"), "{}", ran.stdout);
}

#[tokio::test]
async fn a_killed_controller_loses_no_commits() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let url = format!("file://{}#main", bare.display());
    for (name, flags, is_kept) in [("plain", &["--ticket", "AB-7"][..], false), ("out", &["--out", "result"][..], true)]
    {
        let run_id = unique_run_id(name);
        let script = format!("{COMMIT}; echo five >>text; echo ready; sleep 600");
        let run = sluice.run(["--run-id", &run_id, "--repo", &url]).args(flags.iter().copied());
        let live = run.args(in_repository(&script)).spawn();
        live.prints("ready").await;
        live.kill().await.expect(-9);

        let swept = sluice.command(["sweep", "--json"]).finish().await.expect(0).value();
        let taken = &swept["leftovers"][0];
        assert_eq!((&taken["commits"], taken["workspace"].is_string()), (&1.into(), is_kept), "{swept}");
        let found = faults(&[("sweep", swept.clone())]).await;
        assert!(found.is_empty(), "{found:?}");
        let shown = sluice.command(["diff", &run_id, "--json"]).finish().await.expect(0).value();
        let head = shown["head"].as_str().expect("a commit");
        sluice.command(["push", &run_id, "--head", head]).finish().await.expect(0);
        let branch = shown["branch"].as_str().expect("a branch");
        assert_eq!(git(&bare, &["show", &format!("{branch}:text")]), "one\ntwo\nthree\nfour\n");
    }
    assert_eq!(sluice.leftovers().await, []);
}

/// Bug: a container of another program was removed, since it had the name of the one that collects commits.
#[tokio::test]
async fn a_container_of_another_program_stays() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let url = format!("file://{}#main", bare.display());
    let run_id = unique_run_id("taken");
    let other = format!("sluice-{run_id}.0-commits");
    lines(["create", "--name", &other, "sluice-runtime:latest", "true"]).await;

    let run = sluice.run(["--run-id", &run_id, "--json", "--repo", &url]).args(in_repository(COMMIT));
    let done = run.finish().await;

    let stays = exists(&other).await;
    docker(["rm", "--force", &other]).await;
    assert!(stays, "{}", done.stderr);
    let report = done.expect(74).json();
    assert_eq!(report.error_code.as_deref(), Some("output_failed"), "{report:?}");
}

/// The container of the run is removed by then: the marker in its directory says that there are commits to collect.
#[tokio::test]
async fn a_kill_during_the_collection_loses_no_commits() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let url = format!("file://{}#main", bare.display());
    let run_id = unique_run_id("collecting");
    let hold = Hold::request("-commits");
    let run = sluice.run(["--run-id", &run_id, "--repo", &url]).args(in_repository(COMMIT));
    let live = run.env("SLUICE_DOCKER_HOST", hold.host()).spawn();
    hold.held().await;
    live.kill().await.expect(-9);

    let swept = sluice.command(["sweep", "--json"]).finish().await.expect(0).value();
    assert_eq!(swept["leftovers"][0]["commits"], 1, "{swept}");
    let shown = sluice.command(["diff", &run_id, "--json"]).finish().await.expect(0).value();
    let head = shown["head"].as_str().expect("a commit");
    sluice.command(["push", &run_id, "--head", head]).finish().await.expect(0);
    let opened = sluice.command(["pr", &run_id, "--json"]).finish().await.expect(0).value();
    assert_eq!(opened["pull_request"], 1, "{opened}");
    assert_eq!(sluice.leftovers().await, []);
}

#[tokio::test]
async fn a_patch_applies_to_a_work_tree() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let work = sluice.dir().join("origin");
    let file = sluice.dir().join("change.diff");
    let patch = file.display().to_string();

    let (report, _, _) = run(&sluice, &bare, &["--patch", &patch], COMMIT, 0).await;

    assert!(std::fs::read_to_string(&file).expect("it was written").contains("+four"));
    let to = work.display().to_string();
    let apply = ["apply", &report.run_id, "--to", &to];
    let shown = sluice.command(apply).finish().await.expect(0);
    assert!(shown.stdout.contains("+four") && shown.stderr.contains("nothing was changed"), "{}", shown.stderr);
    assert_eq!(git(&work, &["status", "--short"]), "");
    sluice.command(apply).args(["--yes"]).finish().await.expect(0);
    assert_eq!(git(&work, &["status", "--short"]), "M  text\n");
    let again = sluice.command(apply).args(["--yes"]).finish().await.expect(1);
    assert!(again.stderr.contains("git apply"), "{}", again.stderr);
}
